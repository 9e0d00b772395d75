"""Commands that messages advise are safe to copy into a shell, whatever the names in them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from deltakwt.cli import build
from deltakwt.cli.running import run as run_command

pytest.importorskip("torch")


def test_the_command_that_continues_a_training_is_quoted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder's name must not end the command and begin another."""
    from deltakwt.train import training

    monkeypatch.setattr(training, "train", lambda request, reporter: None)  # it was stopped
    out = tmp_path / "a; touch b"
    words = ["train", "--out", str(out), "--data", str(tmp_path)]
    assert run_command(build(), words) == 130
    advice = capsys.readouterr().err.partition("continue with: ")[2]
    assert shlex.split(advice) == ["deltakwt", "train", "--resume", "--out", str(out)]
