"""Measure every target of the fixed-point engine in one run and print it beside what was reached.

    python benchmarks/reach_fixed.py --model MODEL --data TEST_SET [--wide kwt-3]
                                     [--targets-clips 1000] [--out benchmarks/results]

MODEL is the authors' KWT-1: a model folder or the .tflite file. Speed: one core, ratio to ONNX
Runtime fp32 in the same run. Accuracy and equal answers: the whole test set, both engines at the
same thresholds. Bits: `fixed_targets.py`. It needs the extra [bench].
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from reach import Line, _line, _ms, _print, _ratio

from deltakwt.bench.benchmark import Options, benchmark
from deltakwt.bench.runners import BASELINE
from deltakwt.bench.timing import draw_clips, pinned
from deltakwt.core.model import Model, load
from deltakwt.core.native import available_isas
from deltakwt.core.setting import DENSE
from deltakwt.data import speech_commands as dataset
from deltakwt.provenance import machine
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import find_scales, resolve

HERE = Path(__file__).parent
CALLS = 200  # runs of each clip when Python's share is measured


def main() -> None:
    options = _arguments()
    found = {name: _bench(name, options) for name in (options.model, options.wide)}
    isa = available_isas()[-1]
    lines = [*_speed(found[options.model], isa), _wide(found[options.wide], isa)]
    print("... the whole test set in both kinds of arithmetic", file=sys.stderr)
    lines += _answers(options.model, options.data)
    lines.append(_python(load(options.model, arithmetic="fixed"), options.data))
    if options.targets_clips:
        lines.append(_targets(options))
    _print(lines)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        document = {
            "machine": machine(isa),
            "command": " ".join(["python", "benchmarks/reach_fixed.py", *sys.argv[1:]]),
            "reach": lines,
            "benchmarks": list(found.values()),
        }
        (options.out / "reach-fixed.json").write_text(json.dumps(document, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--wide", default="kwt-3", help="a model of KWT-3's shape with scales")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--targets-clips", type=int, default=1000, help="0: leave the targets out")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _bench(name: str, options: argparse.Namespace) -> dict[str, Any]:
    path = resolve(name)
    model, weights = load(path, arithmetic="float"), load_weights(path)
    scales = find_scales(path, weights)
    if scales is None:
        sys.exit(f"{name}: has no scales for fixed point; make them with deltakwt quantize")
    share = 1 if name == options.model else 3  # a wide model takes longer
    settings = Options(
        clips=options.clips // share,
        noise=60 // share,
        rounds=options.rounds,
        peers=("ort",),
        isas=(available_isas()[-1],),
        scales=scales,
    )
    say = lambda text: print(f"... {name}: {text}", file=sys.stderr)  # noqa: E731
    return benchmark(model, weights, path, options.data, settings, say)


def _speed(found: dict[str, Any], isa: str) -> list[Line]:
    def against_ort(setting: str, part: str) -> float | None:
        ours = _ms(found, f"deltakwt fixed {isa}", setting, part)
        return _ratio(_ms(found, BASELINE, part=part), ours)

    return [
        _line("no loss (`accurate`), words", against_ort("accurate", "words"), 5.5, 7),
        _line("`fast`, words", against_ort("fast", "words"), 8, 11),
        _line("`listening`, real noise", against_ort("listening", "noise"), 9, 15),
        _line("digital silence, `accurate`", against_ort("accurate", "zero"), 17, 25),
        _line("digital silence, `fast`", against_ort("fast", "zero"), 23, 30),
        _line("dense, words", against_ort("dense", "words"), 2.8, 3.5),
    ]


def _wide(found: dict[str, Any], isa: str) -> Line:
    ours = _ms(found, f"deltakwt fixed {isa}", "accurate", "words")
    ratio = _ratio(_ms(found, BASELINE, part="words"), ours)
    return _line(f"{found['model']}, `accurate`, words", ratio, 4.5, 6)


def _answers(name: str, data: Path) -> list[Line]:
    exact, fixed = (load(name, arithmetic=kind) for kind in ("float", "fixed"))
    manifest = dataset.draw(data, "test", "zero")
    labels = np.array([exact.labels.index(clip.label) for clip in manifest.clips])
    lines = []
    for setting in (DENSE, exact.profiles["accurate"].setting):
        features = np.stack(
            [
                exact.engine.features(dataset.read(manifest, clip), setting.front_end)
                for clip in manifest.clips
            ]
        )
        a, b = (m.engine.batch(features, setting).logits.argmax(axis=1) for m in (exact, fixed))
        lost, won = ((a == labels) & (b != labels)).sum(), ((b == labels) & (a != labels)).sum()
        what = f"{setting}: answers as the float engine ({won} become right, {lost} wrong)"
        lines.append(_line(what, 100 * float((a == b).mean()), 99.3, 99.7, "%"))
    return lines


def _python(model: Model, data: Path) -> Line:
    """Return what `model(sound)` takes beyond the front end and the uncounted core."""
    clips = draw_clips(data, clips=8, noise=0, seed=1)
    run, front_end = model.engine.runner(model.setting.thresholds), model.setting.front_end
    spent = []
    with pinned():
        for sound in clips.audio[clips.members("words")][:5]:
            call, core = fastest_in_turns(
                partial(model, sound),
                lambda sound=sound: run(model.engine.features(sound, front_end)),
            )
            spent.append(call - core)
    what = "Python around a clip"
    line = _line(what, 1e6 * float(np.median(spent)), 60, 30, "us")
    return line | {"met": line["measured"] <= 60}


def fastest_in_turns(*runs: Callable[[], Any]) -> list[float]:
    """Return the seconds of the fastest of many runs of each; the caches are cold for all."""
    best = [float("inf")] * len(runs)
    for _ in range(CALLS):
        for number, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def _targets(options: argparse.Namespace) -> Line:
    """Return how many clips have the same bits on every target."""
    command = [sys.executable, HERE / "fixed_targets.py", "--model", options.model]
    command += ["--data", options.data, "--clips", str(options.targets_clips)]
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    print(done.stdout, file=sys.stderr)
    same = 0 if done.returncode else options.targets_clips
    return _line("clips with the same bits on every target", same, 1000, 4890, "")


if __name__ == "__main__":
    main()
