"""The output of `deltakwt tune`: JSON, figures, profiles and tables; some is shared with sweep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltakwt.cli.common import console, fail, say, table
from deltakwt.core.errors import MissingExtra

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.evaluate.pool import Pool
    from deltakwt.tune.goals import Choice
    from deltakwt.tune.tuning import TuningOptions, TuningResult


def output_folder(out: Path | None, command: str, model: str) -> Path:
    """Return the folder of `--out`, by default named after command and model."""
    from deltakwt.provenance import model_name

    return out or Path(f"{command}-{model_name(model)}")


def list_failed(pool: Pool) -> None:
    """Print a line for every clip that could not be read."""
    for _, reason in pool.failed:
        fail(f"left out: {reason}")


def tuning_document(
    model: Model, pool: Pool, options: TuningOptions, outcome: TuningResult
) -> dict[str, Any]:
    """Return the content of front.json."""
    from deltakwt.provenance import command, machine

    return {
        "model": model.name,
        "search": {"data": pool.name, "clips": pool.counts(), "trials": outcome.trials},
        "test": {"data": outcome.test.name, "clips": outcome.test.counts()},
        "mix": str(options.mix),
        "cost_mix": str(options.cost_mix),
        "seed": options.seed,
        "machine": machine(model.engine.isa),
        "command": command(),
        "profiles": {c.name: {**c.setting.to_json(), **c.to_json()} for c in outcome.choices},
        "missed": outcome.missed,
        "cost_model": None if outcome.cost is None else outcome.cost.to_json(),
        "front": [
            {**c.measurement.setting.to_json(), **c.measurement.to_json()}
            for c in outcome.candidates
        ],
    }


def save_tuning(
    folder: Path, model: Model, outcome: TuningResult, document: dict[str, Any], write: bool
) -> None:
    """Write front.json, the figures, and profiles.json (in the model folder or in `folder`)."""
    from deltakwt.tune.goals import add_profiles, write_profiles
    from deltakwt.weights.registry import resolve

    write_json(folder / "front.json", document)
    _plot_tuning(folder, model, outcome)
    facts = {
        "data": document["test"]["data"],
        "searched": document["search"]["data"],
        **{key: document[key] for key in ("mix", "cost_mix", "seed", "machine")},
    }
    profiles = [choice.profile(facts, document["command"]) for choice in outcome.choices]
    home = resolve(model.name)
    if write and home.is_dir():
        write_profiles(home, profiles)
    else:
        add_profiles(folder, profiles)  # the command holds the lock of this folder already


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document whole or not at all."""
    from deltakwt.files import write_atomically, writing

    with writing(path):
        write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


def _plot_tuning(folder: Path, model: Model, outcome: TuningResult) -> None:
    from deltakwt.provenance import model_name
    from deltakwt.tune.plots import plot_front, plot_parallel, plot_sensitivity

    measured = [candidate.measurement for candidate in outcome.candidates]
    name = model_name(model.name)
    try:
        plot_front(folder / "front.png", measured, outcome.choices, f"{name}: the front")
        plot_parallel(
            folder / "thresholds.png", measured, model.config.layers, f"{name}: thresholds"
        )
        if outcome.slopes is not None:
            plot_sensitivity(folder / "sensitivity.png", outcome.slopes, f"{name}: sensitivity")
    except MissingExtra as error:
        fail(str(error))


def show_tuning(outcome: TuningResult, pool: Pool, options: TuningOptions, folder: Path) -> None:
    """Print the front and the chosen settings as tables."""
    out = console()
    if outcome.cost is not None:
        say(
            f"Cost model of the search: {100 * outcome.cost.error:.1f}% off on settings that its"
            f" fit did not use, of {outcome.cost.settings} that were timed"
        )
    front = table(
        f"The front on {len(pool)} clips of {pool.name} ({outcome.trials} trials)",
        "MACs",
        "MHSA",
        "accuracy",
        "loss",
        "front end",
    )
    for candidate in outcome.candidates:
        m = candidate.measurement
        front.add_row(
            f"{m.macs:.2f}%",
            f"{m.mhsa:.2f}%",
            f"{m.accuracy:.2f}%",
            f"{m.loss:+.2f} ± {1.96 * m.loss_error:.2f}",
            str(m.setting.front_end),
        )
    out.print(front)
    chosen = table(
        f"Chosen, on {len(outcome.test)} clips of {outcome.test.name} that the search did not use"
        f" (mix {options.mix}; cost {options.cost_mix})",
        "profile",
        "accuracy (95%)",
        "loss (95%)",
        "MACs",
        "MHSA",
        "ms (dense)",
        "front end",
    )
    for choice in outcome.choices:
        chosen.add_row(*_row(choice))
    out.print(chosen)
    if len(outcome.test.counts()) > 1:
        out.print(_group_table(outcome.choices))
    out.print(f"Study, front.json and figures: {folder}")


def _row(choice: Choice) -> list[str]:
    test = choice.test
    low, high = choice.accuracy_interval
    least, most = choice.loss_interval
    return [
        choice.name,
        f"{test.accuracy:.2f}% ({low:.2f} to {high:.2f})",
        f"{test.loss:+.2f} ({least:+.2f} to {most:+.2f})",
        f"{test.macs:.2f}%",
        f"{test.mhsa:.2f}%",
        f"{choice.ms:.3f} ({choice.dense_ms:.3f})",
        str(test.setting.front_end),
    ]


def _group_table(choices: Sequence[Choice]) -> Any:
    groups = choices[0].test.by_group()
    rows = table(
        "Accuracy in each group, in percent",
        "group",
        "clips",
        "dense",
        *(choice.name for choice in choices),
    )
    for group, dense in groups.items():
        mine = [f"{choice.test.by_group()[group]['accuracy']:.2f}" for choice in choices]
        rows.add_row(group, str(dense["clips"]), f"{dense['dense_accuracy']:.2f}", *mine)
    return rows
