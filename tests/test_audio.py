"""Any sound file or array becomes 16 kHz mono; whatever else it is gives one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from deltakwt import audio
from deltakwt.archive.plan import find_files
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.cache import find_recordings
from deltakwt.evaluate.negatives import find_negatives
from deltakwt.evaluate.pool_clips import load_recordings


def tone(rate: int, seconds: float = 1.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(rate * seconds)) / rate)


def read(path: Path) -> np.ndarray:
    return np.concatenate(list(audio.read_blocks(path)))


@pytest.mark.parametrize(
    ("name", "subtype", "worst"),
    [
        ("a.wav", "PCM_16", 1e-4),
        ("a.wav", "PCM_U8", 1e-2),
        ("a.wav", "FLOAT", 1e-5),
        ("a.flac", "PCM_24", 1e-5),
        ("a.ogg", "VORBIS", 0.05),
        ("a.mp3", "MPEG_LAYER_III", 0.05),
    ],
)
def test_formats(tmp_path: Path, name: str, subtype: str, worst: float) -> None:
    soundfile.write(tmp_path / name, tone(16_000), 16_000, subtype=subtype)
    sound = read(tmp_path / name)
    assert sound.dtype == np.float32
    assert np.abs(sound[:16_000] - tone(16_000))[500:-500].max() < worst


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("channels", [1, 2, 8])
def test_rates_and_channels(tmp_path: Path, rate: int, channels: int) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.repeat(tone(rate)[:, None], channels, axis=1), rate)
    sound = read(path)
    assert len(sound) == 16_000
    assert np.abs(sound - tone(16_000))[500:-500].max() < 1e-3


def test_channels_are_averaged(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack([tone(16_000), -tone(16_000)], axis=1), 16_000)
    assert np.abs(read(tmp_path / "a.wav")).max() < 1e-4


def test_a_long_file_comes_in_bounded_blocks(tmp_path: Path) -> None:
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, 3_000_000)
    soundfile.write(tmp_path / "a.wav", sound, 16_000, subtype="FLOAT")
    blocks = list(audio.read_blocks(tmp_path / "a.wav"))
    assert max(map(len, blocks)) <= audio.BLOCK_VALUES
    np.testing.assert_array_equal(np.concatenate(blocks), sound.astype(np.float32))


def test_resampling_in_blocks_equals_resampling_at_once(tmp_path: Path) -> None:
    import soxr

    sound = np.random.default_rng(0).uniform(-0.5, 0.5, 2_500_000).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", sound, 44_100, subtype="FLOAT")
    at_once = soxr.resample(sound, 44_100, 16_000)
    np.testing.assert_allclose(read(tmp_path / "a.wav"), at_once, atol=1e-5)


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint8, np.float64, np.float16])
def test_arrays_of_any_type(kind: type) -> None:
    sound = tone(16_000)
    if np.issubdtype(kind, np.integer):
        middle = 128 if kind is np.uint8 else 0
        scale = 128 if kind is np.uint8 else -float(np.iinfo(kind).min)
        stored = (sound * scale + middle).astype(kind)
    else:
        stored = sound.astype(kind)
    (block,) = audio.array_blocks(stored, 16_000)
    assert np.abs(block - sound).max() < 0.01


@pytest.mark.parametrize(
    ("sound", "rate", "reason"),
    [
        (np.zeros(0), None, "no sound"),
        (np.zeros((2, 3, 4)), None, "not sound"),
        (np.array(["a"]), None, "not sound"),
        (np.zeros((2, 16_000)), None, "not \\(samples, channels\\)"),
        (np.array([0.0, np.nan]), None, "NaN"),
        (np.array([0.0, -np.inf]), None, "infinity"),
        (np.array([0.0, 12_345.0]), None, "peaks at 12345"),
        (np.zeros(10), 0, "sample rate 0"),
        (np.zeros(10), 10**9, "sample rate"),
    ],
)
def test_arrays_that_are_no_sound(sound: np.ndarray, rate: int | None, reason: str) -> None:
    with pytest.raises(DeltakwtError, match=reason):
        list(audio.array_blocks(sound, rate))


def broken_files(folder: Path) -> dict[str, str]:
    """Files that are no sound -> a part of what is said of them."""
    good = folder / "good"
    soundfile.write(folder / "good.wav", tone(16_000), 16_000)
    whole = (folder / "good.wav").read_bytes()
    soundfile.write(folder / "good.flac", tone(16_000), 16_000)
    flac = (folder / "good.flac").read_bytes()
    (folder / "empty.wav").write_bytes(b"")
    (folder / "truncated.wav").write_bytes(whole[: len(whole) // 2])
    (folder / "truncated.flac").write_bytes(flac[: len(flac) // 2])
    (folder / "header.wav").write_bytes(whole[:20])
    (folder / "text.wav").write_text("this is not sound\n" * 100)
    (folder / "folder.wav").mkdir()
    soundfile.write(folder / "zero.wav", np.zeros(0), 16_000)
    soundfile.write(folder / "nan.wav", np.full(16_000, np.nan), 16_000, subtype="FLOAT")
    soundfile.write(folder / "inf.wav", np.full(16_000, np.inf), 16_000, subtype="FLOAT")
    good.with_suffix(".wav").unlink()
    good.with_suffix(".flac").unlink()
    return {
        "missing.wav": "no such file",
        "empty.wav": "empty file",
        "truncated.wav": "truncated",
        "truncated.flac": "not readable as sound",
        "header.wav": "not readable as sound",
        "text.wav": "not readable as sound",
        "folder.wav": "not a file",
        "zero.wav": "no sound",
        "nan.wav": "NaN",
        "inf.wav": "infinity",
    }


def test_broken_files_are_named_with_the_reason(tmp_path: Path) -> None:
    for name, reason in broken_files(tmp_path).items():
        with pytest.raises(DeltakwtError) as error:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
        assert reason in str(error.value)
        assert "\n" not in str(error.value)


def test_a_wav_of_unknown_length_is_no_truncated_one(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(16_000), 16_000)
    whole = bytearray((tmp_path / "a.wav").read_bytes())
    whole[40:44] = b"\xff\xff\xff\xff"  # what a program writes to a pipe
    (tmp_path / "a.wav").write_bytes(whole)
    assert len(read(tmp_path / "a.wav")) == 16_000


def test_read_clip_pads_and_cuts(tmp_path: Path) -> None:
    for length in (5_000, 16_000, 20_000):
        sound = np.random.default_rng(0).uniform(-0.5, 0.5, length).astype(np.float32)
        soundfile.write(tmp_path / "a.wav", sound, 16_000, subtype="FLOAT")
        clip = audio.read_clip(tmp_path / "a.wav")
        kept = min(length, 16_000)
        np.testing.assert_array_equal(clip[:kept], sound[:kept])
        assert not clip[kept:].any()


def test_every_search_of_a_folder_finds_the_same_kinds_of_files(tmp_path: Path) -> None:
    for suffix in audio.SOUND_SUFFIXES:
        soundfile.write(tmp_path / f"a{suffix}", tone(16_000), 16_000, format="WAV")
    (tmp_path / "notes.txt").write_text("not a sound")
    names = sorted(f"a{suffix}" for suffix in audio.SOUND_SUFFIXES)
    assert find_recordings(tmp_path) == names
    assert [Path(file).name for file in find_files([str(tmp_path)])] == names
    assert [file.name for file in find_negatives(tmp_path).files] == names
    assert len(load_recordings(tmp_path, seed=0)) == len(names)
