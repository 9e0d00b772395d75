"""The live view, as lines and on real (pseudo) terminals of 40 and 200 columns."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
import soundfile
from listen.speech import Speech

from deltakwt.listen.decision import Event
from deltakwt.listen.runner import Meter, Usage
from deltakwt.listen.session import View, clock, level


def view(now: list[float] | None = None) -> tuple[View, io.StringIO]:
    meter = Meter(dense_macs=1_000_000)
    for _ in range(30):
        meter.add(Usage(1_600, 1, 1, 50_000, 0.0002))
    out = io.StringIO()
    times = now or [0.0]
    return View(out, "kwt-1 fast: microphone", meter, lambda: times[0]), out


def test_level_is_in_decibel_of_full_scale() -> None:
    assert level(np.ones(100)) == pytest.approx(0, abs=0.01)
    assert level(np.full(100, 0.1)) == pytest.approx(-20, abs=0.01)
    assert level(np.zeros(100)) == level(np.zeros(0)) == -80


def test_clock() -> None:
    assert [clock(0.9), clock(3723.4), clock(200 * 3600)] == ["0:00:00", "1:02:03", "200:00:00"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_every_width_shows_the_meter_and_the_words(width: int) -> None:
    made, _ = view()
    for number in range(7):
        made.word(Event("stop", 0.98, number, number + 0.5, number + 0.7, 0.0))
    made.message("a message that is rather long, to be cut at the edge of a narrow terminal")
    lines = made.lines(width)
    text = "\n".join(lines)
    for shown in ("now", "minute", "start", "5.00%", "0.20%", "words: 7"):
        assert shown in text
    assert text.count("stop") == 5  # the last ones
    assert ("reused" in text) == (width >= 60)
    if width >= 40:
        assert all(len(line) < width for line in lines if not line.startswith("!"))


def test_it_draws_over_itself_and_not_too_often() -> None:
    now = [0.0]
    made, out = view(now)
    for number in range(10):
        now[0] = number * 0.1
        made.block(np.zeros(100))
    drawn = out.getvalue().count("\x1b[J")
    assert drawn == 4  # at 0, 0.3, 0.6 and 0.9 s
    assert "\x1b[7F" in out.getvalue()


def on_terminal(columns: int, *arguments: object) -> list[str]:
    """Run the command on a terminal of that width; the screen at the end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    command = [sys.executable, "-m", "deltakwt", *map(str, arguments)]
    program = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment
    )
    os.close(slave)
    data = b""
    while True:
        try:
            part = os.read(master, 65_536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        data += part
    os.close(master)
    assert program.wait(60) == 0, program.stderr.read() if program.stderr else ""
    return screen(data.decode())


def screen(text: str) -> list[str]:
    """What a terminal shows after the few control sequences that are used."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[\d*[A-Z]|\r?\n|[^\x1b\r\n]+", text):
        if token == "\x1b[2K":
            lines[row] = ""
        elif token == "\x1b[J":
            del lines[row + 1 :]
            lines[row] = ""
        elif token.startswith("\x1b["):
            assert token.endswith("F"), f"unknown sequence {token!r}"
            row -= int(token[2:-1])
            assert row >= 0
        elif token.endswith("\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] += token
    return lines


@pytest.mark.parametrize("columns", [40, 200])
def test_on_a_terminal(columns: int, trained: str, speech: Speech, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "words.wav", speech.sound[:48_000], 16_000)
    shown = on_terminal(
        columns, "listen", "--model", trained, "--profile", "dense", "--threshold", "0.6",
        "--input", tmp_path / "words.wav",
    )  # fmt: skip
    assert all(len(line) < columns for line in shown)
    text = "\n".join(shown)
    assert shown[0].endswith("0:00:04")  # three seconds and the ending
    assert re.match(r"level .* dB$", shown[1])
    assert re.search(r"^now +\d+\.\d+% +\d+\.\d +\d+\.\d+%", text, re.MULTILINE)
    assert re.search("words: 1$.*yes", text, re.MULTILINE | re.DOTALL)
    assert len([line for line in shown if line.startswith("now")]) == 1  # drawn over, not below
