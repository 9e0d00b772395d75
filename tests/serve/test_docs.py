"""docs/serve.md: its defaults are the program's, its commands exist, its example runs."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import fields

import pytest
from conftest import PROJECT, Run
from serve.programs import Program

pytest.importorskip("wyoming")
pytest.importorskip("uvicorn")

from deltakwt.serve import messages, protocols
from deltakwt.serve.hub import METRICS
from deltakwt.serve.limits import Limits

PAGE = (PROJECT / "docs" / "serve.md").read_text()


def test_the_table_of_limits() -> None:
    section = PAGE.split("## Limits")[1].split("## ")[0]
    rows = [row.split("|") for row in re.findall(r"^\| (.*) \|$", section, re.M)][1:]
    values = [float(row[2]) for row in rows]
    defaults = [getattr(Limits(), field.name) for field in fields(Limits)]
    assert values == [*defaults, messages.HEADER, protocols.HEADERS]


def test_the_options_have_the_same_defaults(deltakwt: Run) -> None:
    options = re.findall(r"\| `(--[\w-]+)` \| (\d+) \|", PAGE)
    assert len(options) == 8
    shown = " ".join(deltakwt("serve", "http", "--help").stdout.split())
    for option, default in options:
        found = re.search(rf"{option} .*?\[default: ([\d.]+)[;\]]", shown)
        assert found, option
        assert float(found[1]) == float(default), option


def test_the_commands_exist(deltakwt: Run) -> None:
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.split("\n")
    ]
    ours = [shlex.split(line.rstrip(" &"))[1:] for line in lines if line.startswith("deltakwt")]
    assert len(ours) == 3
    for command in ours:
        assert deltakwt(*command, "--help").returncode == 0


def test_all_metrics_are_named() -> None:
    for name in METRICS:
        assert f"`{name}" in PAGE


def test_the_websocket_example(trained: str) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    program = Program("http", "--uri", f"tcp://{address}", "--model", trained)
    try:
        program.wait_for("ready")
        done = subprocess.run(
            [sys.executable, "-c", code.replace("127.0.0.1:10480", address)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=PROJECT,
        )
    finally:
        assert program.stop() == 0
    assert done.returncode == 0, done.stderr
    found = [json.loads(line.replace("'", '"')) for line in done.stdout.splitlines()]
    assert {"go", "left", "stop"} <= {message.get("label") for message in found}
    assert [found[0]["type"], found[-1]["type"]] == ["ready", "end"]


@pytest.mark.parametrize("page", ["serve.md", "python.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (PROJECT / "docs" / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (PROJECT / "docs" / target).exists(), target
