"""What is learned from: decoded once, split by speaker, and refused where it cannot teach."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import split_of
from deltakwt.train import cache as caches
from deltakwt.train.cache import loudest_second, open_cache
from deltakwt.train.task import SILENT, check, make_task, validation_clips

LABELS = ("_silence_", "_unknown_", "low", "high")


def test_clips_come_back_as_they_were_read(toy_data: Path, tmp_path: Path) -> None:
    cache = open_cache([toy_data], tmp_path)
    assert len(cache.files) == 180
    row = cache.files.index("low/speaker007_nohash_0.wav")
    sound, _ = soundfile.read(toy_data / cache.files[row], dtype="float32")
    clips = cache.clips(np.array([SILENT, row]))
    assert not clips[0].any()
    np.testing.assert_allclose(clips[1], sound, atol=1e-6)


def test_the_second_time_nothing_is_decoded(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_cache([toy_data], tmp_path)
    monkeypatch.setattr(caches, "_build", lambda *a: pytest.fail("decoded again"))
    assert open_cache([toy_data], tmp_path).files == first.files


def test_two_folders_make_one_cache(toy_data: Path, tmp_path: Path) -> None:
    more = tmp_path / "more" / "low"
    more.mkdir(parents=True)
    shutil.copy(toy_data / "low" / "speaker000_nohash_0.wav", more / "me_nohash_0.wav")
    cache = open_cache([toy_data, more.parent], tmp_path / "cache")
    assert cache.files[-1] == "low/me_nohash_0.wav"
    assert cache.clips(np.array([180])).abs().max() > 0.25


def test_a_damaged_file_is_left_out_and_named(toy_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(toy_data, data)
    (data / "low" / "broken_nohash_0.wav").write_bytes(b"RIFF but not really")
    (data / "low" / "empty_nohash_0.wav").write_bytes(b"")
    cache = open_cache([data], tmp_path / "cache")
    assert len(cache.files) == 180
    assert sorted(Path(file).name for file in cache.skipped) == [
        "broken_nohash_0.wav",
        "empty_nohash_0.wav",
    ]


def test_a_long_recording_is_cut_where_it_is_loudest() -> None:
    sound = np.zeros(50_000, np.float32)
    sound[30_000:40_000] = 0.5
    cut = loudest_second(sound)
    assert len(cut) == 16_000
    assert np.count_nonzero(cut) == 10_000


def test_no_speaker_is_heard_in_two_splits(toy_data: Path, tmp_path: Path) -> None:
    cache = open_cache([toy_data], tmp_path)
    for split in ("train", "val", "test"):
        task = make_task(cache, LABELS, split)
        rows = np.concatenate([task.wanted, task.others])
        assert {split_of(cache.files[row]) for row in rows} == {split}


def test_an_epoch_holds_every_wanted_clip_and_its_shares(toy_data: Path, tmp_path: Path) -> None:
    task = make_task(open_cache([toy_data], tmp_path), LABELS, "train")
    rows, labels = task.epoch(1, 0, unknown_share=0.18, silence_share=0.1)
    wanted = labels >= 2
    assert sorted(rows[wanted]) == sorted(task.wanted)
    assert set(rows[labels == 0]) == {SILENT}
    assert np.sum(labels == 0) == np.ceil(0.10 * len(task.wanted))
    assert np.sum(labels == 1) == np.ceil(0.18 * len(task.wanted))
    again, other = task.epoch(1, 0, 0.18)[0], task.epoch(1, 1, 0.18)[0]
    assert np.array_equal(rows, again)
    assert not np.array_equal(rows, other)


def test_validation_is_always_the_same(toy_data: Path, tmp_path: Path) -> None:
    cache = open_cache([toy_data], tmp_path)
    task = make_task(cache, LABELS, "val")
    (clips, labels), (again, same) = (validation_clips(cache, task) for _ in range(2))
    assert clips.equal(again)
    assert labels.equal(same)


@pytest.mark.parametrize("clips", [0, 1])
def test_a_word_without_enough_clips_is_named(toy_data: Path, tmp_path: Path, clips: int) -> None:
    data = tmp_path / "data"
    shutil.copytree(toy_data, data)
    for file in sorted((data / "low").iterdir())[clips:]:
        file.unlink()
    cache = open_cache([data], tmp_path / "cache")
    tasks = [make_task(cache, LABELS, split) for split in ("train", "val")]
    with pytest.raises(DeltakwtError, match=r"'low': \d training clips, at least 5"):
        check(*tasks)


def test_unknown_words_are_needed(toy_data: Path, tmp_path: Path) -> None:
    cache = open_cache([toy_data], tmp_path)
    labels = (*LABELS, "middle")
    with pytest.raises(DeltakwtError, match="other words"):
        check(*(make_task(cache, labels, split) for split in ("train", "val")))


def test_a_cache_that_cannot_be_written_ends_in_a_line(toy_data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeltakwtError, match="cannot write the audio cache"):
        open_cache([toy_data], tmp_path / "file")
