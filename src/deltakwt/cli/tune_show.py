"""What `deltakwt tune` and `deltakwt sweep` leave behind: JSON, pictures, profiles, tables."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltakwt.cli.common import console, fail, table
from deltakwt.core.errors import DeltakwtError, MissingExtra

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.tune.confirm import Choice
    from deltakwt.tune.measure import Measured
    from deltakwt.tune.pool import Pool
    from deltakwt.tune.run import Outcome, Plan


def make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"--out {folder}: cannot be made: {error.strerror}") from None


def command() -> str:
    """As it was typed, but for a database's password."""
    from deltakwt.tune.storage import without_password

    return shlex.join(["deltakwt", *map(without_password, sys.argv[1:])])


def document(model: Model, pool: Pool, plan: Plan, outcome: Outcome) -> dict[str, Any]:
    from deltakwt.provenance import machine

    return {
        "model": model.name,
        "search": {"data": pool.name, "clips": pool.counts(), "trials": outcome.trials},
        "test": {"data": outcome.test.name, "clips": outcome.test.counts()},
        "mix": str(plan.mix),
        "cost_mix": str(plan.cost_mix),
        "seed": plan.seed,
        "machine": machine(model.engine.isa),
        "command": command(),
        "profiles": {c.name: {**c.point.to_json(), **c.to_json()} for c in outcome.choices},
        "missed": outcome.missed,
        "front": [
            {**c.measured.point.to_json(), **c.measured.to_json()} for c in outcome.candidates
        ],
    }


def keep(
    folder: Path, model: Model, outcome: Outcome, plan: Plan, document: dict[str, Any], write: bool
) -> None:
    """front.json, pictures, and the profiles: in the model folder, or beside the study."""
    from deltakwt.tune.profiles import profile_of, write_profiles
    from deltakwt.weights.registry import resolve

    write_json(folder / "front.json", document)
    _plot(folder, model, outcome)
    facts = {
        "data": document["test"]["data"],
        "searched": document["search"]["data"],
        "mix": str(plan.mix),
        "cost_mix": str(plan.cost_mix),
        "seed": plan.seed,
        "machine": document["machine"],
    }
    profiles = [profile_of(choice, facts, document["command"]) for choice in outcome.choices]
    home = resolve(model.name)
    write_profiles(home if write and home.is_dir() else folder, profiles)


def write_json(path: Path, document: dict[str, Any]) -> None:
    from deltakwt.weights.folder import write_atomically

    try:
        write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from None


def _plot(folder: Path, model: Model, outcome: Outcome) -> None:
    from deltakwt.tune.plots import plot_front, plot_parallel, plot_sensitivity

    measured = [candidate.measured for candidate in outcome.candidates]
    name = Path(model.name).name
    try:
        plot_front(folder / "front.png", measured, outcome.choices, f"{name}: the front")
        plot_parallel(
            folder / "thresholds.png", measured, model.config.layers, f"{name}: thresholds"
        )
        if outcome.slopes is not None:
            plot_sensitivity(folder / "sensitivity.png", outcome.slopes, f"{name}: sensitivity")
    except MissingExtra as error:
        fail(str(error))


def plot_sweep(folder: Path, measured: list[Measured], title: str) -> None:
    from deltakwt.tune.plots import plot_front

    try:
        plot_front(folder / "sweep.png", measured, [], title)
    except MissingExtra as error:
        fail(str(error))


def show(outcome: Outcome, pool: Pool, plan: Plan, folder: Path) -> None:
    out = console()
    front = table(
        f"The front on {len(pool)} clips of {pool.name} ({outcome.trials} trials)",
        "MACs",
        "MHSA",
        "accuracy",
        "loss",
        "front end",
    )
    for candidate in outcome.candidates:
        m = candidate.measured
        front.add_row(
            f"{m.macs:.2f}%",
            f"{m.mhsa:.2f}%",
            f"{m.accuracy:.2f}%",
            f"{m.loss:+.2f} ± {1.96 * m.loss_error:.2f}",
            str(m.point.steady),
        )
    out.print(front)
    chosen = table(
        f"Chosen, on {len(outcome.test)} clips of {outcome.test.name} that the search never saw"
        f" (mix {plan.mix}; cost {plan.cost_mix})",
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
    out.print(f"Study, front.json and pictures: {folder}")


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
        str(test.point.steady),
    ]


def show_sweep(title: str, full: list[Measured]) -> None:
    rows = table(title, "thresholds", "accuracy", "loss", "MHSA", "MACs", "MHSA speed-up")
    for m in full:
        rows.add_row(
            str(m.point.thresholds),
            f"{m.accuracy:.2f}%",
            f"{m.loss:+.2f}",
            f"{m.mhsa:.2f}%",
            f"{m.macs:.2f}%",
            f"{100 / m.mhsa:.1f}x",
        )
    console().print(rows)
