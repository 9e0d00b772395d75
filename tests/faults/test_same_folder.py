"""Two runs into the same folder: the second is refused in one line and changes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CLIPS
from faults.programs import Program, assert_one_line, run, whole_tree

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Profile, Setting, Thresholds
from deltakwt.locks import FolderInUse, locked
from deltakwt.tune.goals import write_profiles
from deltakwt.weights.folder import load_profiles
from deltakwt.weights.registry import cache_folder, pull


@pytest.mark.parametrize("command", ["tune", "sweep", "report", "bench", "data", "export", "train"])
def test_the_second_run_is_refused(
    command: str, small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    common = ("--model", small_model, "--data", full_set, "--out", out)
    words = {
        "data": ("data", "get", "test-v0.02", "--out", out),
        "export": ("export", "--model", "kwt-1", "--out", out),
        "train": ("train", "--data", full_set, "--out", out, "--shape", "16,2,32,2"),
    }.get(command, (command, *common))
    if command == "train":
        pytest.importorskip("torch", reason="needs torch")
    with locked(out):
        second = run(*words, DELTAKWT_DATA_URL="http://127.0.0.1:1")
    said = second.err.splitlines()[-1]
    assert second.process.returncode == 1, second.err
    assert said == (
        f"deltakwt: {out}: another run is writing into this folder; wait for its end or choose"
        " another folder"
    )
    assert whole_tree(out) == {}


def test_a_killed_run_does_not_keep_the_folder(
    small_model: Path, test_set: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ("sweep", "--model", small_model, "--data", test_set, "--out", out, "-q")
    few = ("--subset", "12", "--least-accuracy", "0", "--trials")
    first = Program(*command, *few, "100000")
    first.wait_until((out / "subset.json").exists)
    assert_one_line(run(*command, *few, "1"), 1, "another run is writing")
    first.end(signal.SIGKILL)
    with locked(out):
        pass


def test_a_model_is_pulled_once_at_a_time() -> None:
    downloads = cache_folder() / "downloads"
    downloads.mkdir(parents=True)
    with locked(downloads), pytest.raises(FolderInUse, match="another run"):
        pull("arm-kwt-1", lambda done, total: None)


def test_listening_runs_may_share_a_folder(trained: str, tmp_path: Path) -> None:
    """Lines are appended and names are unique, so that nothing of either run is lost."""
    command = ("listen", "--model", trained, "--input", CLIPS / "sentence.flac", "--fast", "--json")
    pair = [Program(*command, "--save-events", tmp_path / "saved") for _ in range(2)]
    assert [program.end() for program in pair] == [0, 0]
    found = sum(program.out.count('"event": "word"') for program in pair)
    lines = (tmp_path / "saved" / "events.jsonl").read_text().splitlines()
    assert len(lines) == found == len(list((tmp_path / "saved").glob("*.wav"))) > 0


WRITER = """
import sys
from pathlib import Path
from deltakwt.core.setting import Profile, Setting, Thresholds
from deltakwt.tune.goals import write_profiles
for number in range(20):
    name = f"{sys.argv[2]}{number}"
    write_profiles(Path(sys.argv[1]), [Profile(name, Setting(Thresholds(x=0.1), name=name))])
"""


def test_two_tunings_of_one_model_keep_both_their_profiles(small_model: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(small_model)]
    other = subprocess.Popen([*command, "theirs"])
    for number in range(20):
        profile = Profile(name := f"ours{number}", Setting(Thresholds(x=0.1), name=name))
        write_profiles(small_model, [profile])
    assert other.wait(60) == 0
    assert len(load_profiles(small_model).profiles) == 40


def test_a_folder_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(DeltakwtError, match="cannot be opened"), locked(tmp_path / "gone"):
        pass
