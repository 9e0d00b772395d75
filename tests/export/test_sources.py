"""The numbers in the exported sources are the model's."""

from __future__ import annotations

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
from deltakwt.export.arrays import number
from deltakwt.export.clips import WORD, word_samples
from deltakwt.export.folder import write_folder
from deltakwt.export.settings import Export, config_source, profile_source
from deltakwt.export.tables import tables
from deltakwt.export.weights import quantise, stored


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
    features = engine.features(word_samples().astype(np.float32) / 32768, int8.steady)
    exact = Engine(int8.config, int8.tensors).dense(features)
    assert np.abs(engine.dense(features) - exact).max() < 0.3
    assert WORD.stem in int8.config.labels


def test_labels_cannot_break_the_c_source(int8: Export) -> None:
    odd = ("_silence_", 'quo"te\\', "*/ end", "naïve")
    config = Config(int8.config.dim, int8.config.heads, int8.config.mlp, labels=odd)
    export = Export('na"me', config, int8.tensors, "int8", "*/", None, int8.steady, int8.decision)
    assert '"quo_te_", "_/ end", "na_ve"' in profile_source(export)
    assert 'DK_MODEL_NAME "na_me, int8 weights, profile _/"' in config_source(export)


def test_a_folder_in_use_is_left_alone(int8: Export, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DeltakwtError, match="not empty"):
        write_folder(int8, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_kind_or_shape_that_cannot_be_exported_is_told(int8: Export) -> None:
    with pytest.raises(DeltakwtError, match="one of f32, f16, int8"):
        Export("m", int8.config, {}, "int4", "p", None, int8.steady, int8.decision)
    with pytest.raises(DeltakwtError, match="multiple of 8"):
        Export("m", Config(20, 5, 40), {}, "int8", "p", None, int8.steady, int8.decision)
