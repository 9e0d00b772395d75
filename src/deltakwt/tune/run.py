"""A whole tuning: search, refine, choose, prove. Each stage is kept in the study and resumes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from deltakwt.core.model import Model
from deltakwt.core.setting import FrontEndSetting
from deltakwt.tune.confirm import Choice, confirm
from deltakwt.tune.front import pareto
from deltakwt.tune.goals import NAMED, Candidate, Goals, Unreachable, choose, estimate
from deltakwt.tune.measure import Judge, Measured
from deltakwt.tune.mix import Mix
from deltakwt.tune.pool import Pool
from deltakwt.tune.refine import EVEN_STEPS, Slopes, filled, retreat, walk
from deltakwt.tune.search import (
    Search,
    cost_of,
    finished,
    knees,
    make_sampler,
    search,
    searched_front,
)
from deltakwt.tune.space import Point
from deltakwt.tune.storage import guarded, open_study
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

if TYPE_CHECKING:
    import optuna

REFINED = "refined"  # the attribute that keeps a walk, with its front end
WALKS = 2  # from the best settings of so many front ends
HEADROOM = 1.5  # the walk goes on until it loses this much more than any goal allows

Progress = Callable[[str], AbstractContextManager[Callable[[float, float], None]]]


@dataclass(frozen=True)
class Plan:
    """What the user asked for."""

    goals: Goals
    mix: Mix
    cost_mix: Mix
    sites: tuple[str, ...]
    front_end: FrontEndSetting | None  # None: searched
    trials: int
    clips: int  # a trial and a run of the refinement
    refine: bool
    seed: int
    storage: str
    study: str
    name: str  # of the profile, where there are goals

    @property
    def wanted(self) -> dict[str, Goals]:
        """Profile name -> its goals."""
        if self.goals:
            return {self.name: self.goals}
        return {name: Goals(max_loss=loss) for name, loss in NAMED.items()}

    @property
    def worst_loss(self) -> float:
        """What the search need not look beyond; a cost alone sets no limit."""
        limits = [goals.loss_limit for goals in self.wanted.values()]
        known = [limit for limit in limits if limit is not None]
        return 10.0 if not known else HEADROOM * max(known) + 1.0


@dataclass(frozen=True)
class Outcome:
    """What a tuning found and what it took."""

    choices: list[Choice]
    candidates: list[Candidate]  # the front, measured on all clips of the search
    test: Pool  # the clips that the search never saw
    slopes: Slopes | None  # at the last step of the first walk
    trials: int
    missed: dict[str, str]  # profile -> why it was not found


def facts(model: Model, pool: Pool, plan: Plan) -> dict[str, Any]:
    """What a study is a study of: joining and resuming demand the same."""
    return {
        "model": fingerprint(model),
        "data": pool.fingerprint(),
        "--clips": plan.clips,
        "mix": f"{plan.mix} / {plan.cost_mix}",
        "sites": ",".join(plan.sites),
        "front end": "any" if plan.front_end is None else str(plan.front_end),
        "cost": plan.goals.cost,
    }


def fingerprint(model: Model) -> str:
    """Of the weights, whatever the model is called and wherever it lies."""
    weights = load_weights(resolve(model.name))
    digest = hashlib.sha256(str(weights.config).encode())
    for name in sorted(weights.tensors):
        digest.update(weights.tensors[name].tobytes())
    return digest.hexdigest()[:16]


def open_plan(model: Model, pool: Pool, plan: Plan, join: bool) -> optuna.Study:
    study = open_study(plan.storage, plan.study, facts(model, pool, plan), join=join)
    with guarded(plan.storage):
        # Taken up again or joined, it must not draw the same settings a second time.
        study.sampler = make_sampler(plan.seed + finished(study) + (os.getpid() if join else 0))
    return study


def judge_of(model: Model, pool: Pool, plan: Plan) -> Judge:
    timed = plan.goals.cost == "ms"
    return Judge(model.config, model.engine, pool, plan.mix, plan.cost_mix, timed)


def look(model: Model, judge: Judge, plan: Plan, join: bool, progress: Progress) -> optuna.Study:
    """Stage 1, alone or as one of many workers."""
    study = open_plan(model, judge.pool, plan, join)
    stage = Search(
        plan.trials, plan.clips, plan.sites, plan.front_end, plan.goals.cost, plan.worst_loss
    )
    with progress("search") as report:
        search(study, plan.storage, judge, stage, report)
    return study


def tune(
    model: Model, pool: Pool, test: Callable[[], Pool], plan: Plan, progress: Progress
) -> Outcome:
    """All stages; `test` reads its clips when they are needed, after every choice is made.

    Raises `Unreachable` if none of the goals can be met.
    """
    plan.goals.check(model.config)
    judge = judge_of(model, pool, plan)
    study = look(model, judge, plan, False, progress)
    walks = refine(study, judge, plan, progress) if plan.refine else []
    paths = [filled(one.whole(model.config.layers), model.config.layers) for one in walks]
    measured = measure_all(judge, [*searched_front(study), *chain(*paths)], progress)
    chosen, missed = choose_all(measured, plan)
    if not chosen:
        raise Unreachable(next(iter(missed.values())))
    unseen = Judge(model.config, model.engine, test(), plan.mix, plan.cost_mix)
    choices = [
        confirm(name, str(plan.wanted[name]), candidate, unseen, plan.seed)
        for name, candidate in chosen.items()
    ]
    candidates = candidates_of(measured, plan)
    slopes = walks[0].slopes if walks else None
    return Outcome(choices, candidates, unseen.pool, slopes, finished(study), missed)


def refine(study: optuna.Study, judge: Judge, plan: Plan, progress: Progress) -> list[Walk]:
    """Walk from the best starts; steps that the study has are not taken again."""
    with guarded(plan.storage):
        walks = [
            Walk(f"{REFINED} {start.steady}", [], None, start) for start in knees(study, WALKS)
        ]
        for one in walks:
            one.recall(study)
    for one in walks:
        with progress(f"refine ({one.start.steady})") as report:
            start = one.path[-1] if one.path else one.start
            steps = walk(judge, start, plan.clips, len(one.path), one.slopes, report)
            while len(one.path) < EVEN_STEPS or not far_enough(judge, one.path[-1], plan):
                point, one.slopes = next(steps, (None, one.slopes))
                if point is None:
                    break
                one.path.append(point)
                with guarded(plan.storage):
                    one.keep(study)
    return walks


@dataclass
class Walk:
    """The steps from one start, as the study keeps them."""

    key: str
    path: list[Point]
    slopes: Slopes | None
    start: Point

    def whole(self, layers: int) -> list[Point]:
        """Dearest first: from careful settings behind the last even step down to the end."""
        even = self.path[:EVEN_STEPS]
        return retreat(even[-1], layers) + even[-1:] + self.path[EVEN_STEPS:]

    def recall(self, study: optuna.Study) -> None:
        if kept := study.user_attrs.get(self.key):
            self.path = [Point.from_json(point) for point in kept["path"]]
            self.slopes = Slopes.from_json(kept["slopes"])

    def keep(self, study: optuna.Study) -> None:
        assert self.slopes is not None
        path = [point.to_json() for point in self.path]
        study.set_user_attr(self.key, {"path": path, "slopes": self.slopes.to_json()})


def far_enough(judge: Judge, point: Point, plan: Plan) -> bool:
    """The walk has passed every goal."""
    measured = judge.measure(point, plan.clips)
    limit = plan.goals.max_macs
    return measured.strain > plan.worst_loss or (limit is not None and measured.macs < 0.9 * limit)


def measure_all(judge: Judge, points: list[Point], progress: Progress) -> list[Measured]:
    """On all clips of the search."""
    measured = []
    with progress("confirm") as report:
        for number, point in enumerate(points):
            measured.append(judge.measure(point))
            report(number + 1, len(points))
    return measured


def candidates_of(measured: list[Measured], plan: Plan) -> list[Candidate]:
    """The front of what was measured on all clips."""
    front = pareto(measured, lambda m: (m.strain, cost_of(m, plan.goals.cost)))
    return estimate(front, [cost_of(m, plan.goals.cost) for m in front])


def choose_all(measured: list[Measured], plan: Plan) -> tuple[dict[str, Candidate], dict[str, str]]:
    """Profile -> its setting, and profile -> why there is none."""
    candidates = candidates_of(measured, plan)
    chosen: dict[str, Candidate] = {}
    missed: dict[str, str] = {}
    for name, goals in plan.wanted.items():
        try:
            chosen[name] = choose(candidates, goals)
        except Unreachable as error:
            missed[name] = str(error)
    return chosen, missed
