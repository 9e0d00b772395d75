"""Text of others on the terminal: control characters are shown as escapes, markup has no effect."""

from __future__ import annotations

import io
import logging
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Run

from deltakwt.cli import common
from deltakwt.listen.runner import Meter
from deltakwt.listen.session import Session, View
from deltakwt.logs import TextFormatter

CONTROL = set("\x1b\x07\u202e\x9b\r")
HOSTILE = "a\x1b[31m[red]b\x9b"  # a name of a file, a folder, a device
SHOWN = "a\\x1b[31m[red]b\\x9b"
SHIPPED = Path(common.__file__).parents[1] / "models"


def test_foreign_text_is_escaped_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    rows = common.table("[b]title\x1b", "[i]one", "two\x07")
    rows.add_row("[/b]", "\x1b[2J\u202e")
    common.console().print(rows)
    common.say("label\x9b")
    common.fail("reason\r\x1b[K")
    shown = capsys.readouterr()
    for text in ("[b]title\\x1b", "[i]one", "two\\x07", "[/b]", "\\x1b[2J\\u202e", "label\\x9b"):
        assert text in shown.out
    assert not CONTROL & set(shown.out + shown.err)


def test_foreign_text_is_escaped_beside_tables(capsys: pytest.CaptureFixture[str]) -> None:
    common.console().print(f"Study and figures: out/{HOSTILE}[/b]\nand a second line")
    assert capsys.readouterr().out == f"Study and figures: out/{SHOWN}[/b]\nand a second line\n"


def test_the_name_of_an_exported_model_is_escaped(deltakwt: Run, tmp_path: Path) -> None:
    model, out = tmp_path / HOSTILE, tmp_path / f"out{HOSTILE}"
    shutil.copytree(SHIPPED / "kwt-0", model)
    done = deltakwt("export", "--model", str(model), "--weights", "int16", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert f"out{SHOWN}: {SHOWN}, int16 weights" in done.stdout
    assert not CONTROL & set(done.stdout + done.stderr)


def test_the_live_view_escapes_the_name_of_the_file() -> None:
    view = View(io.StringIO(), f"kwt-1 fast: {HOSTILE}", Meter(dense_macs=1))
    assert SHOWN in view.lines(80)[0]
    assert not CONTROL & set("".join(view.lines(80)))


@pytest.mark.parametrize("has_view", [False, True])
def test_messages_while_listening_are_escaped(
    has_view: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    spotter: Any = SimpleNamespace()
    session = Session(spotter, out=io.StringIO())
    if has_view:
        session.view = View(io.StringIO(), "", Meter(dense_macs=1))
    session.message(f"{HOSTILE}: the microphone\nwas lost")
    shown = session.view.lines(200)[-1] if session.view else capsys.readouterr().err
    assert f"{SHOWN}: the microphone was lost" in shown
    assert not CONTROL & set(shown)


def test_a_log_line_is_one_line() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, f"from {HOSTILE}\nforged", None, None)
    assert TextFormatter().format(record).endswith(f" info from {SHOWN} forged")


def test_the_name_of_a_clip_that_cannot_be_trained_on_is_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from deltakwt.cli.train import ProgressReporter

    ProgressReporter().warn(f"1 files could not be read, such as {HOSTILE}: broken")
    assert capsys.readouterr().err.endswith(f"such as {SHOWN}: broken\n")


def test_the_reason_of_a_server_is_escaped(deltakwt: Run) -> None:
    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"HTTP/1.0 500 \x1b]0;owned\x07[/b]\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    done = deltakwt("models", "pull", "arm-kwt-1", DELTAKWT_MODELS_URL=url)
    server.shutdown()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "500 \\x1b]0;owned\\x07[/b]" in done.stderr
