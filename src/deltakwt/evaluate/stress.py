"""Streaming evaluation: settings of a model side by side on a stream and on keyword-free sound.

Every setting gets the same blocks, one after the other. The logits of all windows are kept (1.7 MB
per hour), so the curve over thresholds needs no second run of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import Audio
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import DENSE, Setting
from deltakwt.evaluate.negatives import FalseAccepts, NegativeStream, pooled
from deltakwt.evaluate.score import Score, score
from deltakwt.evaluate.streams import PlannedStream
from deltakwt.listen.decision import Decider, Decision, Event, smooth_stream
from deltakwt.listen.gate import GatedRunner
from deltakwt.listen.runner import Reading, StreamRunner
from deltakwt.listen.spotter import SecondStage, Spotter, decision_of
from deltakwt.plotting import plain_text, pyplot

Progress = Callable[[float, float], None]  # seconds of sound done, seconds of all
# Closer together where the curve bends. Models trained with label smoothing give at most 0.91.
THRESHOLDS = (*(n / 50 for n in range(5, 40)), *(n / 200 for n in range(160, 200)))


def decide(
    means: NDArray[np.float32], labels: Sequence[str], decision: Decision, delay: int = 0
) -> list[Event]:
    """Return the events of a whole stream from the smoothed posteriors of its windows."""
    found = Decider(decision, labels).push_smoothed(means)
    return [one.event(labels, decision, delay) for one in found]


@dataclass
class StreamRun:
    """What one setting found in one sound."""

    setting: Setting
    labels: tuple[str, ...]
    logits: NDArray[np.float32]  # (windows, labels)
    reading: Reading  # of the first stage
    events: list[Event]
    confirmed: list[Event] | None  # by the second stage, if there is one
    second: dict[str, float] | None = None  # its cost
    delay: int = 0  # samples after a window that the front end needs

    def events_at(self, decision: Decision, means: NDArray[np.float32]) -> list[Event]:
        """Decide again, on smoothed posteriors of these logits."""
        return decide(means, self.labels, decision, self.delay)


@dataclass(frozen=True)
class CurvePoint:
    """One threshold of the detection-error curve."""

    on: float
    score: Score
    negatives: FalseAccepts | None

    @property
    def false_per_hour(self) -> float:
        """False accepts per hour on the negatives, or on the stream if there are none."""
        return self.score.false_per_hour if self.negatives is None else self.negatives.per_hour

    def to_json(self) -> dict[str, float]:
        return {
            "on": self.on,
            "miss_percent": round(self.score.miss_percent, 3),
            "false_accepts_per_hour": round(self.false_per_hour, 3),
            "confusions_per_hour": round(self.score.confusions_per_hour, 3),
        }


@dataclass
class SettingResult:
    """One setting on the stream and on the negatives."""

    stream: StreamRun
    negatives: list[StreamRun]
    curve: list[CurvePoint] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.stream.setting)


def settings_of(model: Model, names: Sequence[str] | None) -> list[Setting]:
    """Return the named settings, or dense and all profiles of the model if none is named."""
    wanted = names or [DENSE.name, *model.profiles.profiles]
    return [model.profiles.setting(name) for name in wanted]


class _Listener:
    """A spotter that keeps the events of both stages and the logits of every window.

    A spotter leaves out windows on which no word can depend, but curves need all of them. A second
    runner computes them, so that the meter of the spotter shows what listening costs.
    """

    def __init__(
        self,
        model: Model,
        setting: Setting,
        decision: Decision,
        gate: Model | None,
        second: SecondStage | None,
    ) -> None:
        self.setting, self.second = setting, second
        self.logits: list[NDArray[np.float32]] = []
        self.events: list[Event] = []
        self.confirmed: list[Event] = []
        verify = None if second is None else self._confirm
        self.spotter = Spotter(model, setting=setting, decision=decision, gate=gate, verify=verify)
        self._windows: StreamRunner | GatedRunner = (
            StreamRunner(model, setting, decision)
            if gate is None
            else GatedRunner(gate, model, setting, decision)
        )

    def push(self, block: Audio) -> None:
        self.events += self.spotter.push(block)
        self.logits.append(self._windows.push(block))

    def _confirm(self, event: Event, window: NDArray[np.float32]) -> bool:
        assert self.second is not None
        if self.second(event, window):
            self.confirmed.append(event)
        return True

    def result(self) -> StreamRun:
        labels, reading = self.spotter.model.labels, self.spotter.meter.ever
        rows = self.logits or [np.zeros((0, len(labels)), np.float32)]
        logits, confirmed, cost = np.concatenate(rows), None, None
        if self.second is not None:
            seconds, confirmed = max(reading.seconds, 1e-9), self.confirmed
            cost = {
                "runs_per_hour": round(3600 * self.second.runs / seconds, 2),
                "macs_per_second": round(self.second.macs / seconds),
                "cpu_percent": round(100 * self.second.cpu / seconds, 4),
            }
            first = reading.cpu_percent - 100 * self.second.cpu / seconds
            reading = replace(reading, cpu_percent=first)
        delay = self._windows.delay
        return StreamRun(self.setting, labels, logits, reading, self.events, confirmed, cost, delay)


def run_settings(
    model: Model,
    blocks: Iterable[Audio],
    settings: Sequence[Setting],
    decision: Decision,
    gate: Model | None = None,
    second: Callable[[], SecondStage] | None = None,
    progress: Callable[[float], None] = lambda seconds: None,
) -> list[StreamRun]:
    """Run every setting on the same blocks. `second` makes a second stage for each."""
    listeners = [_Listener(model, s, decision, gate, second and second()) for s in settings]
    done = 0
    for block in blocks:
        for listener in listeners:
            listener.push(block)
        done += len(block)
        progress(done / SAMPLE_RATE)
    return [listener.result() for listener in listeners]


def stress(
    model: Model,
    stream: PlannedStream,
    settings: Sequence[Setting],
    decision: Decision | None = None,
    *,
    negatives: Sequence[NegativeStream] = (),
    gate: Model | None = None,
    second: Callable[[], SecondStage] | None = None,
    progress: Progress = lambda done, total: None,
) -> list[SettingResult]:
    """Run every setting on the stream and on each folder of negatives, and compute its curve."""
    decision = decision or decision_of(model)
    own = stream.scenario.samples / SAMPLE_RATE
    total = own + sum(one.expected_seconds for one in negatives)
    on_stream = run_settings(
        model, stream.blocks(), settings, decision, gate, second, lambda done: progress(done, total)
    )
    results = [SettingResult(run, []) for run in on_stream]
    before = own
    for one in negatives:

        def advance(done: float, before: float = before) -> None:
            progress(before + done, total)

        for result, recording in zip(
            results,
            run_settings(model, one.blocks(), settings, decision, gate, second, advance),
            strict=True,
        ):
            result.negatives.append(recording)
        before += one.samples / SAMPLE_RATE
    for result in results:
        result.curve = error_curve(result, stream, negatives, decision)
    return results


def error_curve(
    result: SettingResult,
    stream: PlannedStream,
    negatives: Sequence[NegativeStream],
    decision: Decision,
) -> list[CurvePoint]:
    """Return misses and false accepts over thresholds, from the logits that were kept."""
    runs = [result.stream, *result.negatives]
    means = [smooth_stream(one.logits, decision.smooth) for one in runs]
    curve = []
    for on in THRESHOLDS:
        at = decision.at(on)
        events = [one.events_at(at, mean) for one, mean in zip(runs, means, strict=True)]
        own = score(events[0], stream.truth, stream.scenario.hours)
        counted = [one.false_accepts(e) for one, e in zip(negatives, events[1:], strict=True)]
        curve.append(CurvePoint(on, own, pooled(counted) if counted else None))
    return curve


def best_point(curve: Sequence[CurvePoint], max_false: float) -> CurvePoint:
    """Return the point with the fewest misses among those with few enough false accepts.

    If there is none, return the point with the highest threshold.
    """
    able = [point for point in curve if point.false_per_hour <= max_false]
    return min(able or [curve[-1]], key=lambda point: point.score.miss_percent)


def report(
    model: Model,
    stream: PlannedStream,
    decision: Decision,
    results: Sequence[SettingResult],
    negatives: Sequence[NegativeStream] = (),
    max_false: float = 1.0,
) -> dict[str, Any]:
    """Return everything as one JSON document."""
    return {
        "model": model.name,
        "scenario": asdict(stream.scenario),
        "stream": stream.digest,
        "words": len(stream.truth),
        "decision": decision.to_json(),
        "negatives": [
            {
                "folder": str(one.folder),
                "files": len(one.files) - len(one.failed),
                "hours": round(one.hours, 4),
                "failed": one.failed,
            }
            for one in negatives
        ],
        "settings": [_setting_json(one, stream, negatives, max_false) for one in results],
    }


def _setting_json(
    result: SettingResult,
    stream: PlannedStream,
    negatives: Sequence[NegativeStream],
    max_false: float,
) -> dict[str, Any]:
    best = best_point(result.curve, max_false)
    first = result.stream
    found = [first.events, *(r.events for r in result.negatives)]
    document: dict[str, Any] = {
        "setting": result.name,
        **first.setting.to_json(),
        "compute": first.reading.to_json(),
        "decided": _outcome(found, stream, negatives),
        "second_stage": None,
        "at_max_false_accepts": {
            "max_false_accepts_per_hour": max_false,
            "reached": best.false_per_hour <= max_false,
            **best.to_json(),
        },
        "curve": [point.to_json() for point in result.curve],
    }
    for one, recording in zip(document["decided"]["negatives"], result.negatives, strict=True):
        one["compute"] = recording.reading.to_json()
    if first.confirmed is not None:
        events = [first.confirmed, *(r.confirmed or [] for r in result.negatives)]
        document["second_stage"] = {
            "cost": first.second,
            "decided": _outcome(events, stream, negatives),
        }
    return document


def _outcome(
    events: Sequence[list[Event]], stream: PlannedStream, negatives: Sequence[NegativeStream]
) -> dict[str, Any]:
    """Score the events of the stream, and those of each folder of negatives."""
    counted = [one.false_accepts(e) for one, e in zip(negatives, events[1:], strict=True)]
    return {
        **score(events[0], stream.truth, stream.scenario.hours).to_json(),
        "negatives": [one.to_json() for one in counted],
        "negatives_pooled": pooled(counted).to_json() if counted else None,
    }


@plain_text()
def draw_curve(document: dict[str, Any], path: str) -> None:
    """Write the detection-error curves of a report as a PNG file."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    for one in document["settings"]:
        points = [(p["false_accepts_per_hour"], p["miss_percent"]) for p in one["curve"]]
        axes.plot(*zip(*points, strict=True), marker=".", label=one["setting"])
    hours = sum(one["hours"] for one in document["negatives"])
    sound = f"{hours:.2g} h without keywords" if hours else "the stream's noise and other speech"
    axes.set_xscale("symlog", linthresh=0.5)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"false accepts per hour ({sound})")
    axes.set_ylabel("misses, % of the keywords in the stream")
    axes.set_title(f"{document['model']}, SNR {document['scenario']['snr']:g} dB")
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DeltakwtError(f"--curve {path}: cannot be written: {error}") from None
    finally:
        plt.close(figure)
