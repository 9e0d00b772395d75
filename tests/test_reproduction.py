"""docs/reproduction.md: its commands run, and every claim has a verdict and a command."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT, Run

PAGE = (PROJECT / "docs" / "reproduction.md").read_text(encoding="utf-8")
DATA = ("speech_commands_test_set_v0.02", "speech_commands_v0.01")
QUICK = {  # the same commands on few clips
    "sweep": ["--subset", "12", "--trials", "3", "--least-accuracy", "0", "--adjust-clips", "16"],
    "report": ["--limit", "8", "--recordings", "0"],
    "models": ["--clips", "4"],
}


def commands() -> list[list[str]]:
    """The deltakwt commands of the page, downloads left out."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    ours = [words[1:] for words in split if words and words[0] == "deltakwt"]
    return [words for words in ours if not {"pull", "get"} & set(words[:2])]


def test_the_commands_run(
    deltakwt: Run,
    arm_kwt1: Path,
    test_set: Path,
    full_set: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, folder in zip(DATA, (test_set, full_set), strict=True):
        (tmp_path / "data" / name).symlink_to(folder)
    named = {"arm-kwt-1": str(arm_kwt1)}
    assert [words[0] for words in commands()] == [
        "sweep",
        "report",
        "eval",
        "macs",
        "macs",
        "models",
    ]
    for words in commands():
        done = deltakwt(*(named.get(word, word) for word in words), *QUICK.get(words[0], []))
        assert done.returncode == 0, f"{words}: {done.stderr}"
    page = (tmp_path / "report" / "report.html").read_text()
    assert "The paper's sweep" in page or "The paper&#x27;s sweep" in page


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that writes the tables of the page."""
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks"))
    return importlib.import_module("reproduction")


def test_the_tables_come_from_the_reports_of_the_repository(made: Any) -> None:
    reports = made.load()
    assert made.updated(PAGE, reports) == PAGE
    for name, report in reports.items():
        assert "timing" not in report  # no times of a machine that had other work
        assert report["sweep"]["trials"] >= 500, name
        assert {p["kind"] for p in report["sweep"]["points"]} == {"front", "adjusted"}, name


def test_a_second_model_becomes_a_column(made: Any) -> None:
    first = made.load()["KWT-1"]
    text = made.updated(PAGE, {"KWT-1": first, "`kwt-3`": first})
    head = next(line for line in text.splitlines() if line.startswith("| claim | paper, KWT-3"))
    assert head == "| claim | paper, KWT-3 | KWT-1 | `kwt-3` | verdict | command |"
    assert "(report-kwt-3/sweep.png)" in text


def test_a_model_is_swept_once_and_reported_without_times(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def run(*words: object) -> None:
        calls.append([str(word) for word in words])
        folder = Path(calls[-1][-1])
        folder.mkdir(parents=True)
        (folder / f"{words[0]}.json").write_text("{}")
        (folder / "accuracy.svg").write_text("left out")

    monkeypatch.setattr(made, "run", run)
    given = argparse.Namespace(
        model="kwt-3", data="d", validation="v", out=tmp_path / "docs", work=tmp_path / "work",
        trials="500", adjust_clips="600", times=False,
    )  # fmt: skip
    made.measure(given)
    assert [words[0] for words in calls] == ["sweep", "report"]
    assert "--no-times" in calls[1]
    assert calls[1][calls[1].index("--sweep") + 1] == str(tmp_path / "work/sweep-kwt-3/sweep.json")
    assert [file.name for file in (tmp_path / "docs").iterdir()] == ["report.json"]
    shutil.rmtree(tmp_path / "work" / "report-kwt-3")
    made.measure(given)
    assert [words[0] for words in calls] == ["sweep", "report", "report"]


def test_what_the_repository_holds_of_a_report_is_small() -> None:
    for folder in (PROJECT / "docs").glob("report*"):
        assert sum(file.stat().st_size for file in folder.iterdir()) < 1_500_000, folder


def tables() -> list[list[list[str]]]:
    """The tables of the claims: rows of cells, the head first."""
    text = PAGE.split("## Every claim")[1].split("## Differences")[0]
    found: list[list[list[str]]] = []
    for paragraph in text.split("\n\n"):
        lines = [line for line in paragraph.splitlines() if line.startswith("|")]
        if lines:
            found.append([[c.strip() for c in line.strip("|").split("|")] for line in lines])
    return found


def test_every_claim_has_a_verdict_and_a_command() -> None:
    assert sum(len(table) - 2 for table in tables()) >= 45
    for head, _, *rows in tables():
        assert head[-2:] == ["verdict", "command"]
        for row in rows:
            assert len(row) == len(head), row
            assert row[-2], row
            assert row[-1], row
