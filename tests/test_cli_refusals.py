"""Wrong command lines and inputs: one line on stderr and the right exit code."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import typer
from conftest import CLIPS, Run
from tflite_writer import write

from deltakwt.cli import build
from deltakwt.cli.running import run
from deltakwt.weights import registry


def one_line(text: str) -> bool:
    return text.startswith("deltakwt: ") and text.count("\n") == 1


def fails(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and the one line that was said."""
    code = run(build(), [str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert one_line(captured.err), captured.err
    return code, captured.err


def test_bad_models(capsys: pytest.CaptureFixture[str], tmp_path: Path, random_model: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.tflite").write_bytes(write([("conv/weights", np.zeros((3, 3)))]))
    (tmp_path / "text.tflite").write_text("hello")
    for model, reason in {
        tmp_path / "empty": "no config.json",
        tmp_path / "other.tflite": "not a Keyword Transformer",
        tmp_path / "text.tflite": "not a TFLite file",
        "kwt-9": "no such model",
        "arm-kwt-2": "not pulled yet",
    }.items():
        code, line = fails(capsys, "spot", CLIPS / "yes.flac", "--model", model)
        assert code == 2
        assert str(model) in line
        assert reason in line
    assert (
        "exclude"
        in fails(
            capsys,
            *("spot", CLIPS / "yes.flac", "-m", random_model, "--profile", "x"),
            *("--thresholds", "1_1_1_1_1_1"),
        )[1]
    )
    profile = fails(capsys, "spot", CLIPS / "yes.flac", "-m", random_model, "--profile", "x")
    assert profile[0] == 2
    for text in ("nonsense", "1_2", "1_1_1_1_1_-5", "nan_1_1_1_1_1", "1,2_1_1_1_1_1"):
        code, _ = fails(
            capsys, "spot", CLIPS / "yes.flac", "-m", random_model, f"--thresholds={text}"
        )
        assert code == 2


def test_bad_data(capsys: pytest.CaptureFixture[str], tmp_path: Path, random_model: Path) -> None:
    model = ("--model", random_model)
    assert fails(capsys, "eval", "--data", tmp_path, *model)[0] == 2
    assert fails(capsys, "eval", "--data", tmp_path / "nothing", *model)[0] == 2
    assert fails(capsys, "eval", "--data", tmp_path, *model, "--split", "train")[0] == 2
    assert fails(capsys, "eval", "--data", tmp_path, *model, "--silence", "loud")[0] == 2
    assert fails(capsys, "data", "info", tmp_path)[0] == 2
    assert fails(capsys, "models", "pull", "kwt-99")[0] == 2
    assert fails(capsys, "models", "import", tmp_path / "a.tflite", "--out", tmp_path / "o")[0] == 2
    assert not (tmp_path / "o").exists()


def test_an_unknown_data_set(deltakwt: Run) -> None:
    done = deltakwt("data", "get", "v9")
    assert done.returncode == 2
    assert one_line(done.stderr)


def test_debug_shows_the_traceback_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--debug", "data", "info", "nowhere"],
        ["data", "info", "nowhere", "--debug"],
    ):
        assert run(build(), arguments) == 2
        assert "Traceback" in capsys.readouterr().err


def test_the_unexpected_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(registry, "named_models", broken)
    code, line = fails(capsys, "models", "list")
    assert code == 1
    assert "unexpected RuntimeError: two lines" in line


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["--nonsense"], "No such option: --nonsense. Try: deltakwt --help"),
        (["macs", "--json=full"], "Option '--json' does not take a value. Try: deltakwt"),
        (["spot"], "Missing argument 'FILE'"),
        (["spot", "a.wav", "--threads", "-1"], "--threads"),
        (["spot", "a.wav", "--threads", "two"], "--threads"),
        (["models", "show"], "Missing argument 'MODEL'"),
        (["spot", "--nope\x1b[31m", "a"], "\\x1b[31m"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    code, line = fails(capsys, *arguments)
    assert code == 2
    assert reason in line
    assert "--help" in line


def test_an_interrupted_spot_shows_what_it_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, random_model: Path
) -> None:
    from deltakwt.core.model import Model
    from deltakwt.listen.spotter import Spotting

    spot = Model.spot

    def interrupted(self: Model, file: str, **options: int) -> Spotting:
        if "no.flac" in file:
            raise KeyboardInterrupt
        return spot(self, file, **options)

    monkeypatch.setattr(Model, "spot", interrupted)
    files = [str(CLIPS / f"{word}.flac") for word in ("yes", "no", "up")]
    assert run(build(), ["spot", *files, "--model", str(random_model), "--json"]) == 130
    captured = capsys.readouterr()
    assert [entry["file"] for entry in json.loads(captured.out)] == files[:1]
    assert "interrupted" in captured.err


@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [(KeyboardInterrupt(), 130, "deltakwt: interrupted\n"), (SystemExit(143), 143, "")],
)
def test_a_signal_in_the_middle_of_a_lock_ends_the_run_as_usual(
    capsys: pytest.CaptureFixture[str], stop: BaseException, code: int, said: str
) -> None:
    app = typer.Typer()

    @app.command()
    def wait(_name: str) -> None:
        try:
            raise stop
        finally:
            threading.Lock().release()  # as in the locks of Python's own library: RuntimeError

    assert run(app, ["x"]) == code
    assert capsys.readouterr().err == said
