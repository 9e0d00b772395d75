"""Interleaved timing on one pinned core, so that every ratio is taken within one run."""

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
class Clips:
    """The clips that are timed: words and recorded noise in their natural mix, then silence."""

    audio: Floats  # (n, 16000), the last one all zero
    is_noise: NDArray[np.bool_]  # (n,)

    def members(self, part: str) -> NDArray[np.bool_]:
        """Return (n,) which clips belong to a part; the all-zero clip is only in "zero"."""
        zero = np.arange(len(self.audio)) == len(self.audio) - 1
        parts: dict[str, NDArray[np.bool_]] = {
            "all": ~zero,
            "words": ~zero & ~self.is_noise,
            "zero": zero,
            "noise": self.is_noise,
        }
        return parts[part]


def draw_clips(data: Path, clips: int, noise: int, seed: int = 0) -> Clips:
    """Draw `clips` of a test set in their natural mix, and noise clips until there are `noise`."""
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
    return Clips(np.concatenate([*sounds, zero]), np.array([*silent, False]))


@contextmanager
def pinned() -> Iterator[int]:
    """Pin this thread to one core if the system allows it, and yield the number of the core."""
    if not hasattr(os, "sched_setaffinity"):
        yield -1
        return
    before = os.sched_getaffinity(0)
    core = max(before)  # the first core usually serves the interrupts
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


def inputs_of(runner: Runner, engine: Engine, clips: Clips) -> list[Floats]:
    """Return what a runner gets for every clip: sound, or features of its own front end."""
    if runner.input == "audio":
        return list(clips.audio)
    return [engine.features(clip, runner.setting.front_end) for clip in clips.audio]


def time_runners(
    runners: Sequence[Runner],
    engine: Engine,
    clips: Clips,
    rounds: int,
    step: Callable[[], None] = lambda: None,
) -> dict[int, NDArray[np.float64]]:
    """Return (clips,) the fastest time of each runner in milliseconds, by the runner's number.

    Clip by clip every runner runs twice, and the second run counts: its weights are then in the
    caches as in a program that does nothing else, whichever runner was before it.
    """
    inputs = [inputs_of(runner, engine, clips) for runner in runners]
    best = {number: np.full(len(clips.audio), np.inf) for number in range(len(runners))}
    for _ in range(rounds):
        for clip in range(len(clips.audio)):
            for number, runner in enumerate(runners):
                sound = inputs[number][clip]
                runner.run(sound)
                start = time.perf_counter_ns()
                runner.run(sound)
                spent = (time.perf_counter_ns() - start) / 1e6
                best[number][clip] = min(best[number][clip], spent)
            step()
    return best


def agreement(runner: Runner, engine: Engine, clips: Clips) -> NDArray[np.bool_]:
    """Return (clips,) where the runner's answer is that of our dense model on plain features."""
    answers = [int(runner.run(given).argmax()) for given in inputs_of(runner, engine, clips)]
    features = np.stack([engine.features(clip, PLAIN) for clip in clips.audio])
    same: NDArray[np.bool_] = np.array(answers) == engine.batch(features).logits.argmax(axis=1)
    return same


def rows(
    runners: Sequence[Runner],
    best: dict[int, NDArray[np.float64]],
    same: Sequence[NDArray[np.bool_]],
    clips: Clips,
) -> list[dict[str, Any]]:
    """Return one row per runner and part: the median over the clips of the part."""
    made: list[dict[str, Any]] = []
    for part in PARTS:
        members = clips.members(part)
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
                "setting": str(runner.setting),
                "input": runner.input,
                "part": part,
                "ms": round(ms, 5),
                "ratio_to_ort_fp32": None if baseline is None else round(baseline / ms, 3),
                "agreement": float(agreed[members].mean()),
            }
            for runner, ms, agreed in zip(runners, medians, same, strict=True)
        ]
    return made
