"""Measure every speed target in one run and print it beside what was reached.

    python benchmarks/reach.py --model MODEL --data TEST_SET [--profile accurate] [--room ROOM]
                               [--out benchmarks/results]

MODEL is a model folder or an authors' .tflite file, `--profile` is the setting without loss, and
`--room` is the setting for real noise (default: the same). It needs the extra [bench], a C compiler
and valgrind. If one is missing, a line says so and its row stays empty.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.bench.benchmark import Options, benchmark
from deltakwt.bench.runners import BASELINE
from deltakwt.bench.timing import draw_clips
from deltakwt.core.config import KWT3
from deltakwt.core.engine import Engine
from deltakwt.core.model import Model, load
from deltakwt.core.native import available_isas
from deltakwt.core.setting import Profile, Thresholds
from deltakwt.data.speech_commands import batches, draw
from deltakwt.provenance import machine
from deltakwt.train.grow import grow
from deltakwt.weights.folder import Weights, load_weights
from deltakwt.weights.registry import resolve

HERE = Path(__file__).parent
NATIVE = HERE.parent / "native"
OPENVINO, LITERT = "OpenVINO f32", "LiteRT XNNPACK"


def main() -> None:
    options = _arguments()
    path = resolve(options.model)
    weights, data = load_weights(path), Path(options.data)
    model = load(path, arithmetic="float")
    accurate, room = model.profiles[options.profile], model.profiles[options.room]
    say = lambda text: print(f"... {text}", file=sys.stderr)  # noqa: E731
    peers = ("ort", "openvino", "litert")
    settings = Options(clips=options.clips, rounds=options.rounds, peers=peers)
    kwt1 = benchmark(model, weights, path, data, settings, say)
    # In half precision, as trained models are stored: KWT-3's layout in memory depends on it.
    grown_tensors = grow(weights.config, weights.tensors, KWT3)
    halves = {name: t.astype(np.float16).astype(np.float32) for name, t in grown_tensors.items()}
    wide = Weights(KWT3, halves)
    grown = Model(KWT3, Engine(KWT3, wide.tensors), model.profiles, "grown to kwt-3")
    few = Options(clips=options.clips // 3, noise=8, rounds=3, peers=("ort",))
    kwt3 = benchmark(grown, wide, path, data, few, say)
    lines = [*_speed(kwt1, accurate.name, room.name), *_wide(kwt3, accurate.name)]
    say("the whole test set on all cores")
    lines.append(_test_set(model, accurate, data))
    say("counting instructions")
    lines += _instructions(model, weights, accurate, data)
    lines.append(_memory(path))
    _print(lines)
    document = {
        "machine": machine(model.engine.isa),
        "profile": options.profile,
        "room": options.room,
        "command": " ".join(["python", "benchmarks/reach.py", *sys.argv[1:]]),
        "reach": lines,
        "kwt-1": kwt1,
        "kwt-3": kwt3,
    }
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / f"reach-{Path(options.model).stem}.json"
        file.write_text(json.dumps(document, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--profile", default="accurate")
    parser.add_argument("--room", default=None)
    parser.add_argument("--clips", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.room = options.room or options.profile
    return options


Line = dict[str, Any]


def _line(what: str, measured: float | None, least: float, stretch: float, unit: str = "x") -> Line:
    is_time = unit in ("s", "MB")
    met = None if measured is None else (measured <= least if is_time else measured >= least)
    return {
        "what": what,
        "measured": measured,
        "at_least": least,
        "stretch": stretch,
        "unit": unit,
        "met": met,
    }


def _ms(
    document: dict[str, Any],
    engine: str,
    setting: str = "dense",
    part: str = "all",
    source: str = "features",
) -> float | None:
    for row in document["rows"]:
        found = (row["engine"], row["setting"], row["part"], row["input"])
        if found == (engine, setting, part, source):
            return float(row["ms"])
    return None


def _ratio(slow: float | None, fast: float | None) -> float | None:
    return None if slow is None or fast is None else slow / fast


def _speed(found: dict[str, Any], accurate: str, room: str) -> list[Line]:
    isas = available_isas()
    best = f"deltakwt {isas[-1]}"
    ort = {part: _ms(found, BASELINE, part=part) for part in ("all", "zero", "noise")}
    dense, delta = _ms(found, best), _ms(found, best, accurate)
    sound = _ms(found, best, accurate, source="audio")
    zero, noise = _ms(found, best, accurate, "zero"), _ms(found, best, room, "noise")
    own = f"[{isas[-1]}] "
    lines = [
        _line(own + "dense against ONNX Runtime fp32", _ratio(ort["all"], dense), 2.7, 3.5),
        _line(own + "delta against ONNX Runtime fp32", _ratio(ort["all"], delta), 5, 7),
        _line(own + "delta against OpenVINO f32", _ratio(_ms(found, OPENVINO), delta), 3.5, 5),
        _line(own + "delta against our dense", _ratio(dense, delta), 1.9, 2.5),
        _line(own + "digital silence against ORT", _ratio(ort["zero"], zero), 12, 25),
        _line(own + "real noise against ORT", _ratio(ort["noise"], noise), 8, 15),
        _line(
            own + "from sound against LiteRT",
            _ratio(_ms(found, LITERT, source="audio"), sound),
            5,
            7,
        ),
    ]
    if "avx2" in isas:
        dense, delta = _ms(found, "deltakwt avx2"), _ms(found, "deltakwt avx2", accurate)
        lines.append(_line("AVX2 dense against ORT", _ratio(ort["all"], dense), 1.35, 2))
        lines.append(_line("AVX2 delta against ORT", _ratio(ort["all"], delta), 3, 4))
    return lines


def _wide(found: dict[str, Any], accurate: str) -> list[Line]:
    best = f"deltakwt {available_isas()[-1]}"
    ort = _ms(found, BASELINE)
    dense, delta = _ms(found, best), _ms(found, best, accurate)
    return [
        _line("KWT-3 shapes, dense against ORT", _ratio(ort, dense), 1.6, 2.2),
        _line("KWT-3 shapes, delta against ORT", _ratio(ort, delta), 3.3, 5),
    ]


def _test_set(model: Model, profile: Profile, data: Path) -> Line:
    manifest = draw(data, "test", "zero")
    read = batches(manifest, 1024, 2, lambda failed: None)
    features = np.concatenate(
        [
            np.stack([model.engine.features(clip, profile.setting.front_end) for clip in sounds])
            for _, sounds in read
        ]
    )
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        model.engine.batch(features, profile.setting)
        best = min(best, time.perf_counter() - start)
    return _line(f"{len(features)} clips, features cached, all cores", best, 3, 1.5, "s")


def _instructions(model: Model, weights: Weights, profile: Profile, data: Path) -> list[Line]:
    names = ("scalar instructions, words", "scalar instructions, silence")
    targets = ((2.9, 4.0), (14.0, 30.0))
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or not shutil.which("valgrind"):
        print("... no C compiler or no valgrind: instructions not counted", file=sys.stderr)
        counts: list[float | None] = [None, None]
    else:
        clips = draw_clips(data, clips=40, noise=0, seed=1)
        words = clips.audio[clips.members("words")][:8]
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "clip"
            sources = [str(p) for p in sorted((NATIVE / "src").glob("*.c"))]
            scalar = str(NATIVE / "src" / "kernels" / "scalar.c")
            flags = ["-std=c11", "-O2", "-ffp-contract=off", "-fno-tree-vectorize"]
            includes = ["-I", str(NATIVE / "include")]
            make = [compiler, *flags, *includes, str(HERE / "clip.c"), *sources, scalar, "-lm"]
            subprocess.run([*make, "-o", str(program)], check=True)
            counts = [
                float(np.mean([_fewer(program, model, weights, profile, clip) for clip in chosen]))
                for chosen in (words, clips.audio[-1:])
            ]
    return [
        _line(name, count, *target)
        for name, count, target in zip(names, counts, targets, strict=True)
    ]


def _fewer(
    program: Path, model: Model, weights: Weights, profile: Profile, clip: np.ndarray
) -> float:
    """Return dense instructions divided by delta instructions for one clip."""
    c = weights.config
    sizes = [c.dim, c.heads, c.mlp, c.layers, len(c.labels), c.frames, c.features]
    floats = [weights.tensors[name] for name in c.shapes()]
    setting = profile.setting
    thresholds = setting.thresholds or Thresholds()
    floats += [model.engine.features(clip, setting.front_end), thresholds.array(c.layers)]
    file = program.with_suffix(".bin")
    file.write_bytes(
        np.array(sizes, np.uint32).tobytes()
        + b"".join(np.ascontiguousarray(f, np.float32).tobytes() for f in floats)
    )
    dense, delta = (_count(program, [str(file), mode]) for mode in ("dense", "delta"))
    return dense / delta


def _count(program: Path, arguments: list[str]) -> int:
    callgrind = ["valgrind", "--tool=callgrind", "--toggle-collect=dk_run"]
    quiet = ["--callgrind-out-file=/dev/null"]
    command = [*callgrind, *quiet, str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None
    return int(found[1])


def _memory(path: Path) -> Line:
    """Return the peak memory of spotting one clip above that of an interpreter with numpy."""
    clip = HERE.parent / "examples" / "clips" / "yes.flac"
    spot = f"import deltakwt; print(deltakwt.load({str(path)!r})({str(clip)!r}).label)"
    peaks = [_peak(code) for code in ("import numpy", spot)]
    return _line("memory to spot one clip, above numpy", (peaks[1] - peaks[0]) / 1024, 40, 20, "MB")


def _peak(code: str) -> int:
    """Return the peak memory of a Python process that runs `code`, in KiB."""
    # Read by the process itself: a child's ru_maxrss starts at its parent's.
    report = (
        "\nimport re; print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + report], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def _print(lines: list[Line]) -> None:
    print(f"{'':58} {'measured':>9} {'at least':>9} {'stretch':>8}")
    for line in lines:
        value = "-" if line["measured"] is None else f"{line['measured']:.2f}"
        mark = {True: "met", False: "NOT met", None: ""}[line["met"]]
        print(
            f"{line['what']:58} {value:>8}{line['unit']:2}{line['at_least']:>8g}"
            f" {line['stretch']:>8g}  {mark}"
        )


if __name__ == "__main__":
    main()
