"""Many calls from many threads with changing settings: same answers, flat memory.

    python fuzz/threads.py --calls 100000 --threads 8

Every call takes a sound, a setting and a way to run at random: one clip, a batch, a stream in
blocks, a stream that all threads share. Its answer must have the bits of the first answer, which
one thread computed before. Memory is compared between the first tenth of the calls and the end.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_scales import calibrate
from deltakwt.core.model import Model
from deltakwt.core.setting import FrontEndSetting, Setting, Thresholds
from deltakwt.listen.decision import Decision
from deltakwt.listen.spotter import Spotter
from deltakwt.weights.folder import random_tensors

SMALL = Config(dim=16, heads=2, mlp=24, layers=2, labels=("_silence_", "yes", "no"))
LABELS = ("_silence_", "_unknown_", "yes", "no")
LARGE = Config(dim=64, heads=1, mlp=256, layers=3, labels=LABELS)
GROWTH_MB = 16

Answer = tuple[bytes, ...]
Call = Callable[[], Answer]


def sounds() -> list[NDArray[np.float32]]:
    """Return seconds of noise, tones and silence."""
    dice = np.random.default_rng(0)
    time_axis = np.arange(16_000) / 16_000
    tone = 0.3 * np.sin(2 * np.pi * 440 * time_axis * (1 + time_axis))
    noise = dice.normal(0, 0.1, 16_000)
    return [s.astype(np.float32) for s in (noise, tone, noise * tone, np.zeros(16_000))]


def settings() -> list[Setting]:
    """Return dense, the paper's sites, all sites, and stabilised front ends."""
    texts = ("0.2_0.2_0.2_0.05_0.001_0.05", "0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1")
    front_ends = (FrontEndSetting(), FrontEndSetting(smooth=True, floor=2.0, quantile=0.2))
    found = [Setting()]
    for text in texts:
        found += [Setting(Thresholds.parse(text), front_end, "") for front_end in front_ends]
    return found


def stream_answer(model: Model, sound: NDArray[np.float32], setting: Setting, block: int) -> Answer:
    """Return the events of two seconds, pushed in blocks."""
    spotter = Spotter(model, setting=setting, decision=Decision(on=0.3, off=0.2))
    events = []
    both = np.concatenate([sound, sound])
    for start in range(0, len(both), block):
        events += spotter.push(both[start : start + block])
    events += spotter.flush()
    return tuple(repr(event.to_json()).encode() for event in events)


def all_calls() -> list[Call]:
    """Return every combination of a model, a sound, a setting and a way to run it."""
    calls: list[Call] = []
    for config in (SMALL, LARGE):
        tensors = random_tensors(config)
        tensors["embed.weight"] *= 0.01  # values of the size that a trained model has
        model = Model(config, Engine(config, tensors), name="threads")
        features = np.stack([model.engine.features(sound) for sound in sounds()])
        fixed = FixedEngine(config, tensors, calibrate(config, tensors, features))
        for sound in sounds():
            pair = np.stack([sound, sound[::-1]])
            for setting in settings():
                calls += _calls_of(model, fixed, sound, pair, setting)
    return calls


def _calls_of(
    model: Model,
    fixed: FixedEngine,
    sound: NDArray[np.float32],
    pair: NDArray[np.float32],
    setting: Setting,
) -> list[Call]:
    def clip() -> Answer:
        result = model.classify(sound, setting=setting)
        return result.label.encode(), result.logits.tobytes()

    def batch() -> Answer:
        found = model.engine.batch(pair, setting, threads=2)
        return (found.logits.tobytes(),)

    def stream() -> Answer:
        return stream_answer(model, sound, setting, 1600)

    def integers() -> Answer:
        features = fixed.features(sound, setting.front_end)
        return (fixed.logits(features, setting.thresholds).tobytes(),)

    return [clip, clip, clip, integers, batch, stream]


def resident_mb() -> float:
    """Return the memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS in /proc/self/status")


def soak(count: int, threads: int, seed: int = 0) -> tuple[int, float]:
    """Run `count` calls. Return how many answers were wrong, and by how many MB memory grew."""
    calls = all_calls()
    expected = [call() for call in calls]
    wrong: list[int] = []

    def work(number: int, share: int) -> None:
        dice = random.Random(seed * 1000 + number)
        for _ in range(share):
            chosen = dice.randrange(len(calls))
            if calls[chosen]() != expected[chosen]:
                wrong.append(chosen)

    def run(share: int) -> None:
        running = [threading.Thread(target=work, args=(n, share)) for n in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    run(count // 10 // threads)
    before = resident_mb()
    run((count - count // 10) // threads)
    return len(wrong), resident_mb() - before


def main() -> int:
    """Run the calls of the command line; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description="Call deltakwt from many threads.")
    parser.add_argument("--calls", type=int, default=100_000, help="number of calls")
    parser.add_argument("--threads", type=int, default=8, help="number of threads")
    options = parser.parse_args()
    started = time.monotonic()
    wrong, grown = soak(options.calls, options.threads)
    seconds = time.monotonic() - started
    print(
        f"{options.calls:,} calls from {options.threads} threads in {seconds:.0f} s:"
        f" {wrong} wrong answers, memory {grown:+.1f} MB"
    )
    return int(wrong > 0 or grown > GROWTH_MB)


if __name__ == "__main__":
    sys.exit(main())
