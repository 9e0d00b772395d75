"""Streams with ground truth, and how events are judged against it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from deltakwt.listen.choose import choose
from deltakwt.listen.score import Heard, best_point, confirmed, decide, score
from deltakwt.listen.soak import soak
from deltakwt.listen.streams import (
    Material,
    Scenario,
    Spoken,
    Stream,
    activity,
    find_material,
)
from deltakwt.listen.stress import Setting, stress

from deltakwt.core.config import KEYWORDS, LABELS, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model, load
from deltakwt.core.setting import FrontEndSetting, Thresholds
from deltakwt.listen.decision import Decision
from deltakwt.listen.spotter import Spotter, decision_of, save_decision

MINUTE = 1 / 60
SHORT = Scenario(hours=2 * MINUTE, seed=3)


@pytest.fixture(scope="module")
def material(full_set: Path) -> Material:
    return find_material(full_set, None, LABELS, "val")


def test_material_is_of_the_split_and_other_words_are_unknown(material: Material) -> None:
    assert set(material.clips) == {*KEYWORDS, UNKNOWN}
    assert len(material.clips["yes"]) == 3
    assert len(material.clips[UNKNOWN]) == 6
    assert len(material.noises) == 1


def test_the_official_layout_is_material_too(test_set: Path, full_set: Path) -> None:
    noise = full_set / "_background_noise_"
    made = find_material(test_set, noise, LABELS, "test")
    assert set(made.clips) == {*KEYWORDS, UNKNOWN}
    with pytest.raises(DeltakwtError, match="holds no noise recordings; name a folder"):
        find_material(test_set, None, LABELS, "test")
    with pytest.raises(DeltakwtError, match="no such data folder"):
        find_material(test_set / "gone", None, LABELS, "test")


def test_a_seed_names_a_stream(material: Material) -> None:
    one, same = Stream(material, SHORT), Stream(material, SHORT)
    other = Stream(material, Scenario(hours=2 * MINUTE, seed=4))
    assert one.digest == same.digest != other.digest
    for a, b in zip(one.blocks(), same.blocks(), strict=True):
        assert np.array_equal(a, b)


def test_a_stream_has_the_length_the_gaps_and_the_share_asked_for(material: Material) -> None:
    scenario = Scenario(hours=1, others=0.5)
    truth = Stream(material, scenario).truth
    gaps = np.diff([word.at for word in truth]) / 16_000
    assert gaps.min() >= 5
    assert gaps.max() <= 15
    assert 0.35 < np.mean([word.label == UNKNOWN for word in truth]) < 0.65
    assert sum(map(len, Stream(material, SHORT).blocks())) == 120 * 16_000


def test_words_are_as_loud_as_the_ratio_says(material: Material) -> None:
    scenario = Scenario(hours=2 * MINUTE, snr=20)
    stream = Stream(material, scenario)
    sound = np.concatenate(list(stream.blocks()))
    quiet = Stream(Material({"yes": material.clips["yes"]}, material.noises), scenario)
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


def spoken(label: str, start: float, end: float) -> Spoken:
    return Spoken(label, Path("x"), 0, 1.0, start, end)


TRUTH = [spoken("yes", 10, 10.5), spoken("no", 20, 20.4), spoken(UNKNOWN, 30, 30.6)]


def test_hits_misses_and_false_accepts() -> None:
    events = [
        Heard("go", 5.0, 0),  # in noise
        Heard("yes", 10.7, 0),  # right, 0.2 s late
        Heard("yes", 11.4, 0),  # twice
        Heard("go", 20.6, 0),  # instead of no
        Heard("up", 30.7, 0),  # other speech
    ]
    found = score(events, TRUTH, hours=0.5)
    assert found.hits == {"yes": 1}
    assert found.miss_percent == 50
    assert found.false_per_hour == 8
    assert found.causes == {
        "noise": 1, "repeated": 1, "another keyword": 1, "other speech": 1
    }  # fmt: skip
    assert found.to_json()["delay_seconds"]["median"] == pytest.approx(0.2)
    assert found.to_json()["words"]["no"] == {
        "spoken": 1, "miss_percent": 100.0, "false_accepts_per_hour": 0.0
    }  # fmt: skip


def test_a_word_reported_too_late_is_a_miss() -> None:
    assert score([Heard("yes", 11.6, 0)], TRUTH, 1).hits == {}
    assert score([Heard("yes", 9.9, 0)], TRUTH, 1).hits == {}
    assert score([], [], 1).to_json()["delay_seconds"] is None


def test_the_second_stage_keeps_what_it_also_names() -> None:
    second = np.full((3, len(LABELS)), -5, np.float32)
    second[0, LABELS.index("yes")] = 5
    second[1, LABELS.index("no")] = 5
    events = [Heard("yes", 1, 0), Heard("yes", 2, 1), Heard("yes", 3, 2)]
    assert confirmed(events, second, LABELS) == events[:1]
    assert confirmed([], second, LABELS) == []


def test_the_best_point_has_few_enough_false_accepts() -> None:
    def point(on: float, misses: int, false: int):  # type: ignore[no-untyped-def]
        made = score([], [], 1)
        made.spoken["yes"], made.hits["yes"], made.false["yes"] = 10, 10 - misses, false
        return on, made

    curve = [point(0.3, 0, 9), point(0.6, 1, 1), point(0.9, 5, 0)]
    assert best_point(curve, 1)[0] == 0.6
    assert best_point(curve[:1], 1)[0] == 0.3  # none is good enough: the strictest


def test_settings_side_by_side(model: Model, material: Material) -> None:
    stream = Stream(material, SHORT)
    thresholds = Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1")
    settings = [
        Setting("dense", None, FrontEndSetting()),
        Setting("fast", thresholds, FrontEndSetting(smooth=True, floor=2.0)),
    ]
    seen = []
    courses = stress(model, stream, settings, Decision(), lambda done, all_: seen.append(done))
    dense, fast = (course.to_json() for course in courses)
    assert seen[-1] == 120
    assert dense["compute"]["windows"] == 1191
    assert fast["compute"]["windows"] == 1190
    assert 4 * fast["compute"]["macs_percent"] < dense["compute"]["macs_percent"] < 40
    assert dense["verified_by_dense"] is None
    verified = fast["verified_by_dense"]
    assert verified["false_accepts"] <= fast["decided"]["false_accepts"]
    for course in (dense, fast):
        curve = course["curve"]
        assert curve[-1]["miss_percent"] >= curve[0]["miss_percent"]
        assert curve[-1]["false_accepts_per_hour"] <= curve[0]["false_accepts_per_hour"]
    again = decide(courses[0].logits, model.labels, Decision(), 0)
    assert score(again, stream.truth, SHORT.hours).to_json() == dense["decided"]


def test_a_soak_is_the_same_twice(model: Model, material: Material) -> None:
    one, two = (soak(model, Stream(material, Scenario(hours=MINUTE))) for _ in range(2))
    assert one["events_sha256"] == two["events_sha256"]
    assert one["heard_seconds"] == 60


def test_the_command(deltakwt, trained: str, full_set: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    base = ("stress", "--model", trained, "--data", full_set, "--split", "val", "--hours", 0.01)
    told = deltakwt(*base, "--json", "--profile", "dense", "--save", tmp_path / "s")
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert document["profiles"][0]["profile"] == "dense"
    truth = json.loads((tmp_path / "s.json").read_text())
    assert len(truth) == document["words"]
    assert soundfile.info(tmp_path / "s.flac").frames == 36 * 16_000
    shown = deltakwt(*base, "--profile", "dense", "--threshold", 0.5)
    assert shown.returncode == 0, shown.stderr
    assert "at 1 false/h: misses %" in shown.stdout
    long = deltakwt(*base, "--soak", "--profile", "dense")
    assert "SHA-256 of the events" in long.stdout
    wrong = deltakwt(*base, "--profile", "nonsense")
    assert wrong.returncode == 2
    assert "no such profile" in wrong.stderr


def test_settings_are_chosen_where_false_accepts_are_few() -> None:
    """Two words, one of them weak, and a click that only smoothing tells from a word."""
    labels = ("_silence_", "yes", "no")
    rows = np.full((600, 3), [4.0, 0.0, 0.0], np.float32)
    rows[100:106, 1] = 9  # yes, surely
    rows[300:304, 2] = 6  # no, 0.88
    rows[450:451, 1] = 9  # a click: one window
    truth = [spoken("yes", 10.3, 10.8), spoken("no", 30.3, 30.8)]
    decision, result = choose(rows, labels, truth, 0.1, Decision(), 0)
    assert result.miss_percent == 0
    assert result.false_per_hour == 0
    assert decision.smooth > 1
    assert decision.off == pytest.approx(decision.on / 2, abs=1e-3)
    assert decision.reuse == Decision().reuse  # what is not searched stays


def test_chosen_settings_are_the_models_own(random_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(random_model, tmp_path / "mine")
    model = load(folder)
    assert decision_of(model) == Decision()
    save_decision(model, Decision(on=0.66, words={"go": 0.9}))
    assert decision_of(load(folder)) == Decision(on=0.66, words={"go": 0.9})
    assert Spotter(load(folder)).decision.on == 0.66
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace('"smooth": 3', '"smooth": "much"')
    )
    with pytest.raises(DeltakwtError, match=r"config\.json: decision: smooth = 'much'"):
        decision_of(load(folder))
