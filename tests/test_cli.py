"""Commands through their real entry point: output, exit codes, help and progress."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CLIPS, Run

import deltakwt as package
from deltakwt.cli import VERBS, build, common
from deltakwt.cli.running import run


def one_line(text: str) -> bool:
    return text.startswith("deltakwt: ") and text.count("\n") == 1


# ---------------------------------------------------------------- help, options of all commands


def test_version_and_help(deltakwt: Run) -> None:
    assert deltakwt("--version").stdout == f"deltakwt {package.__version__}\n"
    shown = deltakwt("--help")
    assert shown.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in shown.stdout
    assert "bool" not in shown.stdout
    assert deltakwt("-h").stdout == shown.stdout
    bare = deltakwt()
    assert (bare.returncode, bare.stdout, bare.stderr) == (0, shown.stdout, "")


def test_h_is_help_for_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (*VERBS, "models show", "models pull", "data get"):
        assert run(build(), [*verb.split(), "-h"]) == 0
        short = capsys.readouterr().out
        assert short.startswith(f"Usage: deltakwt {verb} ")
        assert run(build(), [*verb.split(), "--help"]) == 0
        assert capsys.readouterr().out == short
    assert run(build(), ["models"]) == 0
    assert "Usage: deltakwt models" in capsys.readouterr().out


def test_lists_of_commands_hold_whole_sentences(deltakwt: Run) -> None:
    for group in ((), ("models",), ("data",), ("serve",)):
        shown = deltakwt(*group, "--help", COLUMNS="80").stdout
        commands = shown.partition("Commands:")[2].strip().splitlines()
        assert len(commands) >= 2
        for line in commands:
            assert re.fullmatch(r" *\w+  +[A-Z].*\.", line), line
            assert not line.endswith("..."), line


def test_clips_is_a_number_of_clips_in_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for verb in VERBS:
        assert run(build(), [verb, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        found += [line for line in lines if " --clips " in line]
    assert len(found) >= 2
    for line in found:
        assert re.search(r"--clips N ", line), line
        assert "this many clips" in line


def test_arguments_and_options_name_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    """Help shows `FILE` and `--hours HOURS`, not `FILE <path>` and `--hours <float>`."""
    for verb in (*VERBS, "serve http", "serve wyoming", "models import", "data get"):
        assert run(build(), [*verb.split(), "--help"]) == 0
        text, _, options = capsys.readouterr().out.partition("\nOptions:")
        assert "<" not in text.partition("\nArguments:")[2], verb
        assert not re.search(r"^ +-[^ ].* <\w", options, re.MULTILINE), verb


def test_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; sys.argv = ['deltakwt', '--help']\n"
        "from deltakwt import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded
    slow = {"numpy", "soundfile", "optuna", "sqlalchemy", "torch", "matplotlib", "onnxruntime"}
    assert not loaded & slow


def test_only_the_module_of_the_wanted_verb_is_imported() -> None:
    code = (
        "import sys; sys.argv = ['deltakwt', '-v', 'doctor', '-h']\n"
        "from deltakwt import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('deltakwt.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1][1:-1].replace("'", "").split(", "))
    shared = {f"deltakwt.cli.{name}" for name in ("common", "running", "options")}
    assert loaded - shared == {"deltakwt.cli.doctor"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(deltakwt: Run, shell: str) -> None:
    shown = deltakwt("--show-completion", shell)
    assert shown.returncode == 0
    assert "_DELTAKWT_COMPLETE" in shown.stdout
    asked = deltakwt(_DELTAKWT_COMPLETE="complete_bash", COMP_WORDS="deltakwt do", COMP_CWORD="1")
    assert asked.stdout.split() == ["doctor"]


def test_verbose_tells_what_was_loaded_and_quiet_shows_results_only(
    capsys: pytest.CaptureFixture[str], random_model: Path
) -> None:
    command = ["spot", str(CLIPS / "yes.flac"), "--model", str(random_model), "--json"]
    assert run(build(), [*command, "-v"]) == 0
    verbose = capsys.readouterr()
    assert str(random_model) in verbose.err
    assert "12 layers" in verbose.err
    assert run(build(), ["-q", *command]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert json.loads(quiet.out)[0]["file"] == json.loads(verbose.out)[0]["file"]


def test_progress_is_lines_on_stderr_where_that_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_level", common.USUAL)
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(common.time, "monotonic", lambda: next(clock))
    with common.progress("evaluating [/b]\x1b") as bar:
        for done in range(10):
            bar.update(done, 10)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3  # every 6 of 20 seconds
    assert lines[0] == "deltakwt: evaluating [/b]\\x1b: 2 of 10 (20%), about 24 s left"
    with common.progress("download", "bytes") as bar:
        for done in range(0, 4_000_000, 1_000_000):
            bar.update(done)
    assert capsys.readouterr().err == "deltakwt: download: 2.0 MB\n"


# ---------------------------------------------------------------- odd files and text


def test_a_closed_pipe_ends_the_command_silently(random_model: Path) -> None:
    files = [str(path) for path in CLIPS.glob("*.flac")]
    command = [sys.executable, "-m", "deltakwt", "spot", *files, "-m", str(random_model), "--json"]
    process = subprocess.Popen(
        [*command, "--thresholds", "0.2_0.2_0.2_0.05_0.001_0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"[\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


def test_a_table_into_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "deltakwt", "models", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
