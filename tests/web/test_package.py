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
from numpy.typing import NDArray
from safetensors.numpy import save
from stride_models import every_second_frame

from deltakwt.cli.export import export
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model, load
from deltakwt.export.model import Export
from deltakwt.export.web import HEAD, MAGIC, write_web_model
from deltakwt.listen.decision import Decision, Event, smooth_stream
from deltakwt.listen.runner import StreamRunner
from deltakwt.listen.spotter import decision_of, spot
from deltakwt.weights.folder import load_profiles, load_weights
from deltakwt.weights.registry import resolve

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


@pytest.fixture(scope="session")
def stream(sentence: Path) -> Path:
    """The sentence, noise, a word in noise, digital silence and a word, as raw samples."""
    noise = np.random.default_rng(0).normal(0, 60, 48_000)
    words = {
        word: soundfile.read(CLIPS / f"{word}.flac", dtype="int16")[0] for word in ("down", "on")
    }
    noise[24_000 : 24_000 + len(words["down"])] += words["down"]
    parts = [np.fromfile(sentence, np.int16), noise.astype(np.int16), np.zeros(20_000, np.int16)]
    path = sentence.with_name("stream.raw")
    np.concatenate([*parts, words["on"]]).tofile(path)
    return path


def found(name: str, printed: str) -> list[Any]:
    """What the tests printed under a name."""
    return list(json.loads(re.search(rf"{name} (\[.*\])", printed)[1]))  # type: ignore[index]


def assert_same_events(
    ours: list[dict[str, Any]], events: list[Event], score: float = 1e-6
) -> None:
    assert [one["label"] for one in ours] == [event.label for event in events]
    for one, event in zip(ours, events, strict=True):
        for name in ("start", "end", "time", "window"):
            assert one[name] == pytest.approx(getattr(event, name), abs=1e-9), name
        assert one["score"] == pytest.approx(event.score, abs=score)


def test_node_finds_what_python_finds_to_the_bit(
    web_model: Path, stream: Path, model: Model
) -> None:
    """In fixed point: the scores of all windows, the events, and which windows were computed."""
    printed = run_node(web_model, stream)
    sound = samples_of(stream)
    assert model.arithmetic == "fixed"
    spotted = model.spot(sound, 16_000)
    assert len(spotted.events) > 1
    assert_same_events(found("EVENTS", printed), spotted.events)
    dense = model.spot(sound, 16_000, setting="dense").events
    assert_same_events(found("DENSE", printed), dense)
    scores = np.array(found("SCORES", printed), np.float32)
    np.testing.assert_array_equal(scores, stream_scores(model, sound))
    costs = found("COSTS", printed)
    assert len(costs) == spotted.windows
    assert len([1 for computed, _ in costs if not computed]) == spotted.reused > 10
    macs = sum(count for _, count in costs)
    assert macs == pytest.approx(spotted.macs_per_second * spotted.seconds, rel=1e-6)
    logits = np.array(found("LOGITS", printed), np.float32)
    np.testing.assert_array_equal(logits, model(sound[:16_000], 16_000).logits)


def samples_of(path: Path) -> NDArray[np.float32]:
    return np.fromfile(path, np.int16).astype(np.float32) / 32768


def stream_scores(model: Model, sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """The smoothed posteriors of a sound, window by window, as `Spotter` computes them."""
    rule = decision_of(model)
    runner = StreamRunner(model, model.setting, rule, every_window=False)
    ending = np.zeros(runner.ending(len(sound)), np.float32)
    return smooth_stream(runner.push(np.concatenate([sound, ending])), rule.smooth)


@pytest.fixture(scope="session")
def rounded_model(trained: str, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The model with the weights of a web model in floats: rounded to 16 bits."""
    folder = tmp_path_factory.mktemp("rounded") / "model"
    shutil.copytree(resolve(trained), folder)
    path = folder / "model.safetensors"
    tensors = {
        name: tensor.astype(np.float16).astype(np.float32)
        for name, tensor in load_weights(folder).tensors.items()
    }
    path.write_bytes(save(tensors))
    return load(folder, arithmetic="float")


def test_node_hears_the_same_words_in_floats(
    float_model: Path, sentence: Path, rounded_model: Model
) -> None:
    """With the same weights. The dense model agrees to rounding.

    With deltas, rounding decides whether a difference exceeds its threshold: single windows differ
    visibly, most hardly, and a word may reach `on` a window earlier or later.
    """
    printed = run_node(float_model, sentence)
    dense = rounded_model.spot(CLIPS / "sentence.flac", setting="dense").events
    assert len(dense) > 1
    assert_same_events(found("DENSE", printed), dense, score=2e-4)
    scores = np.array(found("SCORES", printed), np.float32)
    expected = stream_scores(rounded_model, samples_of(sentence))
    windows = min(len(scores), len(expected))  # the last ones may wait
    apart = np.abs(scores[:windows] - expected[:windows]).max(axis=1)
    assert np.median(apart) < 0.02
    spotted = rounded_model.spot(CLIPS / "sentence.flac").events
    assert [one["label"] for one in found("EVENTS", printed)] == [one.label for one in spotted]
    for one, event in zip(found("EVENTS", printed), spotted, strict=True):
        assert one["time"] == pytest.approx(event.time, abs=0.101)


def test_node_finds_what_python_finds_with_a_stride(stream: Path, tmp_path: Path) -> None:
    weights, scales = every_second_frame("kwt-0")
    config, decision = weights.config, Decision(hop=0.06, smooth=3, on=0.5, off=0.25)
    setting = load_profiles(resolve("kwt-0")).setting(None)
    made = Export("half", config, weights.tensors, "int16", setting, decision, scales)
    write_web_model(made, load_profiles(resolve("kwt-0")), tmp_path / "half.dkw")
    printed = run_node(tmp_path / "half.dkw", stream)
    model, sound = Model(config, made.engine()), samples_of(stream)
    spotted = spot(model, sound, 16_000, setting=setting, decision=decision)
    assert len(spotted.events) > 1
    assert_same_events(found("EVENTS", printed), spotted.events)
    logits = np.array(found("LOGITS", printed), np.float32)
    np.testing.assert_array_equal(logits, model(sound[:16_000], 16_000, setting=setting).logits)


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
    with pytest.raises(DeltakwtError, match="--weights int8: with --target web give int16 or f16"):
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
