"""`Spotter`: push sound as it comes, get the words that were said. `spot` does it for one sound."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt.audio import Sound, blocks
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import dense_macs
from deltakwt.core.model import Model
from deltakwt.core.setting import SettingLike
from deltakwt.files import read_json, write_atomically
from deltakwt.listen.decision import Decider, Decision, Event, WindowEvent
from deltakwt.listen.gate import GatedRunner
from deltakwt.listen.pcm import RecentSound, Resampler
from deltakwt.listen.runner import Meter, StreamRunner
from deltakwt.weights.registry import resolve

MAX_BLOCK = 2 * SAMPLE_RATE  # longer blocks are cut, so that memory is bounded
PROGRESS_SAMPLES = 10 * SAMPLE_RATE  # between two calls of `progress`
KEPT_SECONDS = 6.0  # of sound that can still be read behind the newest block
MAX_WAITING = 3 * SAMPLE_RATE // 10  # samples that may wait while the sound does not change
CONFIRM_SCORE = 0.5  # score that a second stage must reach

Verify = Callable[[Event, NDArray[np.float32]], bool]  # event, its (16000,) samples


class SecondStage:
    """Confirms events with a model: it must find the same word in the same second of sound.

    `setting` says how the model runs (otherwise as the model itself is set), `score` which score
    it must reach. `runs`, `macs` and `cpu` (seconds) add up what it cost.
    """

    def __init__(
        self, model: Model, setting: SettingLike | None = None, score: float = CONFIRM_SCORE
    ) -> None:
        self.model, self.setting, self.score = model, model.setting_of(setting), score
        self.runs = self.macs = 0
        self.cpu = 0.0
        self._dense_macs = int(dense_macs(model.config).sum())

    def __call__(self, event: Event, window: NDArray[np.float32]) -> bool:
        begun = time.thread_time()
        result = self.model.classify(window, setting=self.setting)
        self.cpu += time.thread_time() - begun
        self.runs += 1
        self.macs += self._dense_macs if result.macs is None else int(result.macs.counts.sum())
        return result.label == event.label and result.score >= self.score


def decision_of(model: Model) -> Decision:
    """Return the decision settings of the model's config.json ("decision"), or the defaults."""
    try:
        folder = resolve(model.name)
    except DeltakwtError:  # a model that was made in memory
        return Decision()
    if not folder.is_dir():
        return Decision()
    path = folder / "config.json"
    return Decision.from_json(read_json(path).get("decision", {}), f"{path}: decision")


def save_decision(model: Model, decision: Decision) -> None:
    """Write the settings into the config.json of the model's folder."""
    path = resolve(model.name) / "config.json"
    if not path.is_file():
        raise DeltakwtError(f"{model.name}: is not a model folder; import it first")
    document = read_json(path) | {"decision": decision.to_json()}
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


class Spotter:
    """Finds the words in one stream of any length.

    `setting` says how the model runs (otherwise as the model itself is set). `decision` replaces
    the model's own decision settings. `gate` is a small model with the same words: the model then
    computes only where the gate suspects a word. `verify` is a second stage: a model, or a callable
    that gets each event with its second of sound and returns whether to keep it. `kept` is how many
    seconds of sound `sound` can return; with a second stage it must be at least the default. One
    thread pushes; any thread may call `stop`.
    """

    def __init__(
        self,
        model: Model,
        *,
        setting: SettingLike | None = None,
        decision: Decision | None = None,
        gate: Model | None = None,
        verify: Model | Verify | None = None,
        kept: float = KEPT_SECONDS,
    ) -> None:
        self.verified = self.refused = 0  # events that the second stage confirmed and rejected
        self._resampler = Resampler()
        self._recent = RecentSound(max(int(kept * SAMPLE_RATE), MAX_WAITING), MAX_BLOCK)
        self._length: int | None = None  # samples of the sound, once it has ended
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._begin(model, setting, decision, gate, verify)

    def restart(
        self,
        model: Model,
        *,
        setting: SettingLike | None = None,
        decision: Decision | None = None,
        gate: Model | None = None,
        verify: Model | Verify | None = None,
    ) -> None:
        """Continue the stream with another model or other settings. Times and counts go on.

        The sound before is forgotten: a word that is being said now can be missed.
        """
        with self._lock:
            meter = self.meter
            self._begin(model, setting, decision, gate, verify)
            self._runner.continue_meter(meter)

    def _begin(
        self,
        model: Model,
        setting: SettingLike | None,
        decision: Decision | None,
        gate: Model | None,
        verify: Model | Verify | None,
    ) -> None:
        if not isinstance(model, Model):
            raise DeltakwtError(f"model {model!r}: must be a Model; deltakwt.load returns one")
        if not (decision is None or isinstance(decision, Decision)):
            raise DeltakwtError(f"decision {decision!r}: must be a Decision")
        if not (gate is None or isinstance(gate, Model)):
            raise DeltakwtError(f"gate {gate!r}: must be a Model; deltakwt.load returns one")
        if not (verify is None or callable(verify)):
            raise DeltakwtError(f"verify {verify!r}: must be a Model or a function")
        self.model = model
        self.decision = decision or decision_of(model)
        self.verify = SecondStage(verify) if isinstance(verify, Model) else verify
        chosen = model.setting_of(setting)
        self._runner: StreamRunner | GatedRunner = (
            StreamRunner(model, chosen, self.decision, every_window=False)
            if gate is None
            else GatedRunner(gate, model, chosen, self.decision)
        )
        self._decider = Decider(self.decision, model.labels)
        self._origin = self._recent.total  # the sample at which the runner began
        self._done = self._origin  # samples that went through the runner; those after them wait

    @property
    def meter(self) -> Meter:
        """MACs and processor time."""
        return self._runner.meter

    @property
    def seconds(self) -> float:
        """Seconds of sound pushed so far."""
        return (self._recent.total if self._length is None else self._length) / SAMPLE_RATE

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """End `listen` after the current block. Later blocks are ignored."""
        self._stopped.set()

    def push(self, block: ArrayLike, sample_rate: int = SAMPLE_RATE) -> list[Event]:
        """Take the next block, of any length, and return the words that it completes.

        A block with NaN or infinity raises `DeltakwtError` and is left out; push the next one.
        """
        with self._lock:
            if self.stopped:
                return []
            begun, counted = time.thread_time(), self.meter.total.cpu
            events = self._take(self._resampler.push(block, sample_rate))
            whole, part = time.thread_time() - begun, self.meter.total.cpu - counted
            self.meter.add_cpu(whole - part)  # resampling, decision and second stage
            return events

    def flush(self) -> list[Event]:
        """End the stream and return the words of its last second. Nothing can be pushed after it.

        Zeros are appended, so that the last second passes through the whole window. A sound of at
        most one second is decided as one clip.
        """
        with self._lock:
            if self.stopped:
                return []
            events = self._take(self._resampler.flush())
            self._length = self._recent.total
            if samples := self._length - self._origin:
                ending = np.zeros(self._runner.ending(samples), np.float32)
                events += self._take(ending, is_last=True)
            if 0 < samples <= CLIP_SAMPLES and (found := self._decider.end_of_clip()):
                events += self._confirmed([found])
            self.stop()
            return events

    def listen(self, blocks: Iterable[tuple[ArrayLike, int]]) -> Iterator[Event]:
        """Yield the words of a source of (block, sample rate) until it ends or `stop` is called."""
        for block, rate in blocks:
            yield from self.push(block, rate)
            if self.stopped:
                return
        yield from self.flush()

    def sound(self, start: int, end: int) -> NDArray[np.float32]:
        """Return samples `start` to `end` since the start. Only the last seconds are held."""
        return self._recent.cut(start, end)

    def _take(self, samples: NDArray[np.float32], is_last: bool = False) -> list[Event]:
        events: list[Event] = []
        for start in range(0, len(samples), MAX_BLOCK):
            self._recent.push(samples[start : start + MAX_BLOCK])
            if is_last or not self._may_wait():
                events += self._run()
        return events

    def _may_wait(self) -> bool:
        """Return whether the new sound may wait, because it is short and does not change.

        A processor that wakes up for 100 ms of silence finds cold caches, and waking up costs more
        than the work. The events stay the same, since they do not depend on the cut into blocks.
        The first windows of a word may be computed up to 0.2 s late. This delays no event, because
        a word is decided later than that. With a gate, nothing is computed before its next look.
        """
        waiting = self._recent.total - self._done
        if isinstance(self._runner, GatedRunner):
            return waiting < self._runner.missing
        return self._decider.is_still and waiting < MAX_WAITING

    def _run(self) -> list[Event]:
        """Run the model and the decision on all sound that waits."""
        sound = self._recent.cut(self._done, self._recent.total)
        self._done = self._recent.total
        events: list[Event] = []
        while len(sound):
            # A gate learns of each event before the next window, however the sound comes in blocks.
            part = sound
            if isinstance(self._runner, GatedRunner):
                part = sound[: self._runner.missing]
            sound = sound[len(part) :]
            logits = self._runner.push(part)
            if len(logits):
                events += self._confirmed(self._decider.push(logits, self._runner.is_same))
                self._runner.needed_from = self._decider.ready - self.decision.smooth + 1
        return events

    def _confirmed(self, found: list[WindowEvent]) -> list[Event]:
        """Return the events that the second stage confirms; all, if there is none."""
        events = []
        samples = None if self._length is None else self._length - self._origin
        for one in found:
            one = replace(one, window=self._runner.due_with(one.window))
            event = one.event(self.model.labels, self.decision, self._runner.delay, samples)
            if self._origin:
                event = _later(event, self._origin)
            if self.verify is not None:
                start = self._origin + self._runner.window_start(one.peak)
                window = self.sound(start, start + CLIP_SAMPLES)
                is_true = bool(self.verify(event, window))
                self.verified += is_true
                self.refused += not is_true
                if not is_true:
                    continue
            events.append(event)
        return events


def _later(event: Event, samples: int) -> Event:
    """Return an event of a stream that began so many samples later."""
    names = ("start", "end", "time", "window")
    times = {name: (getattr(event, name) * SAMPLE_RATE + samples) / SAMPLE_RATE for name in names}
    return replace(event, **times)


@dataclass(frozen=True)
class Spotting:
    """The words in a sound of any length, and what finding them cost."""

    file: str | None
    events: list[Event]
    ms: float  # processor time, without decoding the file
    seconds: float  # length of the sound
    windows: int
    reused: int  # windows that were not computed, because they were close to an earlier one
    macs_percent: float  # of running the dense model on every window
    macs_per_second: float  # of sound


def spot(
    model: Model,
    sound: Sound,
    sample_rate: int | None = None,
    *,
    setting: SettingLike | None = None,
    decision: Decision | None = None,
    progress: Callable[[float], None] = lambda seconds: None,
) -> Spotting:
    """Find the words in a sound of any length. It is streamed, never held in memory whole.

    It uses a `Spotter`, so the words and times are the same as in a stream.
    """
    spotter = Spotter(model, setting=setting, decision=decision)
    events: list[Event] = []
    for part in blocks(sound, sample_rate):
        for start in range(0, len(part), PROGRESS_SAMPLES):
            events += spotter.push(part[start : start + PROGRESS_SAMPLES])
            progress(spotter.seconds)
    events += spotter.flush()
    used, seconds = spotter.meter.total, spotter.seconds
    return Spotting(
        os.fspath(sound) if isinstance(sound, str | os.PathLike) else None,
        events,
        1e3 * used.cpu,
        seconds,
        used.windows,
        used.windows - used.computed,
        spotter.meter.ever.macs_percent,
        used.macs / seconds,
    )
