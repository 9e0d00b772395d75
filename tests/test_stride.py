"""A stride: one frame, and so one token, per 20 ms instead of 10 ms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS
from stride_models import SETTING, STABLE, THRESHOLDS, random_model, strided
from test_exact_frontend import sounds

from deltakwt.audio import read_clip
from deltakwt.core import exact_frontend, fixed, frontend, reference
from deltakwt.core.config import MAX_STRIDE, STRIDES, frames_of
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_weights import fixed_features, fixed_thresholds
from deltakwt.core.native import FrontEnd, available_isas
from deltakwt.core.setting import PLAIN, FrontEndSetting, Thresholds
from deltakwt.weights.folder import Weights, load_weights, random_tensors, save_folder

FRONT_ENDS = pytest.mark.parametrize("front_end", [PLAIN, STABLE], ids=["plain", "stable"])


def test_a_second_has_half_as_many_frames() -> None:
    assert STRIDES == {98: 1, 49: 2, 33: 3}
    assert [strided(stride).delay(smooth=False) for stride in (1, 2, 3)] == [0, 0, 0]
    assert [strided(stride).delay(smooth=True) for stride in (1, 2, 3)] == [160, 160, 320]


@FRONT_ENDS
@pytest.mark.parametrize("stride", [2, 3])
def test_every_instruction_set_has_the_bits_of_the_definition(
    front_end: FrontEndSetting, stride: int
) -> None:
    engines = [FrontEnd(isa, stride) for isa in available_isas()]
    for name, sound in sounds().items():
        expected = exact_frontend.mfcc(sound, front_end, stride)
        assert expected.shape == (frames_of(stride), 40)
        for engine in engines:
            got = engine.features(sound, front_end)
            np.testing.assert_array_equal(got, expected, err_msg=f"{engine.isa} {name}")
            np.testing.assert_array_equal(engine.batch(sound[None], front_end)[0], expected)


@FRONT_ENDS
def test_the_definition_is_close_to_double_precision(front_end: FrontEndSetting) -> None:
    sound = read_clip(CLIPS / "yes.flac")
    exact, double = (made.mfcc(sound, front_end, 2) for made in (exact_frontend, frontend))
    assert np.abs(exact - double).max() < 2e-3


def test_plain_frames_are_every_second_one_and_smoothed_frames_are_not() -> None:
    sound = read_clip(CLIPS / "yes.flac")
    assert np.array_equal(FrontEnd(stride=2).features(sound), FrontEnd().features(sound)[::2])
    smooth = FrontEndSetting(smooth=True)
    half, all_ = (FrontEnd(stride=s).features(sound, smooth) for s in (2, 1))
    assert np.abs(half - all_[::2]).max() > 0.1


@FRONT_ENDS
@pytest.mark.parametrize("stride", [2, 3])
def test_a_feature_stream_is_that_of_the_definition_in_blocks_of_any_size(
    front_end: FrontEndSetting, stride: int
) -> None:
    dice = np.random.default_rng(stride)
    sound = dice.normal(0, 0.05, 30_011).astype(np.float32)
    energies = frontend.mel_energies(sound, stride)
    expected = frontend.FrontEndStream(front_end).push(energies)
    whole = FrontEnd(stride=stride).stream(front_end).push(sound)
    assert len(whole) == frames_of(stride, len(sound)) - front_end.smooth
    np.testing.assert_allclose(whole, expected, atol=2e-3)
    for isa in available_isas():
        stream, parts, at = FrontEnd(isa, stride).stream(front_end), [], 0
        while at < len(sound):
            size = int(dice.choice([1, 2, 159, 161, 319, 321, 480, 481, 1600, 7001]))
            parts.append(stream.push(sound[at : at + size]))
            at += size
        assert np.array_equal(np.concatenate(parts), whole), isa


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("thresholds", [None, THRESHOLDS], ids=["dense", "delta"])
def test_fixed_point_has_the_bits_of_its_definition_from_the_sound_on(
    isa: str, thresholds: Thresholds | None
) -> None:
    engine = random_model(2, "fixed", isa).engine
    assert isinstance(engine, FixedEngine)
    table = thresholds and fixed_thresholds(engine.config, engine.scales, thresholds)
    for word in ("go", "silence"):
        sound = read_clip(CLIPS / f"{word}.flac")
        features = fixed_features(engine.scales, exact_frontend.mfcc(sound, STABLE, 2))
        expected = fixed.run(engine.weights, features, table)
        logits = (expected.logits * 2.0**-engine.weights.head_bits).astype(np.float32)
        found = engine.classify(sound, STABLE, thresholds)
        np.testing.assert_array_equal(found.logits, logits)
        assert found.macs is None or np.array_equal(found.macs, expected.macs)


def test_floats_are_those_of_the_definition() -> None:
    config, tensors = strided(2), random_tensors(strided(2))
    from deltakwt.core.engine import Engine

    sound = read_clip(CLIPS / "go.flac")
    features = frontend.mfcc(sound, PLAIN, 2)
    found = Engine(config, tensors).classify(sound, PLAIN, None)
    np.testing.assert_allclose(
        found.logits, reference.dense(config, tensors, features), atol=2e-3, rtol=1e-3
    )


@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
def test_a_batch_of_sounds_gives_what_single_ones_give(arithmetic: str) -> None:
    model = random_model(2, arithmetic)
    clips = np.stack([read_clip(CLIPS / f"{word}.flac") for word in ("go", "yes")])
    batch = model.engine.batch(clips, SETTING)
    for row, clip in zip(batch.logits, clips, strict=True):
        assert np.array_equal(row, model.classify(clip, setting=SETTING).logits)


def test_a_folder_holds_the_stride(tmp_path: Path) -> None:
    config = strided(2)
    save_folder(tmp_path, Weights(config, random_tensors(config)))
    assert load_weights(tmp_path).config == config
    document = json.loads((tmp_path / "config.json").read_text())
    assert (document["frames"], document["stride"]) == (49, 2)
    assert document["front_end"]["hop_samples"] == 320
    del document["stride"]  # as in folders of models that have none
    refused = {
        "frames must be 98, the size of the front end with a stride of 1": {},
        "frames must be 33, the size of the front end with a stride of 3": {"stride": 3},
        f"stride must be a whole number from 1 to {MAX_STRIDE}": {"stride": MAX_STRIDE + 1},
        "front_end differs": {"stride": 1, "frames": 98},
    }
    for message, change in refused.items():
        (tmp_path / "config.json").write_text(json.dumps(document | change))
        with pytest.raises(DeltakwtError, match=message):
            load_weights(tmp_path)


def test_a_front_end_refuses_a_stride_that_it_does_not_have() -> None:
    for stride in (0, MAX_STRIDE + 1, 2.0):
        with pytest.raises(DeltakwtError, match="stride"):
            FrontEnd(stride=stride)  # type: ignore[arg-type]
