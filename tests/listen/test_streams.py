"""Streams with known words: what they are made of, and what a seed and a scenario give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from deltakwt.core.config import KEYWORDS, LABELS, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.evaluate.streams import (
    PlannedStream,
    Scenario,
    StreamMaterial,
    activity,
    find_material,
)

MINUTE = 1 / 60
SHORT = Scenario(hours=2 * MINUTE, seed=3)


def test_material_is_of_the_split_and_other_words_are_unknown(material: StreamMaterial) -> None:
    assert set(material.clips) == {*KEYWORDS, UNKNOWN}
    assert len(material.clips["yes"]) == 3
    assert len(material.clips[UNKNOWN]) == 6
    assert len(material.noises) == 1


def test_the_official_layout_is_material_too(test_set: Path, full_set: Path) -> None:
    noise = full_set / "_background_noise_"
    made = find_material(test_set, noise, LABELS, "test")
    assert set(made.clips) == {*KEYWORDS, UNKNOWN}
    with pytest.raises(DeltakwtError, match="has no noise recordings; give a folder"):
        find_material(test_set, None, LABELS, "test")
    with pytest.raises(DeltakwtError, match="no such data folder"):
        find_material(test_set / "gone", None, LABELS, "test")


def test_a_seed_names_a_stream(material: StreamMaterial) -> None:
    one, same = PlannedStream(material, SHORT), PlannedStream(material, SHORT)
    other = PlannedStream(material, Scenario(hours=2 * MINUTE, seed=4))
    assert one.digest == same.digest != other.digest
    for a, b in zip(one.blocks(), same.blocks(), strict=True):
        assert np.array_equal(a, b)


def test_a_stream_has_the_length_the_gaps_and_the_share_asked_for(material: StreamMaterial) -> None:
    scenario = Scenario(hours=1, others=0.5)
    truth = PlannedStream(material, scenario).truth
    gaps = np.diff([word.at for word in truth]) / 16_000
    assert gaps.min() >= 5
    assert gaps.max() <= 15
    assert 0.35 < np.mean([word.label == UNKNOWN for word in truth]) < 0.65
    assert sum(map(len, PlannedStream(material, SHORT).blocks())) == 120 * 16_000


def test_words_are_as_loud_as_the_ratio_says(material: StreamMaterial) -> None:
    scenario = Scenario(hours=2 * MINUTE, snr=20)
    stream = PlannedStream(material, scenario)
    sound = np.concatenate(list(stream.blocks()))
    quiet = PlannedStream(StreamMaterial({"yes": material.clips["yes"]}, material.noises), scenario)
    assert quiet.truth
    word = stream.truth[0]
    spoken = sound[round(word.start * 16_000) : round(word.end * 16_000)]
    before = sound[word.at - 8_000 : word.at]
    ratio = 10 * np.log10(np.square(spoken).mean() / np.square(before).mean())
    assert 15 < ratio < 22  # pauses within the word are quieter than the word


def test_the_truth_says_where_somebody_speaks(tmp_path: Path) -> None:
    clip = np.zeros(16_000)
    clip[4_000:10_000] = np.sin(np.arange(6_000) * 0.3) * 0.5
    soundfile.write(tmp_path / "a.wav", clip, 16_000)
    rms, begin, end = activity(tmp_path / "a.wav")
    assert (begin, end) == (pytest.approx(4_000, abs=160), pytest.approx(10_000, abs=160))
    assert rms == pytest.approx(0.5 / 2**0.5, rel=0.05)


@pytest.mark.parametrize("bad", [{"hours": 0}, {"gap": (0.5, 3)}, {"gap": (9, 3)}, {"others": 2}])
def test_scenarios_that_cannot_be(bad: dict[str, object]) -> None:
    with pytest.raises(DeltakwtError, match="--"):
        Scenario(**bad)  # type: ignore[arg-type]
