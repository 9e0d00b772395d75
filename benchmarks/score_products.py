"""Compare ways to compute Q K^T on real clips: whole rows of K, or pairs of changes (the paper).

    python benchmarks/score_products.py --model kwt-1 --data DIR

For each instruction set and each form: nanoseconds per head and layer (process time, the fastest
of many rounds) and instructions (valgrind's callgrind, if it is installed).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import deltakwt
from deltakwt.core.native import available_isas
from deltakwt.core.setting import Thresholds
from deltakwt.data.speech_commands import draw, read

HERE = Path(__file__).parent
NATIVE = HERE.parent / "native"
FLAGS = ["-std=c11", "-D_POSIX_C_SOURCE=199309L", "-O3", "-ffp-contract=off"]
VECTORS: dict[str, list[str]] = {
    "scalar": ["-fno-tree-vectorize"],
    "score_products": ["-fno-tree-vectorize"],
    "avx2": ["-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mbmi2"],
}
SETTINGS = {
    "the paper's": "0.2_0.2_0.2_0.05_0.001_0.05",
    "13% of all MACs": "0.4_0.16_0.29_0.1_0.0034_0.07_0.47_0.08",
    "fewest": "0.8_0.12_0.1_0.92_0.0071_0.086_0.77_0.105",
}
BREAK_EVEN = {"scalar": 0.6}  # others: 0.1; the mixed form takes pairs below this share
CLIPS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="kwt-1")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    model = deltakwt.load(options.model, arithmetic="float")
    manifest = draw(options.data, "test", "zero", limit=3 * CLIPS)
    clips = [read(manifest, clip) for clip in manifest.clips if clip.path is not None][:CLIPS]
    print("| thresholds | kernels | form | ns | instructions | rows by pairs |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compiled(folder)
        for setting, text in SETTINGS.items():
            write_matrices(folder / "matrices", model, Thresholds.parse(text), clips)
            for isa in available_isas():
                for form in ("rows", "pairs", "mixed"):
                    arguments = [folder / "matrices", isa, form]
                    even = str(BREAK_EVEN.get(isa, 0.1))
                    ns, off, share = run([program, *arguments, str(options.rounds), even]).split()
                    assert float(off) < 1e-3, f"{form}: scores are off by {off}"
                    counted = instructions([program, *arguments, "1", even])
                    print(
                        f"| {setting} | {isa} | {form} | {float(ns):,.0f} | {counted} | {share}% |"
                    )


def write_matrices(
    path: Path, model: deltakwt.Model, thresholds: Thresholds, clips: list[np.ndarray]
) -> None:
    """Write Q and K of every head of all layers but the last, which has one query."""
    config, heads = model.config, []
    for clip in clips:
        trace = model.engine.trace(model.engine.features(clip), thresholds)
        for layer in range(config.layers - 1):
            parts = (np.hsplit(trace[site][layer], config.heads) for site in ("q", "k"))
            heads += [np.stack(pair) for pair in zip(*parts, strict=True)]
    sizes = [len(heads), config.tokens, config.head_dim]
    data = np.ascontiguousarray(np.stack(heads), np.float32)
    path.write_bytes(np.array(sizes, np.uint32).tobytes() + data.tobytes())


def compiled(folder: Path) -> Path:
    """Compile the core and the program, each instruction set with its own flags."""
    source, objects = NATIVE / "src", []
    x86 = "avx2" in available_isas()
    skipped = {"neon", "wasm"} if x86 else {"avx2", "avx512", "wasm"}
    define = "-DDK_HAVE_X86" if x86 else "-DDK_HAVE_NEON"
    files = [p for p in source.glob("kernels/*.c") if "fixed" not in p.stem]
    for file in [source / "cpu.c", *files, HERE / "score_products.c"]:
        if file.stem in skipped:
            continue
        flags = VECTORS.get(file.stem, [])
        objects.append(folder / f"{file.stem}.o")
        includes = ["-I", NATIVE / "include"]
        subprocess.run(
            ["cc", *FLAGS, define, *flags, *includes, "-c", file, "-o", objects[-1]], check=True
        )
    program = folder / "score_products"
    subprocess.run(["cc", *objects, "-lm", "-o", program], check=True)
    return program


def run(command: list[str | Path]) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    return done.stdout


def instructions(command: list[str | Path]) -> str:
    """Return the instructions per head and layer."""
    if not shutil.which("valgrind"):
        return "-"
    tool = ["valgrind", "--tool=callgrind", "--toggle-collect=score_products"]
    words = [*tool, "--callgrind-out-file=/dev/null", *(str(c) for c in command)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    matrices = np.fromfile(command[1], np.uint32, 1)[0]
    return f"{int(found[1]) / matrices:,.0f}"


if __name__ == "__main__":
    main()
