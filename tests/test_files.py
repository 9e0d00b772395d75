"""The bounded reader: only regular files of limited size, and strict JSON."""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deltakwt import files
from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import load
from deltakwt.data.speech_commands import load_manifest
from deltakwt.files import _Readable, read_json, read_json_lines
from deltakwt.text import one_line, printable
from deltakwt.weights.folder import (
    Weights,
    load_profiles,
    random_tensors,
    read_config,
    save_folder,
)

BAD = {
    "empty": (b"", "not valid JSON"),
    "not JSON": (b"nonsense", "not valid JSON"),
    "brackets": (b"[" * 500_000, "values"),
    "deep": (b'{"a": ' * 33 + b"1" + b"}" * 33, "nested deeper than 32"),
    "many values": (b"[" + b"[]," * 300_000 + b"1]", "values"),
    "too large a number": (b'{"a": 1e400}', "1e400 is too large"),
    "negative": (b'{"a": -1e999}', "too large"),
    "NaN": (b'{"a": NaN}', "NaN is not a number"),
    "infinity": (b'{"a": [-Infinity]}', "Infinity is not a number"),
    "long integer": (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
    "duplicate key": (b'{"a": 1, "a": 2}', "the key 'a' appears twice"),
    "not UTF-8": (b'{"a": "\xff"}', "not UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "half a surrogate pair": (b'{"a": "\\ud800"}', "not UTF-8"),
    "open string": (b'{"' + b'\\"' * 100_000, "not valid JSON"),
    "trailing text": (b"{} {}", "not valid JSON"),
    "list": (b"[]", "must hold a JSON object"),
    "number": (b"1", "must hold a JSON object"),
    "too large": (b" " * (files.MAX_JSON_BYTES + 1), "too large"),
    "wide characters": ('{"a": "' + "\U0001f600" * 80_000 + '"}', "too large"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_json_is_refused_in_one_line_that_names_the_file(tmp_path: Path, kind: str) -> None:
    content, reason = BAD[kind]
    path = tmp_path / "a.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DeltakwtError, match=reason) as error:
        read_json(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300 + len(str(path))


def test_good_json_is_read(tmp_path: Path) -> None:
    text = '{"a": [1, 2.5, true, null, "ä\\ud83d\\ude00 ]}{["], "b": {"a": {}}, '
    text += '"n": -9223372036854775808}'
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {
        "a": [1, 2.5, True, None, "ä\U0001f600 ]}{["],
        "b": {"a": {}},
        "n": -(2**63),
    }
    deep = '{"a": ' * 32 + "1" + "}" * 32
    (tmp_path / "a.json").write_text(deep)
    read_json(tmp_path / "a.json")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def itself(path: Path) -> None:
    path.symlink_to(path)


def folder(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    os.chdir(path.parent)  # the address of a socket may have 107 bytes only
    socket.socket(socket.AF_UNIX).bind(path.name)


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (fifo, "not a regular file"),
    "link to /dev/zero": (zero, "not a regular file"),
    "link to a terminal": (terminal, "not a regular file"),
    "socket": (unix_socket, "not a regular file"),
    "folder": (folder, "not a file but a folder"),
    "dangling link": (dangling, "no such file"),
    "link to itself": (itself, "cannot be read"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    "reader",
    [
        lambda folder: read_config(folder),
        lambda folder: load_profiles(folder),
        lambda folder: load_manifest(folder / "manifest.json", folder),
        lambda folder: list(read_json_lines(folder / "events.jsonl", 1000)),
    ],
    ids=["config", "profiles", "manifest", "lines"],
)
def test_what_is_no_regular_file_is_refused_without_waiting(
    tmp_path: Path,
    kind: str,
    reader: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    make, reason = ODD[kind]
    for name in ("config.json", "profiles.json", "manifest.json", "events.jsonl"):
        make(tmp_path / name)
    with pytest.raises(DeltakwtError, match=rf"{reason}|no config.json"):
        reader(tmp_path)


def test_names_that_no_file_can_have() -> None:
    for name in ("a\0b", "a" * 5000):
        with pytest.raises(DeltakwtError, match="cannot be read"):
            read_json(name)


def test_a_file_that_is_swapped_for_a_pipe_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    opened = os.open

    def swapped(name: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return opened(name, flags)

    monkeypatch.setattr(files.os, "open", swapped)
    with pytest.raises(DeltakwtError, match="not a regular file"):
        read_json(path)


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\n{"a": "x"}\n')
    assert list(read_json_lines(path, 1000)) == [(1, {"a": 1}), (2, {"a": "x"})]
    for line in ("", "[]", "{", '{"a": 1e999}', '{"a": ' * 50, "x" * 70_000):
        path.write_text('{"a": 1}\n' + line + "\n{}\n")
        with pytest.raises(DeltakwtError, match="line 2"):
            list(read_json_lines(path, 1 << 20))
    path.write_text('{"a": 1}\n' * 1000)
    with pytest.raises(DeltakwtError, match="too large"):
        list(read_json_lines(path, 1000))


def test_control_characters_are_shown_as_escapes() -> None:
    assert printable("a\x1b[31mred\x07\n\u202e\x9b") == "a\\x1b[31mred\\x07\\n\\u202e\\x9b"
    assert printable(os.fsdecode(b"caf\xe9.wav")) == "caf\\xe9.wav"
    assert printable("ä 日本 [/b]") == "ä 日本 [/b]"
    assert one_line("two\nlines \x1b") == "two lines \\x1b"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("name", ["config.json", "profiles.json", "model.safetensors"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    """/proc/self/mem is a regular file by its kind, and reading its first byte fails."""
    config = Config(dim=2, heads=1, mlp=2, layers=1, labels=("yes", "no"))
    save_folder(tmp_path, Weights(config, random_tensors(config)))
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/proc/self/mem")
    with pytest.raises(DeltakwtError, match=f"{name}: cannot be read: Input/output error"):
        load(str(tmp_path))


def test_a_file_with_nothing_to_read_yet_is_an_error() -> None:
    """As /proc/kmsg, which is a regular file by its kind too. No test may wait for it."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with _Readable(reading) as raw, pytest.raises(BlockingIOError):
        io.BufferedReader(raw).read(1)
    os.close(writing)
