"""Every augmentation guarantees what its docstring says, and follows its seed."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor

from deltakwt.train import augment
from deltakwt.train.augment import MARGIN, RAW_SAMPLES, Recipe
from deltakwt.train.features import front_end_settings, masks, some_frames


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def tones(count: int, hertz: float = 500.0) -> Tensor:
    time = torch.arange(16_000) / 16_000
    return 0.3 * torch.sin(2 * torch.pi * hertz * time).repeat(count, 1)


def words(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return (count, 24000) bursts of 0.2 to 0.6 s in faint noise, and their extents."""
    generator = rng(seed)
    length = 3_200 + (6_400 * torch.rand(count, generator=generator)).long()
    start = 2_000 + (4_000 * torch.rand(count, generator=generator)).long()
    raw = torch.zeros(count, RAW_SAMPLES)
    raw[:, MARGIN:-MARGIN] = 1e-4 * torch.randn(count, 16_000, generator=generator)
    for row, (first, size) in enumerate(zip(start.tolist(), length.tolist(), strict=True)):
        burst = 0.2 * torch.randn(size, generator=generator)
        raw[row, MARGIN + first : MARGIN + first + size] = burst
    return raw, torch.stack([start, start + length], dim=1).float()


def loud_samples(clips: Tensor) -> Tensor:
    return (clips.abs() > 0.01).sum(1)


def test_the_extent_of_a_word_is_found_within_30_ms() -> None:
    raw, extent = words(200)
    found = augment.word_extent(raw[:, MARGIN:-MARGIN])
    assert (found - extent).abs().max() <= 480


def test_a_shifted_word_keeps_at_least_92_percent_of_itself() -> None:
    raw, extent = words(400)
    rate = augment.stretch_rates(400, Recipe(), rng(1))
    shift = augment.shifts(extent, rate, Recipe(), rng(2))
    still = augment.place_clips(raw, torch.zeros(400), rate)
    moved = augment.place_clips(raw, shift, rate)
    assert (loud_samples(moved) / loud_samples(still)).min() > 0.92 - 0.01
    assert shift.abs().max() > 4_800  # 300 ms
    assert shift.abs().max() <= 5_600


def test_10_to_50_percent_of_a_cut_off_word_is_inside() -> None:
    raw, extent = words(400)
    rate = torch.ones(400)
    shift = augment.cut_off_shifts(extent, rate, Recipe(), rng(2))
    still = augment.place_clips(raw, torch.zeros(400), rate)
    part = loud_samples(augment.place_clips(raw, shift, rate)) / loud_samples(still)
    assert part.min() > 0.09
    assert part.max() < 0.51
    assert (shift > 0).any()
    assert (shift < 0).any()


def test_placing_moves_samples_exactly_and_fills_with_zero() -> None:
    raw = torch.rand(3, RAW_SAMPLES) + 0.5
    moved = augment.place_clips(raw, torch.tensor([0.0, 700.0, -4_500.0]), torch.ones(3))
    assert torch.equal(moved[0], raw[0, MARGIN:-MARGIN])
    assert torch.equal(moved[1], raw[1, MARGIN - 700 : -MARGIN - 700])
    assert torch.equal(moved[2, :15_500], raw[2, MARGIN + 4_500 :])
    assert not moved[2, 15_501:].any()


def test_stretching_changes_the_pitch_within_15_percent() -> None:
    rate = augment.stretch_rates(64, Recipe(stretch_chance=1), rng())
    raw = torch.nn.functional.pad(tones(64), (MARGIN, MARGIN))
    middle = augment.place_clips(raw, torch.zeros(64), rate)[:, 4_000:12_000]
    crossings = ((middle[:, 1:] >= 0) & (middle[:, :-1] < 0)).sum(1).float()  # 250 at 500 Hz
    assert crossings.min() > 250 * 0.84
    assert crossings.max() < 250 * 1.16
    assert crossings.std() > 10


def test_a_piece_of_speech_has_silence_around_it() -> None:
    pieces = augment.isolate_pieces(torch.ones(200, RAW_SAMPLES), rng())
    length = (pieces > 0).sum(1)
    assert length.min() >= 2_300
    assert length.max() <= 11_000
    assert not pieces[:, :MARGIN].any()
    assert not pieces[:, -MARGIN:].any()
    assert (pieces.diff(dim=1).abs() < 0.01).all()  # faded, no click


def test_a_room_adds_echoes_after_the_direct_sound() -> None:
    from deltakwt.data.rooms import decaying_noise

    click = torch.zeros(20, 16_000)
    click[:, 1_000] = 0.5
    rooms = torch.from_numpy(decaying_noise(30, 0))
    inside = augment.add_rooms(click, rooms, 1.0, rng())
    assert inside[:, :999].abs().max() < 1e-4
    assert (inside[:, 1_001:2_600].square().sum(1) > 0).all()
    torch.testing.assert_close(inside.square().sum(1), click.square().sum(1), rtol=1e-3, atol=0)
    assert torch.equal(augment.add_rooms(click, rooms, 0.0, rng()), click)
    assert torch.equal(augment.add_rooms(click, None, 1.0, rng()), click)


def test_backgrounds_have_the_drawn_ratio_to_the_loud_part() -> None:
    clips, noise = tones(8), torch.randn(8, 16_000, generator=rng())
    ratio = torch.tensor([0.0, 10.0, 20.0, -5.0, 28.0, 5.0, 15.0, torch.inf])
    added = augment.mix(clips, noise, ratio) - clips
    measured = 10 * (augment.speech_power(clips) / added.square().mean(1)).log10()
    torch.testing.assert_close(measured[:7], ratio[:7], atol=0.1, rtol=0)
    assert not added[7].any()


def test_levels_of_backgrounds_follow_the_recipe() -> None:
    talker = torch.arange(4_000) < 2_000
    levels = augment.snr_levels(talker, Recipe(), rng())
    changed = torch.isfinite(levels)
    assert changed.float().mean() == pytest.approx(0.62, abs=0.03)
    assert levels[changed & talker].min() >= 2
    assert -5 <= levels[changed & ~talker].min() < -4
    assert levels[changed].max() <= 28


def band_power(clips: Tensor, low: float, high: float) -> Tensor:
    spectrum = torch.fft.rfft(clips).abs().square()
    frequency = torch.fft.rfftfreq(16_000, 1 / 16_000)
    return spectrum[:, (frequency >= low) & (frequency < high)].sum(1)


def test_a_telephone_is_40_db_down_above_3800_hz_and_passes_speech() -> None:
    noise = 0.1 * torch.randn(64, 16_000, generator=rng(1))
    changed = augment.band_limit(noise, 1.0, rng(), augment.TELEPHONE)
    down = 10 * (band_power(noise, 3_800, 8_000) / band_power(changed, 3_800, 8_000)).log10()
    assert down.min() > 40
    low = 10 * (band_power(noise, 1, 60) / band_power(changed, 1, 60)).log10()
    assert low.min() > 6
    passed = 10 * (band_power(noise, 600, 2_500) / band_power(changed, 600, 2_500)).log10()
    assert passed.abs().max() < 1


def test_narrow_bands_keep_the_low_end_and_cheap_microphones_most_of_the_band() -> None:
    noise = 0.1 * torch.randn(64, 16_000, generator=rng(1))
    narrow = augment.band_limit(noise, 1.0, rng(), augment.NARROW)
    assert (band_power(narrow, 4_000, 8_000) < 1e-3 * band_power(noise, 4_000, 8_000)).all()
    torch.testing.assert_close(
        band_power(narrow, 20, 2_000), band_power(noise, 20, 2_000), rtol=0.05, atol=0
    )
    cheap = augment.band_limit(noise, 1.0, rng(), augment.CHEAP)
    ratio = band_power(cheap, 500, 3_500) / band_power(noise, 500, 3_500)
    assert ratio.min() > 0.1
    assert torch.equal(augment.band_limit(noise, 0.0, rng()), noise)


def test_gain_covers_minus_30_to_plus_12_db_and_clips_at_full_scale() -> None:
    loud = augment.change_gain(tones(400), Recipe(gain_chance=1.0), rng())
    level = 20 * (loud.abs().max(1).values / 0.3).log10()
    assert level.min() < -28
    assert loud.abs().max() == 1.0
    assert (loud.abs() == 1.0).any(1).sum() < 150
    assert torch.equal(augment.change_gain(tones(4), Recipe(gain_chance=0.0), rng()), tones(4))


def test_hiss_has_its_level_and_rounding_gives_16_bit_samples() -> None:
    hiss = augment.add_hiss(torch.zeros(200, 16_000), Recipe(hiss_chance=1.0), rng())
    level = 20 * hiss.square().mean(1).sqrt().log10()
    assert -100.5 < level.min() < -95
    assert -60 < level.max() < -54.5
    rounded = augment.round_to_16_bits(tones(4), Recipe(round_chance=1.0), rng()) * 32768
    assert torch.equal(rounded, rounded.round())


def test_synthetic_noise_runs_from_white_to_brown() -> None:
    noise = augment.coloured_noise(300, 16_000, rng())
    torch.testing.assert_close(noise.square().mean(1), torch.ones(300))
    spectrum = torch.fft.rfft(noise).abs().square()
    tilt = (spectrum[:, 10:100].mean(1) / spectrum[:, 4_000:8_000].mean(1)).log10()
    assert tilt.min() < 0.3
    assert tilt.max() > 3


def test_masks_hide_runs_up_to_their_longest() -> None:
    hidden = masks(200, Recipe(), 1.0, rng())
    frames = hidden.all(2).sum(1)
    assert 0 < int(frames.max()) <= 50
    assert 0 < int(hidden.all(1).sum(1).max()) <= 14
    assert not masks(50, Recipe(), 0.0, rng()).any()


@pytest.mark.parametrize(("group", "count"), [(2, 49), (3, 33), (4, 25)])
def test_one_frame_is_kept_of_every_group(group: int, count: int) -> None:
    for seed in range(20):
        chosen = some_frames(98, group, rng(seed))
        assert chosen is not None
        assert len(chosen) == count
        assert torch.equal(chosen // group, torch.arange(count))
    assert some_frames(98, 1, rng()) is None


def test_without_a_chance_the_front_end_stays_plain() -> None:
    smooth, floor = front_end_settings(64, Recipe(front_end_chance=0.0), rng())
    assert not smooth.any()
    assert not floor.any()
    smooth, floor = front_end_settings(64, Recipe(front_end_chance=0.5), rng())
    assert 16 < smooth.sum() < 48
    assert 16 < (floor >= 1).sum() < 48
