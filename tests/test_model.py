"""Models: classification, settings, spotting, copies, and calls with wrong arguments."""

from __future__ import annotations

import copy
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS

import deltakwt
from deltakwt.core.config import KEYWORDS, KWT1
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import DENSE, FrontEndSetting, Profile, Profiles, Setting, Thresholds
from deltakwt.weights.folder import Weights, random_tensors, save_folder, save_profiles

PAPER = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05")


@pytest.mark.parametrize("word", KEYWORDS)
def test_the_authors_model_recognises_every_synthetic_word(arm_kwt1: Path, word: str) -> None:
    result = deltakwt.load(arm_kwt1)(CLIPS / f"{word}.flac")
    assert result.label == word
    assert result.score == pytest.approx(result.scores.max())
    assert result.scores.sum() == pytest.approx(1, abs=1e-5)
    assert result.macs is None


def test_the_shipped_model_recognises_every_synthetic_word(trained: str) -> None:
    model = deltakwt.load(trained)
    assert [model(CLIPS / f"{word}.flac").label for word in KEYWORDS] == list(KEYWORDS)


def test_a_file_and_its_samples_are_the_same(random_model: Path) -> None:
    model = deltakwt.load(random_model)
    samples, rate = soundfile.read(CLIPS / "yes.flac", dtype="int16")
    expected = model(str(CLIPS / "yes.flac")).logits
    np.testing.assert_array_equal(model(samples, rate).logits, expected)
    np.testing.assert_array_equal(model(samples / 32768).logits, expected)


def test_short_sound_is_padded_and_long_sound_refused(random_model: Path) -> None:
    model = deltakwt.load(random_model)
    short = np.random.default_rng(0).uniform(-0.1, 0.1, 9_000)
    padded = np.concatenate((short, np.zeros(7_000)))
    np.testing.assert_array_equal(model(short).logits, model(padded).logits)
    with pytest.raises(DeltakwtError, match="model.spot"):
        model(np.zeros(16_001))


def test_thresholds_count_and_trace(random_model: Path) -> None:
    model = deltakwt.load(random_model)
    result = model(CLIPS / "yes.flac", setting=PAPER, trace=True)
    assert repr(result).startswith("<deltakwt.Result ")
    assert "% of the MACs>" in repr(result)
    assert len(repr(result)) < 100
    assert result.macs is not None
    assert 0 < result.macs.mhsa_percent < 95
    assert result.nonzeros is not None
    assert result.nonzeros.shape == (12, 9)
    assert result.trace is not None
    assert result.trace["x"].shape == (12, 99, 64)
    with pytest.raises(DeltakwtError, match="trace"):
        model(CLIPS / "yes.flac", trace=True)


def test_silence_costs_next_to_nothing(random_model: Path) -> None:
    result = deltakwt.load(random_model)(np.zeros(16_000), setting=PAPER)
    assert result.macs is not None
    assert result.macs.mhsa_percent < 60  # positions still change from token to token


def test_profiles(random_model: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(random_model, folder)
    profiles = Profiles().with_profile(
        Profile("low", Setting(PAPER, FrontEndSetting(smooth=True), "low")), default=True
    )
    save_profiles(folder, profiles)
    model = deltakwt.load(folder)
    assert model.setting == Setting(PAPER, FrontEndSetting(smooth=True))
    assert "low" in repr(model)
    low = model(CLIPS / "yes.flac")
    model.setting = "dense"
    assert model.setting == DENSE
    dense = model(CLIPS / "yes.flac")
    assert low.macs is not None
    assert dense.macs is None
    by_name = model(CLIPS / "yes.flac", setting="low")
    np.testing.assert_array_equal(by_name.logits, low.logits)
    with pytest.raises(DeltakwtError, match="no such profile"):
        model.setting = "high"
    assert model.setting == DENSE


def test_thresholds_given_to_the_model_or_to_a_call_run_on_the_same_front_end(trained: str) -> None:
    """Setting thresholds never keeps the front end of the profile that was set before."""
    model = deltakwt.load(trained)
    assert model.setting.front_end != FrontEndSetting()
    in_a_call = model(CLIPS / "yes.flac", setting=PAPER)
    model.setting = PAPER
    assert model.setting == Setting(PAPER)
    of_the_model = model(CLIPS / "yes.flac")
    np.testing.assert_array_equal(of_the_model.logits, in_a_call.logits)
    np.testing.assert_array_equal(of_the_model.nonzeros, in_a_call.nonzeros)
    assert str(PAPER) in repr(model)
    with pytest.raises(AttributeError):
        model.thresholds = PAPER  # type: ignore[attr-defined]


def test_spot_streams_a_long_file(random_model: Path, tmp_path: Path) -> None:
    """Five minutes at 44.1 kHz in stereo would be 106 MB at once."""
    import resource

    path = tmp_path / "long.wav"
    noise = np.random.default_rng(0).normal(0, 1e-3, (441_000, 2))
    with soundfile.SoundFile(path, "w", 44_100, 2) as file:
        for _ in range(30):
            file.write(noise)
    from deltakwt.audio import read_blocks

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = sum(len(block) for block in read_blocks(path)) / 16_000
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert seconds == pytest.approx(300, abs=0.01)
    assert after - before < 50_000  # KiB
    with soundfile.SoundFile(path, "w", 16_000, 1) as file:
        file.write(noise[:320_000, 0])
    reported: list[float] = []
    found = deltakwt.load(random_model).spot(path, progress=reported.append)
    assert reported == sorted(reported)
    assert found.windows > 200  # one every 100 ms, and those of the ending
    assert found.seconds == pytest.approx(20)


def test_spot_of_an_array(trained: str) -> None:
    samples, _ = soundfile.read(CLIPS / "sentence.flac")
    spotting = deltakwt.load(trained).spot(samples, 16_000)
    assert spotting.file is None
    assert [event.label for event in spotting.events] == ["go", "left", "stop", "yes"]


@pytest.mark.parametrize("seconds", [0.9, 1.05, 1.15, 1.25, 1.5])
def test_a_word_in_a_recording_of_about_a_second_is_spotted(trained: str, seconds: float) -> None:
    word, _ = soundfile.read(CLIPS / "yes.flac", dtype="float32")
    longer = np.zeros(int(16_000 * seconds), np.float32)
    longer[: len(word)] = word[: len(longer)]
    assert [event.label for event in deltakwt.load(trained).spot(longer).events] == ["yes"]


def test_spot_counts_over_all_windows(random_model: Path) -> None:
    found = deltakwt.load(random_model).spot(np.zeros(20_800), setting=PAPER)
    assert found.reused == found.windows - 1  # digital silence is computed once
    one = deltakwt.load(random_model)(np.zeros(16_000), setting=PAPER)
    assert one.macs is not None
    assert found.macs_percent == pytest.approx(one.macs.model_percent / found.windows)


def test_many_threads_share_a_model(random_model: Path) -> None:
    model = deltakwt.load(random_model)
    clips = [CLIPS / f"{word}.flac" for word in KEYWORDS]
    expected = [model(clip).logits for clip in clips]
    with ThreadPoolExecutor(4) as pool:
        for got, want in zip(
            pool.map(lambda c: model(c).logits, clips * 3), expected * 3, strict=True
        ):
            np.testing.assert_array_equal(got, want)


def test_the_kernels_can_be_chosen(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAKWT_ISA", "scalar")
    assert deltakwt.load(random_model).engine.isa == "scalar"
    monkeypatch.setenv("DELTAKWT_ISA", "z80")
    with pytest.raises(DeltakwtError, match="z80"):
        deltakwt.load(random_model)


def test_results_do_not_wait_for_the_file_system(random_model: Path) -> None:
    """`ms` is computing alone: it fits into the time of the call."""
    model = deltakwt.load(random_model)
    start = time.perf_counter()
    result = model(CLIPS / "yes.flac")
    assert 0 < result.ms <= 1e3 * (time.perf_counter() - start)
    assert os.fspath(random_model) in repr(model)


def test_a_model_is_pickled_by_its_name_and_setting(random_model: Path) -> None:
    model = deltakwt.load(random_model)
    model.setting = Setting(PAPER, FrontEndSetting(smooth=True), "mine")
    again = pickle.loads(pickle.dumps(model))
    assert (again.name, again.setting, str(again.setting)) == (model.name, model.setting, "mine")
    clip = CLIPS / "yes.flac"
    np.testing.assert_array_equal(again(clip).logits, model(clip).logits)


def test_a_pickled_model_is_found_from_another_folder(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(random_model.parent)
    pickled = pickle.dumps(deltakwt.load("random"))
    assert len(pickled) < 2000  # no weights in it
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickled).name == "random"


def test_copies_have_their_own_setting(random_model: Path) -> None:
    model = deltakwt.load(random_model)
    for copied in (copy.copy(model), copy.deepcopy(model)):
        copied.setting = PAPER
        assert model.setting == DENSE
        assert copied.engine is model.engine


def test_a_model_made_in_memory_says_why_it_cannot_be_pickled(random_model: Path) -> None:
    loaded = deltakwt.load(random_model)
    made = deltakwt.Model(loaded.config, loaded.engine, name="made")
    with pytest.raises(DeltakwtError, match="'made': made in memory.*save_folder"):
        pickle.dumps(made)
    assert copy.deepcopy(made).name == "made"


RAGGED = [[0.0, 0.0], [0.0]]
WRONG = {
    "ragged sound": lambda model: model(RAGGED),
    "ragged clip": lambda model: model.classify(RAGGED),
    "ragged spot": lambda model: model.spot(RAGGED),
    "text as rate": lambda model: model(np.zeros(100), sample_rate="16000"),
    "fraction as rate": lambda model: model(np.zeros(100), sample_rate=16_000.5),
    "bool as rate": lambda model: model(np.zeros(100), sample_rate=True),
    "list as rate": lambda model: model.spot(np.zeros(100), sample_rate=[16_000]),
    "nothing": lambda model: model(None),
    "bytes": lambda model: model(b"sound"),
    "object": lambda model: model.classify({}),
    "complex": lambda model: model(np.zeros(100, complex)),
    "dictionary": lambda model: model({"a": 1}),
    "number as setting": lambda model: model(np.zeros(100), setting=5),
    "list as setting": lambda model: setattr(model, "setting", [0.2]),
    "load a number": lambda model: deltakwt.load(5),
    "load bytes": lambda model: deltakwt.load(b"kwt-1"),
    "load nothing": lambda model: deltakwt.load(None),
    "load a zero byte": lambda model: deltakwt.load("a\0b"),
    "load a long name": lambda model: deltakwt.load("a" * 300),
    "threshold text": lambda model: Thresholds(x="0.2"),
    "threshold object": lambda model: Thresholds(x={}),
    "threshold ragged": lambda model: Thresholds(x=RAGGED),
    "threshold bool": lambda model: Thresholds(x=True),
    "threshold beyond float32": lambda model: Thresholds(x=1e39),
    "threshold integer": lambda model: Thresholds(x=10**400),
    "thresholds of a number": lambda model: Thresholds.parse(5),
    "thresholds beyond float32": lambda model: Thresholds.parse("1e39_0_0_0_0_0"),
    "front end text": lambda model: FrontEndSetting(floor="2"),
    "front end bool": lambda model: FrontEndSetting(smooth="yes"),
    "front end number": lambda model: FrontEndSetting.parse(2),
    "front end quantile": lambda model: FrontEndSetting(quantile=None),
    "setting of a number": lambda model: Setting(5),
    "setting of text": lambda model: Setting(PAPER, "smooth"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_call_with_wrong_arguments_is_refused(random_model: Path, kind: str) -> None:
    with pytest.raises(DeltakwtError) as error:
        WRONG[kind](deltakwt.load(random_model))
    assert "\n" not in str(error.value)


def test_weights_that_overflow_are_an_error_that_names_the_model(tmp_path: Path) -> None:
    tensors = random_tensors(KWT1)
    tensors["embed.weight"] = np.full_like(tensors["embed.weight"], 1e38)
    tensors["head.weight"] = np.full_like(tensors["head.weight"], 1e38)
    save_folder(tmp_path / "huge", Weights(KWT1, tensors))
    model = deltakwt.load(tmp_path / "huge")
    for setting in (DENSE, PAPER):
        with pytest.raises(DeltakwtError, match="huge.*finite"):
            model(CLIPS / "yes.flac", setting=setting)
