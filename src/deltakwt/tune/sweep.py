"""The experiment of the paper: a threshold sweep on 100 clips, its front on the full set.

As in the paper, the six sites of attention have one threshold each for all layers, the MLP stays
dense, and the front end is plain. The steps:

1. Draw about 100 clips of the full set, 6 to 12 of each class.
2. Search with Optuna for settings near the dense model with few attention MACs on these clips.
3. Take the Pareto front of these settings.
4. Measure every setting of the front on the full set.
5. Adjust its thresholds on validation clips, at the same cost, and measure the result on the full
   set as well. The full set is never used to choose thresholds, except for the 100 clips of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deltakwt.core.setting import PAPER_SITES, PLAIN
from deltakwt.data.speech_commands import Clip, Manifest
from deltakwt.evaluate.pool import Progress
from deltakwt.tune.goals import pareto
from deltakwt.tune.measure import Evaluator, Measurement
from deltakwt.tune.refine import adjusted
from deltakwt.tune.search import make_sampler, starting_points, suggest
from deltakwt.tune.storage import need_optuna

CLASS_SHARES = (0.72, 1.44)  # of the mean: 6 to 12 clips per class when 100 are 12 classes
MOST_FRONT = 12  # settings that are measured on the full set
ADJUST_STEPS = 3


def draw_subset(manifest: Manifest, size: int, seed: int) -> Manifest:
    """Return about `size` clips with every class between CLASS_SHARES of the mean class size."""
    rng = random.Random(seed)
    classes: dict[str, list[Clip]] = {}
    for clip in manifest.clips:
        classes.setdefault(clip.label, []).append(clip)
    mean = size / len(classes)
    least, most = (max(1, round(share * mean)) for share in CLASS_SHARES)
    counts = {label: min(least, len(clips)) for label, clips in classes.items()}
    while sum(counts.values()) < size:
        open_classes = [c for c in classes if counts[c] < min(most, len(classes[c]))]
        if not open_classes:
            break
        counts[rng.choice(open_classes)] += 1
    chosen = [clip for label, clips in classes.items() for clip in rng.sample(clips, counts[label])]
    return replace(manifest, seed=seed, clips=tuple(chosen))


def search_subset(
    evaluator: Evaluator,
    trials: int,
    least_accuracy: float,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> list[Measurement]:
    """Measure `trials` settings that Optuna suggests to lower divergence and attention MACs.

    The divergence from the dense model stands for the loss: on 100 clips the accuracy moves in
    steps of one point, and settings of equal accuracy could not be compared by it. Settings below
    `least_accuracy` are penalised, so that the search covers the front down to this accuracy and
    does not look for cheap settings that recognise nothing.
    """
    need_optuna()
    import optuna

    study = optuna.create_study(directions=["minimize", "minimize"], sampler=make_sampler(seed))
    for start in starting_points(PAPER_SITES, PLAIN):
        study.enqueue_trial(start)
    measured = []
    for number in range(trials):
        trial = study.ask()
        measurement = evaluator.measure(suggest(trial, PAPER_SITES, PLAIN))
        missing = max(0.0, least_accuracy - measurement.accuracy)
        study.tell(trial, [measurement.kl + missing, measurement.mhsa + 100 * missing])
        measured.append(measurement)
        progress(number + 1, trials)
    return measured


def front_of(
    measured: Sequence[Measurement], least_accuracy: float, most: int = MOST_FRONT
) -> list[Measurement]:
    """Return at most `most` settings of the front, the most expensive first.

    If the front has more, those nearest to even steps of the logarithm of the MACs are taken, the
    first and the last among them.
    """
    accurate = [m for m in measured if m.accuracy >= least_accuracy]
    front = pareto(accurate, lambda m: (m.kl, m.mhsa))
    if len(front) <= most:
        return front
    places = np.log([m.mhsa for m in front])
    wanted = np.linspace(places[0], places[-1], most)
    nearest = {int(np.abs(places - place).argmin()) for place in wanted}
    return [front[number] for number in sorted(nearest)]


@dataclass(frozen=True)
class SweepPoint:
    """A setting of the front: on the subset, on the full set, and adjusted on the full set."""

    subset: Measurement
    full: Measurement
    validation: Measurement | None  # the adjusted setting on the validation clips
    adjusted: Measurement | None  # and on the full set

    def to_json(self, seed: int) -> dict[str, Any]:
        document = {
            **self.full.setting.to_json(),
            "subset": _figures(self.subset),
            "full": with_intervals(self.full, seed),
            "adjusted": None,
        }
        if self.adjusted is not None and self.validation is not None:
            document["adjusted"] = {
                **self.adjusted.setting.to_json(),
                "validation": _figures(self.validation),
                "full": with_intervals(self.adjusted, seed),
            }
        return document


def measure_front(
    front: Sequence[Measurement],
    full: Evaluator,
    validation: Evaluator | None,
    adjust_clips: int,
    progress: Progress = lambda done, total: None,
) -> list[SweepPoint]:
    """Measure the front on the full set, as it is and with adjusted thresholds."""
    points = []
    for number, found in enumerate(front):
        on_validation, on_full = None, None
        if validation is not None:
            setting = adjusted(validation, found.setting, adjust_clips, ADJUST_STEPS)
            on_validation, on_full = validation.measure(setting), full.measure(setting)
        points.append(SweepPoint(found, full.measure(found.setting), on_validation, on_full))
        progress(number + 1, len(front))
    return points


def trial_json(measured: Measurement) -> dict[str, Any]:
    """Return a trial of the search for the JSON document: thresholds and figures."""
    return {"thresholds": measured.setting.to_json()["thresholds"], **_figures(measured)}


def with_intervals(measured: Measurement, seed: int) -> dict[str, Any]:
    """Return the figures with paired 95% intervals against the dense model."""
    change = measured.change
    return {
        **_figures(measured),
        "accuracy_interval": list(measured.accuracy_interval()),
        "loss_interval": list(measured.loss_interval(seed)),
        "lost_clips": int((change > 0).sum()),
        "won_clips": int((change < 0).sum()),
        "mcnemar_p": measured.mcnemar(),
    }


def _figures(measured: Measurement) -> dict[str, Any]:
    return {
        "clips": len(measured),
        "accuracy": measured.accuracy,
        "dense_accuracy": measured.dense_accuracy,
        "loss": measured.loss,
        "mhsa_percent": measured.mhsa,
        "executed_mhsa_percent": measured.executed_mhsa,
        "macs_percent": measured.macs,
        "mhsa_speedup": 100 / measured.mhsa,
    }
