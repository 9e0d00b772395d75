"""The fuzz targets in C: built by clang with libFuzzer and the sanitizers, and run as programs.

fuzz/native/TARGET.c has the function `LLVMFuzzerTestOneInput`. The targets fuzz the public C
interface, streams, listening, the decision rule, model and sound files, and a small model exported
as C.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a target in Python instruments deltakwt when it is first imported
    from deltakwt.export.model import Export

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "fuzz" / "native"
TARGETS = sorted(path.stem for path in (HERE / "native").glob("*.c"))
EMPTY = b"int LLVMFuzzerTestOneInput(const void *data, unsigned long size) { return 0; }"


def missing() -> str | None:
    """Return why the targets cannot be built here, or None if they can."""
    if sys.platform != "linux" or not shutil.which("clang"):
        return "needs Linux and clang (Debian: clang, libclang-rt-dev)"
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "a")
        command = ["clang", "-xc", "-fsanitize=fuzzer,address,undefined", "-", "-o", program]
        done = subprocess.run(command, input=EMPTY, capture_output=True)
    return None if done.returncode == 0 else "needs clang's runtime (Debian: libclang-rt-dev)"


def build(quick: bool = False) -> None:
    """Build all targets; what is up to date is kept. `quick` leaves out the vector kernels."""
    exported = BUILD / "exported"
    shutil.rmtree(exported, ignore_errors=True)
    _export(exported)
    command = ["sh", str(HERE / "native" / "build.sh"), str(BUILD), str(exported)]
    environment = {**os.environ, "QUICK": str(int(quick))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"the C targets do not build:\n{done.stderr[-4000:]}")


def program(name: str) -> Path:
    """Return the path of a target's program."""
    return BUILD / f"fuzz_{name}"


def replay(name: str, corpus: Path) -> None:
    """Run every input of a folder once; raise RuntimeError with the log if one fails."""
    files = [str(path) for path in sorted(corpus.iterdir())]
    command = [str(program(name)), f"-artifact_prefix={BUILD}/", *files]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])


def small_export(kind: str) -> Export:
    """Return a small random model in fixed point with its rule, ready to be exported."""
    import numpy as np

    from deltakwt.core.config import Config
    from deltakwt.core.engine import Engine
    from deltakwt.core.fixed_scales import calibrate
    from deltakwt.core.setting import FrontEndSetting, Setting, Thresholds
    from deltakwt.export.model import Export
    from deltakwt.listen.decision import Decision
    from deltakwt.weights.folder import random_tensors

    config = Config(dim=8, heads=1, mlp=8, layers=1, labels=("_silence_", "yes", "no"))
    thresholds = Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1")
    setting = Setting(thresholds, FrontEndSetting(smooth=True, floor=2.0), "fuzz")
    tensors = {name: 0.2 * tensor for name, tensor in random_tensors(config).items()}
    noise = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
    features = Engine(config, tensors).features(noise, setting.front_end)[None]
    scales = calibrate(config, tensors, features)
    return Export("fuzz", config, tensors, kind, setting, Decision(on=0.5, off=0.3), scales)


def _export(folder: Path) -> None:
    """Export a small model as C."""
    from deltakwt.export.folder import write_folder

    folder.parent.mkdir(parents=True, exist_ok=True)
    write_folder(small_export("int8"), folder)
