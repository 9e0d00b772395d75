"""Scores of streams, negatives, curves and the choice of a decision."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS

from deltakwt.core.config import UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model, load
from deltakwt.core.setting import DENSE, FrontEndSetting, Setting, Thresholds
from deltakwt.evaluate.choose import choose
from deltakwt.evaluate.negatives import FalseAccepts, NegativeStream, find_negatives, pooled
from deltakwt.evaluate.score import score
from deltakwt.evaluate.soak import soak
from deltakwt.evaluate.streams import (
    PlannedStream,
    Scenario,
    Spoken,
    StreamMaterial,
)
from deltakwt.evaluate.stress import (
    CurvePoint,
    SettingResult,
    StreamRun,
    best_point,
    draw_curve,
    report,
    stress,
)
from deltakwt.listen.decision import Decision, Event, smooth_stream
from deltakwt.listen.runner import Reading
from deltakwt.listen.spotter import SecondStage, Spotter, decision_of, save_decision

MINUTE = 1 / 60
SHORT = Scenario(hours=2 * MINUTE, seed=3)


def spoken(label: str, start: float, end: float) -> Spoken:
    return Spoken(label, Path("x"), 0, 1.0, start, end)


TRUTH = [spoken("yes", 10, 10.5), spoken("no", 20, 20.4), spoken(UNKNOWN, 30, 30.6)]


def event(label: str, time: float, window: float = 0.0) -> Event:
    return Event(label, 0.9, time - 1, time - 0.5, time, window)


def test_misses_false_accepts_confusions_and_repeats_are_counted_apart() -> None:
    events = [
        event("go", 5.0),  # in noise
        event("yes", 10.7),  # right, 0.2 s late
        event("yes", 11.4),  # a second time
        event("go", 20.6),  # instead of no
        event("up", 30.7),  # other speech
    ]
    found = score(events, TRUTH, hours=0.5)
    assert found.hits == {"yes": 1}
    assert found.miss_percent == 50
    assert found.false_per_hour == 4
    assert found.causes == {"noise": 1, "other speech": 1}
    assert found.confusions == {"no > go": 1}
    assert found.confusions_per_hour == 2
    assert found.repeats == {"yes": 1}
    assert found.to_json()["delay_seconds"]["median"] == pytest.approx(0.2)
    assert found.to_json()["words"]["no"] == {
        "spoken": 1, "miss_percent": 100.0, "false_accepts_per_hour": 0.0
    }  # fmt: skip


def test_a_word_reported_too_late_is_a_miss() -> None:
    assert score([event("yes", 11.6)], TRUTH, 1).hits == {}
    assert score([event("yes", 9.9)], TRUTH, 1).hits == {}
    assert score([], [], 1).to_json()["delay_seconds"] is None


def point(on: float, misses: int, false: int, hours: float = 1.0) -> CurvePoint:
    made = score([], [], 1)
    made.spoken["yes"], made.hits["yes"] = 10, 10 - misses
    return CurvePoint(on, made, FalseAccepts(hours, Counter(yes=false)))


def test_the_best_point_has_few_enough_false_accepts() -> None:
    curve = [point(0.3, 0, 9), point(0.6, 1, 1), point(0.9, 5, 0)]
    assert best_point(curve, 1).on == 0.6
    assert best_point(curve, 9).on == 0.3
    assert best_point(curve, 0.5).on == 0.9
    assert best_point(curve[:1], 1).on == 0.3  # none is good enough: the highest threshold


@pytest.fixture
def speech_folder(tmp_path: Path) -> Path:
    """Three files in two folders: "yes" and "left" with a transcript, noise without one."""
    for number, (place, word) in enumerate((("84/1", "yes"), ("84/1", "left"), ("hiss", None))):
        folder = tmp_path / "speech" / place
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        sound = rng.normal(0, 1e-3, 48_000 if number else 24_000)
        if word:
            clip, _ = soundfile.read(CLIPS / f"{word}.flac")
            sound[4_000:20_000] += clip
        soundfile.write(folder / f"84-1-000{number}.flac", sound, 16_000)
    (tmp_path / "speech" / "84" / "1" / "84-1.trans.txt").write_text(
        "84-1-0000 OH YES INDEED\n\n84-1-0001 NOTHING OF THAT KIND\n"
    )
    return tmp_path / "speech"


def test_negatives_are_the_sound_files_in_order(speech_folder: Path) -> None:
    found = find_negatives(speech_folder)
    assert [file.stem for file in found.files] == ["84-1-0000", "84-1-0001", "84-1-0002"]
    assert found.transcripts["84-1-0000"] == {"oh", "yes", "indeed"}
    assert sum(map(len, found.blocks())) == found.samples == 120_000
    assert found.hours == pytest.approx(7.5 / 3600)
    assert found.expected_seconds == pytest.approx(7.5)


def test_a_word_of_the_transcript_is_not_a_false_accept(speech_folder: Path) -> None:
    found = find_negatives(speech_folder)
    list(found.blocks())
    counted = found.false_accepts(
        [
            event(label, window + 1.1, window)
            for label, window in (
                *(("yes", 0.1), ("no", 0.1), ("yes", 1.4)),
                *(("yes", 2.0), ("left", 2.0), ("yes", 6.0)),
            )
        ]
    )
    assert counted.ignored == 2  # in its file, and in a window that begins in its file
    assert counted.words == {"yes": 2, "no": 1, "left": 1}
    assert counted.per_hour == pytest.approx(4 * 480)
    both = pooled([counted, FalseAccepts(1.0, Counter(no=2), 1)])
    assert both.words == {"yes": 2, "no": 3, "left": 1}
    assert (both.ignored, both.hours) == (3, pytest.approx(1 + 7.5 / 3600))


def test_negatives_that_cannot_be_read(speech_folder: Path, tmp_path: Path) -> None:
    (speech_folder / "a.wav").write_text("nonsense")
    found = find_negatives(speech_folder)
    assert sum(map(len, found.blocks())) == 120_000  # the others
    assert "a.wav: not readable as sound" in found.failed[0]
    with pytest.raises(DeltakwtError, match="no such folder"):
        find_negatives(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DeltakwtError, match="has no sound files"):
        find_negatives(tmp_path / "empty")
    shutil.copy(speech_folder / "a.wav", tmp_path / "empty")
    with pytest.raises(DeltakwtError, match="no file could be read"):
        list(find_negatives(tmp_path / "empty").blocks())


FAST = Setting(
    Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1"),
    FrontEndSetting(smooth=True, floor=2.0),
    "fast",
)


def test_settings_side_by_side(model: Model, material: StreamMaterial, speech_folder: Path) -> None:
    stream = PlannedStream(material, SHORT)
    decision = Decision(unknown_bias=decision_of(model).unknown_bias)
    negatives = [find_negatives(speech_folder)]
    seen: list[tuple[float, float]] = []
    results = stress(
        model,
        stream,
        [DENSE, FAST],
        decision,
        negatives=negatives,
        second=lambda: SecondStage(model, "dense"),
        progress=lambda done, total: seen.append((done, total)),
    )
    document = report(model, stream, decision, results, negatives, max_false=5.0)
    dense, fast = document["settings"]
    assert [dense["setting"], fast["setting"]] == ["dense", "fast"]
    assert fast["front_end"]["smooth"] is True
    assert seen[-1] == (127.5, 127.5)
    for one in (dense, fast):  # the last windows may wait when the sound ends
        assert 1187 <= one["compute"]["windows"] <= 1191
    assert 4 * fast["compute"]["macs_percent"] < dense["compute"]["macs_percent"] < 40
    second = fast["second_stage"]
    assert second["decided"]["false_accepts"] <= fast["decided"]["false_accepts"]
    assert second["decided"]["miss_percent"] >= fast["decided"]["miss_percent"]
    assert second["cost"]["macs_per_second"] > 0
    assert dense["decided"]["negatives"][0]["ignored"] == 1
    assert dense["decided"]["negatives"][0]["words"] == {"left": 1}
    assert document["negatives"][0]["files"] == 3
    assert dense["decided"]["negatives"][0]["compute"]["cpu_percent"] > 0
    for one in (dense, fast):
        curve = one["curve"]
        assert curve[-1]["miss_percent"] >= curve[0]["miss_percent"]
        assert curve[-1]["false_accepts_per_hour"] <= curve[0]["false_accepts_per_hour"]
        assert one["at_max_false_accepts"]["max_false_accepts_per_hour"] == 5.0
    # The logits that were kept decide as the spotter did.
    kept = results[1].stream
    assert kept.events_at(decision, smooth_stream(kept.logits, 3)) == kept.events


def test_curves_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "model": "m",
        "scenario": {"snr": 10.0},
        "negatives": [{"hours": 2.5}],
        "settings": [{"setting": "fast", "curve": [point(0.5, 1, 3).to_json()] * 2}],
    }
    draw_curve(document, str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DeltakwtError, match=r"--curve .*cannot be written"):
        draw_curve(document, str(tmp_path / "gone" / "curve.png"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DeltakwtError, match=r"pip install '(matplotlib|\.\[report\])"):
        draw_curve(document, str(tmp_path / "curve.png"))


def test_a_soak_is_the_same_twice(model: Model, material: StreamMaterial) -> None:
    one, two = (soak(model, PlannedStream(material, Scenario(hours=MINUTE))) for _ in range(2))
    assert one["events_sha256"] == two["events_sha256"]
    assert one["seconds"] == 60


def test_the_command(  # type: ignore[no-untyped-def]
    in_process, trained: str, full_set: Path, speech_folder: Path, tmp_path: Path
) -> None:
    base = ("stress", "--model", trained, "--data", full_set, "--split", "val", "--hours", 0.01)
    finished = in_process(
        *base, "--json", "--profile", "dense", "--save", tmp_path / "s", "--choose", "dense",
        "--negatives", speech_folder, "--curve", tmp_path / "c.png", "--max-false-accepts", 2,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert document["settings"][0]["setting"] == "dense"
    assert document["chosen"]["setting"] == "dense"
    assert document["chosen"]["decision"]["max_outliers"] == 2
    truth = json.loads((tmp_path / "s.json").read_text())
    assert len(truth) == document["words"]
    assert soundfile.info(tmp_path / "s.flac").frames == 36 * 16_000
    assert (tmp_path / "c.png").exists()
    shown = in_process(*base, "--profile", "fast", "--threshold", 0.5, "--verify", "dense")
    assert shown.returncode == 0, shown.stderr
    assert "at 1 false accepts/h: misses %" in shown.stdout
    assert "verified: confusions/h" in shown.stdout
    long = in_process(*base, "--soak", "--profile", "dense")
    assert "SHA-256 of the events" in long.stdout
    for option, message in (
        (("--profile", "nonsense"), "no such profile"),
        (("--verify", "nonsense"), "nonsense: no such model"),
        (("--negatives", tmp_path / "gone"), "no such folder"),
    ):
        wrong = in_process(*base, *option)
        assert wrong.returncode == 2
        assert message in wrong.stderr


def result_of(*recordings: np.ndarray) -> SettingResult:
    labels = ("_silence_", "yes", "no")
    reading = Reading(0, 0, 0, 0, 0, 0)
    made = [StreamRun(DENSE, labels, rows, reading, [], None) for rows in recordings]
    return SettingResult(made[0], made[1:])


def silence() -> np.ndarray:
    return np.full((600, 3), [4.0, 0.0, 0.0], np.float32)


def test_settings_are_chosen_where_false_accepts_are_few() -> None:
    """Two words, one of them weak, and a click that only smoothing distinguishes from a word."""
    rows = silence()
    rows[100:106, 1] = 9  # yes, surely
    rows[300:304, 2] = 6  # no, 0.88
    rows[450:451, 1] = 9  # a click: one window
    truth = [spoken("yes", 10.3, 10.8), spoken("no", 30.3, 30.8)]
    decision, best = choose(result_of(rows), truth, 0.1, Decision())
    assert best.score.miss_percent == 0
    assert best.false_per_hour == 0
    assert decision.smooth > 1
    assert decision.off == pytest.approx(decision.on / 2, abs=1e-3)
    assert decision.reuse == Decision().reuse  # what is not searched stays


def beside_speech(rows: np.ndarray) -> tuple[SettingResult, list[Spoken], NegativeStream]:
    """Return the result of `rows` and of a minute of speech with ten places that resemble "no"."""
    speech = silence()
    for start in range(50, 550, 50):
        speech[start : start + 6, 2] = 6.2
    negatives = NegativeStream(Path("speech"), [], {}, samples=60 * 16_000)
    negatives._words.append(frozenset())
    negatives._starts.append(0)
    truth = [spoken("yes", 10.3, 10.8), spoken("no", 30.3, 30.8)]
    return result_of(rows, speech), truth, negatives


def test_the_choice_takes_negatives_into_account() -> None:
    """Speech that looks more like "no" than the weak "no" of the stream costs that word."""
    rows = silence()
    rows[100:106, 1] = 9
    rows[300:306, 2] = 6
    kept, truth, negatives = beside_speech(rows)
    _, strict = choose(kept, truth, 0.1, Decision(), negatives=[negatives], max_false=1)
    assert (strict.score.miss_percent, strict.false_per_hour) == (50, 0)
    _, loose = choose(kept, truth, 0.1, Decision(), negatives=[negatives], max_false=700)
    assert (loose.score.miss_percent, loose.false_per_hour) == (0, 600)


def test_every_word_can_have_a_threshold_of_its_own() -> None:
    """Speech resembles a weak "no"; a high threshold for "no" alone keeps the weak "yes"."""
    rows = silence()
    rows[100:106, 1] = 5.2  # a weak yes
    rows[300:306, 2] = 9  # a sure no
    kept, truth, negatives = beside_speech(rows)
    _, one = choose(kept, truth, 0.1, Decision(), negatives=[negatives])
    assert (one.score.miss_percent, one.false_per_hour) == (50, 0)
    decision, own = choose(kept, truth, 0.1, Decision(), negatives=[negatives], per_word=True)
    assert (own.score.miss_percent, own.false_per_hour) == (0, 0)
    assert decision.words["yes"] < decision.words["no"]


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
