"""`deltakwt tune` and `deltakwt sweep` as a user runs them, alone and with many workers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import optuna
import pytest
import soundfile
from postgres import running_server

from deltakwt.core.config import Config
from deltakwt.core.model import load
from deltakwt.data.speech_commands import load_manifest
from deltakwt.weights.folder import Weights, load_profiles, random_tensors, save_folder

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = Config(dim=16, heads=2, mlp=32, layers=2)
QUICK = ("--trials", "8", "--trial-clips", "24", "--mix", "words=4,unknown=1,zero=1")


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A model folder of random weights, quick to run."""
    folder = tmp_path / "small"
    save_folder(folder, Weights(SMALL, random_tensors(SMALL)))
    return folder


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """Check that the error is one line that contains these words."""
    assert done.returncode == code, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_tune_writes_profiles_that_the_model_then_uses(
    in_process: Run, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ("tune", "--model", small_model, "--data", full_set, "--out", out, *QUICK)
    done = in_process(*command, "--max-macs", "60", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    tuned = document["profiles"]["tuned"]
    assert tuned["search"]["macs_percent"] <= 60
    assert tuned["loss_interval"][0] <= tuned["loss"] <= tuned["loss_interval"][1]
    assert document["test"]["clips"]["words"] == 30
    profile = load_profiles(small_model)["tuned"]
    assert profile.measured["macs_percent"] == tuned["macs_percent"]
    assert "--max-macs 60" in profile.command
    for picture in ("front.png", "thresholds.png", "sensitivity.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    # The same command again finds everything done and chooses the same.
    again = in_process(*command, "--max-macs", "60", "--json")
    assert json.loads(again.stdout)["search"]["trials"] == document["search"]["trials"]
    assert json.loads(again.stdout)["profiles"]["tuned"]["thresholds"] == tuned["thresholds"]
    model = load(small_model)
    model.setting = "tuned"
    assert model(np.zeros(16_000)).macs is not None


def test_own_recordings_without_labels(in_process: Run, small_model: Path, tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    (tmp_path / "own").mkdir()
    for number in range(4):
        sound = dice.normal(0, 0.1, 6 * 8_000)
        soundfile.write(tmp_path / "own" / f"room {number}.flac", sound, 8_000)
    command = ("tune", "--model", small_model, "--data", tmp_path / "own", "--agree", "50")
    command += ("--out", tmp_path / "out", *QUICK, "--no-refine", "--front-end", "smooth_1.5")
    done = in_process(*command, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["profiles"]["tuned"]["front_end"]["floor"] == 1.5
    assert document["profiles"]["tuned"]["dense_accuracy"] == pytest.approx(100)
    seconds = document["search"]["clips"]["words"] + document["test"]["clips"]["words"]
    assert seconds == 4 * 6


def test_no_write_leaves_the_model_as_it_is(
    in_process: Run, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    before = sorted(path.name for path in small_model.iterdir())
    command = ("tune", "--model", small_model, "--data", full_set, "--out", tmp_path / "out")
    done = in_process(*command, *QUICK, "--no-refine", "--max-macs", "99", "--no-write")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in small_model.iterdir()) == before
    assert "tuned" in json.loads((tmp_path / "out" / "profiles.json").read_text())["profiles"]


def test_tune_weighs_augmented_groups(
    in_process: Run, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    command = ("tune", "--model", small_model, "--data", full_set, "--out", tmp_path / "out")
    mix = ("--mix", "words=4,telephone=1,noisy=1,shifted=1", "--trials", "4", "--trial-clips", "40")
    done = in_process(*command, *mix, "--no-refine", "--max-macs", "99", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    words, spoken = 30, 36  # three clips of each of ten keywords and of two other words
    assert document["search"]["clips"] == {
        "words": words,
        "telephone": spoken,
        "noisy": spoken,
        "shifted": spoken,
    }
    assert set(document["profiles"]["tuned"]["groups"]) == {
        "words",
        "telephone",
        "noisy",
        "shifted",
    }


def test_sweep_runs_the_experiment_of_the_paper(
    in_process: Run, small_model: Path, test_set: Path, full_set: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    command = ("sweep", "--model", small_model, "--data", test_set, "--subset", "12")
    options = ("--trials", "40", "--least-accuracy", "0", "--out", out, "--adjust-clips", "16")
    done = in_process(*command, *options, "--validation", full_set, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert json.loads((out / "sweep.json").read_text()) == document
    assert len(document["trials"]) == 40
    assert len(load_manifest(out / "subset.json", test_set).clips) == 12
    costs = [point["subset"]["mhsa_percent"] for point in document["front"]]
    assert 2 <= len(costs) <= 12
    assert costs == sorted(costs, reverse=True)
    for point in document["front"]:
        assert set(point["thresholds"]) == {"x", "q", "k", "scores", "softmax", "heads"}
        for measured in (point["full"], point["adjusted"]["full"]):
            low, high = measured["loss_interval"]
            assert low <= measured["loss"] <= high
            assert 0 <= measured["mcnemar_p"] <= 1
            assert measured["clips"] == 24
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_sweep_without_validation_clips_does_not_adjust(
    in_process: Run, small_model: Path, test_set: Path, tmp_path: Path
) -> None:
    command = ("sweep", "--model", small_model, "--data", test_set, "--out", tmp_path / "o")
    quick = ("--subset", "12", "--trials", "3", "--json")
    done = in_process(*command, *quick, "--least-accuracy", "0")
    assert "--validation: not given, so the thresholds are not adjusted" in done.stderr
    assert all(point["adjusted"] is None for point in json.loads(done.stdout)["front"])
    assert_one_line(in_process(*command, *quick, "--least-accuracy", "101"), "--least-accuracy 101")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sites", "x,y"), ("--sites", "unknown site 'y'")),
        (("--max-loss", "1", "--agree", "99"), ("exclude each other",)),
        (("--max-macs", "0.5"), ("--max-macs 0.5", "always runs")),
        (("--front-end", "calm"), ("front end 'calm'", "give plain")),
        (("--mix", "speech=1"), ("--mix", "unknown group 'speech'")),
        (("--storage", "mysql://me:pw@db/x"), ("--storage mysql://me:***@db/x", "SQLite")),
        (("--storage", "no/where/s.db"), ("no such folder",)),
        (("--join", "other"), ("--join", "--storage")),
    ],
)
def test_wrong_use_is_reported_in_one_line(
    in_process: Run,
    small_model: Path,
    full_set: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    command = ("tune", "--model", small_model, "--data", full_set, "--out", tmp_path / "o")
    assert_one_line(in_process(*command, *options), *words)


def test_an_unreachable_budget_reports_the_nearest_points(
    in_process: Run, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    command = ("tune", "--model", small_model, "--data", full_set, "--out", tmp_path / "o", *QUICK)
    done = in_process(*command, "--no-refine", "-q", "--max-macs", "3.7", "--max-loss", "0")
    assert_one_line(done, "no setting found", "nearest:", "% of the MACs", code=1)
    assert not (small_model / "profiles.json").exists()


def test_a_study_of_another_model_is_refused(
    in_process: Run, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    store = f"journal:{tmp_path / 'study.log'}"
    quick = ("--data", full_set, "--storage", store, "--out", tmp_path / "o", *QUICK)
    first = in_process("tune", "--model", small_model, *quick, "--no-refine", "--max-macs", "99")
    assert first.returncode == 0, first.stderr
    other = tmp_path / "other"
    save_folder(other, Weights(SMALL, random_tensors(SMALL, seed=1)))
    assert_one_line(
        in_process("tune", "--model", other, *quick, "--max-macs", "99"), "another model"
    )
    assert_one_line(in_process("tune", "--model", other, *quick, "--join", "none"), "no such study")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with running_server() as server:
        yield server.url


def test_two_workers_share_a_study_in_postgresql_and_survive_a_killed_one(
    in_process: Run, postgresql: str, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    pytest.importorskip("psycopg", reason="needs psycopg")
    quick = ("--model", small_model, "--data", full_set, "--trial-clips", "24", "--max-macs", "99")
    command = ("tune", *quick, "--storage", postgresql, "--mix", "words=4,unknown=1,zero=1")
    main = (*command, "--study", "shared", "--out", tmp_path / "o", "--no-refine")
    first = in_process(*main, "--trials", "1")
    assert first.returncode == 0, first.stderr

    def join(trials: int) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "deltakwt", *map(str, command), "--join", "shared"]
        return subprocess.Popen([*line, "--trials", str(trials)], stderr=subprocess.PIPE, text=True)

    study = optuna.load_study(
        study_name="shared", storage=postgresql.replace("postgresql:", "postgresql+psycopg:")
    )
    doomed = [join(10_000), join(10_000)]
    deadline = time.monotonic() + 120
    while any(workers_of(study).get(worker.pid, 0) < 2 for worker in doomed):  # side by side
        assert time.monotonic() < deadline
        assert all(worker.poll() is None for worker in doomed)
        time.sleep(0.1)
    for worker in doomed:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    target = sum(workers_of(study).values()) + 8  # what they finished is kept
    pair = [join(target), join(target)]
    assert [worker.wait(timeout=120) for worker in pair] == [0, 0]
    after = workers_of(study)
    assert all(after[worker.pid] >= 2 for worker in doomed)
    assert sum(after.get(worker.pid, 0) for worker in pair) >= 8
    assert target <= sum(after.values()) <= target + 1
    last = in_process(*main, "--trials", target, "--json")
    assert json.loads(last.stdout)["search"]["trials"] == sum(after.values())


def test_a_lost_database_is_reported_in_one_line(
    in_process: Run, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    pytest.importorskip("psycopg", reason="needs psycopg")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"postgresql://me:secret@127.0.0.1:{port}/none"
    command = ("tune", "--model", small_model, "--data", full_set, "--out", tmp_path / "o")
    done = in_process(*command, "--storage", url)
    assert_one_line(done, "the database cannot be used", "run the same command again", code=1)
    assert "secret" not in done.stderr
    (tmp_path / "broken.db").write_bytes(b"not a database" * 100)
    broken = in_process(*command, "--storage", tmp_path / "broken.db")
    assert_one_line(broken, "the database cannot be used", "broken.db", code=1)


@pytest.mark.parametrize("form", ["user:pw", "query"])
def test_a_database_password_is_neither_printed_nor_stored(
    in_process: Run, postgresql: str, small_model: Path, full_set: Path, tmp_path: Path, form: str
) -> None:
    pytest.importorskip("psycopg", reason="needs psycopg")
    url = postgresql.replace("tuner@", "tuner:s3cret%21@")
    if form == "query":
        url = postgresql.replace("tuner@", "") + "?user=tuner&password=s3cret%21"
    out = tmp_path / "out"
    command = ("tune", "--model", small_model, "--data", full_set, "--out", out, *QUICK)
    command += ("--no-refine", "--max-macs", "99", f"--storage={url}", "--study", form)
    done = in_process(*command)
    assert done.returncode == 0, done.stderr
    failed = in_process(*command, "--mix", "words=1")  # a study of other clips
    unknown = in_process(*command, "--join", "none")
    assert_one_line(failed, "is of another")
    assert_one_line(unknown, "no such study in postgresql://", "***")
    for text in (done.stdout + done.stderr, failed.stderr, unknown.stderr):
        assert "s3cret" not in text
    for file in (out / "front.json", small_model / "profiles.json"):
        assert "s3cret" not in file.read_text()
        assert "***" in file.read_text()
    debug = in_process(*command[:-3], f"--storage={url.replace('/postgres', '/none')}", "--debug")
    assert debug.returncode == 1
    assert "s3cret" not in debug.stderr


def workers_of(study: optuna.Study) -> dict[int, int]:
    """Process id -> finished trials."""
    counts: dict[int, int] = {}
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]):
        pid = int(trial.user_attrs["worker"].rpartition(":")[2])
        counts[pid] = counts.get(pid, 0) + 1
    return counts
