"""`Spotter`: push sound as it comes, get the words that were said."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import SettingLike
from deltakwt.events import Event
from deltakwt.listen.decision import Decided, Decider, Decision
from deltakwt.listen.hearing import Hearing
from deltakwt.listen.intake import Intake
from deltakwt.listen.meter import Meter
from deltakwt.listen.recent import Recent
from deltakwt.weights.folder import read_json, write_atomically
from deltakwt.weights.registry import resolve

LONGEST = 10 * SAMPLE_RATE  # samples taken at once; what is longer is cut, so memory is bounded
KEPT = 6 * SAMPLE_RATE  # samples that stay readable behind the newest block
ENDING = SAMPLE_RATE  # zeros that flush() adds, so that a word at the very end is heard
WORD = SAMPLE_RATE // 2  # about as long as a word is
SURE = 0.8  # posterior that a second stage asks for
NAP = 3 * SAMPLE_RATE // 10  # samples that may wait while nothing happens


@dataclass(frozen=True)
class Detection(Event):
    """A word in a stream. Times are seconds since the first sample."""

    time: float  # of sound that had to be heard before it was decided
    window: float  # start of the second in which the word was heard best

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Verify = Callable[[Detection, NDArray[np.float32]], bool]  # event, its (16000,) window


def confirm_with(model: Model, profile: str | None = None, score: float = SURE) -> Verify:
    """A second stage: `model` must name the same word in the same window, at least this surely."""

    def confirm(event: Detection, window: NDArray[np.float32]) -> bool:
        result = model(window, profile=profile)
        return result.label == event.label and result.score >= score

    return confirm


def decision_of(model: Model) -> Decision:
    """The decision settings in the model's config.json ("decision"), or the defaults."""
    try:
        folder = resolve(model.name)
    except DeltakwtError:  # made in memory
        return Decision()
    if not folder.is_dir():
        return Decision()
    path = folder / "config.json"
    return Decision.from_json(read_json(path).get("decision", {}), f"{path}: decision")


def save_decision(model: Model, decision: Decision) -> None:
    """Put the settings into the config.json of the model's folder."""
    path = resolve(model.name) / "config.json"
    if not path.is_file():
        raise DeltakwtError(f"{model.name}: is not a model folder; import it first")
    document = read_json(path) | {"decision": decision.to_json()}
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


class Spotter:
    """Listens to one stream without end.

    `setting` says how the model runs (otherwise as the model itself is set);
    `decision` replaces the model's own decision settings; `verify` is a second stage that is
    called with each event and the second of sound it was heard in, and says if it is true.
    One thread pushes; `stop` may be called from any other.
    """

    def __init__(
        self,
        model: Model,
        *,
        setting: SettingLike | None = None,
        decision: Decision | None = None,
        verify: Verify | None = None,
    ) -> None:
        self.model = model
        self.decision = decision or decision_of(model)
        self.verify = verify
        self.verified = self.refused = 0  # events that the second stage let through, or not
        self._hearing = Hearing(model, model.setting_of(setting), self.decision)
        self._decider = Decider(self.decision, model.labels)
        self._intake = Intake()
        self._recent = Recent(KEPT, LONGEST)
        self._heard = 0  # samples since the start; those after them wait
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def meter(self) -> Meter:
        """MACs and processor time."""
        return self._hearing.meter

    @property
    def seconds(self) -> float:
        """Sound heard so far."""
        return self._recent.total / SAMPLE_RATE

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """End `listen` after the block it is at; later blocks are not heard."""
        self._stopped.set()

    def push(self, block: ArrayLike, sample_rate: int = SAMPLE_RATE) -> list[Detection]:
        """The next block, of any length -> the words it completes.

        A block with NaN or infinity raises `DeltakwtError` and is left out; push the next one.
        """
        with self._lock:
            if self.stopped:
                return []
            begun, counted = time.thread_time(), self.meter.total.cpu
            events = self._hear(self._intake.push(block, sample_rate))
            whole, part = time.thread_time() - begun, self.meter.total.cpu - counted
            self.meter.spend(whole - part)  # what is not the model's: rate, decision
            return events

    def flush(self) -> list[Detection]:
        """The stream has ended: the words of its last second. Nothing can be pushed after it."""
        with self._lock:
            rest = self._intake.flush()
            events = self._hear(np.concatenate([rest, np.zeros(ENDING, np.float32)]))
            self.stop()
            return events

    def listen(self, blocks: Iterable[tuple[ArrayLike, int]]) -> Iterator[Detection]:
        """Words of a source of (block, sample rate), until it ends or `stop` is called."""
        for block, rate in blocks:
            yield from self.push(block, rate)
            if self.stopped:
                return
        yield from self.flush()

    def sound(self, start: int, end: int) -> NDArray[np.float32]:
        """Samples `start` to `end` since the start, of which the last seconds are held."""
        return self._recent.cut(start, end)

    def _hear(self, samples: NDArray[np.float32]) -> list[Detection]:
        events: list[Detection] = []
        for start in range(0, len(samples), LONGEST):
            self._recent.push(samples[start : start + LONGEST])
            if not self._naps():
                events += self._listen()
        return events

    def _naps(self) -> bool:
        """Whether sound may wait: nothing happens, and it is not much.

        A processor that wakes for 100 ms of silence finds its caches cold, and waking costs more
        than listening. The words do not change, since they do not depend on the cut into blocks;
        the first windows of one may be computed 0.2 s late, long before it is decided.
        """
        return self._decider.is_still and self._recent.total - self._heard < NAP

    def _listen(self) -> list[Detection]:
        """Hear all that waits."""
        sound = self._recent.cut(self._heard, self._recent.total)
        self._heard = self._recent.total
        logits = self._hearing.push(sound)
        if not len(logits):
            return []
        found = map(self._event, self._decider.push(logits, self._hearing.is_same))
        return [event for event in found if event]

    def _event(self, found: Decided) -> Detection | None:
        detection = self._detection(found)
        if self.verify is None:
            return detection
        start = self._hearing.window_start(found.peak)
        true = bool(self.verify(detection, self.sound(start, start + CLIP_SAMPLES)))
        self.verified += true
        self.refused += not true
        return detection if true else None

    def _detection(self, found: Decided) -> Detection:
        """Where the word lies: a model knows a word once its middle is in the window, measured
        over clips with known ends. Smoothing delays the first window by half of its span.
        """
        hearing = self._hearing
        late = (self.decision.smooth - 1) * hearing.window_start(1) // 2
        middle = max(WORD // 2, hearing.window_start(found.first) + CLIP_SAMPLES - late)
        return Detection(
            self.model.labels[found.label],
            round(float(found.score), 6),
            (middle - WORD // 2) / SAMPLE_RATE,
            (middle + WORD // 2) / SAMPLE_RATE,
            hearing.window_done(found.window) / SAMPLE_RATE,
            hearing.window_start(found.peak) / SAMPLE_RATE,
        )
