"""Speech Commands: layouts, the split by speaker, the twelve-class rules, manifests."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from deltakwt.core.config import KEYWORDS, LABELS
from deltakwt.core.errors import DeltakwtError
from deltakwt.data import speech_commands as dataset


def test_the_split_reproduces_the_official_lists(shared: Path) -> None:
    root = shared / "data" / "speech_commands_v0.01"
    listed = {
        "val": (root / "validation_list.txt").read_text().split(),
        "test": (root / "testing_list.txt").read_text().split(),
    }
    for split, names in listed.items():
        assert names
        assert all(dataset.split_of(name) == split for name in names)


def test_the_twelve_class_rules_on_the_full_layout(full_set: Path) -> None:
    manifest = dataset.draw(full_set, "test", "zero")
    counts = Counter(clip.label for clip in manifest.clips)
    assert counts == {"_silence_": 3, "_unknown_": 3} | dict.fromkeys(KEYWORDS, 3)  # 10% of 30
    for clip in manifest.clips:
        if clip.label == "_silence_":
            assert clip.path is None
        else:
            assert dataset.split_of(str(clip.path)) == "test"
        if clip.label == "_unknown_":
            assert str(clip.path).startswith(("marvin/", "happy/"))


def test_silence_and_unknown_are_rounded_up(full_set: Path, tmp_path: Path) -> None:
    words = dataset.word_clips(full_set)
    for path in (p for word in ("yes", "marvin") for p in words[word]):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes((full_set / path).read_bytes())
    counts = Counter(clip.label for clip in dataset.draw(tmp_path, "val").clips)
    assert counts == {"yes": 3, "_silence_": 1, "_unknown_": 1}


def test_the_official_counts(shared: Path) -> None:
    root = shared / "data" / "speech_commands_test_set_v0.02"
    for silence in ("zero", "noise"):
        manifest = dataset.draw(root, "test", silence)
        counts = Counter(clip.label for clip in manifest.clips)
        assert len(manifest.clips) == 4_890
        assert counts["_silence_"] == counts["_unknown_"] == 408
        silent = [clip for clip in manifest.clips if clip.label == "_silence_"]
        assert all((clip.path is None) == (silence == "zero") for clip in silent)


@pytest.mark.parametrize("silence", ["zero", "noise"])
def test_both_silences_on_both_layouts(full_set: Path, test_set: Path, silence: str) -> None:
    for root in (full_set, test_set):
        manifest = dataset.draw(root, "test", silence)
        failed: list[dataset.Failed] = []
        clips, sounds = next(dataset.batches(manifest, 999, 2, failed.append))
        assert not failed
        assert {clip.label for clip in clips} == set(LABELS)
        assert sounds.shape == (len(manifest.clips), 16_000)
        loud = [
            sound.any()
            for clip, sound in zip(clips, sounds, strict=True)
            if clip.label == "_silence_"
        ]
        assert all(loud) if silence == "noise" else not any(loud)


def test_a_noise_clip_is_cut_where_the_manifest_says(full_set: Path) -> None:
    noise, _ = soundfile.read(full_set / "_background_noise_" / "hiss.wav", dtype="float32")
    for clip in dataset.draw(full_set, "test", "noise").clips:
        if clip.label == "_silence_":
            sound = dataset.read(dataset.draw(full_set), clip)
            np.testing.assert_array_equal(sound, noise[clip.offset : clip.offset + 16_000])


def test_background_noise_is_checked_like_any_sound(tmp_path: Path, full_set: Path) -> None:
    (tmp_path / "yes").symlink_to(full_set / "yes")
    noise = tmp_path / dataset.NOISE_FOLDER / "a.wav"
    noise.parent.mkdir()
    cut = dataset.Clip(f"{dataset.NOISE_FOLDER}/a.wav", "_silence_", 100)
    manifest = dataset.Manifest(tmp_path, "test", "noise", 0, (cut,))
    for sound, rate, reason in (
        (np.full(200, np.nan), 16_000, "holds NaN"),
        (np.zeros(200), 8_000, "must have 16 kHz"),
        (np.zeros(100), 16_000, "ends before sample 100"),
    ):
        soundfile.write(noise, sound, rate, subtype="FLOAT")
        with pytest.raises(DeltakwtError, match=rf"a\.wav: {reason}"):
            dataset.read(manifest, cut)
    noise.unlink()
    os.mkfifo(noise)
    with pytest.raises(DeltakwtError, match=r"a\.wav: not a regular file"):
        dataset.draw(tmp_path, "test", "noise")


def test_a_draw_depends_on_the_seed_and_on_nothing_else(full_set: Path) -> None:
    draws = [dataset.draw(full_set, "val", "noise", seed=seed).clips for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_limit_draws_from_all_classes(test_set: Path) -> None:
    clips = dataset.draw(test_set, limit=12).clips
    assert len(clips) == 12
    assert len({clip.label for clip in clips}) > 4
    assert set(clips) <= set(dataset.draw(test_set).clips)


def test_other_labels_draw_other_words(full_set: Path) -> None:
    manifest = dataset.draw(full_set, "train", labels=("_unknown_", "marvin"))
    assert Counter(clip.label for clip in manifest.clips) == {"marvin": 3, "_unknown_": 1}


def test_a_manifest_is_saved_and_read_back(full_set: Path, tmp_path: Path) -> None:
    manifest = dataset.draw(full_set, "val", "noise", seed=7)
    manifest.save(tmp_path / "m.json")
    assert dataset.load_manifest(tmp_path / "m.json", full_set) == manifest


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 9}, "format 9"),
        ({"clips": []}, "no clips"),
        ({"clips": [{"path": "../../etc/passwd", "label": "yes", "offset": 0}]}, "leads out"),
        ({"clips": [{"path": "/etc/passwd", "label": "yes", "offset": 0}]}, "leads out"),
        ({"clips": [{"path": 5, "label": "yes", "offset": 0}]}, "leads out"),
        ({"clips": [{"label": "yes"}]}, "not a manifest"),
        ({"clips": None}, "not a manifest"),
    ],
)
def test_bad_manifests(
    test_set: Path, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    path = tmp_path / "m.json"
    dataset.draw(test_set).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DeltakwtError, match=reason):
        dataset.load_manifest(path, test_set)


def test_folders_without_clips(tmp_path: Path, full_set: Path, test_set: Path) -> None:
    with pytest.raises(DeltakwtError, match="holds no clips"):
        dataset.draw(tmp_path)
    with pytest.raises(DeltakwtError, match="no such data folder"):
        dataset.draw(tmp_path / "nothing")
    with pytest.raises(DeltakwtError, match="has no val split"):
        dataset.draw(test_set, "val")
    with pytest.raises(DeltakwtError, match="no test clip of the model's words"):
        dataset.draw(full_set, labels=("hello", "world"))
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes" / "a_nohash_0.wav").write_bytes(b"")
    with pytest.raises(DeltakwtError, match="_background_noise_"):
        dataset.draw(tmp_path, dataset.split_of("a_nohash_0.wav"), "noise")


def test_a_bad_clip_is_reported_and_left_out(test_set: Path) -> None:
    clips = (*dataset.draw(test_set).clips[:30], dataset.Clip("yes/missing.wav", "yes"))
    manifest = dataset.Manifest(test_set, "test", "zero", 0, clips)
    failed: list[dataset.Failed] = []
    good = [clip for group, _ in dataset.batches(manifest, 8, 2, failed.append) for clip in group]
    assert len(good) == len(clips) - 1
    assert [name for name, _ in failed] == ["yes/missing.wav"]


def test_describe(full_set: Path, test_set: Path) -> None:
    full = dataset.describe(full_set)
    assert full["layout"] == "full data set"
    assert full["splits"] == {"train": 36, "val": 36, "test": 36}
    assert full["noise_recordings"] == ["hiss.wav"]
    assert dataset.describe(test_set)["layout"] == "official test set"
    assert dataset.describe(test_set)["splits"] == {"test": 24}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("speech_commands_v0.01", "v0.01"),
        ("speech_commands_test_set_v0.01", "test-v0.01"),
        ("speech_commands_v0.02", "v0.02"),
        ("speech_commands_test_set_v0.02", "test-v0.02"),
    ],
)
def test_the_message_for_a_missing_set_names_that_set(folder: str, name: str) -> None:
    with pytest.raises(DeltakwtError, match=rf"deltakwt data get {name}$"):
        dataset.word_clips(Path("nowhere") / folder)
