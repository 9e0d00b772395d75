"""Compare the logits of the fixed-point engine on several targets, bit by bit.

    python benchmarks/fixed_targets.py --model M --data TEST_SET --clips 1000

Clips of the test set are computed dense and with every profile: by the installed library, and by a
C program built for each target. x86: plain C, AVX2, and AVX-512, which is emulated (SIMDe) on a
processor without it. aarch64: plain C and NEON, under qemu. wasm: WebAssembly vectors under node. A
target whose tools are absent is skipped with a line. The exit code is 1 if a target differs.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from fixed_point import write_model

from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.model import load
from deltakwt.core.setting import Thresholds
from deltakwt.data import speech_commands as dataset

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "native" / "src", ROOT / "tests" / "native"
QEMU = ["aarch64-linux-gnu-gcc", "qemu-aarch64"]
TOOLS = {"x86": ["cc"], "aarch64": QEMU, "wasm": ["clang", "wasm-ld", "node"]}
WASM = ["--target=wasm32-wasi", "--sysroot=/usr", "-msimd128", "-DDK_HAVE_WASM"]
AVX512 = [*(f"-mavx512{part}" for part in ("f", "dq", "bw", "vl")), "-mfma"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="kwt-1")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--targets", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    options = parser.parse_args()
    model = load(options.model, arithmetic="fixed")
    engine = model.engine
    assert isinstance(engine, FixedEngine)
    manifest = dataset.draw(options.data, "test", "zero", limit=options.clips)
    sounds = [dataset.read(manifest, clip) for clip in manifest.clips]
    clips = engine.quantized(np.stack([engine.features(sound) for sound in sounds]))
    settings = [None, *(p.setting.thresholds for p in model.profiles.profiles.values())]
    expected = library_checksum(engine, clips, settings)
    print(f"{model.name}: {len(clips)} clips, {len(settings)} settings")
    print(f"installed library, {engine.isa}: {expected}", flush=True)
    different = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model", engine, settings, clips)
        for target in options.targets:
            if missing := [tool for tool in TOOLS[target] if not shutil.which(tool)]:
                print(f"{target}: skipped, needs {', '.join(missing)}", flush=True)
                continue
            for isa, found in target_checksums(target, folder):
                different |= found != expected
                verdict = "the same bits" if found == expected else "DIFFERENT"
                print(f"{target}, {isa}: {found} {verdict}", flush=True)
    sys.exit(1 if different else 0)


def library_checksum(
    engine: FixedEngine, clips: np.ndarray, settings: list[Thresholds | None]
) -> str:
    """Return FNV-1a over all logits, as fixed_logits.c computes it."""
    total = 14695981039346656037
    for thresholds in settings:
        for logit in engine.integers(clips, thresholds)[0].astype(np.uint32).flat:
            total = (total ^ int(logit)) * 1099511628211 % 2**64
    return f"{total:016x}"


def target_checksums(target: str, folder: Path) -> list[list[str]]:
    """Build the program for a target and run it: pairs of instruction set and checksum."""
    program = folder / f"logits-{target}"
    runner: list[str | Path] = []
    if target == "x86":
        build(program, ["cc"], ["-DDK_HAVE_X86", *emulation()], ["avx2", "avx512"])
    elif target == "aarch64":
        runner = ["qemu-aarch64"]
        build(program, [QEMU[0]], ["-DDK_HAVE_NEON", "-static"], ["neon"])
    else:
        runner = ["node", "--no-warnings", TESTS / "run_wasi.mjs"]
        build(program, ["clang"], WASM, ["wasm"])
    with open(folder / "model", "rb") as file:
        done = subprocess.run(
            [*runner, program], stdin=file, capture_output=True, text=True, check=True
        )
    return [line.split() for line in done.stdout.splitlines()]


def emulation() -> list[str]:
    """Return the flag that emulates AVX-512, on a processor without it."""
    if "avx512bw" in Path("/proc/cpuinfo").read_text():
        return []
    return [f'-DDK_AVX512_HEADER="{TESTS / "avx512_emulated.h"}"', "-Wno-psabi"]


def build(program: Path, compiler: list[str], flags: list[str], kernels: list[str]) -> None:
    """Compile fixed_logits.c and the core, each file with the flags of its instruction set."""
    vectors = {"avx2": ["-mavx2", "-mfma", "-mf16c"], "avx512": AVX512}
    if any("AVX512_HEADER" in flag for flag in flags):
        vectors["avx512"] = ["-mavx2", "-mfma"]
    kinds = [f"{kind}{name}" for name in ("scalar", *kernels) for kind in ("", "fixed_")]
    files = [
        *SOURCE.glob("*.c"),
        *SOURCE.glob("fixed/*.c"),
        Path(__file__).parent / "fixed_logits.c",
    ]
    files += [SOURCE / "kernels" / f"{kind}.c" for kind in kinds]
    objects = []
    for file in files:
        objects.append(program.with_name(f"{program.name}-{file.stem}.o"))
        own = vectors.get(file.stem.removeprefix("fixed_"), [])
        common = ["-std=c11", "-O2", "-ffp-contract=off", f"-I{ROOT / 'native' / 'include'}"]
        subprocess.run(
            [*compiler, *common, *flags, *own, "-c", file, "-o", objects[-1]], check=True
        )
    subprocess.run([*compiler, *flags, *objects, "-lm", "-o", program], check=True)


if __name__ == "__main__":
    if platform.machine() not in ("x86_64", "AMD64"):
        sys.exit("fixed_targets.py: runs on x86-64 only")
    main()
