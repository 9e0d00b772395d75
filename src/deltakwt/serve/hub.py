"""What all clients of a server share: the model, the worker threads, the limits, the counters."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.listen.aio import AsyncSpotter
from deltakwt.listen.spotter import Spotter
from deltakwt.logs import log
from deltakwt.serve.limits import Limits, Refused
from deltakwt.serve.sound import SoundBuffer
from deltakwt.text import wall_time

if TYPE_CHECKING:
    from deltakwt.listen.decision import Event

# Name, type and meaning of every metric, in the order of /metrics.
METRICS = {
    "clients": ("gauge", "Clients that are connected now."),
    "connections_total": ("counter", "Clients that connected."),
    "refusals_total": ("counter", "Clients and requests that were refused, by reason."),
    "words_total": ("counter", "Words that were found, by word."),
    "sound_seconds_total": ("counter", "Seconds of sound that were processed."),
    "windows_total": ("counter", "Windows of one second that were due."),
    "macs_total": ("counter", "Multiply-accumulate operations that were executed."),
    "model_cpu_seconds_total": ("counter", "Processor seconds spent on sound."),
    "process_cpu_seconds_total": ("counter", "Processor seconds of the whole process."),
}


class Hub:
    """One model or several, and the clients. All methods are called in the event loop's thread.

    Streams run through all models; posted files only through the first, `model`. A word that
    several models know is reported by the first of them.
    """

    def __init__(
        self,
        load: Callable[[], Model],
        limits: Limits | None = None,
        threads: int = 0,
        more: Sequence[Callable[[], Model]] = (),
    ) -> None:
        self._loads = (load, *more)
        self.models = self._load()
        self.limits = limits or Limits()
        workers = threads or os.cpu_count() or 1
        self.pool = ThreadPoolExecutor(workers, "stream")
        self.files = ThreadPoolExecutor(workers, "file")  # long work, which streams do not wait for
        self.clients = 0
        self.connections = 0
        self.words: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self._usage: Counter[str] = Counter()  # of streams and files that have ended
        self._spotters: set[Spotter] = set()

    def _load(self) -> list[Model]:
        return [load() for load in self._loads]

    @property
    def model(self) -> Model:
        """Return the first model."""
        return self.models[0]

    @property
    def owners(self) -> dict[str, Model]:
        """Return every word with its model; silence and "unknown" are not words."""
        return {
            label: model
            for model in reversed(self.models)  # the first model takes the word in the end
            for label in model.labels
            if not label.startswith("_")
        }

    @property
    def labels(self) -> list[str]:
        """Return the words that the models know, those of the first model first."""
        owners = self.owners
        known = dict.fromkeys(label for model in self.models for label in model.labels)
        return [label for label in known if label in owners]

    async def alive(self) -> None:
        """Return once a worker thread has answered."""
        await asyncio.get_running_loop().run_in_executor(self.pool, int)

    async def reload(self) -> None:
        """Read the model and its settings again. Streams that run keep the old ones."""
        try:
            loop = asyncio.get_running_loop()
            self.models = await loop.run_in_executor(self.pool, self._load)
            log("reloaded", **self.describe())
        except DeltakwtError as error:
            log("reload failed; the old model stays", level="warning", error=str(error))

    def describe(self) -> dict[str, str]:
        """Return the names and the settings of the models, for logs."""
        names = ", ".join(model.name for model in self.models)
        return {"model": names, "setting": ", ".join(str(model.setting) for model in self.models)}

    @contextmanager
    def client(self, name: str) -> Iterator[None]:
        """Count a client while it is connected, and refuse it if there are too many."""
        if self.clients >= self.limits.clients:
            self.refuse(name, refused := Refused("busy", "too many clients; try again later"))
            raise refused
        self.clients += 1
        self.connections += 1
        log("connected", client=name)
        try:
            yield
        finally:
            self.clients -= 1
            log("disconnected", client=name)

    def refuse(self, name: str, refused: Refused) -> None:
        """Count and log a refusal."""
        self.refusals[refused.code] += 1
        log("refused", level="warning", client=name, code=refused.code, reason=refused.text)

    def check_words(self, names: object) -> frozenset[str] | None:
        """Return the words that a client asks for; None stands for all of them."""
        if names is None or names == []:
            return None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Refused("bad-names", "names: must be a list of words")
        for name in names:
            if name not in self.labels:
                known = ", ".join(self.labels)
                raise Refused("bad-names", f"{name[:40]!r} is not known; words are {known}")
        return frozenset(names)

    async def find(
        self, client: str, sound: SoundBuffer, wanted: Callable[[str], bool]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the wanted words of one stream, as `event_json`, until the buffer ends."""
        owners = self.owners
        # Nobody asks for the sound again, so that a client needs little memory.
        streams = [(m, AsyncSpotter(m, kept=0.0, executor=self.pool)) for m in self.models]
        self._spotters.update(stream.spotter for _, stream in streams)
        try:
            async for block, rate in _and_end(sound):
                for model, stream in streams:
                    found = await (stream.flush() if block is None else stream.push(block, rate))
                    for event in found:
                        if owners.get(event.label) is model and wanted(event.label):
                            yield self.count(client, event_json(event))
        except DeltakwtError as error:
            raise Refused("bad-audio", str(error)) from None
        finally:
            for _, stream in streams:
                await stream.close()
                self._spotters.discard(stream.spotter)
                self.add_usage(stream.spotter)

    def count(self, client: str, event: dict[str, Any]) -> dict[str, Any]:
        """Count and log a word, and return it."""
        self.words[event["label"]] += 1
        log("word", client=client, **event)
        return event

    def add_usage(self, spotter: Spotter) -> None:
        """Count what a spotter that has ended has used."""
        self._usage.update(_usage(spotter))

    def metrics(self) -> str:
        """Return all counters in the text format of Prometheus."""
        usage = Counter(self._usage)
        for spotter in list(self._spotters):
            usage.update(_usage(spotter))
        values: dict[str, Any] = {
            "clients": self.clients,
            "connections_total": self.connections,
            "refusals_total": {"reason": self.refusals},
            "words_total": {"word": {label: self.words[label] for label in self.labels}},
            "sound_seconds_total": usage["sound_seconds"],
            "windows_total": usage["windows"],
            "macs_total": usage["macs"],
            "model_cpu_seconds_total": usage["model_cpu"],
            "process_cpu_seconds_total": time.process_time(),
        }
        return "".join(_metric(name, values[name]) for name in METRICS)

    def close(self) -> None:
        """End the worker threads after what they are doing now."""
        for pool in (self.pool, self.files):
            pool.shutdown(wait=True, cancel_futures=True)


async def _and_end(sound: SoundBuffer) -> AsyncGenerator[tuple[Any, int], None]:
    """Yield the blocks of a buffer with their rates, and None after the last one."""
    async for block, rate in sound:
        yield block, rate
    yield None, 0


def _usage(spotter: Spotter) -> dict[str, Any]:
    total = spotter.meter.total
    return {
        "sound_seconds": spotter.seconds,
        "windows": total.windows,
        "macs": total.macs,
        "model_cpu": total.cpu,
    }


def _metric(name: str, value: Any) -> str:
    kind, meaning = METRICS[name]
    full = f"deltakwt_{name}"
    text = f"# HELP {full} {meaning}\n# TYPE {full} {kind}\n"
    if not isinstance(value, dict):
        return f"{text}{full} {value}\n"
    [(label, series)] = value.items()
    lines = (f'{full}{{{label}="{_escaped(key)}"}} {count}\n' for key, count in series.items())
    return text + "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def event_json(event: Event) -> dict[str, Any]:
    """Return an event for clients and logs: stream time in seconds, and the time of day."""
    return {
        "label": event.label,
        "score": round(float(event.score), 6),
        "start": round(event.start, 3),
        "end": round(event.end, 3),
        "time": round(event.time, 3),
        "wall_time": wall_time(),
    }
