"""The commands of the pages about archives, models and scale: verbs and options exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from conftest import CLIPS, PROJECT, Run

PAGES = ("archive", "models", "scale")


@pytest.mark.parametrize("page", PAGES)
def test_every_option_exists(page: str, deltakwt: Run) -> None:
    text = (PROJECT / "docs" / f"{page}.md").read_text().replace("\\\n", " ")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    lines = [line for block in blocks for line in block.splitlines() if "deltakwt " in line]
    commands = [shlex.split(line[line.index("deltakwt ") :], comments=True)[1:] for line in lines]
    assert commands
    shown: dict[str, str] = {}
    for command in commands:
        verb = " ".join(command[: 2 if command[0] == "models" else 1])
        if verb not in shown:
            done = deltakwt(*verb.split(), "--help")
            assert done.returncode == 0, verb
            shown[verb] = done.stdout
        for option in (word for word in command if word.startswith("--")):
            assert re.search(rf"{option}\b", shown[verb]), f"{verb} {option}"


def test_the_benchmark_of_throughput() -> None:
    command = [sys.executable, "benchmarks/archive.py", "--sound", str(CLIPS), "--minutes", "0.3"]
    done = subprocess.run(
        [*command, "--formats", "FLAC", "Ogg Opus"], capture_output=True, text=True, cwd=PROJECT
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| ([\w ]+) \| (\d+) \| ([\d.]+) \|$", done.stdout, re.M)
    assert [row[0] for row in rows] == ["FLAC", "Ogg Opus"]
    for _, speed, hours in rows:
        assert float(speed) * float(hours) == pytest.approx(1000, rel=0.05)
