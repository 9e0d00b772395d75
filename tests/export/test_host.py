"""The exported code on this machine: compared with the engine and the Spotter, and fuzzed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS  # type: ignore[import-not-found]

from deltakwt.audio import read_blocks, read_clip
from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.model import Model
from deltakwt.core.setting import Setting, Thresholds
from deltakwt.export.boards import BoardEvent, Host, make, missing_tools, run_board
from deltakwt.export.folder import int16_samples, write_folder
from deltakwt.export.model import Export
from deltakwt.export.readme import ram_bytes
from deltakwt.listen.decision import Decider
from deltakwt.listen.spotter import Spotter
from deltakwt.weights.folder import random_tensors

WORDS = ("yes", "no", "left", "stop", "marvin", "silence")
pytestmark = pytest.mark.usefixtures("needs_host")


@pytest.fixture(scope="module")
def host(int8: Export, int8_folder: Path) -> Host:
    return Host(int8_folder, len(int8.config.labels))


def test_the_self_test_passes_and_ram_is_as_planned(int8: Export, int8_folder: Path) -> None:
    report = run_board(int8_folder, "host", [])
    assert report.passed
    assert [clip.name for clip in report.clips] == ["word", "hiss", "silence"]
    assert abs(report.ram - ram_bytes(int8)) < 1500
    assert report.ram < 96 * 1024


def test_int8_agrees_with_the_engine_on_the_stored_weights(int8: Export, host: Host) -> None:
    engine = Engine(int8.config, int8.stored_tensors(), "scalar")
    for word in WORDS:
        samples = int16_samples(read_clip(CLIPS / f"{word}.flac"))
        features = engine.features(samples.astype(np.float32) / 32768, int8.setting.front_end)
        assert int8.setting.thresholds is not None
        delta = engine.delta(features, int8.setting.thresholds)
        dense = engine.dense(features)
        found = host.clip(samples, dense=True)
        assert np.abs(found - dense).max() < 0.1  # K, V and features have 16 bits there
        assert host.clip(samples).argmax() == delta.logits.argmax()
        assert host.macs.sum() == pytest.approx(delta.macs.sum(), rel=0.05)


@pytest.mark.parametrize(
    "config",
    [
        Config(32, 2, 64, layers=3, labels=("_silence_", "a", "b")),
        Config(128, 2, 256, layers=2),
        Config(64, 1, 256, layers=2),
    ],
    ids=str,
)
def test_f32_is_exact_for_other_shapes(config: Config, int8: Export, tmp_path: Path) -> None:
    """Several heads, labels that are no multiple of four: dense logits of the scalar kernels."""
    thresholds = "0.05_0.05_0.05_0.01_0.001_0.05_0.05_0.05"
    assert_agrees_with_the_engine(config, thresholds, int8, tmp_path, macs=0.01)


@pytest.mark.parametrize(
    "thresholds",
    [
        "-_0.05_-_0.01_-_0.05_-_0.05_0.05",
        "0.05_-_0.05_-_0.001_-_0.05_-_-",
        "-_0.05_0.05_0.01_0.001_0.05_0.05_0.05",
    ],
)
def test_dense_sites_and_sites_with_deltas_follow_each_other(
    thresholds: str, int8: Export, tmp_path: Path
) -> None:
    # Where nothing changed, not even a dense site is computed there: a few MACs fewer.
    config = Config(64, 2, 64, layers=2)
    assert_agrees_with_the_engine(config, thresholds, int8, tmp_path, macs=0.02)


def assert_agrees_with_the_engine(
    config: Config, text: str, like: Export, tmp_path: Path, macs: float
) -> None:
    tensors, thresholds = random_tensors(config), Thresholds.parse(text)
    setting = Setting(thresholds, like.setting.front_end)
    export = Export("random", config, tensors, "f32", setting, like.decision)
    write_folder(export, tmp_path / "out")
    host, engine = Host(tmp_path / "out", len(config.labels)), Engine(config, tensors, "scalar")
    samples = int16_samples(read_clip(CLIPS / "go.flac"))
    features = engine.features(samples.astype(np.float32) / 32768, setting.front_end)
    assert np.abs(host.clip(samples, dense=True) - engine.dense(features)).max() < 1e-4
    run = engine.delta(features, thresholds)
    assert np.abs(host.clip(samples) - run.logits).max() < 0.05
    assert host.macs.sum() == pytest.approx(run.macs.sum(), rel=macs)


@pytest.fixture(scope="module")
def sentence() -> np.ndarray:
    """Eight seconds with four words, 16-bit samples."""
    return int16_samples(np.concatenate(list(read_blocks(CLIPS / "sentence.flac"))))


def spotter_of(export: Export) -> Spotter:
    """The Python spotter with the weights that the export stores."""
    model = Model(export.config, Engine(export.config, export.stored_tensors()))
    return Spotter(model, setting=export.setting, decision=export.decision)


def pushed(host: Host, samples: np.ndarray, block: int) -> list[BoardEvent]:
    """Push a stream in blocks and return its words."""
    host.start()
    starts = range(0, len(samples), block)
    return [word for start in starts for word in host.push(samples[start : start + block])]


@pytest.mark.parametrize("block", [1600, 37])
def test_events_follow_from_the_logits_as_in_python(
    int8: Export, host: Host, sentence: np.ndarray, block: int
) -> None:
    """The decision rule of the exported code is Python's, to the bit."""
    delay = 160  # the front end smooths
    logits, at = [], 0
    host.start()
    for done in range(16_000 + delay, len(sentence) + 1, 1600):  # the end of each window
        assert len(list(host.push(sentence[at:done]))) <= 1
        logits.append(host.logits)
        at = done
    wanted = Decider(int8.decision, int8.config.labels).push(np.array(logits))
    found = pushed(host, sentence, block)
    assert len(found) == len(wanted) == 4
    for word, decided in zip(found, wanted, strict=True):
        event = decided.event(int8.config.labels, int8.decision, delay)
        assert (word.label, np.float32(word.score)) == (decided.label, decided.score)
        times = [round(16_000 * t) for t in (event.start, event.end, event.time)]
        assert [word.start, word.end, word.time] == times


def test_a_dense_stream_gives_the_spotters_events(
    int8: Export, sentence: np.ndarray, tmp_path: Path
) -> None:
    """Without thresholds all times are equal; the scores differ by the 16-bit features."""
    dense = replace(int8, setting=Setting(None, int8.setting.front_end))
    write_folder(dense, tmp_path / "out")
    found = pushed(Host(tmp_path / "out", len(int8.config.labels)), sentence, 1600)
    wanted = spotter_of(dense).push(sentence.astype(np.float32) / 32768)
    assert wanted, "the recording holds words"
    for word, event in zip(found, wanted, strict=True):
        assert int8.config.labels[word.label] == event.label
        assert word.score == pytest.approx(event.score, abs=0.005)
        times = [round(16_000 * t) for t in (event.start, event.end, event.time)]
        assert [word.start, word.end, word.time] == times


def test_a_stream_with_deltas_gives_the_spotters_words(
    int8: Export, host: Host, sentence: np.ndarray
) -> None:
    """Rounding can flip whether a delta is kept, which moves a score and may move a decision.

    So words and places are compared here. That times are exact is tested on dense streams, and
    that the decision rule is exact on the logits of this stream.
    """
    wanted = spotter_of(int8).push(sentence.astype(np.float32) / 32768)
    found = pushed(host, sentence, 1600)
    assert [int8.config.labels[word.label] for word in found] == [e.label for e in wanted]
    assert [word.start for word in found] == [round(16_000 * e.start) for e in wanted]


def test_digital_silence_in_a_stream_costs_nothing(host: Host) -> None:
    host.start()
    assert not list(host.push(np.zeros(4 * 16_000, np.int16)))
    assert host.macs.sum() == 0


def test_no_undefined_behaviour_and_no_nan_on_random_sound(int8_folder: Path) -> None:
    assert "nothing found" in make(int8_folder, "fuzz", "SEEDS=3")


def test_no_warning_from_two_compilers_as_c_and_as_cpp(int8: Export, tmp_path: Path) -> None:
    from shutil import which

    if not which("clang"):
        pytest.skip("clang is missing; on Debian: apt install clang")
    smallest = replace(int8.decision, smooth=1, patience=0, refractory=0.0, reuse=0.0)
    for decision in (int8.decision, smallest):  # zeros make comparisons that are always true
        write_folder(replace(int8, decision=decision), tmp_path / str(decision.smooth))
        assert "no warnings" in make(tmp_path / str(decision.smooth), "strict")


def test_the_core_needs_no_heap_and_no_stdio(int8_folder: Path) -> None:
    calls = ("malloc", "calloc", "free(", "printf", "fopen", "stdio.h", "stdlib.h")
    sources = list((int8_folder / "src").glob("*.[ch]"))
    assert len(sources) > 15
    for source in sources:
        if source.name != "weights.c":
            text = source.read_text()
            assert not [call for call in calls if call in text], source.name


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt install" in missing_tools("rv32")
    assert "qemu-system-misc" in missing_tools("rv32")
