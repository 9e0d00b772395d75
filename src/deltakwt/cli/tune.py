"""`deltakwt tune`: choose thresholds for a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import fail, load_model, print_json, progress
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    ModelOption,
    SeedOption,
    claim_folder,
    with_options,
)
from deltakwt.cli.quantize import quantize_if_possible
from deltakwt.cli.sweep import SweepArguments, sweep
from deltakwt.cli.tune_show import (
    list_failed,
    output_folder,
    save_tuning,
    show_tuning,
    tuning_document,
)

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.core.setting import FrontEndSetting
    from deltakwt.evaluate.pool import Pool
    from deltakwt.tune.tuning import TuningOptions

HELD_OUT = 0.3  # of the speakers, if there are no test clips


class Cost(StrEnum):
    """What a search saves."""

    macs = "macs"
    ms = "ms"


@dataclass(frozen=True)
class TuneArguments:
    """The options of `deltakwt tune`."""

    data: DataOption
    model: ModelOption = DEFAULT_MODEL
    test: Annotated[
        Path | None,
        typer.Option(
            "--test",
            metavar="DIR",
            help="Measure the result on this folder. Default: the test split of --data, or,"
            " if it has none, 30% of its speakers, which the search then does not use.",
        ),
    ] = None
    max_loss: Annotated[
        float | None,
        typer.Option(
            "--max-loss",
            metavar="POINTS",
            help="Allow this loss of accuracy against the dense model, in points, over the mix"
            " and in every group of it with at least 50 clips.",
        ),
    ] = None
    max_macs: Annotated[
        float | None,
        typer.Option(
            "--max-macs",
            metavar="PERCENT",
            help="Allow this many MACs, in percent of the dense model.",
        ),
    ] = None
    max_ms: Annotated[
        float | None,
        typer.Option(
            "--max-ms",
            metavar="MS",
            help="Use at most this many milliseconds per clip on one core.",
        ),
    ] = None
    cost: Annotated[
        Cost,
        typer.Option(
            "--cost",
            metavar="macs|ms",
            help="Look for the fewest MACs, or the least time on this machine. With --max-ms, it is"
            " time.",
        ),
    ] = Cost.macs
    agree: Annotated[
        float | None,
        typer.Option(
            "--agree",
            metavar="PERCENT",
            help="Require the dense model's answer on this share of the clips, in percent. --data"
            " may then be any folder of recordings without labels.",
        ),
    ] = None
    mix: Annotated[
        str,
        typer.Option(
            "--mix",
            metavar="MIX",
            help="Weight the groups of clips in the accuracy with these numbers. Groups are words,"
            " unknown, zero (digital silence), noise, and, made from the spoken clips, telephone,"
            " noisy and shifted.",
        ),
    ] = "words=10,unknown=1,zero=1"
    cost_mix: Annotated[
        str | None,
        typer.Option(
            "--cost-mix",
            metavar="MIX",
            help="Weight the groups of clips in the cost with these numbers. Default: as --mix.",
        ),
    ] = None
    sites: Annotated[
        str,
        typer.Option(
            "--sites",
            metavar="SITES",
            help="Use thresholds at these sites: all, paper (the MLP stays dense), or names"
            " separated by commas.",
        ),
    ] = "all"
    front_end: Annotated[
        str | None,
        typer.Option(
            "--front-end",
            metavar="FRONT_END",
            help="Use this front end: plain, smooth, smooth_1.5 (with a floor), or any (searched)."
            " Default: plain, or any if noise is part of the cost.",
        ),
    ] = None
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Search with this many trials.")
    ] = 300
    trial_clips: Annotated[
        int,
        typer.Option(
            "--trial-clips", metavar="N", min=16, help="Run at most this many clips per trial."
        ),
    ] = 800
    refine: Annotated[
        bool,
        typer.Option("--refine/--no-refine", help="Refine the thresholds layer by layer, or not."),
    ] = True
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Give the profile this name. Without a goal, the profiles are accurate, balanced"
            " and fast.",
        ),
    ] = "tuned"
    write: Annotated[
        bool,
        typer.Option(
            "--write/--no-write",
            help="Write the profiles into the model folder; with --no-write, into --out.",
        ),
    ] = True
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage",
            metavar="DATABASE",
            help="Store the study in this database: FILE.db, postgresql://..., or journal:FILE."
            " Default: study.db in --out.",
        ),
    ] = None
    study: Annotated[
        str,
        typer.Option("--study", metavar="NAME", help="Give the study this name in the database."),
    ] = "deltakwt"
    join: Annotated[
        str | None,
        typer.Option(
            "--join",
            metavar="STUDY",
            help="Only add trials to the study of this name, which another process started.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write study, front.json and figures to this folder. Default: tune-MODEL.",
        ),
    ] = None
    seed: SeedOption = 0
    as_json: JsonOption = False


def register(app: typer.Typer) -> None:
    app.command("tune")(with_options(tune, TuneArguments))
    app.command("sweep")(with_options(sweep, SweepArguments))


def tune(arguments: TuneArguments) -> None:
    """Choose thresholds for a budget.

    They are then measured on clips that the choice did not use.

    Without a goal, the profiles accurate (no measurable loss), balanced (at most 0.25 points) and
    fast (at most 1 point) are made.
    """
    from deltakwt.core.errors import DeltakwtError
    from deltakwt.tune.storage import need_optuna
    from deltakwt.tune.tuning import make_evaluator, run_search
    from deltakwt.tune.tuning import tune as run_tuning
    from deltakwt.weights.registry import resolve

    if arguments.join is not None and arguments.storage is None:
        raise DeltakwtError("--join: give the --storage that the study is in")
    folder = output_folder(arguments.out, "tune", arguments.model)
    options = _tuning_options(arguments, folder)
    need_optuna()
    model = load_model(arguments.model, profile="dense")
    options.goals.check(model.config)
    if arguments.join is None:
        claim_folder(folder)
    pool, test = _pools(model, arguments, options)
    options = replace(options, clips=min(options.clips, len(pool)))
    if arguments.join is not None:
        run_search(model, make_evaluator(model, pool, options), options, True, _bar)
        return
    outcome = run_tuning(model, pool, test, options, _bar)
    document = tuning_document(model, pool, options, outcome)
    save_tuning(folder, model, outcome, document, arguments.write)
    if arguments.write and model.arithmetic == "float" and arguments.agree is None:
        quantize_if_possible(resolve(model.name), arguments.data)
    if arguments.as_json:
        print_json(document)
    else:
        show_tuning(outcome, pool, options, folder)
    for reason in outcome.missed.values():
        fail(reason)
    if outcome.missed:
        raise typer.Exit(1)


def _tuning_options(arguments: TuneArguments, folder: Path) -> TuningOptions:
    from deltakwt.evaluate.pool import Mix
    from deltakwt.tune.goals import Goals
    from deltakwt.tune.search import parse_sites
    from deltakwt.tune.tuning import TuningOptions

    unlabelled = arguments.agree is not None
    mix = Mix.parse("words=1" if unlabelled else arguments.mix)
    given = None if unlabelled else arguments.cost_mix
    cost_mix = Mix.parse(given, "--cost-mix") if given else mix
    front_end = arguments.front_end or ("any" if "noise" in cost_mix.groups else "plain")
    return TuningOptions(
        goals=Goals(
            arguments.max_loss,
            arguments.max_macs,
            arguments.max_ms,
            arguments.agree,
            arguments.cost is Cost.ms,
        ),
        mix=mix,
        cost_mix=cost_mix,
        sites=parse_sites(arguments.sites),
        front_end=_front_end(front_end),
        trials=arguments.trials,
        clips=arguments.trial_clips,
        refine=arguments.refine,
        seed=arguments.seed,
        storage=arguments.storage or str(folder / "study.db"),
        study=arguments.join or arguments.study,
        name=arguments.name,
    )


def _pools(
    model: Model, arguments: TuneArguments, options: TuningOptions
) -> tuple[Pool, Callable[[], Pool]]:
    """Return the clips of the search, and a function that reads the test clips."""
    from deltakwt.evaluate.pool_clips import draw_pool, has_split, load_pool, load_recordings

    data, test, seed = arguments.data, arguments.test, options.seed
    groups = tuple(dict.fromkeys((*options.mix.groups, *options.cost_mix.groups)))
    unlabelled = arguments.agree is not None

    def read(root: Path, split: str) -> Pool:
        if unlabelled:
            pool = load_recordings(root, seed)
        else:
            manifest = draw_pool(root, split, model.labels, groups, seed)
            with progress(f"read {root.name}") as bar:
                name = f"{root.name} {split}"
                pool = load_pool(manifest, model.labels, name, groups, bar.update)
        list_failed(pool)
        return pool

    pool = read(data, "val")
    if test is not None:
        return pool.stratified(seed), lambda: read(test, "test")
    if not unlabelled and has_split(data, "test"):
        return pool.stratified(seed), lambda: read(data, "test")
    kept, held = pool.hold_out(HELD_OUT, seed)
    return kept.stratified(seed), lambda: held


def _front_end(text: str) -> FrontEndSetting | None:
    """Return the front end, or None if it is to be searched."""
    from deltakwt.core.setting import FrontEndSetting

    return None if text == "any" else FrontEndSetting.parse(text)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[float, float], None]]:
    with progress(what) as bar:
        yield bar.update
