"""A shard holds what its labels say, and depends on plan, number and hard negatives only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deltakwt.data.cache import open_clips, open_recordings
from deltakwt.data.recordings import join
from deltakwt.train.augment import RAW_SAMPLES, Recipe
from deltakwt.train.examples import (
    SILENT,
    SPEECH,
    ShardMaker,
    TrainingShard,
    WordClips,
    clips_of_split,
    validation_clips,
)
from deltakwt.train.negatives import HardNegatives, TrainingSound, silence_of, sound_cuts
from deltakwt.train.plan import Plan

CLEAN = Recipe(
    background_chance=0.0,
    band_chance=0.0,
    gain_chance=0.0,
    hiss_chance=0.0,
    round_chance=0.0,
    front_end_chance=0.0,
    stretch_chance=0.0,
    room_chance=0.0,
)


@pytest.fixture
def material(toy_data: Path, toy_speech: Path, toy_sounds: Path, tmp_path: Path) -> TrainingSound:
    return TrainingSound(
        open_clips([toy_data], tmp_path),
        open_recordings(toy_speech, tmp_path),
        (open_recordings(toy_sounds, tmp_path),),
    )


@pytest.fixture
def task(toy_plan: Plan, material: TrainingSound) -> WordClips:
    return clips_of_split(material.clips, toy_plan.labels, "train")


def make(
    plan: Plan, material: TrainingSound, rows: np.ndarray, labels: np.ndarray
) -> TrainingShard:
    task = clips_of_split(material.clips, plan.labels, "train")
    maker = ShardMaker(plan, task, material, HardNegatives(), torch.device("cpu"))
    return maker.shard(rows, labels, 7, 0.0)


def test_the_same_number_gives_the_same_shard(
    toy_plan: Plan, material: TrainingSound, task: WordClips
) -> None:
    rows, labels = task.epoch(1, 0, 0.2, 0.3, 0.6)
    maker = ShardMaker(toy_plan, task, material, HardNegatives(), torch.device("cpu"))
    first, again, other = (maker.shard(rows[:32], labels[:32], n, 0.0) for n in (3, 3, 4))
    assert torch.equal(first.features, again.features)
    assert np.array_equal(first.places, again.places)
    assert not torch.equal(first.features, other.features)


def test_speech_and_sounds_have_places_and_only_they_are_negatives(
    toy_plan: Plan, material: TrainingSound, task: WordClips
) -> None:
    rows = np.array([SPEECH] * 20 + [SILENT] * 20 + task.wanted[:4].tolist())
    labels = np.array([1] * 20 + [0] * 20 + task.wanted_label[:4].tolist())
    shard = make(replace(toy_plan, recipe=CLEAN), material, rows, labels)
    spoken = shard.places[:20]
    assert (spoken >= 0).sum() >= 14  # the others are pieces, which have no place
    assert spoken.max() < material.speech.samples
    sounds = shard.places[20:40]
    first, length = material.speech.samples, join(material.sounds).samples
    recorded = sounds[sounds >= 0]  # the others are noise and digital zero
    assert 10 <= len(recorded) < 20
    assert first <= recorded.min() <= recorded.max() < first + length
    assert (shard.places[40:] == -1).all()
    assert shard.negative.tolist() == [True] * 40 + [False] * 4
    assert shard.labels.tolist() == labels.tolist()


def test_a_keyword_that_is_cut_off_is_unknown(
    toy_plan: Plan, material: TrainingSound, task: WordClips
) -> None:
    always = replace(toy_plan, recipe=replace(CLEAN, cut_chance=1.0))
    shard = make(always, material, task.wanted[:8], task.wanted_label[:8])
    assert (shard.labels == 1).all()
    two = replace(always, labels=("low", "high"))  # no unknown: nothing is cut off
    shard = make(two, material, task.wanted[:8], task.wanted_label[:8] - 2)
    assert shard.labels.tolist() == (task.wanted_label[:8] - 2).tolist()


def test_answers_are_given_for_whole_keywords_that_moved_little(
    toy_plan: Plan, material: TrainingSound, task: WordClips
) -> None:
    soft = torch.rand(len(task.wanted), 4)
    plan = replace(toy_plan, recipe=replace(CLEAN, cut_chance=0.5))
    answers = (task.wanted, soft)
    maker = ShardMaker(plan, task, material, HardNegatives(), torch.device("cpu"), answers)
    rows = np.concatenate([task.wanted[:24], task.others[:4], [SILENT] * 4])
    labels = np.concatenate([task.wanted_label[:24], [1] * 4, [0] * 4])
    shard = maker.shard(rows, labels, 1, 0.0)
    assert 4 < shard.taught.sum() < 20
    assert not shard.taught[24:].any()
    assert not (shard.taught & (shard.labels == 1)).any()
    assert torch.equal(shard.answers[shard.taught], soft[:24][shard.taught[:24]])


def test_clear_features_have_no_background(
    toy_plan: Plan, material: TrainingSound, task: WordClips
) -> None:
    noisy = replace(CLEAN, background_chance=1.0, usual_snr_db=-5.0)
    plan = replace(toy_plan, masking=0.0, layerwise=0.5)
    rows, labels = task.wanted[:8], task.wanted_label[:8]
    loud = make(replace(plan, recipe=noisy), material, rows, labels)
    quiet = make(replace(plan, recipe=CLEAN), material, rows, labels)
    assert loud.clear is not None
    torch.testing.assert_close(loud.clear, quiet.features)
    assert (loud.features - quiet.features).abs().mean() > 1
    assert make(replace(plan, layerwise=0.0), material, rows, labels).clear is None


def test_hard_negatives_are_added_replayed_and_dropped() -> None:
    pool = HardNegatives()
    pool.update(np.arange(300), np.full(300, 0.5))
    assert len(pool.scores) == 300
    rng = torch.Generator().manual_seed(0)
    places = torch.full((4000,), 10**9)
    replayed = pool.replay(places, 0.4, range(300), rng)
    assert replayed.double().mean() == pytest.approx(0.4, abs=0.04)
    assert torch.equal(replayed, places < 300)
    assert not pool.replay(places, 0.4, range(150), rng).any()  # too few of them
    pool.update(np.array([0, 1, 999]), np.array([0.01, 0.08, 0.08]))
    assert 0 not in pool.scores  # learned
    assert pool.scores[1] == 0.08  # not yet
    assert 999 not in pool.scores  # never fired
    again = HardNegatives.from_tensors(pool.tensors())
    assert list(again.scores.items()) == list(pool.scores.items())


def test_a_full_pool_drops_its_easiest_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HardNegatives, "MOST", 10)
    monkeypatch.setattr(HardNegatives, "DROPPED", 4)
    pool = HardNegatives()
    pool.update(np.arange(11), np.linspace(0.2, 0.9, 11))
    assert sorted(pool.scores) == list(range(4, 11))


def test_silence_is_sound_of_every_level_and_digital_zero(material: TrainingSound) -> None:
    rng = torch.Generator().manual_seed(0)
    clips, recorded = silence_of(sound_cuts(material.sounds, 400, RAW_SAMPLES, rng), 400, rng)
    assert 280 < int(recorded.sum()) < 340
    power = clips.square().mean(1).sqrt()
    assert 20 < int((power == 0).sum()) < 90
    levels = power[power > 0].log10()
    assert levels.min() < -4
    assert levels.max() > -1.5
    assert clips.abs().max() <= 1


def test_an_epoch_holds_every_keyword_and_its_shares(task: WordClips) -> None:
    rows, labels = task.epoch(1, 0, unknown_share=0.18, silence_share=0.1, speech_share=0.5)
    wanted = labels >= 2
    assert sorted(rows[wanted]) == sorted(task.wanted)
    assert set(rows[labels == 0]) == {SILENT}
    assert np.sum(labels == 0) == np.ceil(0.10 * len(task.wanted))
    assert np.sum(rows == SPEECH) == np.ceil(0.5 * len(task.wanted))
    assert np.sum(labels == 1) == np.ceil(0.18 * len(task.wanted)) + np.sum(rows == SPEECH)
    again, other = task.epoch(1, 0, 0.18, 0.1, 0.5)[0], task.epoch(1, 1, 0.18, 0.1, 0.5)[0]
    assert np.array_equal(rows, again)
    assert not np.array_equal(rows, other)


def test_validation_is_always_the_same(toy_plan: Plan, material: TrainingSound) -> None:
    task = clips_of_split(material.clips, toy_plan.labels, "val")
    (clips, labels), (again, same) = (validation_clips(material, task) for _ in range(2))
    assert clips.equal(again)
    assert labels.equal(same)


def test_without_sounds_and_speech_there_are_backgrounds_all_the_same(
    toy_plan: Plan, material: TrainingSound, task: WordClips
) -> None:
    alone = TrainingSound(material.clips, join([]))
    rows = np.append(task.wanted[:8], SILENT)
    shard = make(toy_plan, alone, rows, np.append(task.wanted_label[:8], 0))
    assert torch.isfinite(shard.features).all()
