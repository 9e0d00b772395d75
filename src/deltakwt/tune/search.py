"""Stage 1: Optuna over one threshold a site and the front end, with racing.

Every trial starts on a few clips. Only one that the front so far does not beat clearly goes on to
more clips, so that most of the time is spent on good settings.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from deltakwt.core.setting import FrontEndSetting
from deltakwt.tune.front import Values, dominated, pareto
from deltakwt.tune.measure import Judge, Measured
from deltakwt.tune.space import Point, known_good, suggest
from deltakwt.tune.storage import guarded, need_optuna

if TYPE_CHECKING:
    import optuna

FIRST_RUNG = 128  # clips of the first look
RUNG_GROWTH = 3
SLACK = 2.0  # standard errors by which a setting must be beaten to be dropped
POPULATION = 32


@dataclass(frozen=True)
class Search:
    """How stage 1 runs."""

    trials: int
    clips: int  # of the last rung
    sites: Sequence[str]
    front_end: FrontEndSetting | None  # the front end; None: searched
    cost: str  # "macs" or "ms"
    worst_loss: float  # a setting that loses more is of no interest
    seconds: float = float("inf")


def make_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Multivariate TPE, which learns from few trials and bears many workers at once."""
    need_optuna()
    import warnings

    import optuna

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna.samplers.TPESampler(
        seed=seed, multivariate=True, n_startup_trials=POPULATION, constant_liar=True
    )


def rungs(clips: int) -> list[int]:
    """128, 384, ... up to all."""
    steps = [clips]
    while steps[0] > FIRST_RUNG * RUNG_GROWTH // 2:
        steps.insert(0, max(FIRST_RUNG, steps[0] // RUNG_GROWTH))
    return steps


def cost_of(measured: Measured, cost: str) -> float:
    """Percent of the MACs, or milliseconds."""
    if cost == "ms":
        assert measured.ms is not None
        return measured.ms
    return measured.macs


def race(judge: Judge, point: Point, plan: Search, front: Sequence[Values]) -> Measured:
    """Measure on more and more clips while the front does not beat it."""
    for count in rungs(plan.clips):
        measured = judge.measure(point, count)
        slack = SLACK * max(measured.loss_error, 100 / count)
        values = (measured.strain, cost_of(measured, plan.cost))
        if measured.strain > plan.worst_loss + slack or dominated(values, front, slack):
            break
    return measured


def search(
    study: optuna.Study,
    url: str,
    judge: Judge,
    plan: Search,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Add trials until the study has `plan.trials`, alone or beside other workers."""
    import optuna

    end = time.monotonic() + plan.seconds
    with guarded(url):
        _enqueue(study, plan)
        while (done := finished(study)) < plan.trials and time.monotonic() < end:
            report(done, plan.trials)
            trial = study.ask()
            try:
                _run(study, trial, judge, plan)
            except BaseException:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                raise
        report(min(done, plan.trials), plan.trials)


def _run(study: optuna.Study, trial: optuna.Trial, judge: Judge, plan: Search) -> None:
    point = suggest(trial, plan.sites, plan.front_end)
    front = [(t.values[0], t.values[1]) for t in complete(study) if t.user_attrs["whole"]]
    measured = race(judge, point, plan, pareto(front, lambda v: v))
    trial.set_user_attr("point", point.to_json())
    trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
    trial.set_user_attr("clips", len(measured))
    trial.set_user_attr("whole", len(measured) == plan.clips)
    trial.set_user_attr("loss", measured.loss)
    trial.set_user_attr("macs", measured.macs)
    study.tell(trial, [measured.strain, cost_of(measured, plan.cost)])


def _enqueue(study: optuna.Study, plan: Search) -> None:
    if not study.get_trials(deepcopy=False):
        for start in known_good(plan.sites, plan.front_end):
            study.enqueue_trial(start, skip_if_exists=True)


def complete(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    import optuna

    states = (optuna.trial.TrialState.COMPLETE,)
    trials = study.get_trials(deepcopy=False, states=states)
    return [trial for trial in trials if "point" in trial.user_attrs]


def finished(study: optuna.Study) -> int:
    return len(complete(study))


def searched_front(study: optuna.Study) -> list[Point]:
    """The best settings of stage 1, cheapest last."""
    whole = [trial for trial in complete(study) if trial.user_attrs["whole"]]
    best = pareto(whole, lambda trial: (trial.values[0], trial.values[1]))
    return [Point.from_json(trial.user_attrs["point"]) for trial in best]


def knees(study: optuna.Study, most: int) -> list[Point]:
    """Where walks start: the best settings of different front ends, best first.

    Best is the knee, where a point of loss buys a factor of e in MACs.
    """

    def knee(trial: optuna.trial.FrozenTrial) -> float:
        return float(trial.values[0] + log(trial.user_attrs["macs"]))

    best: dict[str, Point] = {}
    for trial in sorted(complete(study), key=knee):
        point = Point.from_json(trial.user_attrs["point"])
        if trial.user_attrs["whole"] and len(best) < most:
            best.setdefault(str(point.front_end), point)
    return list(best.values())
