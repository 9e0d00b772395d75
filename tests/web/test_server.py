"""The server of `deltakwt explore`: what it serves, and what it refuses."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import wave as wave_files
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS
from numpy.typing import NDArray

from deltakwt.cli.explore import explore
from deltakwt.core.errors import DeltakwtError
from deltakwt.explore.live import LiveSound
from deltakwt.explore.server import Server
from deltakwt.explore.site import (
    CURVES_FILE,
    PACKAGE_FILES,
    Site,
    shipped_models,
    web_folder,
)
from deltakwt.export.web import HEAD
from deltakwt.weights.folder import load_weights
from deltakwt.weights.quantize import checksum
from deltakwt.weights.registry import SHIPPED


def ask(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """Return the status, the body and the headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    connection.close()
    return found


def test_every_file_of_the_page_is_there(server: Server) -> None:
    for name in server.site.files:
        status, data, headers = ask(server, f"/{server.token}/{name}")
        assert status == 200, name
        assert data, name
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "access-control-allow-origin" not in headers
    assert ask(server, f"/{server.token}/")[1] == (web_folder() / "page/index.html").read_bytes()


def test_the_modules_import_only_what_is_served(server: Server) -> None:
    for name, read in server.site.files.items():
        if name.endswith(".js"):
            for found in re.findall(r'(?:from|import) "(\./[^"]+)"', read().decode()):
                folder = name.rpartition("/")[0]
                assert f"{folder}/{found[2:]}".lstrip("/") in server.site.files, (name, found)
    assert {p.name for p in web_folder().glob("*.js")} == {
        n for n in PACKAGE_FILES if n.endswith(".js")
    }


def test_nothing_else_is_served(server: Server) -> None:
    token = server.token
    for path in ("/", "/index.html", "/wrong/", f"/{token}", f"/{token}x/", f"/{token}/nothing"):
        assert ask(server, path)[0] == 404, path
    for path in (f"/{token}/../{token}/index.html", f"/{token}//etc/passwd", f"/{token}/live"):
        assert ask(server, path)[0] == 404, path
    assert ask(server, f"/{token}/", Host="evil.example")[0] == 421
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, f"/{token}/", method)[0] == 501
    assert server.server_address[0] == "127.0.0.1"
    assert len(token) >= 32


def test_sounds_are_what_other_commands_hear(server: Server) -> None:
    contents = json.loads(ask(server, f"/{server.token}/contents.json")[1])
    assert [sound["name"] for sound in contents["sounds"]] == ["sentence", "yes"]
    data = ask(server, f"/{server.token}/{contents['sounds'][0]['url']}")[1]
    with wave_files.open(BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)


def test_a_file_that_is_no_sound_is_an_answer(trained: str, tmp_path: Path) -> None:
    (tmp_path / "no.wav").write_text("not a sound")
    site = Site.of([trained], [tmp_path / "no.wav"])
    with pytest.raises(DeltakwtError, match="no.wav"):
        site.files["sounds/0.wav"]()


def test_curves_belong_to_their_weights(random_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(random_model, folder)
    for weights, is_known in ((checksum(load_weights(folder).tensors), True), ("others", False)):
        (folder / CURVES_FILE).write_text(json.dumps({"weights": weights, "base": "a"}))
        data = gzip.decompress(Site.of([str(folder)], []).files["models/0.dkw"]())
        document = json.loads(data[HEAD.size : HEAD.size + HEAD.unpack_from(data)[1]])
        assert document["arithmetic"] == "float"  # there are no scales
        assert ("curves" in document) is is_known


def test_every_shipped_model_is_offered() -> None:
    names = shipped_models("kwt-1")
    assert names[0] == "kwt-1"
    assert sorted(names) == sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))
    contents = json.loads(Site.of(names, []).files["contents.json"]())
    assert [model["name"] for model in contents["models"]] == names


def test_live_sound_reaches_every_follower() -> None:
    rng = np.random.default_rng(0)
    blocks = [(rng.uniform(-0.5, 0.5, 1600).astype(np.float32), 16_000) for _ in range(5)]
    live = LiveSound(iter(blocks))
    followers = [live.follow() for _ in range(2)]
    collected: list[bytearray] = [bytearray(), bytearray()]
    import threading

    def collect(number: int) -> None:
        for part in followers[number]:
            collected[number] += part

    threads = [threading.Thread(target=collect, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    while len(live._followers) < 2:
        time.sleep(0.01)
    live.start()
    for thread in threads:
        thread.join(30)
    expected = np.rint(np.concatenate([block for block, _ in blocks]) * 32768).astype("<i2")
    assert bytes(collected[0]) == bytes(collected[1]) == expected.tobytes()
    assert list(live.follow()) == []  # a page that comes too late is told so


def test_a_live_source_that_fails_is_reported() -> None:
    def failing() -> Iterator[tuple[NDArray[np.float32], int]]:
        yield np.zeros(1600, np.float32), 16_000
        raise DeltakwtError("the microphone is gone")

    noted: list[str] = []
    live = LiveSound(failing(), noted.append)
    live.start()
    assert list(live.follow())[1:] == []
    assert noted == ["the microphone is gone"]


def test_the_command_prints_an_address_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deltakwt", "explore", "--no-browser", "--live", "--input"]
    running = subprocess.Popen(
        [*command, str(CLIPS / "yes.flac")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        url = running.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", url)
        with urllib.request.urlopen(url + "contents.json", timeout=60) as answer:
            assert json.load(answer)["live"] is True
    finally:
        running.terminate()
        running.wait(30)


def test_wrong_files_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeltakwtError, match="none.wav: no such file"):
        explore([tmp_path / "none.wav"], browser=False)
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(DeltakwtError, match="pipe.wav: not a regular file"):
        explore([tmp_path / "pipe.wav"], browser=False)
    with pytest.raises(DeltakwtError, match="pipe.wav: not a regular file"):
        explore(live=True, source=str(tmp_path / "pipe.wav"), browser=False)
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(DeltakwtError, match="text.wav: not readable as sound"):
        explore([tmp_path / "text.wav"], browser=False)
    with pytest.raises(DeltakwtError, match="--input: needs --live"):
        explore(source="x.wav", browser=False)
    with pytest.raises(DeltakwtError, match="no-such-model"):
        explore(models=["no-such-model"], browser=False)
