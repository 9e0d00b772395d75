"""`deltakwt sweep`: repeat the threshold sweep of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import console, fail, load_model, print_json, progress, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    ModelOption,
    SeedOption,
    claim_folder,
)
from deltakwt.cli.tune_show import list_failed, output_folder, write_json
from deltakwt.core.errors import DeltakwtError, MissingExtra

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.data.speech_commands import Manifest
    from deltakwt.tune.measure import Evaluator, Measurement
    from deltakwt.tune.sweep import SweepPoint


@dataclass(frozen=True)
class SweepArguments:
    """The options of `deltakwt sweep`."""

    data: DataOption
    model: ModelOption = DEFAULT_MODEL
    validation: Annotated[
        Path | None,
        typer.Option(
            "--validation",
            metavar="DIR",
            help="Adjust the thresholds on the validation split of this full data set. Default:"
            " --data if it has one; otherwise the thresholds are not adjusted.",
        ),
    ] = None
    split: Annotated[
        str,
        typer.Option(
            "--split", metavar="SPLIT", help="Use this split of --data: train, val or test."
        ),
    ] = "test"
    silence: Annotated[
        str,
        typer.Option(
            "--silence",
            metavar="KIND",
            help="Use these silence clips: zero (digital, as in the paper) or noise (recorded).",
        ),
    ] = "zero"
    subset: Annotated[
        int,
        typer.Option("--subset", metavar="N", min=12, help="Search on this many clips."),
    ] = 100
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Try this many settings.")
    ] = 500
    least_accuracy: Annotated[
        float,
        typer.Option(
            "--least-accuracy",
            metavar="PERCENT",
            help="Keep settings with at least this accuracy on the subset, in percent.",
        ),
    ] = 92.0
    adjust_clips: Annotated[
        int,
        typer.Option(
            "--adjust-clips",
            metavar="N",
            min=16,
            help="Use this many validation clips per run of the adjustment.",
        ),
    ] = 600
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write sweep.json, its figure and subset.json, the list of clips, to this folder."
            " Default: sweep-MODEL.",
        ),
    ] = None
    seed: SeedOption = 0
    as_json: JsonOption = False


def sweep(arguments: SweepArguments) -> None:
    """Repeat the paper's threshold sweep.

    Thresholds are searched on 100 clips, and the front is measured on all clips.

    The six sites of attention get one threshold each for all layers; the MLP stays dense.
    """
    from deltakwt.data.speech_commands import draw
    from deltakwt.tune.storage import need_optuna
    from deltakwt.tune.sweep import draw_subset, front_of, measure_front, search_subset

    need_optuna()
    seed = arguments.seed
    model = load_model(arguments.model, "dense", arithmetic="float")
    manifest = draw(
        arguments.data, arguments.split, arguments.silence, seed=seed, labels=model.labels
    )
    subset = draw_subset(manifest, arguments.subset, seed)
    folder = output_folder(arguments.out, "sweep", arguments.model)
    claim_folder(folder)
    subset.save(folder / "subset.json")
    name = f"{arguments.data.name} {arguments.split}"
    small = _evaluator(model, subset, f"{len(subset.clips)} clips of {name}")
    with progress("search") as bar:
        trials = search_subset(small, arguments.trials, arguments.least_accuracy, seed, bar.update)
    front = front_of(trials, arguments.least_accuracy)
    if not front:
        raise DeltakwtError(
            f"--least-accuracy {arguments.least_accuracy:g}: no setting of {len(trials)} reaches it"
            f" on {len(small.pool)} clips (dense {trials[0].dense_accuracy:.2f}%); give less"
        )
    full = _evaluator(model, manifest, name)
    validation = _validation(model, arguments)
    with progress("full set") as bar:
        points = measure_front(front, full, validation, arguments.adjust_clips, bar.update)
    document = sweep_document(model, small, full, validation, trials, points, seed)
    save_sweep(folder, document)
    if arguments.as_json:
        print_json(document)
    else:
        show_sweep(document, folder)


def _evaluator(model: Model, manifest: Manifest, name: str) -> Evaluator:
    """Return an evaluator in which every clip of the manifest counts the same."""
    from deltakwt.evaluate.pool import Mix
    from deltakwt.evaluate.pool_clips import load_pool
    from deltakwt.tune.measure import Evaluator

    with progress(f"read {name}") as bar:
        pool = load_pool(manifest, model.labels, name, progress=bar.update)
    list_failed(pool)
    return Evaluator(model.config, model.engine, pool, Mix.of(pool.counts()))


def _validation(model: Model, arguments: SweepArguments) -> Evaluator | None:
    """Return what measures the adjusted settings, or None if there are no validation clips."""
    from deltakwt.evaluate.pool import Mix
    from deltakwt.evaluate.pool_clips import draw_pool, has_split, load_pool
    from deltakwt.tune.measure import Evaluator

    root = arguments.validation
    if root is None:
        if arguments.split == "val" or not has_split(arguments.data, "val"):
            fail("--validation: not given, so the thresholds are not adjusted")
            return None
        root = arguments.data
    mix = Mix.parse(
        "words=10,unknown=1,zero=1" if arguments.silence == "zero" else "words=10,unknown=1,noise=1"
    )
    manifest = draw_pool(root, "val", model.labels, mix.groups, arguments.seed)
    with progress(f"read {root.name}") as bar:
        pool = load_pool(manifest, model.labels, f"{root.name} val", mix.groups, bar.update)
    list_failed(pool)
    pool = pool.stratified(arguments.seed)
    return Evaluator(model.config, model.engine, pool, mix)


def sweep_document(
    model: Model,
    small: Evaluator,
    full: Evaluator,
    validation: Evaluator | None,
    trials: Sequence[Measurement],
    points: Sequence[SweepPoint],
    seed: int,
) -> dict[str, Any]:
    """Return the content of sweep.json."""
    from deltakwt.provenance import command, machine, model_name
    from deltakwt.tune.sweep import trial_json

    sets = {"subset": small, "full": full, "validation": validation}
    return {
        "model": model_name(model.name),
        "data": {
            name: None if one is None else {"name": one.pool.name, "clips": len(one.pool)}
            for name, one in sets.items()
        },
        "manifest": "subset.json",
        "seed": seed,
        "machine": machine(model.engine.isa),
        "command": command(),
        "dense_accuracy": {
            "subset": trials[0].dense_accuracy,
            "full": points[0].full.dense_accuracy,
        },
        "trials": [trial_json(measured) for measured in trials],
        "front": [point.to_json(seed) for point in points],
    }


def save_sweep(folder: Path, document: dict[str, Any]) -> None:
    """Write sweep.json, sweep.png and sweep.svg."""
    write_json(folder / "sweep.json", document)
    try:
        from deltakwt.report import figures
        from deltakwt.report.sections.sweep import figure, summary

        full, machine = document["data"]["full"], document["machine"]
        line = (
            f"{document['model']} · {full['clips']:,} clips of {full['name']} · seed"
            f" {document['seed']} · {machine['processor']} · {document['command']}"
        )
        figures.save(figure(summary(document)), folder, line)
    except MissingExtra as error:
        fail(str(error))


def show_sweep(document: dict[str, Any], folder: Path) -> None:
    """Print the front of a sweep as a table."""
    data, dense = document["data"], document["dense_accuracy"]
    rows = table(
        f"{document['model']}: the front of {len(document['trials'])} settings on"
        f" {data['subset']['clips']} clips (dense {dense['subset']:.2f}%), measured on"
        f" {data['full']['clips']} clips (dense {dense['full']:.2f}%)",
        "thresholds",
        "on the subset",
        "accuracy",
        "loss (paired 95%)",
        "McNemar p",
        "MHSA MACs",
        "executed",
        "speed-up",
    )
    for point in document["front"]:
        rows.add_row(*_sweep_row(point, f"{point['subset']['accuracy']:.2f}%"))
        if point["adjusted"] is not None:
            rows.add_row(*_sweep_row(point["adjusted"], "adjusted"))
    out = console()
    out.print(rows)
    out.print(f"sweep.json, sweep.png and the list of clips, subset.json: {folder}")


def _sweep_row(point: dict[str, Any], subset: str) -> list[str]:
    from deltakwt.core.setting import Thresholds

    full = point["full"]
    low, high = full["loss_interval"]
    return [
        str(Thresholds.from_json(point["thresholds"])),
        subset,
        f"{full['accuracy']:.2f}%",
        f"{full['loss']:+.2f} ({low:+.2f} to {high:+.2f})",
        f"{full['mcnemar_p']:.3f}",
        f"{full['mhsa_percent']:.2f}%",
        f"{full['executed_mhsa_percent']:.2f}%",
        f"{full['mhsa_speedup']:.1f}x",
    ]
