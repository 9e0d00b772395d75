"""Stage 1: an Optuna study that searches for one threshold per site and for the front end.

Every trial starts on a few clips. Only a setting that no better one clearly dominates is measured
on more clips, so most of the time is spent on good settings (racing).

Any number of processes may work on one study.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PAPER_SITES, SITES, FrontEndSetting, Setting, Thresholds
from deltakwt.evaluate.pool import Progress
from deltakwt.locks import DeferredSignals
from deltakwt.tune.goals import Values, dominated, pareto
from deltakwt.tune.measure import Evaluator, Measurement
from deltakwt.tune.storage import database, need_optuna

if TYPE_CHECKING:
    import optuna

# Lowest and highest threshold of a site. Activations are normalised, so the ranges fit every
# model; the refinement may leave them.
RANGES = {
    "x": (0.08, 1.5),
    "q": (0.04, 1.0),
    "k": (0.04, 1.0),
    "scores": (0.02, 2.0),
    "softmax": (0.0005, 0.02),
    "heads": (0.02, 0.5),
    "mlp_in": (0.1, 1.5),
    "mlp_hidden": (0.02, 0.4),
}
FLOORS = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)  # few, because each needs its own features
# Settings to start from, in the order of SITES: the paper's with an MLP, and two cheaper ones.
STARTS = (
    (0.2, 0.2, 0.2, 0.05, 0.001, 0.05, 0.3, 0.1),
    (0.4, 0.16, 0.29, 0.1, 0.0034, 0.07, 0.47, 0.08),
    (0.8, 0.12, 0.1, 0.92, 0.0071, 0.086, 0.77, 0.105),
)
FIRST_CLIPS = 128  # of a trial's first measurement
CLIPS_GROWTH = 3
SLACK = 2.0  # standard errors by which a setting must be dominated to be dropped
STARTUP_TRIALS = 32  # random ones, before the sampler models them


def parse_sites(text: str, option: str = "--sites") -> tuple[str, ...]:
    """Read "all", "paper", or names separated by commas."""
    if text in ("all", "paper"):
        return SITES if text == "all" else PAPER_SITES
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in SITES:
            raise DeltakwtError(f"{option}: unknown site {name!r}; sites are {', '.join(SITES)}")
    return tuple(site for site in SITES if site in names)


def suggest(
    trial: optuna.Trial, sites: Sequence[str], front_end: FrontEndSetting | None
) -> Setting:
    """Ask Optuna for one threshold per site, and for the front end if none is given."""
    values: dict[str, Any] = {
        site: float(f"{trial.suggest_float(site, *RANGES[site], log=True):.4g}") for site in sites
    }
    if front_end is None:
        smooth = trial.suggest_categorical("smooth", [False, True])
        front_end = FrontEndSetting(smooth, trial.suggest_categorical("floor", FLOORS))
    return Setting(Thresholds(**values), front_end)


def starting_points(
    sites: Sequence[str], front_end: FrontEndSetting | None
) -> list[dict[str, Any]]:
    """Return the parameters of the first trials, with several front ends if it is searched."""
    starts = [
        {site: v for site, v in zip(SITES, row, strict=True) if site in sites} for row in STARTS
    ]
    if front_end is not None:
        return starts
    plain = [{**start, "smooth": False, "floor": 0.0} for start in starts[:1]]
    return plain + [{**start, "smooth": True, "floor": f} for start in starts for f in (0.0, 2.0)]


@dataclass(frozen=True)
class SearchOptions:
    """How stage 1 runs."""

    trials: int
    clips: int  # of the last measurement of a trial
    sites: Sequence[str]
    front_end: FrontEndSetting | None  # None: searched
    cost: str  # "macs" or "ms"
    worst_loss: float  # a setting that loses more is dropped


def make_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Return a multivariate TPE sampler, which suits few trials and several workers."""
    need_optuna()
    import warnings

    import optuna

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna.samplers.TPESampler(
        seed=seed, multivariate=True, n_startup_trials=STARTUP_TRIALS, constant_liar=True
    )


def clip_counts(clips: int) -> list[int]:
    """Return how many clips the measurements of a trial use: about 128, 384, ... up to all."""
    counts = [clips]
    while counts[0] > FIRST_CLIPS * CLIPS_GROWTH // 2:
        counts.insert(0, max(FIRST_CLIPS, counts[0] // CLIPS_GROWTH))
    return counts


def cost_of(measurement: Measurement, cost: str) -> float:
    """Return percent of the whole model's MACs, or milliseconds."""
    if cost == "ms":
        assert measurement.ms is not None
        return measurement.ms
    return measurement.macs


def race(
    evaluator: Evaluator, setting: Setting, options: SearchOptions, front: Sequence[Values]
) -> Measurement:
    """Measure a setting on more and more clips as long as the front does not dominate it."""
    for count in clip_counts(options.clips):
        measurement = evaluator.measure(setting, count)
        slack = SLACK * max(measurement.loss_error, 100 / count)
        values = (measurement.search_loss, cost_of(measurement, options.cost))
        if values[0] > options.worst_loss + slack or dominated(values, front, slack):
            break
    return measurement


def search(
    study: optuna.Study,
    url: str,
    evaluator: Evaluator,
    options: SearchOptions,
    progress: Progress = lambda done, total: None,
) -> None:
    """Add trials until the study has `options.trials`, alone or beside other workers."""
    with database(url):
        if not study.get_trials(deepcopy=False):
            for start in starting_points(options.sites, options.front_end):
                study.enqueue_trial(start, skip_if_exists=True)
        done = finished(study)
    while done < options.trials:
        progress(done, options.trials)
        with database(url) as signals:
            _run_trial(study, evaluator, options, signals)
            done = finished(study)
    progress(min(done, options.trials), options.trials)


def _run_trial(
    study: optuna.Study, evaluator: Evaluator, options: SearchOptions, signals: DeferredSignals
) -> None:
    """Run one trial. A signal can interrupt the measurement, but no query."""
    import optuna

    trial = study.ask()
    try:
        setting = suggest(trial, options.sites, options.front_end)
        front = [(t.values[0], t.values[1]) for t in complete(study) if t.user_attrs["whole"]]
        with signals.allowed():
            measurement = race(evaluator, setting, options, pareto(front, lambda v: v))
        facts = {
            "setting": setting.to_json(),
            "worker": f"{socket.gethostname()}:{os.getpid()}",
            "clips": len(measurement),
            "whole": len(measurement) == options.clips,
            "loss": measurement.loss,
            "macs": measurement.macs,
        }
        for name, value in facts.items():
            trial.set_user_attr(name, value)
        study.tell(trial, [measurement.search_loss, cost_of(measurement, options.cost)])
    except BaseException:
        with suppress(Exception):  # the database may be lost
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        raise


def complete(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Return the trials that ended with a measurement."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE,)
    trials = study.get_trials(deepcopy=False, states=states)
    return [trial for trial in trials if "setting" in trial.user_attrs]


def finished(study: optuna.Study) -> int:
    """Return the number of trials that ended with a measurement."""
    return len(complete(study))


def searched_front(study: optuna.Study) -> list[Setting]:
    """Return the best settings of stage 1, cheapest last."""
    whole = [trial for trial in complete(study) if trial.user_attrs["whole"]]
    best = pareto(whole, lambda trial: (trial.values[0], trial.values[1]))
    return [Setting.from_json(trial.user_attrs["setting"]) for trial in best]


def knees(study: optuna.Study, most: int) -> list[Setting]:
    """Return where the refinement starts: the best settings of different front ends, best first.

    The best is the knee of the front, where one point of loss saves a factor of e in cost.
    """

    def knee(trial: optuna.trial.FrozenTrial) -> float:
        return float(trial.values[0] + log(trial.values[1]))

    best: dict[str, Setting] = {}
    for trial in sorted(complete(study), key=knee):
        setting = Setting.from_json(trial.user_attrs["setting"])
        if trial.user_attrs["whole"] and len(best) < most:
            best.setdefault(str(setting.front_end), setting)
    return list(best.values())
