"""Weights, a profile and the engine: a thing you call with a sound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import Audio, Sound, blocks, windows
from deltakwt.config import CLIP_SAMPLES, SAMPLE_RATE, Config
from deltakwt.engine import Engine
from deltakwt.errors import DeltakwtError
from deltakwt.events import HOP, MIN_SCORE, Event, Hit, find_events
from deltakwt.frontend import PLAIN, Steady
from deltakwt.macs import Macs
from deltakwt.registry import file_profiles, resolve
from deltakwt.tally import Tally
from deltakwt.thresholds import Profiles, Thresholds, load_profiles
from deltakwt.weights import load_weights

__all__ = ["Event", "Model", "Result", "Spotting", "load"]


@dataclass(frozen=True)
class Result:
    """What the model makes of one second."""

    label: str
    score: float  # of the label, in 0..1
    scores: NDArray[np.float32]  # (labels,) softmax of the logits
    logits: NDArray[np.float32]  # (labels,)
    ms: float  # from samples to logits
    macs: Macs | None = None  # with thresholds
    nonzeros: NDArray[np.int64] | None = None  # (layers, 9) kept values a site, with thresholds
    trace: dict[str, NDArray[Any]] | None = None


@dataclass(frozen=True)
class Spotting:
    """The words in a sound of any length."""

    file: str | None
    events: list[Event]
    ms: float  # of computing, without decoding the file
    seconds: float = 0.0  # length of the sound
    windows: int = 0
    tally: Tally | None = field(default=None, repr=False)  # counts over the windows

    @property
    def macs(self) -> Macs | None:
        """Mean over the windows, with thresholds."""
        return None if self.tally is None else self.tally.macs


class Model:
    """A Keyword Transformer that can be called from many threads.

    Dense unless `profile` or `thresholds` is set, here or in a call.
    """

    def __init__(
        self, config: Config, engine: Engine, profiles: Profiles | None = None, name: str = ""
    ) -> None:
        self.config = config
        self.engine = engine
        self.profiles = profiles or Profiles()
        self.name = name
        self.thresholds: Thresholds | None = None
        self.steady: Steady = PLAIN
        self._profile: str | None = None
        self.profile = self.profiles.default

    def __repr__(self) -> str:
        size = f"dim={self.config.dim} layers={self.config.layers}"
        return f"<deltakwt.Model {self.name} {size} profile={self.profile!r}>"

    @property
    def labels(self) -> tuple[str, ...]:
        return self.config.labels

    @property
    def profile(self) -> str | None:
        """Name of the profile in use; None is dense on plain features."""
        return self._profile

    @profile.setter
    def profile(self, name: str | None) -> None:
        self.thresholds, self.steady = self._setting(None, name) if name else (None, PLAIN)
        self._profile = name

    def _setting(
        self, thresholds: Thresholds | None, profile: str | None
    ) -> tuple[Thresholds | None, Steady]:
        """Thresholds and front end of a call: its own, else the model's."""
        if thresholds is not None and profile is not None:
            raise DeltakwtError("give thresholds or a profile, not both")
        if profile is not None:
            chosen = self.profiles[profile]
            return chosen.thresholds, chosen.steady
        if thresholds is not None:
            return thresholds, PLAIN
        return self.thresholds, self.steady

    def __call__(
        self,
        sound: Sound,
        sample_rate: int | None = None,
        *,
        thresholds: Thresholds | None = None,
        profile: str | None = None,
        trace: bool = False,
    ) -> Result:
        """Classify up to one second of sound: a file, or samples (16 kHz unless told)."""
        chosen, steady = self._setting(thresholds, profile)
        clip = _one_clip(sound, sample_rate)
        if trace and chosen is None:
            raise DeltakwtError("a trace shows deltas: set thresholds or a profile for it")
        start = time.perf_counter()
        features = self.engine.features(clip, steady)  # (98, 40)
        run = None if chosen is None else self.engine.delta(features, chosen)
        logits = self.engine.dense(features) if run is None else run.logits
        ms = 1e3 * (time.perf_counter() - start)
        scores = _softmax(logits)
        best = int(scores.argmax())
        return Result(
            self.labels[best],
            float(scores[best]),
            scores,
            logits,
            ms,
            None if run is None else Macs(self.config, run.macs),
            None if run is None else run.nonzeros,
            self.engine.trace(features, chosen) if trace and chosen is not None else None,
        )

    def spot(
        self,
        sound: Sound,
        sample_rate: int | None = None,
        *,
        thresholds: Thresholds | None = None,
        profile: str | None = None,
        threads: int = 0,
        progress: Callable[[float], None] = lambda seconds: None,
    ) -> Spotting:
        """Find the words in a sound of any length, which is streamed, never held whole.

        Up to one second is one clip. More is heard through a one-second window every 100 ms.
        `progress` is told the seconds heard so far.
        """
        chosen, steady = self._setting(thresholds, profile)
        stream = _Counted(blocks(sound, sample_rate))
        tally = Tally(self.config)
        hits: list[Hit] = []
        heard, spent = 0, 0.0
        for _, clips in windows(stream):
            start = time.perf_counter()
            batch = self.engine.batch(clips, thresholds=chosen, steady=steady, threads=threads)
            spent += time.perf_counter() - start
            hits += self._hits(heard, batch.logits)
            heard += len(clips)
            tally.add(batch.macs, batch.nonzeros)
            progress(heard * HOP)
        seconds = stream.samples / SAMPLE_RATE
        if heard == 1:
            events = [Event(hit.label, hit.score, 0.0, round(seconds, 3)) for hit in hits]
        else:
            events = find_events([hit for hit in hits if hit.score >= MIN_SCORE], heard)
        return Spotting(
            os.fspath(sound) if isinstance(sound, str | os.PathLike) else None,
            events,
            1e3 * spent,
            seconds,
            heard,
            tally,
        )

    def _hits(self, first: int, logits: NDArray[np.float32]) -> list[Hit]:
        """Windows whose best label is a word: neither silence nor unknown."""
        scores = _softmax(logits)  # (n, labels)
        best = scores.argmax(axis=1)
        return [
            Hit(first + i, self.labels[label], float(scores[i, label]))
            for i, label in enumerate(best)
            if not self.labels[label].startswith("_")
        ]


def load(name_or_path: str | os.PathLike[str]) -> Model:
    """A model by shipped or pulled name, from a model folder, or from an authors' .tflite."""
    path = resolve(name_or_path)
    weights = load_weights(path)
    profiles = load_profiles(path) if path.is_dir() else file_profiles(path)
    engine = Engine(weights.config, weights.tensors)
    return Model(weights.config, engine, profiles, os.fspath(name_or_path))


class _Counted:
    """A stream of blocks that counts the samples that went by."""

    def __init__(self, stream: Iterator[Audio]) -> None:
        self.stream, self.samples = stream, 0

    def __iter__(self) -> Iterator[Audio]:
        for block in self.stream:
            self.samples += len(block)
            yield block


def _one_clip(sound: Sound, sample_rate: int | None) -> NDArray[np.float32]:
    """(16000,)"""
    held: list[NDArray[np.float32]] = []
    length = 0
    for block in blocks(sound, sample_rate):
        held.append(block)
        length += len(block)
        if length > CLIP_SAMPLES:
            raise DeltakwtError("longer than one second; model.spot() finds the words in it")
    clip = np.zeros(CLIP_SAMPLES, np.float32)
    clip[:length] = np.concatenate(held)
    return clip


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    scores: NDArray[np.float32] = powers / powers.sum(axis=-1, keepdims=True)
    return scores
