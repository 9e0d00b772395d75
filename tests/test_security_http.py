"""Answers of hostile web servers: each is refused in one short line, and nothing is left."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltakwt.core.errors import DeltakwtError
from deltakwt.files import read_json
from deltakwt.weights.download import DownloadFailed, fetch

Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that gives one answer to each connection; the last one again and again."""
    listening = socket.create_server(("127.0.0.1", 0))

    def start(*answers: bytes) -> str:
        def run() -> None:
            waiting = list(answers)
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:  # closed: the test is over
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(waiting.pop(0) if len(waiting) > 1 else waiting[0])

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/a"

    yield start
    listening.close()


def moved(address: bytes) -> bytes:
    return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + address + b"\r\n\r\n"


def refused(url: str, folder: Path) -> str:
    """Return the message of a download that fails; no file is left."""
    with pytest.raises(DownloadFailed) as caught:
        fetch(
            url,
            folder / "a.bin",
            limit=1000,
            verify=lambda path: None,
            progress=lambda done, total: None,
        )
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 600
    assert not list(folder.iterdir())
    return message


@pytest.mark.parametrize("address", [b"ftp://127.0.0.1/a", b"FTP://127.0.0.1/a"])
def test_a_redirect_leads_to_web_addresses_only(
    serve: Serve, tmp_path: Path, address: bytes
) -> None:
    assert "not a secure address" in refused(serve(moved(address)), tmp_path)


def test_a_redirect_to_a_file_is_refused(serve: Serve, tmp_path: Path) -> None:
    assert "not allowed" in refused(serve(moved(b"file:///etc/hostname")), tmp_path)


def test_a_redirect_does_not_lose_the_encryption() -> None:
    from email.message import Message
    from urllib.request import Request

    from deltakwt.weights.download import _Redirects

    request, headers = Request("https://a.example/b"), Message()
    with pytest.raises(DownloadFailed, match="not a secure address"):
        _Redirects().redirect_request(request, None, 302, "", headers, "http://a.example/b")
    again = _Redirects().redirect_request(request, None, 302, "", headers, "https://c.example/")
    assert again is not None
    assert again.full_url == "https://c.example/"


@pytest.mark.parametrize("address", [b"http://[::1", b"http://a\xff.example/"])
def test_a_redirect_to_a_malformed_address(serve: Serve, tmp_path: Path, address: bytes) -> None:
    assert "bad address" in refused(serve(moved(address)), tmp_path)


def test_a_circle_of_redirects(serve: Serve, tmp_path: Path) -> None:
    assert "infinite loop" in refused(serve(moved(b"/a")), tmp_path)


def test_a_reason_of_many_letters_and_control_characters(serve: Serve, tmp_path: Path) -> None:
    message = refused(serve(b"HTTP/1.1 404 \x1b[31m" + b"a" * 9000 + b"\r\n\r\n"), tmp_path)
    assert r"404 \x1b[31maaa" in message


def test_a_length_of_many_digits_is_ignored(serve: Serve, tmp_path: Path) -> None:
    """Python refuses to convert it; the answer is then a file of unknown length."""
    many = b"9" * 5000
    answer = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-0/" + many + b"\r\n\r\nabc"
    fetch(
        serve(answer),
        tmp_path / "a.bin",
        limit=1000,
        verify=lambda path: None,
        progress=lambda done, total: None,
    )
    assert (tmp_path / "a.bin").read_bytes() == b"abc"


def test_a_key_that_appears_twice_is_found_quickly(tmp_path: Path) -> None:
    """It took time that grows with the square of the number of keys: minutes for this file."""
    keys = ",".join(f'"{number}":0' for number in range(80_000))
    (tmp_path / "a.json").write_text("{" + keys + ',"79999":1}')
    started = time.process_time()
    with pytest.raises(DeltakwtError, match="the key '79999' appears twice"):
        read_json(tmp_path / "a.json")
    assert time.process_time() - started < 5
