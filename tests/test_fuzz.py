"""The fuzz targets: the corpus is replayed, and each target runs for a short time.

The targets in Python need atheris for that, those in C need clang and its runtime.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from conftest import PROJECT

C_SECONDS = 1

spec = importlib.util.spec_from_file_location("fuzz_run", PROJECT / "fuzz" / "run.py")
assert spec is not None
assert spec.loader is not None
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)
libfuzzer = runner.libfuzzer


@pytest.mark.parametrize("name", runner.TARGETS)
def test_the_corpus_is_read_or_refused_in_one_line(tmp_path: Path, name: str) -> None:
    if name == "server":
        pytest.importorskip("starlette")
        pytest.importorskip("uvicorn")
    assert runner.replay(name, tmp_path) > 0


@pytest.mark.parametrize(
    "name", ["profiles", "manifest", "decision", "events", "thresholds", "http"]
)
def test_the_first_seed_is_accepted(tmp_path: Path, name: str) -> None:
    """A target that refuses everything would find nothing."""
    seed = {"thresholds": "six", "decision": "default"}.get(name, "two")
    target, data = runner.load(name), (runner.CORPUS / name / seed).read_bytes()
    assert target(data, tmp_path) is None  # a refusal raises DeltakwtError


@pytest.mark.parametrize("name", runner.TARGETS)
def test_two_seconds_of_fuzzing_find_nothing(name: str) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip(f"needs atheris: {sys.executable} -m pip install atheris")
    code, executions, log = runner.run_in_process(name, 2)
    assert code == 0, log[-2000:]
    assert executions > 0


def test_a_finding_is_reported(tmp_path: Path) -> None:
    def broken(data: bytes, folder: Path) -> None:
        raise ValueError("unexpected")

    with pytest.raises(ValueError, match="unexpected"):
        runner.check(broken, b"", tmp_path)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if reason := libfuzzer.missing():
        pytest.skip(reason)
    monkeypatch.setattr(libfuzzer, "BUILD", tmp_path / "native")
    libfuzzer.build(quick=True)


def test_the_targets_in_c(built: None) -> None:
    """One test, so that they are built once: the corpus, then a second of each target."""
    assert len(libfuzzer.TARGETS) == 9
    for name in libfuzzer.TARGETS:
        libfuzzer.replay(name, runner.CORPUS / name)
        code, executions, log = runner.run_in_process(name, C_SECONDS)
        assert code == 0, f"{name}: {log[-2000:]}"
        assert executions > 0


def test_without_the_runtime_of_clang_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Debian: clang" in (libfuzzer.missing() or "")
    assert runner.choose(["stream", "config"]) == ["config"]
    assert "left out" in capsys.readouterr().out
