"""`deltakwt tune` and `deltakwt sweep`: thresholds by budget, and the paper's grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    ModelOption,
    fail,
    load_model,
    print_json,
    progress,
)
from deltakwt.cli.tune_show import (
    command,
    document,
    keep,
    make,
    plot_sweep,
    show,
    show_sweep,
    write_json,
)

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.core.setting import FrontEndSetting
    from deltakwt.tune.pool import Pool
    from deltakwt.tune.run import Plan

HELD_OUT = 0.3  # of the speakers, where there is no test set

TestOption = Annotated[
    Path | None,
    typer.Option(
        "--test", help="Clips for the final report; else the test split, else 30% held out."
    ),
]
MixOption = Annotated[
    str, typer.Option("--mix", help="Weights in accuracy: words, unknown, zero, noise.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Of every random choice.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder for the study, front.json and pictures.")
]


def register(app: typer.Typer) -> None:
    app.command()(tune)
    app.command()(sweep)


def tune(
    data: DataOption,
    model: ModelOption = DEFAULT_MODEL,
    test: TestOption = None,
    max_loss: Annotated[
        float | None, typer.Option("--max-loss", help="Points of accuracy it may lose.")
    ] = None,
    max_macs: Annotated[
        float | None, typer.Option("--max-macs", help="Percent of the whole model's MACs.")
    ] = None,
    max_ms: Annotated[
        float | None, typer.Option("--max-ms", help="Milliseconds a clip on one core.")
    ] = None,
    agree: Annotated[
        float | None,
        typer.Option("--agree", help="Percent of answers as dense: recordings without labels."),
    ] = None,
    mix: MixOption = "words=10,unknown=1,zero=1",
    cost_mix: Annotated[
        str | None, typer.Option("--cost-mix", help="Weights in cost; else as --mix.")
    ] = None,
    sites: Annotated[
        str, typer.Option("--sites", help="all, paper (dense MLP), or names with commas.")
    ] = "all",
    steady: Annotated[
        str | None,
        typer.Option(
            "--steady",
            help="The front end: plain, smooth_1.5, ... or any (searched). Default: plain, or any"
            " if noise costs.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Of the search.")] = 300,
    clips: Annotated[int, typer.Option("--clips", min=16, help="A trial sees at most.")] = 800,
    refine: Annotated[
        bool, typer.Option("--refine/--no-refine", help="One threshold a layer?")
    ] = True,
    name: Annotated[
        str, typer.Option("--name", help="Of the profile; without goals three are made.")
    ] = "tuned",
    write: Annotated[
        bool, typer.Option("--write/--no-write", help="Profiles into the model folder?")
    ] = True,
    storage: Annotated[
        str | None, typer.Option("--storage", help="FILE.db, postgresql://..., journal:FILE.")
    ] = None,
    study: Annotated[str, typer.Option("--study", help="Its name in the storage.")] = "deltakwt",
    join: Annotated[
        str | None, typer.Option("--join", metavar="STUDY", help="Only help a study to search.")
    ] = None,
    out: OutOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Find thresholds for a budget and prove them on clips that the search never saw.

    Without a goal, makes the profiles lossless, balanced (0.25 points) and fast (1 point).
    """
    from deltakwt.core.errors import DeltakwtError
    from deltakwt.tune.goals import Goals
    from deltakwt.tune.mix import Mix
    from deltakwt.tune.run import Plan, judge_of, look
    from deltakwt.tune.run import tune as run_tune
    from deltakwt.tune.space import parse_sites
    from deltakwt.tune.storage import need_optuna

    goals = Goals(max_loss, max_macs, max_ms, agree)
    if join is not None and storage is None:
        raise DeltakwtError("--join: give the --storage that the study is in")
    if agree is not None:
        mix, cost_mix = "words=1", None
    quality = Mix.parse(mix)
    wanted = parse_sites(sites)
    need_optuna()
    loaded = load_model(model, profile="dense")
    goals.check(loaded.config)
    folder = out or Path(f"tune-{Path(model).stem}")
    if join is None:
        make(folder)
    cost = Mix.parse(cost_mix, "--cost-mix") if cost_mix else quality
    plan = Plan(
        goals=goals,
        mix=quality,
        cost_mix=cost,
        sites=wanted,
        steady=_front_end(steady or ("any" if "noise" in cost.groups else "plain")),
        trials=trials,
        clips=clips,
        refine=refine,
        seed=seed,
        storage=storage or str(folder / "study.db"),
        study=join or study,
        name=name,
    )
    pool, unseen = _pools(loaded, data, test, plan, agree is not None)
    plan = _fitted(plan, pool)
    if join is not None:
        look(loaded, judge_of(loaded, pool, plan), plan, True, _bar)
        return
    outcome = run_tune(loaded, pool, unseen, plan, _bar)
    found = document(loaded, pool, plan, outcome)
    keep(folder, loaded, outcome, plan, found, write)
    if as_json:
        print_json(found)
    else:
        show(outcome, pool, plan, folder)
    for reason in outcome.missed.values():
        fail(reason)
    if outcome.missed:
        raise typer.Exit(1)


def sweep(
    data: DataOption,
    model: ModelOption = DEFAULT_MODEL,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help="SITE=V1,V2,...; repeat for more sites. Else the paper's."),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "test",
    subset: Annotated[int, typer.Option("--subset", min=12, help="Clips of the sweep.")] = 100,
    least: Annotated[
        float, typer.Option("--least-accuracy", help="Percent that a Pareto point must keep.")
    ] = 94.0,
    mix: MixOption = "words=10,unknown=1,zero=1",
    out: OutOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Sweep a grid on 100 clips, run its Pareto points on the full set: the paper's experiment."""
    from deltakwt.tune.draw import draw_pool
    from deltakwt.tune.measure import Judge
    from deltakwt.tune.mix import Mix
    from deltakwt.tune.pool import load_pool
    from deltakwt.tune.sweep import PAPER_GRID, parse_grid, settings, subset_of
    from deltakwt.tune.sweep import sweep as run_sweep

    points = settings(parse_grid(grid) if grid else PAPER_GRID)
    weights = Mix.parse(mix)
    loaded = load_model(model, profile="dense")
    manifest = draw_pool(data, split, loaded.labels, weights.groups, seed)
    with progress("read") as bar:
        pool = load_pool(manifest, loaded.labels, f"{data.name} {split}", bar.update)
    pool = pool.stratified(seed)
    full = Judge(loaded.config, loaded.engine, pool, weights)
    small = Judge(loaded.config, loaded.engine, subset_of(pool, subset), weights)
    with progress("sweep") as bar:
        found = run_sweep(small, full, points, least, bar.update)
    result = {
        "model": model,
        "data": pool.name,
        "clips": len(pool),
        "subset": len(small.pool),
        "mix": str(weights),
        "seed": seed,
        "command": command(),
        "settings": [{**m.point.to_json(), **m.to_json()} for m in found.subset],
        "pareto": [{**m.point.to_json(), **m.to_json()} for m in found.full],
    }
    if out is not None:
        make(out)
        write_json(out / "sweep.json", result)
        if found.full:
            plot_sweep(out, found.full, f"{model}: sweep, {pool.name}")
    if as_json:
        print_json(result)
    else:
        title = f"{model}: {len(points)} settings on {len(small.pool)} clips, front on {len(pool)}"
        show_sweep(title, found.full)


def _pools(
    model: Model, data: Path, test: Path | None, plan: Plan, unlabelled: bool
) -> tuple[Pool, Callable[[], Pool]]:
    """Clips to search with, and how to get clips never searched with."""
    from deltakwt.tune.draw import draw_pool, has_split
    from deltakwt.tune.pool import load_pool, load_recordings

    groups = tuple(dict.fromkeys((*plan.mix.groups, *plan.cost_mix.groups)))

    def read(root: Path, split: str) -> Pool:
        if unlabelled:
            pool = load_recordings(root, plan.seed)
        else:
            manifest = draw_pool(root, split, model.labels, groups, plan.seed)
            with progress(f"read {root.name}") as bar:
                pool = load_pool(manifest, model.labels, f"{root.name} {split}", bar.update)
        for _, reason in pool.failed:
            fail(f"left out: {reason}")
        return pool

    pool = read(data, "val")
    if test is not None:
        return pool.stratified(plan.seed), lambda: read(test, "test")
    if not unlabelled and has_split(data, "test"):
        return pool.stratified(plan.seed), lambda: read(data, "test")
    kept, held = pool.hold_out(HELD_OUT, plan.seed)
    return kept.stratified(plan.seed), lambda: held


def _front_end(text: str) -> FrontEndSetting | None:
    """None where it is to be searched."""
    from deltakwt.core.setting import FrontEndSetting

    return None if text == "any" else FrontEndSetting.parse(text)


def _fitted(plan: Plan, pool: Pool) -> Plan:
    """No more clips a trial than there are."""
    from dataclasses import replace

    return replace(plan, clips=min(plan.clips, len(pool)))


@contextmanager
def _bar(what: str) -> Iterator[Callable[[float, float], None]]:
    with progress(what) as bar:
        yield bar.update
