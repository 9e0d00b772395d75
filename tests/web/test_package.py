"""The JavaScript package under Node, the engine's size, and the web model."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, PROJECT

from deltakwt.cli.export import export
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model, load
from deltakwt.export.web import HEAD, MAGIC

WEB = PROJECT / "web"


@pytest.fixture(scope="session")
def web_model(trained: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The web model, made by the documented command: in fixed point."""
    return exported(trained, tmp_path_factory.mktemp("web") / "model.dkw")


@pytest.fixture(scope="session")
def float_model(trained: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(trained, tmp_path_factory.mktemp("web") / "float.dkw", "--weights", "f16")


def exported(model: str, path: Path, *more: str) -> Path:
    from deltakwt.cli import build
    from deltakwt.cli.running import run

    given = ["export", "--target", "web", "--model", model, *more, "--out", str(path)]
    assert run(build(["export"]), given) == 0
    return path


def run_node(model: Path, sound: Path, tests: Path = WEB / "test") -> str:
    """Run the package's own tests and return what they print."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node (Debian: nodejs)")
    environment = {"DELTAKWT_WEB_MODEL": str(model), "DELTAKWT_WEB_SOUND": str(sound)}
    files = sorted(map(str, tests.glob("*.test.js")))
    done = subprocess.run(
        [node, "--test", *files], capture_output=True, text=True, timeout=200,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert re.search(r"skipped 0\b", done.stdout)
    return done.stdout


@pytest.fixture(scope="session")
def sentence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "sentence.raw"
    soundfile.read(CLIPS / "sentence.flac", dtype="int16")[0].tofile(path)
    return path


def found_events(printed: str) -> list[dict[str, Any]]:
    return list(json.loads(re.search(r"EVENTS (\[.*\])", printed)[1]))  # type: ignore[index]


def test_node_hears_what_python_hears_to_the_bit(
    web_model: Path, sentence: Path, model: Model
) -> None:
    """In fixed point: the scores of all windows, and the events."""
    printed = run_node(web_model, sentence)
    spotted = model.spot(CLIPS / "sentence.flac").events
    assert model.arithmetic == "fixed"
    assert len(spotted) > 1
    for ours, event in zip(found_events(printed), spotted, strict=True):
        assert ours["label"] == event.label
        assert ours["score"] == pytest.approx(event.score, abs=1e-6)
        assert ours["time"] == pytest.approx(event.time, abs=1e-9)
        # Python leaves out windows that no word needs, so its estimate of the place can differ.
        for name in ("start", "end", "window"):
            assert ours[name] == pytest.approx(getattr(event, name), abs=0.101), name
    clip = soundfile.read(CLIPS / "sentence.flac", dtype="float32", stop=16_000)[0]
    line = re.search(r"LOGITS (\[.*\])", printed)[1]  # type: ignore[index]
    np.testing.assert_array_equal(np.array(json.loads(line), np.float32), model(clip).logits)


def test_node_hears_the_same_words_in_floats(
    float_model: Path, sentence: Path, trained: str
) -> None:
    found = found_events(run_node(float_model, sentence))
    spotted = load(trained, arithmetic="float").spot(CLIPS / "sentence.flac").events
    for ours, event in zip(found, spotted, strict=True):
        assert ours["label"] == event.label
        for name in ("start", "end", "time", "window"):
            # The weights are rounded to 16 bits, so a score may cross a threshold a hop later.
            assert ours[name] == pytest.approx(getattr(event, name), abs=0.101), name
        assert ours["score"] == pytest.approx(event.score, abs=0.15)


def test_the_download_is_small(web_model: Path) -> None:
    """Engine and model, as a server with compression sends them."""
    engines = [len(gzip.compress(path.read_bytes())) for path in sorted(WEB.glob("*.wasm"))]
    assert len(engines) == 2
    assert max(engines) + web_model.stat().st_size < 1_600_000
    assert all(path.stat().st_size < 200_000 for path in WEB.glob("*.wasm"))


def test_the_web_model_is_as_documented(web_model: Path, model: Model) -> None:
    data = gzip.decompress(web_model.read_bytes())
    magic, size, start = HEAD.unpack_from(data)
    assert magic == MAGIC
    document = json.loads(data[16 : 16 + size])
    assert document["arithmetic"] == "fixed"
    assert document["labels"] == list(model.labels)
    assert set(document["profiles"]) == set(model.profiles.profiles)
    head = data[16 + size : 16 + size + start]
    planes = np.frombuffer(data[16 + size + start :], np.uint8).reshape(2, -1)
    flat = head + np.ascontiguousarray(planes[::-1].T).tobytes()
    (crc,) = np.frombuffer(flat, "<u4", 1, 24)
    assert crc == zlib.crc32(flat[32:])


def test_one_file_has_one_kind_of_weights(trained: str, tmp_path: Path) -> None:
    with pytest.raises(DeltakwtError, match="--weights int8: --target web has int16 or f16"):
        export(out=tmp_path / "x.dkw", target="web", weights="int8")
    with pytest.raises(DeltakwtError, match="is a folder"):
        export(out=tmp_path, model=trained, target="web")


def test_the_types_name_what_the_module_exports() -> None:
    types, module = (WEB / "index.d.ts").read_text(), (WEB / "index.js").read_text()
    exported = set(re.findall(r"export (?:async )?(?:function|class|const) (\w+)", module))
    for names in re.findall(r"export \{ ([^}]+) \}", module):
        exported |= set(names.split(", "))
    declared = set(re.findall(r"export (?:function|class|const) (\w+)", types))
    assert declared == exported - {"Stream"}


def test_a_rebuilt_engine_behaves_the_same(tmp_path: Path, web_model: Path, sentence: Path) -> None:
    """The committed engines are those of these sources: Node's tests pass with rebuilt ones."""
    if find_spec("ziglang") is None:
        pytest.skip("needs the compiler of `make web` (PyPI: ziglang)")
    copy = tmp_path / "web"
    shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("*.wasm", "page"))
    build = [sys.executable, str(WEB / "build.py"), "engine", "--out", str(copy)]
    subprocess.run(build, check=True, capture_output=True, timeout=600)
    events = [
        re.search(r"EVENTS (\[.*\])", run_node(web_model, sentence, folder / "test"))[1]  # type: ignore[index]
        for folder in (WEB, copy)
    ]
    assert events[0] == events[1]
