"""Ctrl-C (SIGINT) and SIGTERM in the middle of every long command.

The exit code is 130 or 143, or 0 where a signal is the usual end. What is on the disk afterwards is
whole, and what was finished is kept. tests/train does the same with `deltakwt train`.
"""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CLIPS
from faults.programs import Program, run, whole_tree

from deltakwt.data.speech_commands import load_manifest
from deltakwt.locks import signals_deferred

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
MIX = ("--mix", "words=4,unknown=1,zero=1")


def assert_stopped(program: Program, number: int) -> None:
    """Send the signal and check the code, and that nothing but one line was said."""
    assert program.end(number) == 128 + number, program.err
    said = program.err.splitlines()
    assert said == (["deltakwt: interrupted"] if number == signal.SIGINT else [])


@BOTH
def test_eval(trained: str, many_clips: Path, tmp_path: Path, number: int) -> None:
    manifest = tmp_path / "clips.json"
    options = ("--manifest", manifest, "--threads", "1", "--profile", "dense")
    program = Program("eval", "--model", trained, "--data", many_clips, *options, "-q")
    program.wait_until(manifest.exists)
    assert_stopped(program, number)
    assert len(load_manifest(manifest, many_clips).clips) > 3000
    assert program.out == ""


def test_interrupt_while_python_runs_code_from_a_string(tmp_path: Path) -> None:
    """`dataclass` does, during imports. Python would end by SIGINT, though it was handled."""
    module = """
from deltakwt import cli
def run(app, arguments):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 130
cli.run = run
cli.main()
"""
    (tmp_path / "interrupted.py").write_text(module)
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path)
    assert done.returncode == 130


@BOTH
def test_tune(small_model: Path, full_set: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    command = ("tune", "--model", small_model, "--data", full_set, "--out", out, *MIX)
    command += ("--trial-clips", "24", "--no-refine", "--max-macs", "99", "--trials")
    program = Program(*command, "100000", "-q")
    program.wait_until(lambda: trials(out / "study.db") >= 2)
    assert_stopped(program, number)
    kept = trials(out / "study.db")
    assert not (small_model / "profiles.json").exists()
    assert set(whole_tree(out)) == {"study.db"}
    if number == signal.SIGTERM:  # nothing is lost, and the folder is free again
        again = run(*command, str(kept), "--json")
        assert again.process.returncode == 0, again.err
        assert json.loads(again.out)["search"]["trials"] == kept


def trials(database: Path) -> int:
    """Return how many trials of a study are complete."""
    if not database.exists():
        return 0
    query = "SELECT count(*) FROM trials WHERE state = 'COMPLETE'"
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError:  # its tables are being made
        return 0


@BOTH
def test_sweep(small_model: Path, test_set: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    command = ("sweep", "--model", small_model, "--data", test_set, "--out", out)
    program = Program(*command, "--subset", "12", "--trials", "100000", "-q")
    program.wait_until((out / "subset.json").exists)
    assert_stopped(program, number)
    assert set(whole_tree(out)) == {"subset.json"}
    assert len(load_manifest(out / "subset.json", test_set).clips) == 12


@BOTH
def test_report(small_model: Path, test_set: Path, tmp_path: Path, number: int) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    out = tmp_path / "out"
    command = ("report", "--model", small_model, "--data", test_set, "--out", out)
    program = Program(*command, "--threads", "1", "-q")
    program.wait_until((out / ".unfinished.json").exists)
    assert_stopped(program, number)
    assert not (out / "report.html").exists()
    for path in out.iterdir():
        content = path.read_bytes()
        if path.suffix == ".json":
            json.loads(content)
        else:  # drawing had begun
            ending = {".png": b"IEND\xaeB`\x82", ".svg": b"</svg>\n", ".csv": b"\n"}
            assert content.endswith(ending[path.suffix]), path


@BOTH
def test_export(tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    program = Program("export", "--model", "kwt-3", "--weights", "int16", "--out", out, "-q")
    program.wait_until((out / "src" / "stream.c").exists)
    assert_stopped(program, number)
    assert not out.exists()


@BOTH
def test_listen(trained: str, tmp_path: Path, number: int) -> None:
    """A signal is the usual end of listening: what was heard is saved, the code is 0."""
    saved = tmp_path / "saved"
    sound = CLIPS / "sentence.flac"
    program = Program(
        "listen", "--model", trained, "--input", sound, "--json", "--save-events", saved
    )
    program.wait_until(lambda: '"word"' in program.out)
    assert program.end(number) == 0
    assert program.err == ""
    lines = [json.loads(line) for line in program.out.splitlines()]
    assert lines[-1]["event"] == "end"
    index = [json.loads(line) for line in (saved / "events.jsonl").read_text().splitlines()]
    assert len(index) == lines[-1]["words"] >= 1
    assert {line["file"] for line in index} | {"events.jsonl"} == set(whole_tree(saved))


@BOTH
def test_serve(trained: str, tmp_path: Path, number: int) -> None:
    pytest.importorskip("uvicorn", reason="needs uvicorn")
    path = tmp_path / "socket"
    program = Program("serve", "http", "--uri", f"unix://{path}", "--model", trained)
    program.wait_until(lambda: "ready" in program.err)
    assert program.end(number) == 0
    assert not path.exists()


@pytest.fixture
def stalling_site() -> Iterator[str]:
    """A web site that sends half of every file and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:  # the test is over
                    return
                kept.append(line)
                line.recv(65536)
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(600_000))

        kept: list[socket.socket] = []
        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for line in kept:
            line.close()


@BOTH
def test_data_get(stalling_site: str, tmp_path: Path, number: int) -> None:
    part = tmp_path / "speech_commands_test_set_v0.02.tar.gz.part"
    command = ("data", "get", "test-v0.02", "--out", tmp_path, "-q")
    program = Program(*command, DELTAKWT_DATA_URL=stalling_site)
    program.wait_until(lambda: part.exists() and part.stat().st_size)
    code = program.end(number)
    assert code == 128 + number
    assert part.stat().st_size >= 1 << 18  # it continues there the next time
    assert [path.name for path in tmp_path.iterdir()] == [part.name]


SLOW_UNPACKING = """
import sys, time; from pathlib import Path
from deltakwt.cli.running import stop_on_signals
from deltakwt.data import sources
stop_on_signals()
sources.extract(sources.find("test-v0.02"), Path(sys.argv[1]), lambda *_: time.sleep(0.1))
"""


def test_a_download_is_not_lost_when_its_unpacking_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "clip.wav").write_bytes(bytes(1000))
    archive = tmp_path / "speech_commands_test_set_v0.02.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for number in range(100):
            tar.add(tmp_path / "clip.wav", f"yes/{number}.wav")
    before = whole_tree(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", SLOW_UNPACKING, str(archive)])
    unfinished = tmp_path / "speech_commands_test_set_v0.02.unpacking"
    while not (unfinished / "yes" / "3.wav").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert whole_tree(tmp_path) == before


def test_signals_wait_while_threads_are_started() -> None:
    seen = []

    def start() -> None:
        with signals_deferred():
            signal.raise_signal(signal.SIGINT)
            seen.append("after the signal")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert seen == ["after the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_signal_does_not_wait() -> None:
    seen = []

    def work() -> None:
        with signals_deferred():
            signal.raise_signal(signal.SIGINT)
            seen.append("after the first")
            signal.raise_signal(signal.SIGINT)
            seen.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["after the first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_can_be_allowed_for_a_part() -> None:
    """What waited comes at the start of that part; what follows the part waits again."""
    seen = []

    def work() -> None:
        with signals_deferred() as signals:
            try:
                signal.raise_signal(signal.SIGINT)
                with signals.allowed():
                    seen.append("allowed")
            finally:
                signal.raise_signal(signal.SIGINT)
                seen.append("after the part")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["after the part"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@BOTH
def test_a_signal_in_a_callback_is_not_lost(number: int) -> None:
    """Python drops what the callback of a weak reference raises."""
    program = """
import signal, sys, time, weakref
from deltakwt.cli.running import stop_on_signals
stop_on_signals()
class Thing: pass
thing = Thing()
watch = weakref.ref(thing, lambda _: signal.raise_signal(int(sys.argv[1])))
del thing
try:
    for _ in range(300):
        time.sleep(0.1)
except KeyboardInterrupt:
    sys.exit(130)
"""
    command = [sys.executable, "-c", program, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=25)
    assert (done.returncode, done.stderr) == (128 + number, "")
