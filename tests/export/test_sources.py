"""The exported C sources hold the numbers and labels of the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS
from fixed_models import scales_of, small_tensors
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.audio import read_clip
from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_arithmetic import from_bytes, softmax, to_bytes
from deltakwt.core.frontend import mfcc
from deltakwt.core.setting import Setting
from deltakwt.export.folder import write_folder
from deltakwt.export.model import Export
from deltakwt.export.readme import (
    OTHER_BYTES,
    PUBLIC_BOARDS,
    board_row,
    hop_instructions,
    ram_bytes,
    shortest_hop,
)
from deltakwt.export.sources import (
    config_source,
    doubled_powers,
    number,
    paired,
    profile_source,
    tables,
    weights_source,
)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_in_c_reads_back_to_the_same_bits(value: float) -> None:
    text = number(value)
    assert text.endswith("f")
    assert np.float32(text[:-1]) == np.float32(value)


@given(st.integers(0, 1000))
def test_bytes_and_shifts_are_within_half_a_step(seed: int) -> None:
    dice = np.random.default_rng(seed)
    matrix = np.rint(dice.normal(size=(5, 7)) * 2.0 ** dice.integers(0, 15, (5, 1))).astype(int)
    matrix = matrix.clip(-32767, 32767)
    matrix[2], matrix[3, 0] = 0, 32767
    levels, shifts = to_bytes(matrix)
    stored = from_bytes(levels, shifts)
    half = (1 << shifts[:, None].astype(int)) / 2
    ordinary = np.abs(matrix) <= 127 << 8  # larger ones become 127 << 8
    assert (np.abs(stored - matrix) <= half)[ordinary].all()
    assert np.abs(stored).max() <= 127 << 8
    assert shifts.max() <= 8
    assert not levels[2].any()
    again = to_bytes(stored)
    assert np.array_equal(from_bytes(*again), stored)


def test_weights_c_holds_the_integers(int8: Export) -> None:
    source, layer = weights_source(int8), int8.weights().layers[3]
    levels, shifts = to_bytes(layer.mlp_out)
    assert np.array_equal(from_bytes(levels, shifts), layer.mlp_out)
    assert np.array_equal(array_in(source, "mlp_out3"), levels.ravel())
    assert np.array_equal(array_in(source, "mlp_out3_shifts"), shifts)
    wide = replace(int8, kind="int16")
    found = array_in(weights_source(wide), "q11")
    assert np.array_equal(found, wide.weights().layers[11].q.ravel())


def test_the_embedding_has_two_features_side_by_side(int8: Export) -> None:
    embed = int8.weights().embed
    found = array_in(weights_source(int8), "embed").reshape(-1, int8.config.dim, 2)
    assert np.array_equal(found, paired(embed.astype(np.int16)))
    assert np.array_equal(found[3, :, 1], embed[7])


@pytest.mark.parametrize(("bits", "most"), [(6, 11), (11, 11), (10, 12), (12, 12)])
def test_powers_from_the_table_are_those_of_the_softmax(bits: int, most: int) -> None:
    """dk_power of softmax.h, for every distance from the highest score."""
    table, up = doubled_powers(most).astype(np.int64), most - bits
    z = np.arange(65536)
    y = np.minimum(z, 24 << bits - 1 if bits < 12 else 32767) * 23637 + 0x4000
    mask = (1 << most - 1) - (1 << up)
    powers = ((table[y >> 15 - up & mask] >> (y >> 14 + bits)) + 1) >> 1
    for distance in (0, 1, 77, 1000, 5000, 20000, 32767, 65535):  # one of two scores is at most
        row = np.array([[32767, 32767 - distance]])
        total = int(powers[0] + powers[distance])
        shift = max(total.bit_length() - 16, 0)
        inverse = min((1 << 30) // (total >> shift), 32767)
        rounded = (powers[[0, distance]] * inverse + 0x4000 >> 15) + (1 << shift >> 1) >> shift
        assert np.array_equal(softmax(row, bits)[0], rounded)


def array_in(source: str, name: str) -> np.ndarray:
    """The numbers of an array of the source."""
    body = source.split(f" {name}[", 1)[1].split("*/", 1)[1].split("}", 1)[0]
    return np.array([int(number) for number in body.replace(",", " ").split()])


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


def test_labels_are_exact_in_c_and_cannot_break_the_source(int8: Export) -> None:
    odd = ("_silence_", 'quo"ted\\', "*/ end", "naïve", "a\nb", "a\rb", "a_b", "??/")
    config = Config(16, 1, 16, layers=1, labels=odd)
    tensors = small_tensors(config)
    scales = scales_of(config, tensors)
    export = Export('na"me', config, tensors, "int8", Setting(name="*/"), int8.decision, scales)
    source = profile_source(export)
    assert r'"quo\042ted\134", "*/ end", "na\303\257ve", "a\012b", "a\015b", "a_b"' in source
    assert r'"\077\077/"' in source
    assert "/* Setting: __. */" in source
    assert r'DK_MODEL_NAME "na\042me, int8 weights, setting */"' in config_source(export)


def test_a_board_fits_only_if_memory_and_time_suffice(int8: Export) -> None:
    boards = {board.name.split()[0]: board for board in PUBLIC_BOARDS}
    teensy, nano, soft = boards["Teensy"], PUBLIC_BOARDS[0], boards["ESP32-C3-DevKitM"]
    slow = replace(int8, decision=replace(int8.decision, hop=0.5))
    word, dense = 11_616_768, 68_190_976  # MACs of the word of the self-test, and of any sound
    assert hop_instructions(int8, word, teensy) == pytest.approx(39.9e6 + 0.69e6, rel=0.01)
    assert hop_instructions(int8, dense, teensy) == pytest.approx(175.9e6 + 0.69e6, rel=0.01)
    assert board_row(int8, teensy, dense)[-1] == "no: time"  # a hop of 0.1 s
    assert board_row(int8, teensy, word)[4] == "41 M of 60 M"
    assert board_row(int8, teensy, word)[-1] == "yes"
    assert board_row(slow, nano, word)[-1] == "no: time"
    assert shortest_hop(int8, word, teensy) == 0.07
    assert hop_instructions(slow, word, soft) == pytest.approx(97.5e6 + 86.6e6, rel=0.01)  # no FPU
    assert board_row(slow, replace(soft, clock=150), word)[5] == "none"
    large = replace(int8, config=replace(int8.config, frames=400))
    assert board_row(large, boards["STM32F407"], word)[-1] == "no: RAM, time"


def test_ram_of_the_shipped_models(int8: Export, smallest: Export) -> None:
    """With a front end that smooths and has a floor: the most that it needs."""
    assert ram_bytes(int8) + OTHER_BYTES < 51 * 1024
    assert ram_bytes(smallest) + OTHER_BYTES < 31 * 1024


def test_a_folder_in_use_is_left_alone(int8: Export, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DeltakwtError, match="not empty"):
        write_folder(int8, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_cannot_be_exported_is_refused(int8: Export) -> None:
    with pytest.raises(DeltakwtError, match="one of f32, f16, int8, int16"):
        replace(int8, kind="int4")
    for changes, reason in (
        ({"kind": "f32"}, "one of int8, int16"),
        ({"scales": None}, "has no scales for fixed point; make them with: deltakwt quantize"),
        ({"config": Config(20, 5, 40)}, "multiples of 8"),
    ):
        with pytest.raises(DeltakwtError, match=reason):
            replace(int8, **changes).check_board()  # type: ignore[arg-type]
