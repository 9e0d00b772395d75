"""A complete tuning: search, refine, choose, confirm. The study stores each stage, to resume it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from deltakwt.core.model import Model
from deltakwt.core.setting import SITES, FrontEndSetting, Setting
from deltakwt.evaluate.cost import CostModel
from deltakwt.evaluate.pool import Mix, Pool, Progress
from deltakwt.tune.goals import (
    NAMED,
    Candidate,
    Choice,
    Goals,
    Unreachable,
    choose,
    confirm,
    estimate,
    pareto,
)
from deltakwt.tune.measure import Evaluator, Measurement
from deltakwt.tune.refine import EVEN_STEPS, Slopes, Walk, walk
from deltakwt.tune.search import (
    SearchOptions,
    cost_of,
    finished,
    knees,
    make_sampler,
    search,
    searched_front,
)
from deltakwt.tune.storage import database, open_study
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

if TYPE_CHECKING:
    import optuna

WALKS = 2  # refinements, from the best settings of as many front ends
HEADROOM = 1.5  # a walk continues to this multiple of the largest loss that a goal allows
COST_MODEL = "cost model"  # the attribute of the study
WORST_LOSS = 10.0  # points, where no goal limits the loss

StageProgress = Callable[[str], AbstractContextManager[Progress]]  # by the name of a stage


@dataclass(frozen=True)
class TuningOptions:
    """What is tuned, with which goals, on what, and for how long."""

    goals: Goals
    mix: Mix
    cost_mix: Mix
    sites: tuple[str, ...]
    front_end: FrontEndSetting | None  # None: searched
    trials: int
    clips: int  # of a trial, and of a run of the refinement
    refine: bool
    seed: int
    storage: str
    study: str
    name: str  # of the profile, if there are goals

    @property
    def wanted(self) -> dict[str, Goals]:
        """The goals of each profile to be made."""
        if self.goals:
            return {self.name: self.goals}
        by_time = self.goals.by_time
        return {name: Goals(max_loss=loss, by_time=by_time) for name, loss in NAMED.items()}

    @property
    def worst_loss(self) -> float:
        """The loss above which settings are of no interest."""
        limits = [goals.loss_limit for goals in self.wanted.values()]
        known = [limit for limit in limits if limit is not None]
        return WORST_LOSS if not known else HEADROOM * max(known) + 1.0


@dataclass(frozen=True)
class TuningResult:
    """The result of a tuning."""

    choices: list[Choice]
    candidates: list[Candidate]  # the front, measured on all clips of the search
    test: Pool  # clips that the search did not use
    slopes: Slopes | None  # at the last step of the first walk
    trials: int
    missed: dict[str, str]  # profile -> why no setting meets its goals
    cost: CostModel | None = None  # of the search, if time was a goal


def study_facts(model: Model, pool: Pool, options: TuningOptions) -> dict[str, Any]:
    """Return what must be equal when a study is joined or resumed."""
    return {
        "model": fingerprint(model),
        "data": pool.fingerprint(),
        "--trial-clips": options.clips,
        "mix": f"{options.mix} / {options.cost_mix}",
        "sites": ",".join(options.sites),
        "front end": "any" if options.front_end is None else str(options.front_end),
        "cost": options.goals.cost,
        "arithmetic": model.arithmetic,
    }


def fingerprint(model: Model) -> str:
    """Return a hash of the weights, independent of the model's name and place."""
    weights = load_weights(resolve(model.name))
    digest = hashlib.sha256(str(weights.config).encode())
    for name in sorted(weights.tensors):
        digest.update(weights.tensors[name].tobytes())
    return digest.hexdigest()[:16]


def make_evaluator(model: Model, pool: Pool, options: TuningOptions) -> Evaluator:
    """Return the evaluator of the search."""
    return Evaluator(model.config, model.engine, pool, options.mix, options.cost_mix)


def run_search(
    model: Model, evaluator: Evaluator, options: TuningOptions, join: bool, progress: StageProgress
) -> optuna.Study:
    """Run stage 1, alone or as one of many workers, and return the study."""
    facts = study_facts(model, evaluator.pool, options)
    study = open_study(options.storage, options.study, facts, join=join)
    with database(options.storage):
        # A resumed or joined study must not draw the same settings a second time.
        study.sampler = make_sampler(options.seed + finished(study) + (os.getpid() if join else 0))
    stage = SearchOptions(
        options.trials,
        options.clips,
        options.sites,
        options.front_end,
        options.goals.cost,
        options.worst_loss,
    )
    find_cost(study, evaluator, options)
    with progress("search") as report:
        search(study, options.storage, evaluator, stage, report)
    return study


def find_cost(study: optuna.Study, evaluator: Evaluator, options: TuningOptions) -> None:
    """Give the evaluator the study's cost model. The first one to need it fits it.

    Costs of one study must be comparable, whenever and wherever its trials ran.
    """
    if options.goals.cost != "ms":
        return
    with database(options.storage):
        known = study.user_attrs.get(COST_MODEL)
    if known is None:
        evaluator.fit_cost()
        assert evaluator.cost is not None
        with database(options.storage):
            study.set_user_attr(COST_MODEL, evaluator.cost.to_json())
    else:
        evaluator.cost = CostModel.from_json(known)


def tune(
    model: Model,
    pool: Pool,
    test: Callable[[], Pool],
    options: TuningOptions,
    progress: StageProgress,
) -> TuningResult:
    """Run all stages. `test` reads the test clips, after every choice is made.

    The settings of the profiles that the model has already are candidates too. Raises `Unreachable`
    if none of the goals can be met.
    """
    options.goals.check(model.config)
    evaluator = make_evaluator(model, pool, options)
    study = run_search(model, evaluator, options, False, progress)
    walks = refine(study, evaluator, options, progress) if options.refine else []
    refined = chain.from_iterable(one.settings(model.config.layers) for one in walks)
    settings = [*searched_front(study), *refined, *known_settings(model, options)]
    measured = measure_all(evaluator, settings, progress)
    candidates = candidates_of(measured, options)
    chosen, missed = choose_all(candidates, options)
    if not chosen:
        raise Unreachable(next(iter(missed.values())))
    unseen = Evaluator(model.config, model.engine, test(), options.mix, options.cost_mix)
    choices = [
        confirm(name, str(options.wanted[name]), candidate, unseen, options.seed)
        for name, candidate in chosen.items()
    ]
    slopes = walks[0].slopes if walks else None
    return TuningResult(
        choices, candidates, unseen.pool, slopes, finished(study), missed, evaluator.cost
    )


def known_settings(model: Model, options: TuningOptions) -> list[Setting]:
    """Return the settings of the model's profiles that this search could have found."""
    if set(options.sites) != set(SITES):
        return []
    known = [profile.setting for profile in model.profiles.profiles.values()]
    return [
        replace(setting, name="")
        for setting in known
        if setting.thresholds is not None and options.front_end in (None, setting.front_end)
    ]


def refine(
    study: optuna.Study, evaluator: Evaluator, options: TuningOptions, progress: StageProgress
) -> list[Walk]:
    """Run stage 2 from the best starts; steps that the study has are not repeated."""
    with database(options.storage):
        walks = [Walk(start) for start in knees(study, WALKS)]
        for one in walks:
            one.load(study)
    for one in walks:
        with progress(f"refine ({one.start.front_end})") as report:
            start = one.path[-1] if one.path else one.start
            steps = walk(evaluator, start, options.clips, len(one.path), one.slopes, report)
            while len(one.path) < EVEN_STEPS or not far_enough(evaluator, one.path[-1], options):
                setting, one.slopes = next(steps, (None, one.slopes))
                if setting is None:
                    break
                one.path.append(setting)
                with database(options.storage):
                    one.store(study)
    return walks


def far_enough(evaluator: Evaluator, setting: Setting, options: TuningOptions) -> bool:
    """Return whether a walk has passed every goal."""
    measured = evaluator.measure(setting, options.clips)
    limit = options.goals.cost_limit
    cheap = limit is not None and cost_of(measured, options.goals.cost) < 0.9 * limit
    return measured.search_loss > options.worst_loss or cheap


def measure_all(
    evaluator: Evaluator, settings: list[Setting], progress: StageProgress
) -> list[Measurement]:
    """Measure settings on all clips of the search."""
    measured = []
    with progress("confirm") as report:
        for number, setting in enumerate(settings):
            measured.append(evaluator.measure(setting))
            report(number + 1, len(settings))
    return measured


def candidates_of(measured: list[Measurement], options: TuningOptions) -> list[Candidate]:
    """Return the front of what was measured on all clips."""
    cost = options.goals.cost
    front = pareto(measured, lambda m: (m.search_loss, cost_of(m, cost)))
    return estimate(front, [cost_of(m, cost) for m in front])


def choose_all(
    candidates: list[Candidate], options: TuningOptions
) -> tuple[dict[str, Candidate], dict[str, str]]:
    """Return the setting of each profile, and for each profile without one the reason."""
    chosen: dict[str, Candidate] = {}
    missed: dict[str, str] = {}
    for name, goals in options.wanted.items():
        try:
            chosen[name] = choose(candidates, goals)
        except Unreachable as error:
            missed[name] = str(error)
    return chosen, missed
