"""Data is decoded once, split by speaker, and refused if it cannot train the labels."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from deltakwt.core.errors import DeltakwtError
from deltakwt.data import cache as caches
from deltakwt.data import rooms
from deltakwt.data.cache import loudest_second, open_clips, open_noises, open_recordings
from deltakwt.data.recordings import is_validation, join, speakers, split_files, split_speech
from deltakwt.data.sources import DataSource, read_source, write_source
from deltakwt.data.speech_commands import split_of
from deltakwt.train.examples import SILENT, check, clips_of_split

LABELS = ("_silence_", "_unknown_", "low", "high")


def test_clips_come_back_as_they_were_read(toy_data: Path, tmp_path: Path) -> None:
    cache = open_clips([toy_data], tmp_path)
    assert len(cache.files) == 180
    row = cache.files.index("low/speaker007_nohash_0.wav")
    sound, _ = soundfile.read(toy_data / cache.files[row], dtype="float32")
    clips = cache.clips(np.array([SILENT, row])) / 32768
    assert not clips[0].any()
    np.testing.assert_allclose(clips[1], sound, atol=4e-5)


def test_the_second_time_nothing_is_decoded(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_clips([toy_data], tmp_path)
    monkeypatch.setattr(caches, "_decode", lambda *a: pytest.fail("decoded again"))
    assert open_clips([toy_data], tmp_path).files == first.files


def test_two_folders_make_one_set(toy_data: Path, tmp_path: Path) -> None:
    more = tmp_path / "more" / "low"
    more.mkdir(parents=True)
    shutil.copy(toy_data / "low" / "speaker000_nohash_0.wav", more / "me_nohash_0.wav")
    cache = open_clips([toy_data, more.parent], tmp_path / "cache")
    assert cache.files[-1] == "low/me_nohash_0.wav"
    assert np.abs(cache.clips(np.array([180]))).max() > 8_000


def test_a_damaged_file_is_left_out_and_named(toy_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(toy_data, data)
    (data / "low" / "broken_nohash_0.wav").write_bytes(b"RIFF but not really")
    (data / "low" / "empty_nohash_0.wav").write_bytes(b"")
    cache = open_clips([data], tmp_path / "cache")
    assert len(cache.files) == 180
    assert sorted(Path(file).name for file in cache.skipped) == [
        "broken_nohash_0.wav",
        "empty_nohash_0.wav",
    ]


def test_a_long_recording_of_a_word_is_cut_where_it_is_loudest() -> None:
    sound = np.zeros(50_000, np.float32)
    sound[30_000:40_000] = 0.5
    cut = loudest_second(sound)
    assert len(cut) == 16_000
    assert np.count_nonzero(cut) == 10_000


def ramps(folder: Path, lengths: dict[str, int]) -> Path:
    """Write files whose samples count up: 0, 1, 2, ... across all files."""
    first = 0
    for name, length in lengths.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.arange(first, first + length).astype(np.int16), 16_000)
        first += length
    return folder


def test_a_cut_runs_through_following_files_in_a_circle(tmp_path: Path) -> None:
    folder = ramps(tmp_path / "speech", {"a.wav": 100, "b.flac": 50, "deep/er/c.wav": 30})
    speech = open_recordings(folder, tmp_path)
    assert speech.files == ("a.wav", "b.flac", "deep/er/c.wav")
    assert speech.samples == 180
    np.testing.assert_array_equal(speech.cut(95, 60), np.arange(95, 155))
    np.testing.assert_array_equal(speech.cut(170, 20), [*range(170, 180), *range(10)])
    np.testing.assert_array_equal(speech.cut(-5, 5), np.arange(175, 180))
    assert [speech.place_in_file(*at) for at in ((1, 1.0, 10), (2, 0.3, 40))] == [140, 150]
    np.testing.assert_array_equal(speech.cut_inside(140, 10), np.arange(140, 150))
    np.testing.assert_array_equal(speech.cut_inside(148, 10), np.arange(140, 150))
    np.testing.assert_array_equal(speech.cut_inside(160, 40), [*range(150, 180), *range(150, 160)])
    last = speech.subset(np.array([False, False, True]))
    np.testing.assert_array_equal(last.cut(25, 10), [*range(175, 180), *range(150, 155)])
    both = join([last, speech])
    np.testing.assert_array_equal(both.cut(28, 4), [178, 179, 0, 1])


def test_a_stopped_decoding_continues_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ramps(tmp_path / "speech", {f"{n}.wav": 100 for n in range(6)})
    monkeypatch.setattr(caches, "FLUSH_EVERY", 2)
    seen: list[int] = []

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if done == 4:
            raise Stop

    with pytest.raises(Stop):
        open_recordings(folder, tmp_path / "cache", stop)
    done: list[int] = []
    speech = open_recordings(folder, tmp_path / "cache", lambda n, total: done.append(n))
    assert done == [6]  # the first four were not decoded again
    np.testing.assert_array_equal(speech.cut(0, 600), np.arange(600))


def test_unreadable_recordings_are_skipped(tmp_path: Path) -> None:
    folder = ramps(tmp_path / "speech", {"a.wav": 100, "c.wav": 100})
    (folder / "b.wav").write_bytes(b"noise")
    (folder / "SOURCE.json").write_text("{}")
    speech = open_recordings(folder, tmp_path / "cache")
    assert speech.files == ("a.wav", "c.wav")
    assert [Path(file).name for file in speech.skipped] == ["b.wav"]
    np.testing.assert_array_equal(speech.cut(0, 200), np.arange(200))
    (tmp_path / "none").mkdir()
    with pytest.raises(DeltakwtError, match="holds no sound files"):
        open_recordings(tmp_path / "none", tmp_path)
    with pytest.raises(DeltakwtError, match="no such folder"):
        open_recordings(tmp_path / "nowhere", tmp_path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["p225_001.wav", "p226_001.wav"], ["p225", "p226"]),
        (["all/p225_001.wav", "all/p226_001.wav"], ["p225", "p226"]),
        (["61/70968/a.flac", "61/7/b.flac", "121/1/c.flac"], ["61", "61", "121"]),
        (["set/61/70968/a.flac", "set/121/1/c.flac"], ["61", "121"]),
        (["alone.wav"], ["alone"]),
    ],
)
def test_the_speaker_is_the_folder_or_the_start_of_the_name(
    files: list[str], expected: list[str]
) -> None:
    assert speakers(files) == expected


def test_speech_is_split_by_speaker_and_sounds_by_file(toy_speech: Path, tmp_path: Path) -> None:
    speech = open_recordings(toy_speech, tmp_path)
    training, held = split_speech(speech)
    assert len(training.files) + len(held.files) == 30
    assert 0 < len(held.files) < 10
    assert all(is_validation(file.split("_")[0]) for file in held.files)
    share = np.mean([is_validation(f"file {n}") for n in range(5_000)])
    assert share == pytest.approx(0.08, abs=0.012)
    training, held = split_files(speech)
    assert {is_validation(file) for file in held.files} <= {True}
    assert not any(is_validation(file) for file in training.files)


def test_no_speaker_of_words_is_in_two_splits(toy_data: Path, tmp_path: Path) -> None:
    cache = open_clips([toy_data], tmp_path)
    for split in ("train", "val", "test"):
        task = clips_of_split(cache, LABELS, split)
        rows = np.concatenate([task.wanted, task.others])
        assert {split_of(cache.files[row]) for row in rows} == {split}


def test_background_noises_of_a_data_folder_are_recordings(toy_data: Path, tmp_path: Path) -> None:
    (noise,) = open_noises([toy_data], tmp_path)
    assert noise.files == ("hiss.wav",)
    assert noise.samples == 48_000


@pytest.mark.parametrize("clips", [0, 1])
def test_a_word_without_enough_clips_is_named(toy_data: Path, tmp_path: Path, clips: int) -> None:
    data = tmp_path / "data"
    shutil.copytree(toy_data, data)
    for file in sorted((data / "low").iterdir())[clips:]:
        file.unlink()
    cache = open_clips([data], tmp_path / "cache")
    tasks = [clips_of_split(cache, LABELS, split) for split in ("train", "val")]
    with pytest.raises(DeltakwtError, match=r"'low': \d training clips, at least 5"):
        check(*tasks)


def test_other_words_or_speech_are_needed(toy_data: Path, tmp_path: Path) -> None:
    cache = open_clips([toy_data], tmp_path)
    tasks = [clips_of_split(cache, (*LABELS, "middle"), split) for split in ("train", "val")]
    with pytest.raises(DeltakwtError, match="other words"):
        check(*tasks)
    check(*tasks, has_speech=True)


def test_a_cache_that_cannot_be_written_ends_in_one_line(toy_data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeltakwtError, match="cannot write the audio cache"):
        open_clips([toy_data], tmp_path / "file")


def test_rooms_start_with_the_direct_sound_and_have_energy_one(tmp_path: Path) -> None:
    response = np.zeros(20_000)
    response[3_000], response[3_400] = 0.8, -0.3
    soundfile.write(tmp_path / "hall.wav", response, 16_000)
    soundfile.write(tmp_path / "zero.wav", np.zeros(100), 16_000)
    made, skipped = rooms.open_rooms(str(tmp_path), tmp_path)
    assert made.shape == (1, rooms.LENGTH)
    assert np.argmax(np.abs(made[0])) == rooms.BEFORE_PEAK
    assert (made**2).sum() == pytest.approx(1)
    assert list(skipped.values()) == ["holds only zeros"]
    noise, _ = rooms.open_rooms("noise", tmp_path)
    np.testing.assert_allclose((noise**2).sum(axis=1), 1, rtol=1e-5)


def test_without_pyroomacoustics_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyroomacoustics", None)
    with pytest.raises(DeltakwtError, match=r"pip install pyroomacoustics .*--rooms noise"):
        rooms.open_rooms("simulated", tmp_path)


def test_simulated_rooms_are_kept_and_follow_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyroomacoustics")
    monkeypatch.setattr(rooms, "COUNT", 3)
    made, _ = rooms.open_rooms("simulated", tmp_path)
    assert made.shape == (3, rooms.LENGTH)
    np.testing.assert_allclose((made**2).sum(axis=1), 1, rtol=1e-5)
    monkeypatch.setattr(rooms, "simulate_rooms", lambda *a: pytest.fail("simulated again"))
    np.testing.assert_array_equal(rooms.open_rooms("simulated", tmp_path)[0], made)


def test_a_source_is_written_read_and_missing(tmp_path: Path) -> None:
    missing = read_source(tmp_path)
    assert missing == DataSource(tmp_path.name, "licence not stated")
    stated = DataSource("VCTK", "CC BY 4.0", "https://example.org", "CSTR")
    write_source(tmp_path, stated)
    assert read_source(tmp_path) == stated
    assert str(stated) == "VCTK: CC BY 4.0; CSTR; https://example.org"
    (tmp_path / "SOURCE.json").write_text('{"license": "CC0"}')
    with pytest.raises(DeltakwtError, match=r"SOURCE.json: unknown key 'license'"):
        read_source(tmp_path)
    (tmp_path / "SOURCE.json").write_text('{"licence": 4}')
    with pytest.raises(DeltakwtError, match="must be a string"):
        read_source(tmp_path)
