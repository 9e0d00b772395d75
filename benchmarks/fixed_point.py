"""Compare the fixed-point engine with the float engine at the same thresholds.

    python benchmarks/fixed_point.py speed --model M --data TEST_SET
    python benchmarks/fixed_point.py agreement --model M --data TEST_SET
    python benchmarks/fixed_point.py parts --model M --data TEST_SET

`speed` pins the process to one core and lets the two engines take turns clip by clip. The fastest
of all rounds counts for each clip, and the median over the clips is printed. `agreement` runs the
whole test set and prints how many answers are right and how many are the same. `parts` prints the
time of each part of the fixed-point engine; it needs a C compiler and x86. The scales come from 300
clips: the validation clips of `--calibration`, or clips of the test set.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.core.engine import Engine
from deltakwt.core.fixed_engine import FixedEngine, native_numbers, native_tensors
from deltakwt.core.fixed_scales import calibrate, fixed_thresholds, silent_features
from deltakwt.core.model import load
from deltakwt.core.native import model_sizes
from deltakwt.core.setting import ALL_SITES, Setting, Thresholds
from deltakwt.data import speech_commands as dataset
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

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
    options = parser.parse_args()
    path = resolve(options.model)
    weights, model = load_weights(path), load(path)
    config, tensors = weights.config, weights.tensors
    exact = Engine(config, tensors, options.isa)
    scales = calibrate(config, tensors, calibration_features(exact, options))
    fixed = FixedEngine(config, tensors, scales, options.isa, options.weight_bits)
    profiles = {
        name: None if name == "dense" else model.profiles[name].setting.thresholds
        for name in options.profiles
    }
    reports = {"speed": speed, "agreement": agreement, "parts": parts}
    reports[options.what](exact, fixed, profiles, options)


def calibration_features(engine: Engine, options: argparse.Namespace) -> np.ndarray:
    split = "val" if options.calibration else "test"
    manifest = dataset.draw(options.calibration or options.data, split, "zero", limit=300)
    return np.stack([engine.features(dataset.read(manifest, clip)) for clip in manifest.clips])


def word_features(engine: Engine, options: argparse.Namespace) -> np.ndarray:
    manifest = dataset.draw(options.data, "test", "zero", limit=options.clips)
    sounds = [dataset.read(manifest, clip) for clip in manifest.clips]
    return np.stack([engine.features(sound) for sound in sounds if np.abs(sound).max() > 0])


def speed(
    exact: Engine,
    fixed: FixedEngine,
    profiles: dict[str, Thresholds | None],
    options: argparse.Namespace,
) -> None:
    os.sched_setaffinity(0, {0})
    clips = word_features(exact, options)
    print("| profile | clips | float, us | fixed, us | ratio |")
    print("|---|---|---|---|---|")
    for name, thresholds in profiles.items():
        for kind, features in (("words", clips), ("silence", silent_features(exact.config)[None])):
            table = thresholds and fixed_thresholds(exact.config, fixed.scales, thresholds)
            integers = fixed.quantized(features)

            def run_float(i: int, x: Any = features, theta: Any = thresholds) -> None:
                exact.logits(x[i], theta)

            def run_fixed(i: int, x: Any = integers, theta: Any = table) -> None:
                fixed._native.batch(x[i : i + 1], theta, 1, False)

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
    profiles: dict[str, Thresholds | None],
    options: argparse.Namespace,
) -> None:
    manifest = dataset.draw(options.data, "test", "zero")
    features = np.stack([exact.features(dataset.read(manifest, c)) for c in manifest.clips])
    labels = np.array([exact.config.labels.index(clip.label) for clip in manifest.clips])
    print(
        "| profile | right, float | right, fixed | same answer | logits: median, most | limited |"
    )
    print("|---|---|---|---|---|---|")
    for name, thresholds in profiles.items():
        a = exact.batch(features, Setting(thresholds)).logits
        got = fixed.batch(features, Setting(thresholds))
        b, apart = got.logits, np.abs(a - got.logits).max(axis=1)
        same = int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
        right = [int((logits.argmax(axis=1) == labels).sum()) for logits in (a, b)]
        print(
            f"| {name} | {right[0]} | {right[1]} | {same} of {len(a)} ({100 * same / len(a):.2f}%)"
            f" | {np.median(apart):.3f}, {apart.max():.2f} | {int((got.saturated > 0).sum())} |",
            flush=True,
        )


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
    profiles: dict[str, Thresholds | None],
    options: argparse.Namespace,
) -> None:
    clips = fixed.quantized(word_features(exact, options))
    dense = np.full((exact.config.layers, len(ALL_SITES)), -1, np.int32)
    tables = [
        dense if t is None else fixed_thresholds(exact.config, fixed.scales, t)
        for t in profiles.values()
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "model", "wb") as file:
            sizes = [*model_sizes(exact.config), len(clips), len(tables)]
            np.array(sizes, np.uint32).tofile(file)
            for tensor in native_tensors(fixed.weights):
                tensor.tofile(file)
            fixed.weights.head_bias.astype(np.int32).tofile(file)
            native_numbers(fixed.weights).tofile(file)
            np.array(tables, np.int32).tofile(file)
            clips.tofile(file)
        program = compile_parts(folder)
        command = ["taskset", "-c", "0", program, folder / "model", str(options.rounds)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [*PARTS.split(", "), "embedding", "clip"]
    print("| profile, thousands of ticks a clip | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for profile, line in zip(profiles, printed.splitlines(), strict=True):
        print(f"| {profile} | " + " | ".join(f"{int(n) / 1e3:.0f}" for n in line.split()) + " |")


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
