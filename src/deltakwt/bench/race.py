"""Interleaved timing on one pinned core, so that every figure is a ratio within one run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.bench.runners import BASELINE, Runner
from deltakwt.core.config import CLIP_SAMPLES, SILENCE
from deltakwt.core.engine import Engine
from deltakwt.core.setting import PLAIN
from deltakwt.data.speech_commands import batches, draw

Floats = NDArray[np.float32]
PARTS = ("all", "words", "zero", "noise")


@dataclass(frozen=True)
class Course:
    """The clips of a race: a natural mix of words and recorded noise, then digital silence."""

    audio: Floats  # (n, 16000), the last one all zero
    is_noise: NDArray[np.bool_]  # (n,)

    def members(self, part: str) -> NDArray[np.bool_]:
        """(n,) the clips of a part; the all-zero clip belongs to none but its own."""
        zero = np.arange(len(self.audio)) == len(self.audio) - 1
        parts: dict[str, NDArray[np.bool_]] = {
            "all": ~zero,
            "words": ~zero & ~self.is_noise,
            "zero": zero,
            "noise": self.is_noise,
        }
        return parts[part]


def course(data: Path, clips: int, noise: int, seed: int = 0) -> Course:
    """`clips` of a test set in their natural mix, and noise clips until there are `noise`."""
    mixed = draw(data, "test", "noise", seed=seed, limit=clips)
    chosen = set(mixed.clips)
    everything = draw(data, "test", "noise", seed=seed).clips
    spare = [clip for clip in everything if clip.label == SILENCE and clip not in chosen]
    missing = max(0, noise - sum(clip.label == SILENCE for clip in mixed.clips))
    order = np.random.default_rng(seed).permutation(len(spare))[:missing]
    manifest = type(mixed)(
        mixed.root, mixed.split, mixed.silence, seed, (*mixed.clips, *(spare[i] for i in order))
    )
    sounds, silent = [], []
    for read, audio in batches(manifest, 512, os.cpu_count() or 1, lambda failed: None):
        sounds.append(audio)
        silent += [clip.label == SILENCE for clip in read]
    zero = np.zeros((1, CLIP_SAMPLES), np.float32)
    return Course(np.concatenate([*sounds, zero]), np.array([*silent, False]))


@contextmanager
def pinned() -> Iterator[int]:
    """Keep this thread on one core, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield -1
        return
    before = os.sched_getaffinity(0)
    core = max(before)  # interrupts tend to be served by the first
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


def fed(runner: Runner, engine: Engine, track: Course) -> list[Floats]:
    """What a runner gets for every clip: sound, or features of its own front end."""
    if runner.input == "audio":
        return list(track.audio)
    return [engine.features(clip, runner.front_end) for clip in track.audio]


def race(
    runners: Sequence[Runner],
    engine: Engine,
    track: Course,
    rounds: int,
    step: Callable[[], None] = lambda: None,
) -> dict[int, NDArray[np.float64]]:
    """(clips,) best milliseconds of each runner, by its number.

    Clip by clip every runner runs twice and the second time counts: its weights are then as near
    as they would be to a program that does nothing else, whoever ran before.
    """
    inputs = [fed(runner, engine, track) for runner in runners]
    best = {number: np.full(len(track.audio), np.inf) for number in range(len(runners))}
    for _ in range(rounds):
        for clip in range(len(track.audio)):
            for number, runner in enumerate(runners):
                sound = inputs[number][clip]
                runner.run(sound)
                start = time.perf_counter_ns()
                runner.run(sound)
                spent = (time.perf_counter_ns() - start) / 1e6
                best[number][clip] = min(best[number][clip], spent)
            step()
    return best


def agreement(runner: Runner, engine: Engine, track: Course) -> NDArray[np.bool_]:
    """(clips,) where the runner's word is that of our dense model on plain features."""
    answers = [int(runner.run(given).argmax()) for given in fed(runner, engine, track)]
    features = np.stack([engine.features(clip, PLAIN) for clip in track.audio])
    same: NDArray[np.bool_] = np.array(answers) == engine.batch(features).logits.argmax(axis=1)
    return same


def rows(
    runners: Sequence[Runner],
    best: dict[int, NDArray[np.float64]],
    same: Sequence[NDArray[np.bool_]],
    track: Course,
) -> list[dict[str, Any]]:
    """One row a runner and part: the median over its clips."""
    made: list[dict[str, Any]] = []
    for part in PARTS:
        members = track.members(part)
        if not members.any():
            continue
        medians = [float(np.median(best[n][members])) for n in range(len(runners))]
        baseline = next(
            (ms for ms, runner in zip(medians, runners, strict=True) if runner.engine == BASELINE),
            None,
        )
        made += [
            {
                "engine": runner.engine,
                "mode": runner.mode,
                "setting": runner.setting,
                "input": runner.input,
                "part": part,
                "ms": round(ms, 5),
                "ratio_to_ort_fp32": None if baseline is None else round(baseline / ms, 3),
                "agreement": float(agreed[members].mean()),
            }
            for runner, ms, agreed in zip(runners, medians, same, strict=True)
        ]
    return made
