"""The package: what an import loads, the public names, the examples."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, PROJECT

import deltakwt

HEAVY = ("torch", "optuna", "matplotlib", "onnxruntime", "openvino", "ai_edge_litert", "tensorflow")


def python(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_import_brings_nothing_heavy(random_model: Path) -> None:
    code = (
        "import sys, deltakwt\n"
        f"deltakwt.load({str(random_model)!r})({str(CLIPS / 'yes.flac')!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert python("-c", code) == "[]\n"


def test_an_import_is_quick() -> None:
    """Under 0.3 s more than numpy. Processor time, so that a busy machine does not matter."""
    code = (
        "import time, numpy; start = time.process_time(); import deltakwt;"
        "deltakwt.load; deltakwt.Thresholds; print(time.process_time() - start)"
    )
    assert min(float(python("-c", code)) for _ in range(3)) < 0.3


def test_the_import_alone_is_very_quick() -> None:
    code = (
        "import time; start = time.process_time(); import deltakwt;"
        "print(time.process_time() - start)"
    )
    assert min(float(python("-c", code)) for _ in range(3)) < 0.1


def test_the_example_of_the_docstring_runs_anywhere(tmp_path: Path) -> None:
    code = "import doctest, deltakwt; print(doctest.testmod(deltakwt))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.stdout == "TestResults(failed=0, attempted=6)\n", done.stdout + done.stderr


def test_the_public_face() -> None:
    assert set(deltakwt.__all__) <= set(dir(deltakwt))
    assert deltakwt.load.__module__ == "deltakwt.core.model"
    assert (Path(deltakwt.__file__).parent / "py.typed").exists()
    with pytest.raises(AttributeError, match="nothing"):
        deltakwt.nothing  # noqa: B018


def test_the_example_programs(trained: str) -> None:
    out = python(PROJECT / "examples" / "spot_file.py", CLIPS / "sentence.flac", trained)
    assert [line.split()[4] for line in out.splitlines()] == ["go", "left", "stop", "yes"]
    program = PROJECT / "examples" / "compute_follows_sound.py"
    out = python(program, trained, CLIPS / "yes.flac", CLIPS / "silence.flac")
    assert "yes -> yes with" in out


def test_the_clips_are_what_their_script_makes(tmp_path: Path) -> None:
    if shutil.which("espeak-ng") is None:
        pytest.skip("needs espeak-ng, which makes the example clips")
    python(PROJECT / "examples" / "make_clips.py", tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in CLIPS.glob("*.flac"))
    for name in names:
        made, _ = soundfile.read(tmp_path / name)
        kept, rate = soundfile.read(CLIPS / name)
        assert rate == 16_000
        assert made.shape == kept.shape
        # another version of espeak-ng may speak a little differently
        assert np.abs(made).max() == pytest.approx(np.abs(kept).max(), abs=0.01)


def test_a_missing_compiler_is_said_in_one_line(tmp_path: Path) -> None:
    if not shutil.which("cmake"):
        pytest.skip("needs cmake")
    environment = {**os.environ, "CC": "/nowhere/cc", "CXX": "/nowhere/c++"}
    done = subprocess.run(
        ["cmake", "-S", str(PROJECT), "-B", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode
    message = " ".join(done.stderr.split())
    assert "deltakwt is built from source and needs a C and C++ compiler" in message
    assert "apt install build-essential" in message
