"""docs/exit-codes.md: the table has the codes of the program, and each is the one that is used.

130 and 143 are in test_signals.py, most cases of 1 and 2 in the other files of this folder.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import CLIPS, PROJECT
from faults.programs import assert_one_line, run

from deltakwt.cli import running
from deltakwt.core.errors import DeltakwtError, DiskFailed


def test_the_table_has_every_code() -> None:
    text = (PROJECT / "docs" / "exit-codes.md").read_text()
    listed = [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert listed == sorted(running.ExitCode)
    assert "exit-codes.md" in (PROJECT / "README.md").read_text()


def test_done_failed_and_bad_input(trained: str, tmp_path: Path) -> None:
    assert run("spot", CLIPS / "yes.flac", "--model", trained).process.returncode == 0
    (tmp_path / "broken.wav").write_text("nonsense")
    batch = run("spot", CLIPS / "yes.flac", tmp_path / "broken.wav", "--model", trained)
    assert_one_line(batch, 1, "broken.wav")
    assert "yes" in batch.out
    assert_one_line(run("spot", tmp_path / "gone.wav", "--model", trained), 2, "gone.wav")
    assert_one_line(run("spot", "--nonsense"), 2, "--nonsense")


def raised(cause: BaseException | None) -> DeltakwtError:
    try:
        raise DeltakwtError("a: cannot be written") from cause
    except DeltakwtError as error:
        return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (raised(None), 2),
        (raised(PermissionError(13, "Permission denied")), 2),
        (raised(OSError(28, "No space left on device")), 1),
        (DiskFailed("a"), 1),
        (MemoryError(), 1),
        (OSError(5, "Input/output error"), 1),
        (RuntimeError("a defect"), 1),
    ],
)
def test_the_code_of_an_error(error: Exception, code: int) -> None:
    assert running.exit_code_of(error) == code
    assert "\n" not in running.describe(error)
