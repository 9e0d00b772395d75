"""The exported code on this machine: compared with the library and the Spotter, and fuzzed."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS
from fixed_models import scales_of, small_tensors
from stride_models import every_second_frame, strided

from deltakwt.audio import read_blocks, read_clip
from deltakwt.core.config import Config
from deltakwt.core.fixed_arithmetic import gelu
from deltakwt.core.model import Model
from deltakwt.core.setting import Setting, Thresholds
from deltakwt.export.boards import BoardEvent, Host, make, missing_tools, run_board
from deltakwt.export.folder import int16_samples, run_clip, write_folder
from deltakwt.export.model import Export
from deltakwt.listen.decision import Decider
from deltakwt.listen.runner import StreamRunner
from deltakwt.listen.spotter import Spotter

WORDS = ("yes", "no", "left", "stop", "marvin", "silence")
pytestmark = pytest.mark.usefixtures("needs_host")


@pytest.fixture(scope="module")
def host(int8: Export, int8_folder: Path) -> Host:
    return Host(int8_folder, len(int8.config.labels))


def library(export: Export, samples: np.ndarray, thresholds: Thresholds) -> tuple[np.ndarray, int]:
    """Integer logits and MACs of the library's engine."""
    return run_clip(export, export.engine(), samples, thresholds)


def test_the_self_test_passes(int8_folder: Path) -> None:
    report = run_board(int8_folder, "host", [])
    assert report.passed
    assert [clip.name for clip in report.clips] == ["word", "hiss", "silence"]


def test_logits_and_macs_are_those_of_the_library(int8: Export, host: Host) -> None:
    """To the last bit, from the samples on: front end, rounding of the features, engine."""
    assert int8.setting.thresholds is not None
    for word in WORDS:
        samples = int16_samples(read_clip(CLIPS / f"{word}.flac"))
        for thresholds in (Thresholds(), int8.setting.thresholds):
            logits, macs = library(int8, samples, thresholds)
            assert np.array_equal(host.clip(samples, dense=thresholds == Thresholds()), logits)
            assert host.macs.sum() == macs


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (Config(32, 2, 64, layers=3, labels=("_silence_", "a", "b")), "int8"),
        (Config(128, 2, 256, layers=2), "int16"),
        (Config(24, 3, 40, layers=2), "int8"),
        (strided(2), "int8"),
    ],
    ids=str,
)
def test_other_shapes_have_the_bits_of_the_library(
    config: Config, kind: str, int8: Export, tmp_path: Path
) -> None:
    """Several heads, labels that are no multiple of four, widths that are no multiple of 16."""
    thresholds = "0.05_0.05_0.05_0.01_0.001_0.05_0.05_0.05"
    assert_has_the_bits_of_the_library(config, kind, thresholds, int8, tmp_path)


@pytest.mark.parametrize(
    "thresholds",
    [
        "-_0.05_-_0.01_-_0.05_-_0.05_0.05",
        "0.05_-_0.05_-_0.001_-_0.05_-_-",
        "-_0.05_0.05_0.01_0.001_0.05_0.05_0.05",
        "9_9_9_9_0.9_9_9_9_9",
        "0_0_0_0_0_0_0_0_0",
    ],
)
def test_dense_sites_and_sites_with_deltas_follow_each_other(
    thresholds: str, int8: Export, tmp_path: Path
) -> None:
    config = Config(64, 2, 64, layers=2)
    assert_has_the_bits_of_the_library(config, "int8", thresholds, int8, tmp_path)


def assert_has_the_bits_of_the_library(
    config: Config, kind: str, text: str, like: Export, tmp_path: Path
) -> None:
    tensors, thresholds = small_tensors(config), Thresholds.parse(text)
    setting, scales = Setting(thresholds, like.setting.front_end), scales_of(config, tensors)
    export = Export("random", config, tensors, kind, setting, like.decision, scales)
    write_folder(export, tmp_path / "out")
    host = Host(tmp_path / "out", len(config.labels))
    for word in ("go", "silence"):
        samples = int16_samples(read_clip(CLIPS / f"{word}.flac"))
        logits, macs = library(export, samples, thresholds)
        assert np.array_equal(host.clip(samples), logits)
        assert host.macs.sum() == macs
        assert np.array_equal(
            host.clip(samples, dense=True), library(export, samples, Thresholds())[0]
        )


@pytest.fixture(scope="module")
def sentence() -> np.ndarray:
    """Eight seconds with four words, 16-bit samples."""
    return int16_samples(np.concatenate(list(read_blocks(CLIPS / "sentence.flac"))))


def spotter_of(export: Export) -> Spotter:
    """The Python spotter with the integers that the export stores."""
    model = Model(export.config, export.engine())
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


def test_a_stream_gives_the_spotters_events(int8: Export, host: Host, sentence: np.ndarray) -> None:
    """The same words with the same scores, decided at the same times.

    Where they lie is as in Python if it computes every window, which a `Spotter` does not.
    """
    sound = sentence.astype(np.float32) / 32768
    spotted = spotter_of(int8).push(sound)
    assert spotted, "the recording holds words"
    model = Model(int8.config, int8.engine())
    runner = StreamRunner(model, int8.setting, int8.decision)
    wanted = Decider(int8.decision, int8.config.labels).push(runner.push(sound))
    found = pushed(host, sentence, 1600)
    for word, decided, event in zip(found, wanted, spotted, strict=True):
        exact = decided.event(int8.config.labels, int8.decision, runner.delay)
        assert (exact.label, exact.score, exact.time) == (event.label, event.score, event.time)
        assert (int8.config.labels[word.label], np.float32(word.score)) == (
            exact.label,
            decided.score,
        )
        times = [round(16_000 * t) for t in (exact.start, exact.end, exact.time)]
        assert [word.start, word.end, word.time] == times


@pytest.fixture(scope="module")
def halved(int8: Export) -> Export:
    """A model with one token per 20 ms."""
    weights, scales = every_second_frame("kwt-0")
    config, tensors = weights.config, weights.tensors
    decision = replace(int8.decision, hop=0.06, smooth=4)
    return replace(int8, config=config, tensors=tensors, scales=scales, decision=decision)


@pytest.fixture(scope="module")
def halved_folder(halved: Export, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("halved") / "out"
    write_folder(halved, folder)
    return folder


@pytest.mark.parametrize("block", [37, 319, 1600])
def test_a_stream_with_a_stride_gives_the_spotters_events(
    block: int, halved: Export, halved_folder: Path, sentence: np.ndarray
) -> None:
    host = Host(halved_folder, len(halved.config.labels))
    sound = sentence.astype(np.float32) / 32768
    runner = StreamRunner(Model(halved.config, halved.engine()), halved.setting, halved.decision)
    logits = runner.push(sound)
    host.start()
    ends = [runner.window_done(window) for window in range(len(logits))]
    for start, end, row in zip([0, *ends], ends, logits, strict=False):
        list(host.push(sentence[start:end]))
        assert np.array_equal(host.logits, row)
    wanted = Decider(halved.decision, halved.config.labels).push(logits)
    found = pushed(host, sentence, block)
    assert len(found) == len(wanted) > 2
    for word, decided in zip(found, wanted, strict=True):
        event = decided.event(halved.config.labels, halved.decision, runner.delay)
        assert (word.label, np.float32(word.score)) == (decided.label, decided.score)
        times = [round(16_000 * t) for t in (event.start, event.end, event.time)]
        assert [word.start, word.end, word.time] == times


@pytest.mark.parametrize("board", ["host", "cortex-m4f"])
def test_the_self_test_of_a_model_with_a_stride_passes(halved_folder: Path, board: str) -> None:
    if missing := missing_tools(board):
        pytest.skip(missing)
    report = run_board(halved_folder, board, [])
    assert report.passed
    assert report.ram < 32_000


def test_digital_silence_in_a_stream_costs_nothing(host: Host) -> None:
    host.start()
    assert not list(host.push(np.zeros(4 * 16_000, np.int16)))
    assert host.macs.sum() == 0


RANGES = """
#include "hidden.h"
void ranges(const int16_t *hidden, const int16_t *references, int count, int theta, int bits,
            int16_t *low, uint16_t *width) {
    const dk_hidden layer = dk_hidden_of(theta, (uint32_t)bits);
    for (int i = 0; i < count; i++)
        dk_set_range(&layer, hidden[i], references[i], low + i, width + i);
}
"""


def test_a_gelu_stays_within_its_threshold_in_its_range(int8_folder: Path, tmp_path: Path) -> None:
    """dk_set_range of hidden.h, for every hidden value and all kinds of thresholds."""
    (tmp_path / "ranges.c").write_text(RANGES)
    flags = ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover", "-shared", "-fPIC"]
    command = ["gcc", *flags, "-I", str(int8_folder / "src"), "ranges.c", "-o", "ranges.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "ranges.so"))
    h = np.arange(-32768, 32768)
    low, width = np.zeros(len(h), np.int16), np.zeros(len(h), np.uint16)
    random = np.random.default_rng(1)
    for bits in range(4, 14):
        values = gelu(h, bits)
        for theta in (0, 3, 5, 6, 17, 40, 115, 189, 600, 3000, 32767):
            away = random.integers(-theta, theta + 1, len(h))
            for reference in (values, np.clip(values + away, values.min(), values.max())):
                arrays = [np.ascontiguousarray(a, np.int16) for a in (h, reference)]
                pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, low, width)]
                library.ranges(*pointers[:2], len(h), theta, bits, *pointers[2:])
                first, size = low.astype(np.int64), width.astype(np.int64)
                assert (first + size <= 32767).all()
                for part in range(17):
                    at = first + size * part // 16
                    assert (np.abs(values[at + 32768] - reference) <= theta).all()


def test_no_undefined_behaviour_and_no_nan_on_random_sound(int8_folder: Path) -> None:
    assert "nothing found" in make(int8_folder, "fuzz", "SEEDS=3")


def test_no_warning_from_two_compilers_as_c_and_as_cpp(int8: Export, tmp_path: Path) -> None:
    from shutil import which

    if not which("clang"):
        pytest.skip("clang is missing; on Debian: apt install clang")
    smallest = replace(int8.decision, smooth=1, patience=0, refractory=0.0, reuse=0.0)
    write_folder(int8, tmp_path / "usual")
    assert "no warnings" in make(tmp_path / "usual", "strict")
    # Zeros make comparisons that are always true, in the sources that use the decision settings.
    write_folder(replace(int8, decision=smallest), tmp_path / "smallest")
    ours = "src/spotter.c src/decider.c src/window.c src/profile.c"
    assert "no warnings" in make(tmp_path / "smallest", "strict", f"LIBRARY={ours}")


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
