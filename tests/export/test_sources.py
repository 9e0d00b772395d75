"""The exported C sources hold the numbers and labels of the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS  # type: ignore[import-not-found]
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.audio import read_clip
from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.frontend import mfcc
from deltakwt.core.setting import Setting
from deltakwt.export.folder import WORD, word_samples, write_folder
from deltakwt.export.model import Export, quantise, stored
from deltakwt.export.readme import PUBLIC_BOARDS, board_row, shortest_hop
from deltakwt.export.sources import config_source, number, profile_source, tables


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_in_c_reads_back_to_the_same_bits(value: float) -> None:
    text = number(value)
    assert text.endswith("f")
    assert np.float32(text[:-1]) == np.float32(value)


@given(st.integers(0, 1000))
def test_int8_rows_are_within_half_a_step(seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(5, 7)).astype(np.float32)
    matrix[2] = 0
    levels, scales = quantise(matrix)
    assert np.abs(levels * scales[:, None] - matrix).max() <= scales.max() * 0.501
    assert not levels[2].any()
    assert np.abs(stored(matrix, "f16") - matrix).max() < 2e-3


def test_the_tables_give_the_front_ends_features(int8: Export) -> None:
    """Window, mel and DCT from the exported tables, FFT by NumPy."""
    table = tables()
    audio = read_clip(CLIPS / "yes.flac")
    frames = np.lib.stride_tricks.sliding_window_view(audio, 480)[::160]
    spectrum = 2 * np.abs(np.fft.rfft(frames * table["window"], 512))
    energies, at = np.zeros((98, 80)), 0
    for band in range(80):
        first, bins = int(table["first"][band]), int(table["bins"][band])
        energies[:, band] = spectrum[:, first : first + bins] @ table["mel"][at : at + bins]
        at += bins
    logs = np.log(np.maximum(energies, 1e-12))
    assert np.abs(logs @ table["dct_data"] - mfcc(audio)).max() < 1e-3


def test_stored_weights_are_what_the_engine_gets(int8: Export) -> None:
    """Rounded to int8, the model still names the self-test's word."""
    engine = Engine(int8.config, int8.stored_tensors())
    features = engine.features(word_samples().astype(np.float32) / 32768, int8.setting.front_end)
    exact = Engine(int8.config, int8.tensors).dense(features)
    assert np.abs(engine.dense(features) - exact).max() < 0.3
    assert WORD.stem in int8.config.labels


def test_labels_are_exact_in_c_and_cannot_break_the_source(int8: Export) -> None:
    odd = ("_silence_", 'quo"ted\\', "*/ end", "naïve", "a\nb", "a\rb", "a_b", "??/")
    config = Config(int8.config.dim, int8.config.heads, int8.config.mlp, labels=odd)
    export = Export('na"me', config, int8.tensors, "int8", Setting(name="*/"), int8.decision)
    source = profile_source(export)
    assert r'"quo\042ted\134", "*/ end", "na\303\257ve", "a\012b", "a\015b", "a_b"' in source
    assert r'"\077\077/"' in source
    assert "/* Setting: __. */" in source
    assert r'DK_MODEL_NAME "na\042me, int8 weights, setting */"' in config_source(export)


def test_a_board_fits_only_if_memory_and_time_suffice(int8: Export) -> None:
    boards = {board.name.split()[0]: board for board in PUBLIC_BOARDS}
    teensy, arduino = boards["Teensy"], boards["Arduino"]
    slow = replace(int8, decision=replace(int8.decision, hop=0.5))
    word = 11_500_000  # MACs of a word; 66.9 M instructions were measured for it
    assert board_row(int8, teensy, word)[-1] == "no: time"  # a hop of 0.1 s
    assert board_row(slow, teensy, word)[-1] == "yes"
    assert board_row(slow, teensy, word)[4] == "24%"
    assert board_row(slow, arduino, word)[-1] == "no: time"
    assert shortest_hop(int8, word, teensy) == 0.12
    large = replace(int8, config=replace(int8.config, frames=300))
    assert board_row(large, boards["STM32F407"], word)[-1] == "no: RAM, time"


def test_a_folder_in_use_is_left_alone(int8: Export, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DeltakwtError, match="not empty"):
        write_folder(int8, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_kind_or_shape_that_cannot_be_exported_is_refused(int8: Export) -> None:
    with pytest.raises(DeltakwtError, match="one of f32, f16, int8"):
        Export("m", int8.config, {}, "int4", Setting(), int8.decision)
    with pytest.raises(DeltakwtError, match="multiple of 8"):
        Export("m", Config(20, 5, 40), {}, "int8", Setting(), int8.decision).check_board()
