"""Compare the fixed-point engine with the float engine at the same thresholds.

    python benchmarks/fixed_point.py speed --model M --data TEST_SET
    python benchmarks/fixed_point.py agreement --model M --data TEST_SET
    python benchmarks/fixed_point.py parts --model M --data TEST_SET

`speed` pins the process to one core and lets the two engines take turns clip by clip. The fastest
of all rounds counts for each clip, and the median over the clips is printed. `agreement` runs the
whole test set and prints how many answers are right, how many are the same, how many become wrong
and right in fixed point, and the probability of as uneven a split by chance (sign test). With
`--scalar` it also compares the float engine with itself: plain C kernels against vector kernels.
`parts` prints the time of each part of the fixed-point engine; it needs a C compiler and x86. The
scales are those of the model, or come from 300 validation clips of `--calibration`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.core.engine import Engine
from deltakwt.core.fixed_engine import FixedEngine, native_numbers, native_tensors
from deltakwt.core.fixed_scales import calibrate, silent_features
from deltakwt.core.fixed_weights import fixed_thresholds
from deltakwt.core.model import load
from deltakwt.core.native import model_sizes
from deltakwt.core.setting import ALL_SITES, DENSE, FrontEndSetting, Setting, Thresholds
from deltakwt.data import speech_commands as dataset
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import find_scales, resolve

NATIVE = Path(__file__).parent.parent / "native"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["speed", "agreement", "parts"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--clips", type=int, default=60, help="clips to time")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profiles", nargs="+", default=["dense", "accurate", "fast"])
    parser.add_argument("--isa", help="instruction set of both engines; the best one if not given")
    parser.add_argument("--weight-bits", type=int, choices=[8, 16], default=16)
    parser.add_argument("--scalar", action="store_true", help="also compare float with float")
    options = parser.parse_args()
    path = resolve(options.model)
    weights, model = load_weights(path), load(path, arithmetic="float")
    config, tensors = weights.config, weights.tensors
    exact = Engine(config, tensors, options.isa)
    scales = find_scales(path, weights)
    if options.calibration:
        scales = calibrate(config, tensors, calibration_features(exact, options.calibration))
    if scales is None:
        sys.exit(f"{options.model}: has no scales; give --calibration, or see deltakwt quantize")
    fixed = FixedEngine(config, tensors, scales, options.isa, weight_bits=options.weight_bits)
    profiles = {
        name: DENSE if name == "dense" else model.profiles[name].setting
        for name in options.profiles
    }
    options.tensors = tensors
    reports = {"speed": speed, "agreement": agreement, "parts": parts}
    reports[options.what](exact, fixed, profiles, options)


def calibration_features(engine: Engine, data: Path) -> np.ndarray:
    manifest = dataset.draw(data, "val", "zero", limit=300)
    return np.stack([engine.features(dataset.read(manifest, clip)) for clip in manifest.clips])


def word_features(engine: Engine, options: argparse.Namespace) -> np.ndarray:
    manifest = dataset.draw(options.data, "test", "zero", limit=options.clips)
    sounds = [dataset.read(manifest, clip) for clip in manifest.clips]
    return np.stack([engine.features(sound) for sound in sounds if np.abs(sound).max() > 0])


def speed(
    exact: Engine,
    fixed: FixedEngine,
    profiles: dict[str, Setting],
    options: argparse.Namespace,
) -> None:
    os.sched_setaffinity(0, {0})
    clips = word_features(exact, options)
    print("| profile | clips | float, us | fixed, us | ratio |")
    print("|---|---|---|---|---|")
    for name, setting in profiles.items():
        thresholds = setting.thresholds
        for kind, features in (("words", clips), ("silence", silent_features(exact.config)[None])):
            table = thresholds and fixed_thresholds(exact.config, fixed.scales, thresholds)
            integers = fixed.quantized(features)

            def run_float(i: int, x: Any = features, theta: Any = thresholds) -> None:
                exact.logits(x[i], theta)

            def run_fixed(i: int, x: Any = integers, theta: Any = table) -> None:
                fixed._fixed.batch(x[i : i + 1], theta, 1, False)

            best = fastest((run_float, run_fixed), len(features), options.rounds)
            a, b = (1e6 * float(np.median(times)) for times in best)
            print(f"| {name} | {kind} | {a:.0f} | {b:.0f} | {a / b:.2f} |", flush=True)


def fastest(runs: tuple[Callable[[int], None], ...], clips: int, rounds: int) -> np.ndarray:
    """Return seconds (runs, clips): the fastest of all rounds."""
    best = np.full((len(runs), clips), np.inf)
    for _ in range(rounds):
        for i in range(clips):
            for k, run in enumerate(runs):
                start = time.perf_counter()
                run(i)
                best[k, i] = min(best[k, i], time.perf_counter() - start)
    return best


def agreement(
    exact: Engine,
    fixed: FixedEngine,
    profiles: dict[str, Setting],
    options: argparse.Namespace,
) -> None:
    manifest = dataset.draw(options.data, "test", "zero")
    labels = np.array([exact.config.labels.index(clip.label) for clip in manifest.clips])
    made: dict[FrontEndSetting, np.ndarray] = {}
    print(
        "| profile | right, float | right, fixed | become wrong, right (by chance) | same answer"
        " | logits: median, most | limited |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, setting in profiles.items():
        front_end = setting.front_end
        if front_end not in made:
            sounds = (dataset.read(manifest, clip) for clip in manifest.clips)
            made = {front_end: np.stack([exact.features(sound, front_end) for sound in sounds])}
        features = made[front_end]
        a, got = exact.batch(features, setting).logits, fixed.batch(features, setting)
        limited = int((got.saturated > 0).sum())
        print(compared(name, labels, a, got.logits) + f" {limited} |", flush=True)
        if options.scalar:
            plain = Engine(exact.config, options.tensors, "scalar").batch(features, setting).logits
            print(compared(f"{name}, float, plain C", labels, a, plain) + " |", flush=True)


def compared(name: str, labels: np.ndarray, a: np.ndarray, b: np.ndarray) -> str:
    """Return a row of the table: logits b against logits a."""
    first, second, apart = a.argmax(axis=1), b.argmax(axis=1), np.abs(a - b).max(axis=1)
    right = first == labels, second == labels
    lost, won = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    same = int((first == second).sum())
    return (
        f"| {name} | {right[0].sum()} | {right[1].sum()} | {lost}, {won}"
        f" (p = {sign_test(lost, won):.2f}) | {same} of {len(a)} ({100 * same / len(a):.2f}%)"
        f" | {np.median(apart):.3f}, {apart.max():.2f} |"
    )


def sign_test(lost: int, won: int) -> float:
    """Return the probability of a split at least as uneven if both are equally likely."""
    both, fewer = lost + won, min(lost, won)
    return min(1.0, 2.0 * sum(comb(both, k) for k in range(fewer + 1)) / 2.0**both)


PARTS = "products of whole rows, of deltas, scan, hold, softmax, GELU, LayerNorm, transposition"
FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-DDK_HAVE_X86", f"-I{NATIVE / 'include'}"]
VECTORS = {
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"],
    "neon": None,
    "wasm": None,
}


def parts(
    exact: Engine,
    fixed: FixedEngine,
    profiles: dict[str, Setting],
    options: argparse.Namespace,
) -> None:
    clips = fixed.quantized(word_features(exact, options))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [setting.thresholds for setting in profiles.values()]
        write_model(folder / "model", fixed, settings, clips)
        program = compile_parts(folder)
        command = ["taskset", "-c", "0", program, folder / "model", str(options.rounds)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [*PARTS.split(", "), "embedding", "clip"]
    print("| profile, thousands of ticks a clip | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for profile, line in zip(profiles, printed.splitlines(), strict=True):
        print(f"| {profile} | " + " | ".join(f"{int(n) / 1e3:.0f}" for n in line.split()) + " |")


def write_model(
    path: Path, engine: FixedEngine, settings: list[Thresholds | None], clips: np.ndarray
) -> None:
    """Write what fixed_file.h reads."""
    dense = np.full((engine.config.layers, len(ALL_SITES)), -1, np.int32)
    tables = [
        dense if t is None else fixed_thresholds(engine.config, engine.scales, t) for t in settings
    ]
    with open(path, "wb") as file:
        sizes = [*model_sizes(engine.config), len(clips), len(tables)]
        np.array(sizes, np.uint32).tofile(file)
        for tensor in native_tensors(engine.weights):
            tensor.tofile(file)
        engine.weights.head_bias.astype(np.int32).tofile(file)
        native_numbers(engine.weights).tofile(file)
        np.array(tables, np.int32).tofile(file)
        clips.tofile(file)


def compile_parts(folder: Path) -> Path:
    source = NATIVE / "src"
    files = [*source.glob("*.c"), *source.glob("fixed/*.c"), *source.glob("kernels/*.c")]
    objects = []
    for file in [*files, Path(__file__).parent / "fixed_parts.c"]:
        flags = VECTORS.get(file.stem.removeprefix("fixed_"), [])
        if flags is not None:
            objects.append(folder / f"{file.stem}.o")
            subprocess.run(["cc", *FLAGS, *flags, "-c", file, "-o", objects[-1]], check=True)
    subprocess.run(["cc", *objects, "-lm", "-o", folder / "parts"], check=True)
    return folder / "parts"


if __name__ == "__main__":
    main()
