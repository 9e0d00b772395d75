"""Clips of a pool: the augmented groups and the subset of a sweep."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from deltakwt.core.config import LABELS, SAMPLE_RATE, SILENCE
from deltakwt.data.conditions import SHIFT_SAMPLES, noisy, shifted, spoken_power, telephone
from deltakwt.data.speech_commands import Clip, Manifest, draw
from deltakwt.evaluate.pool import GROUPS, Pool
from deltakwt.evaluate.pool_clips import draw_pool, load_pool
from deltakwt.tune.sweep import draw_subset

SECOND = np.arange(SAMPLE_RATE) / SAMPLE_RATE


def tone(frequency: float) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * frequency * SECOND)).astype(np.float32)


@pytest.mark.parametrize(
    ("frequency", "low", "high"),
    [(100, 0, 0.01), (300, 0.9, 1.01), (1000, 0.99, 1.01), (3400, 0.9, 1.01), (5000, 0, 0.01)],
)
def test_a_telephone_passes_300_to_3400_hz(frequency: float, low: float, high: float) -> None:
    middle = slice(4_000, 12_000)  # without the edges, which are steps
    before = tone(frequency)
    after = telephone(before[None])[0]
    assert low <= after[middle].std() / before[middle].std() <= high


def test_noise_lies_10_db_below_the_spoken_part() -> None:
    sound = np.zeros((1, SAMPLE_RATE), np.float32)
    sound[0, 4_000:8_000] = 0.3 * tone(440)[:4_000]
    noise = np.random.default_rng(0).normal(0, 0.2, (1, SAMPLE_RATE)).astype(np.float32)
    added = noisy(sound, noise) - sound
    speech = np.square(sound[0, 4_000:8_000]).mean()
    assert spoken_power(sound)[0] == pytest.approx(speech, rel=0.02)
    assert 10 * np.log10(speech / np.square(added).mean()) == pytest.approx(10, abs=0.1)
    assert not noisy(sound * 0, noise).any()


def test_a_shift_moves_the_sound_and_fills_up_with_zeros() -> None:
    sounds = np.stack([tone(440), tone(440)])
    later, earlier = shifted(sounds, np.array([SHIFT_SAMPLES, -SHIFT_SAMPLES]))
    assert not later[:SHIFT_SAMPLES].any()
    assert np.array_equal(later[SHIFT_SAMPLES:], sounds[0, :-SHIFT_SAMPLES])
    assert not earlier[-SHIFT_SAMPLES:].any()
    assert np.array_equal(earlier[:-SHIFT_SAMPLES], sounds[1, SHIFT_SAMPLES:])


def augmented(root: Path, split: str, seed: int) -> Pool:
    groups = ("words", "telephone", "noisy", "shifted")
    return load_pool(draw_pool(root, split, LABELS, groups, seed), LABELS, "clips", groups)


def test_augmented_groups_are_made_of_the_spoken_clips(full_set: Path, test_set: Path) -> None:
    pool = augmented(full_set, "val", seed=1)
    assert pool.counts() == {"words": 30, "telephone": 36, "noisy": 36, "shifted": 36}
    for group in ("telephone", "noisy", "shifted"):
        mine = np.flatnonzero(pool.groups == GROUPS.index(group))
        assert Counter(pool.targets[mine])[LABELS.index("_unknown_")] == 6
        assert Counter(pool.targets[mine])[LABELS.index("yes")] == 3
    kept, held = pool.hold_out(0.3, seed=0)  # a speaker is on one side with all versions of a clip
    assert not set(kept.sources) & set(held.sources)
    # The noise of an official test set comes from its silence clips.
    assert augmented(test_set, "test", seed=1).counts()["noisy"] == 22


def test_augmented_groups_depend_on_the_seed_only(full_set: Path) -> None:
    one, same, other = (augmented(full_set, "val", seed) for seed in (1, 1, 2))
    assert np.array_equal(one.audio, same.audio)
    assert not np.array_equal(one.audio, other.audio)


def test_a_subset_has_100_clips_with_6_to_12_of_each_class() -> None:
    clips = tuple(
        Clip(None if label == SILENCE else f"{label}/{number}.wav", label)
        for label in LABELS
        for number in range(400)
    )
    whole = Manifest(Path("data"), "test", "zero", 0, clips)
    subset = draw_subset(whole, 100, seed=3)
    counts = Counter(clip.label for clip in subset.clips)
    assert len(subset.clips) == 100
    assert set(counts) == set(LABELS)
    assert 6 <= min(counts.values()) <= max(counts.values()) <= 12
    assert draw_subset(whole, 100, seed=3) == subset
    assert draw_subset(whole, 100, seed=4) != subset


def test_a_subset_of_small_classes_takes_what_there_is(test_set: Path) -> None:
    subset = draw_subset(draw(test_set), 100, seed=0)
    assert len(subset.clips) == 24
    assert len(set(subset.clips)) == 23  # the two clips of digital silence are equal
