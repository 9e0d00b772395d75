"""Accuracy under worse conditions: rooms, other talkers, words off centre."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, Run

import deltakwt
from deltakwt.core.config import KEYWORDS, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import DENSE
from deltakwt.data.conditions import SHIFT_SAMPLES, in_large_room, stays_inside
from deltakwt.data.speech_commands import draw
from deltakwt.evaluate.robustness import robustness

NOISE_ROWS = ["sounds, 20 dB", "sounds, 10 dB", "sounds, 5 dB", "sounds, 0 dB"]
SPEECH_ROWS = ["5 talkers, 10 dB", "5 talkers, 5 dB", "1 talker, 10 dB"]


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """A folder of loud noise, a silent recording and a file that is no sound."""
    folder = tmp_path / "sounds"
    folder.mkdir()
    noise = np.random.default_rng(0).normal(0, 0.1, 3 * SAMPLE_RATE)
    soundfile.write(folder / "noise.wav", noise, SAMPLE_RATE)
    soundfile.write(folder / "silent.wav", 0 * noise, SAMPLE_RATE)
    return folder


def burst(start: int, end: int) -> np.ndarray:
    sound = np.zeros((1, SAMPLE_RATE), np.float32)
    sound[0, start:end] = np.random.default_rng(0).normal(0, 0.1, end - start)
    return sound


def test_a_word_is_whole_after_a_move_that_keeps_it_inside() -> None:
    late = burst(8_000, 12_000)
    assert stays_inside(late, -SHIFT_SAMPLES).all()
    assert not stays_inside(late, SHIFT_SAMPLES).any()
    assert not stays_inside(burst(2_000, 6_000), -SHIFT_SAMPLES).any()


def test_a_room_adds_an_echo_that_decays_and_keeps_the_level() -> None:
    dry = burst(0, 1_600)
    wet = in_large_room(dry, seed=0)
    assert np.abs(wet).max() == pytest.approx(np.abs(dry).max(), rel=1e-3)
    level = [float(np.square(wet[0, at : at + 1_600]).mean()) for at in (3_200, 8_000, 12_800)]
    assert level[0] > level[1] > level[2] > 0
    # 60 dB in 0.8 s: 22.5 dB from 0.2 s to 0.5 s
    assert 10 * np.log10(level[0] / level[1]) == pytest.approx(22.5, abs=3)


def test_silence_in_a_room_is_silence() -> None:
    assert not in_large_room(np.zeros((2, SAMPLE_RATE), np.float32), seed=0).any()


def test_much_noise_costs_accuracy_on_clips_of_every_word(
    trained: str, test_set: Path, sounds: Path
) -> None:
    model = deltakwt.load(trained)
    found = robustness(model, draw(test_set), [DENSE], sounds=sounds, threads=1)
    rows = {name: by_setting["dense"] for name, by_setting in found.accuracy.items()}
    assert found.clips["clean"] == 22  # keywords and unknown words, no silence
    assert rows["clean"] > 0.9
    assert rows["sounds, 20 dB"] > 0.9
    assert rows["sounds, 0 dB"] <= rows["sounds, 20 dB"]
    assert found.clips["300 ms late, whole"] < found.clips["300 ms late, all"]


def test_conditions_without_material_are_left_out(
    random_model: Path, test_set: Path, sounds: Path
) -> None:
    model = deltakwt.load(random_model)
    manifest = draw(test_set)
    alone = robustness(model, manifest, [DENSE], threads=1)
    assert not set(alone.accuracy) & {*NOISE_ROWS, *SPEECH_ROWS}
    both = robustness(model, manifest, [DENSE], sounds=sounds, speech=CLIPS, threads=1)
    assert {*NOISE_ROWS, *SPEECH_ROWS} < set(both.accuracy)


def test_a_folder_of_silence_is_refused(random_model: Path, test_set: Path, sounds: Path) -> None:
    (sounds / "noise.wav").unlink()
    with pytest.raises(DeltakwtError, match="no recording has a second of sound"):
        robustness(deltakwt.load(random_model), draw(test_set), [DENSE], sounds=sounds)


def test_the_command_prints_json_and_names_unreadable_files(
    deltakwt: Run, test_set: Path, sounds: Path
) -> None:
    (sounds / "broken.wav").write_bytes(b"no sound")
    arguments = ("robustness", "--data", test_set, "--sounds", sounds, "--profile", "dense")
    done = deltakwt(*arguments, "--limit", "16", "--json", "--threads", "1")
    assert done.returncode == 1
    assert "broken.wav" in done.stderr
    document = json.loads(done.stdout)
    assert len(document["conditions"]) >= 8
    assert all(0 <= row["accuracy"]["dense"] <= 1 for row in document["conditions"])
    assert len(KEYWORDS) <= document["conditions"][0]["clips"] <= 16


def test_the_command_refuses_a_split_that_does_not_exist(deltakwt: Run, test_set: Path) -> None:
    done = deltakwt("robustness", "--data", test_set, "--split", "all")
    assert done.returncode != 0
    assert done.stderr.strip() == "deltakwt: --split all: must be test or val"
