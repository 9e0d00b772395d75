"""The readable front end, plain and stabilised, per clip and as a stream."""

import numpy as np
import pytest

from deltakwt.core.config import ENERGY_FLOOR, MEL_BANDS
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.frontend import (
    PLAIN,
    FrontEndSetting,
    FrontEndStream,
    dct_matrix,
    features,
    floor_bands,
    log_energies,
    mel_energies,
    mel_matrix,
    mfcc,
    smooth,
)


def noise(seconds=1.0, amplitude=0.01, seed=0):
    rng = np.random.default_rng(seed)
    return (amplitude * rng.standard_normal(int(16_000 * seconds))).astype(np.float32)


def test_one_second_gives_98_frames_of_40():
    assert mfcc(noise()).shape == (98, 40)
    assert mfcc(noise()).dtype == np.float32


def test_a_tone_lands_in_its_mel_band():
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)
    mel = np.linspace(*(1127 * np.log(1 + np.array([20, 7600]) / 700)), MEL_BANDS + 2)[1:-1]
    nearest = np.abs(700 * (np.exp(mel / 1127) - 1) - 1000).argmin()
    assert (mel_energies(tone).argmax(axis=1) == nearest).all()


def test_mel_bands_ignore_the_constant_and_cover_the_rest():
    assert (mel_matrix()[0] == 0).all()
    assert (mel_matrix().sum(axis=0) > 0).all()
    assert dct_matrix().shape == (80, 40)


@pytest.mark.parametrize(
    "front_end", [PLAIN, FrontEndSetting(smooth=True), FrontEndSetting(True, 2.0)]
)
def test_digital_silence_is_the_same_in_every_frame(front_end):
    rows = mfcc(np.zeros(16_000, np.float32), front_end)
    np.testing.assert_array_equal(rows, np.tile(rows[:1], (98, 1)))
    level = max(front_end.floor, 1.0) * ENERGY_FLOOR
    expected = np.log(level) * dct_matrix().sum(axis=0)
    np.testing.assert_allclose(rows[0], expected, atol=1e-4)


def test_smoothing_keeps_the_edges_and_weighs_one_two_one():
    energies = np.zeros((5, MEL_BANDS))
    energies[0], energies[2] = 4.0, 8.0
    np.testing.assert_array_equal(smooth(energies)[:, 0], [3, 3, 4, 2, 0])


def test_the_floor_is_an_order_statistic_of_the_band_times_a_factor():
    logs = np.random.default_rng(0).normal(size=(11, MEL_BANDS))
    floored = floor_bands(logs, FrontEndSetting(floor=2.0, quantile=0.25))
    background = np.sort(logs, axis=0)[2]  # int(0.25 * 10)
    np.testing.assert_allclose(floored, np.maximum(logs, background + np.log(2)))


def test_smoothed_noise_varies_less_and_a_loud_word_is_unchanged():
    quiet = noise(amplitude=0.001)
    plain, front_end = mfcc(quiet), mfcc(quiet, FrontEndSetting(smooth=True, floor=2.0))
    assert np.abs(np.diff(front_end, axis=0)).mean() < 0.2 * np.abs(np.diff(plain, axis=0)).mean()
    loud = quiet.copy()
    loud[6000:10000] += np.sin(2 * np.pi * 440 * np.arange(4000) / 16_000).astype(np.float32)
    band = mel_energies(loud).sum(axis=0).argmax()
    logs = log_energies(mel_energies(loud))[45:55, band]
    floored = floor_bands(log_energies(mel_energies(loud)), FrontEndSetting(floor=2.0))[45:55, band]
    np.testing.assert_array_equal(logs, floored)


@pytest.mark.parametrize(
    "front_end", [PLAIN, FrontEndSetting(smooth=True), FrontEndSetting(True, 2.0)]
)
@pytest.mark.parametrize("chunk", [1, 2, 7, 98])
def test_a_stream_gives_the_same_frames_in_any_pieces(front_end, chunk):
    energies = mel_energies(noise())
    whole = FrontEndStream(front_end).push(energies)
    stream = FrontEndStream(front_end)
    pieces = [stream.push(energies[i : i + chunk]) for i in range(0, 98, chunk)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert len(whole) == 98 - front_end.smooth  # smoothing waits for the next frame


def test_a_stream_without_a_floor_is_the_clip():
    energies = mel_energies(noise())
    np.testing.assert_allclose(FrontEndStream(PLAIN).push(energies), mfcc(noise()), atol=1e-6)
    smoothed = features(log_energies(smooth(energies)))
    streamed = FrontEndStream(FrontEndSetting(smooth=True)).push(energies)
    np.testing.assert_allclose(streamed, smoothed[:-1], atol=1e-6)


@pytest.mark.parametrize("quantile", [0.1, 0.2, 0.5])
def test_the_tracked_level_comes_to_rest_at_the_quantile(quantile):
    energies = mel_energies(noise(seconds=20))
    stream = FrontEndStream(FrontEndSetting(floor=1.0, quantile=quantile))
    stream.push(energies)
    below = (log_energies(energies) < stream._level).mean()
    assert below == pytest.approx(quantile, abs=0.1)


def test_an_empty_push_gives_no_frames():
    assert FrontEndStream(FrontEndSetting(True, 2.0)).push(np.empty((0, MEL_BANDS))).shape == (
        0,
        40,
    )


@pytest.mark.parametrize("bad", [{"floor": -1.0}, {"floor": np.inf}, {"quantile": 1.5}])
def test_a_senseless_setting_is_refused(bad):
    with pytest.raises(DeltakwtError, match="front.end"):
        FrontEndSetting(**bad)


@pytest.mark.parametrize("bad", [{"floor": "x"}, {"ceiling": 1.0}, {"floor": [1]}])
def test_a_senseless_json_is_refused(bad):
    with pytest.raises(DeltakwtError, match="front.end"):
        FrontEndSetting.from_json(bad)


def test_json_round_trip():
    front_end = FrontEndSetting(True, 2.5, 0.3)
    assert FrontEndSetting.from_json(front_end.to_json()) == front_end
    assert FrontEndSetting.from_json({}) == PLAIN


@pytest.mark.parametrize("text", ["plain", "smooth", "2_0.2", "smooth_1.5_0.3"])
def test_the_short_form_reads_back(text):
    assert str(FrontEndSetting.parse(text)) == text
    assert FrontEndSetting.parse("smooth_2") == FrontEndSetting(True, 2.0)


@pytest.mark.parametrize("text", ["", "rough", "smooth_x", "1_2_3", "smooth_-1", "2_1.5", "_"])
def test_a_bad_short_form_is_refused(text):
    with pytest.raises(DeltakwtError, match="front.end"):
        FrontEndSetting.parse(text)


def test_sound_shorter_than_a_frame_is_refused():
    with pytest.raises(DeltakwtError, match="480"):
        mfcc(np.zeros(479, np.float32))
