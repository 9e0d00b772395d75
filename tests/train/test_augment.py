"""Augmentation changes clips as it says, and the same way for the same seed."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from deltakwt.train import augment
from deltakwt.train.augment import Recipe

UNTOUCHED = Recipe(shift_ms=0, stretch_chance=0, noise_chance=0, gain_chance=0)


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def tones(count: int, hertz: float = 500.0) -> torch.Tensor:
    time = torch.arange(16_000) / 16_000
    return 0.3 * torch.sin(2 * torch.pi * hertz * time).repeat(count, 1)


def test_a_recipe_of_nothing_changes_nothing() -> None:
    clips = tones(4)
    moved = augment.move_and_stretch(clips, UNTOUCHED, rng())
    assert torch.equal(augment.add_noise(moved, [], UNTOUCHED, rng()), clips)
    assert torch.equal(augment.rooms(clips, UNTOUCHED, rng()), clips)


def test_a_shift_moves_samples_and_fills_with_zero() -> None:
    clips = torch.rand(50, 16_000) + 0.5
    moved = augment.move_and_stretch(clips, Recipe(stretch_chance=0), rng())
    for before, after in zip(clips, moved, strict=True):
        heard = (after != 0).nonzero()[:, 0]
        start, end = int(heard[0]), int(heard[-1]) + 1
        assert 16_000 - (end - start) <= 1_600
        shift = end - 16_000 if end < 16_000 else start
        expected = before[: end - start] if shift > 0 else before[16_000 - (end - start) :]
        torch.testing.assert_close(after[start:end], expected)


def test_stretching_changes_the_pitch_within_15_percent() -> None:
    recipe = Recipe(shift_ms=0, stretch_chance=1)
    moved = augment.move_and_stretch(tones(64), recipe, rng())
    middle = moved[:, 4_000:12_000]
    crossings = ((middle[:, 1:] >= 0) & (middle[:, :-1] < 0)).sum(1).float()  # 250 at 500 Hz
    assert crossings.min() > 250 * 0.84
    assert crossings.max() < 250 * 1.16
    assert crossings.std() > 10


def test_loud_noise_has_the_drawn_ratio_to_the_clip() -> None:
    recipe = Recipe(gain_chance=0, noise_chance=1, loud_noise_chance=1, snr_db=(10.0, 10.0))
    clips = tones(8)
    noise = augment.add_noise(clips, [], recipe, rng()) - clips
    ratio = clips.square().mean(1) / noise.square().mean(1)
    torch.testing.assert_close(10 * ratio.log10(), torch.full((8,), 10.0), atol=0.1, rtol=0)


def test_silence_is_noise_of_every_loudness_and_digital_zero() -> None:
    clips = augment.silence([0.5 * torch.randn(40_000)], 400, rng())
    power = clips.square().mean(1).sqrt()
    assert 10 < int((power == 0).sum()) < 90
    heard = power[power > 0].log10()
    assert heard.min() < -4
    assert heard.max() > -1
    assert clips.abs().max() <= 1


def test_synthetic_noise_runs_from_white_to_brown() -> None:
    noise = augment.coloured_noise(300, rng())
    torch.testing.assert_close(noise.square().mean(1), torch.ones(300))
    spectrum = torch.fft.rfft(noise).abs().square()
    tilt = (spectrum[:, 10:100].mean(1) / spectrum[:, 4_000:8_000].mean(1)).log10()
    assert tilt.min() < 0.3
    assert tilt.max() > 3


def test_masks_hide_runs_up_to_their_longest() -> None:
    hidden = augment.masks(200, Recipe(), 1.0, rng())
    frames = hidden.all(2).sum(1)
    assert 0 < int(frames.max()) <= 50
    assert 0 < int(hidden.all(1).sum(1).max()) <= 14
    assert not augment.masks(50, Recipe(), 0.0, rng()).any()


@pytest.mark.parametrize(("group", "count"), [(2, 49), (3, 33), (4, 25)])
def test_one_frame_is_kept_of_every_group(group: int, count: int) -> None:
    for seed in range(20):
        chosen = augment.some_frames(98, group, rng(seed))
        assert chosen is not None
        assert len(chosen) == count
        assert torch.equal(chosen // group, torch.arange(count))
    assert augment.some_frames(98, 1, rng()) is None


def test_a_room_adds_echoes_after_the_sound() -> None:
    click = torch.zeros(20, 16_000)
    click[:, 1_000] = 0.5
    heard = augment.rooms(click, Recipe(room_chance=1.0), rng())
    assert torch.allclose(heard[:, 1_000], torch.tensor(0.5), atol=1e-3)
    assert heard[:, :999].abs().max() < 1e-4
    assert (heard[:, 1_001:2_600].square().sum(1) > 0).all()
    assert (heard[:, 12_000:].square().mean(1).sqrt() < 1e-4).all()


def test_the_same_seed_gives_the_same_clips() -> None:
    noises = [torch.randn(30_000)]

    def once() -> torch.Tensor:
        generator = rng(7)
        clips = augment.move_and_stretch(tones(8), Recipe(), generator)
        return augment.add_noise(clips, noises, Recipe(), generator)

    assert torch.equal(once(), once())


def test_without_a_chance_the_front_end_stays_plain() -> None:
    smooth, floor = augment.front_end_settings(64, Recipe(steady_chance=0.0), rng())
    assert not smooth.any()
    assert not floor.any()
    smooth, floor = augment.front_end_settings(64, Recipe(), rng())
    assert 16 < smooth.sum() < 48
    assert 16 < (floor >= 1).sum() < 48


def test_shares_of_steady_front_ends_and_of_noise_can_be_chosen() -> None:
    usual = Recipe()
    assert usual.heard(0.5, 0.36) == usual
    loud = usual.heard(0.75, 0.9)
    assert loud.steady_chance == 0.75
    assert loud.noise_chance * loud.loud_noise_chance == pytest.approx(0.9)
    assert usual.heard(0.0, 0.0).loud_noise_chance == 0.0
