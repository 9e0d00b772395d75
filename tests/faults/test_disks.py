"""Every command that writes, on a full disk and in a folder that cannot be written.

A full disk is a small tmpfs. Where the tests may not mount one, a limit of the size of files takes
its place: the system then refuses to write in the same way.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CLIPS
from faults.programs import Limit, Program, assert_one_line, mounted, run, whole_tree
from webserver import Site

from deltakwt.core.errors import DeltakwtError, is_disk_failure
from deltakwt.evaluate.review import read_answers, write_answer, write_clips
from deltakwt.listen.saved import INDEX
from deltakwt.weights.registry import PULLABLE

FREE = 16_384  # bytes of the small disk
LARGEST = 2_048  # bytes of a file, where the size of files is limited instead
REASONS = ("No space left on device", "File too large", "is full", "disk I/O error")

SPOTTED = (*[CLIPS / "yes.flac"] * 200, "--threads", "1")

Disk = tuple[Path, Limit | None]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Disk]:
    """A folder in which a few kilobytes can be written, and what the process must do for it."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))

    with mounted(tmp_path / "disk", FREE) as disk:
        yield (disk, None) if disk else (tmp_path / "disk", limit)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """An empty folder that cannot be written, not even by root."""
    with mounted(tmp_path / "disk", FREE) as disk:
        folder = tmp_path / "disk"
        if disk:
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        elif os.geteuid() == 0:
            pytest.skip("root may write everywhere, and a read-only disk cannot be mounted here")
        else:
            folder.chmod(0o555)
        yield folder
        if not disk:
            folder.chmod(0o755)


def arguments(command: str, out: Path, model: Path, data: Path) -> tuple[object, ...]:
    """Return a short run of a command that writes into the folder `out`."""
    quick = ("--trial-clips", "24", "--trials", "4", "--no-refine", "--max-macs", "99")
    few = ("--trials", "2", "--subset", "12", "--least-accuracy", "0")
    sound = ("--input", CLIPS / "sentence.flac", "--fast")
    stream = ("stress", "--model", model, "--data", data, "--split", "val", "--hours", "0.003")
    once = ("--clips", "2", "--noise", "2", "--rounds", "1", "--peer", "ort")
    return {
        "eval": ("eval", "--model", model, "--data", data, "--manifest", out / "clips.json"),
        "tune": ("tune", "--model", model, "--data", data, "--out", out, *quick),
        "sweep": ("sweep", "--model", model, "--data", data, "--out", out, *few),
        "report": ("report", "--model", model, "--data", data, "--out", out),
        "explain": ("explain", CLIPS / "yes.flac", "--model", model, "--out", out / "yes.json"),
        "export c": ("export", "--model", "kwt-1", "--out", out / "c"),
        "export bin": ("export", "--model", model, "--out", out / "m.bin", "--target", "bin"),
        "export onnx": ("export", "--model", model, "--out", out / "m.onnx", "--target", "onnx"),
        "listen": ("listen", "--model", "kwt-1", *sound, "--save-events", out / "saved"),
        "spot": ("spot", "--model", model, "--out", out / "words.jsonl", *SPOTTED),
        "stress": (*stream, "--profile", "dense", "--save", out / "stream"),
        "stress curve": (*stream, "--profile", "dense", "--curve", out / "curve.png"),
        "bench": ("bench", "--model", model, "--data", data, "--out", out, *once),
        "average": ("models", "average", f"{model}=0.5", f"{model}=0.5", "--out", out / "mean"),
    }[command]


COMMANDS = (
    *("eval", "tune", "sweep", "report", "explain", "export c", "export bin", "export onnx"),
    *("listen", "spot", "stress", "stress curve", "bench", "average"),
)
PARTS = ("plan.json", "files.jsonl", *(f"{shard:05d}.jsonl" for shard in range(7)))
# What a command has finished before the disk was full is whole and stays.
WHOLE = {
    "tune": {"study.db"},
    "sweep": {"subset.json", "sweep.json"},
    "report": {".unfinished.json", "report.json", "tensors.json"},
    "listen": {"saved", f"saved/{INDEX}"},
    "spot": {"words.jsonl.part", *(f"words.jsonl.part/{name}" for name in PARTS)},
    "bench": {"bench-small.json"},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk(command: str, full_disk: Disk, small_model: Path, full_set: Path) -> None:
    folder, limit = full_disk
    words = arguments(command, folder, small_model, full_set)
    if command == "eval":
        (folder / "old").write_bytes(bytes(FREE))
    done = run(*words, "-q", before=limit)
    assert_one_line(done, 1)
    assert any(reason in done.err for reason in REASONS), done.err
    assert set(whole_tree(folder)) - {"old"} <= WHOLE.get(command, set())
    for path in folder.glob("*.json"):
        json.loads(path.read_bytes())
    assert not (small_model / "profiles.json").exists()
    if command == "listen":
        assert (folder / "saved" / INDEX).read_text() == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_cannot_be_written(
    command: str, read_only: Path, small_model: Path, full_set: Path
) -> None:
    done = run(*arguments(command, read_only, small_model, full_set), "-q")
    assert_one_line(done, 2, str(read_only), "cannot be")
    assert whole_tree(read_only) == {}


def archive_of(clips: int, size: int, tmp_path: Path) -> bytes:
    """Return an archive of clips that hardly becomes smaller."""
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for number in range(clips):
            (tmp_path / "clip").write_bytes(os.urandom(size))
            tar.add(tmp_path / "clip", f"yes/{number}.wav")
    return (tmp_path / "a.tar.gz").read_bytes()


@pytest.mark.parametrize(("clips", "left"), [(6, ".tar.gz.part"), (2, ".tar.gz")])
def test_data_get_on_a_full_disk(
    clips: int, left: str, site: Site, full_disk: Disk, tmp_path: Path
) -> None:
    """The archive does not fit, or only what is in it: what was downloaded is kept."""
    folder, limit = full_disk
    if limit is not None and left == ".tar.gz":
        pytest.skip("needs a small disk: a limit of the size of files is no limit of their sum")
    name = "speech_commands_test_set_v0.02"
    site.files[f"/{name}.tar.gz"] = content = archive_of(clips, 5_000, tmp_path)
    assert (len(content) < FREE) == (left == ".tar.gz")
    get = ("data", "get", "test-v0.02", "--out", folder, "-q")
    done = run(*get, before=limit, DELTAKWT_DATA_URL=site.url)
    assert done.process.returncode == 1, done.err
    assert any(reason in done.err.splitlines()[-1] for reason in REASONS)
    assert set(whole_tree(folder)) == {name + left}
    assert content.startswith((folder / (name + left)).read_bytes())


def test_a_training_on_a_full_disk(full_disk: Disk, tmp_path: Path) -> None:
    """The first checkpoint does not fit: one line, no half checkpoint, no model."""
    pytest.importorskip("torch", reason="needs torch")
    folder, limit = full_disk
    data = tmp_path / "data"
    for word in ("yes", "no", "marvin"):
        (data / word).mkdir(parents=True)
        for speaker in range(30):
            os.link(CLIPS / f"{word}.flac", data / word / f"{speaker:03d}_nohash_0.flac")
    options = ("--shape", "32,2,64,2", "--words", "yes,no", "--epochs", "1", "--batch", "16")
    done = run("train", "--data", data, "--out", folder / "run", *options, "-q", before=limit)
    assert done.process.returncode == 1, done.err
    assert any(reason in done.err.splitlines()[-1] for reason in REASONS), done.err
    assert not (folder / "run" / "config.json").exists()
    assert not list(folder.rglob("*.safetensors"))
    assert not list(folder.rglob("*.pt"))


def test_models_pull_on_a_full_disk(site: Site, full_disk: Disk) -> None:
    """What was downloaded is kept, and there is no model."""
    folder, limit = full_disk
    path = PULLABLE["arm-kwt-1"].path
    site.files[f"/{path}"] = content = os.urandom(3 * FREE)
    environment = {"DELTAKWT_CACHE": str(folder), "DELTAKWT_MODELS_URL": site.url}
    done = run("models", "pull", "arm-kwt-1", "-q", before=limit, **environment)
    assert done.process.returncode == 1, done.err
    assert any(reason in done.err.splitlines()[-1] for reason in REASONS), done.err
    assert not (folder / "models").exists()
    [part] = (folder / "downloads").iterdir()
    assert content.startswith(part.read_bytes())


def test_output_that_cannot_be_written(random_model: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        command = Program.command("macs", "--model", random_model, "--json")
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "deltakwt: output: No space left on device\n"


@pytest.fixture
def saved_event(trained: str, tmp_path: Path) -> Path:
    """A folder with one saved event."""
    folder = tmp_path / "saved"
    done = run("listen", "--input", CLIPS / "yes.flac", "--fast", "--save-events", folder)
    assert done.process.returncode == 0
    return folder


def test_an_answer_of_a_review_is_written_whole_or_not_at_all(
    saved_event: Path, full_disk: Disk
) -> None:
    folder, limit = full_disk
    if limit is not None:
        pytest.skip("needs a small disk that can be mounted")
    event = json.loads((saved_event / INDEX).read_text().splitlines()[0])
    (folder / INDEX).write_text(json.dumps(event) + "\n")
    write_answer(folder, event["file"], "yes")
    answers = (folder / "reviewed.jsonl").read_bytes()
    (folder / "old").write_bytes(bytes(FREE - 2 * 4096))  # a page for each of the two files
    with pytest.raises(DeltakwtError, match="No space left") as caught:
        write_answer(folder, f"{'x' * 5000}.wav", "yes")
    assert is_disk_failure(caught.value)
    assert (folder / "reviewed.jsonl").read_bytes() == answers  # no half line
    assert read_answers(folder) == {event["file"]: "yes"}
    (folder / event["file"]).symlink_to(saved_event / event["file"])
    with pytest.raises(DeltakwtError, match="No space left"):
        write_clips(folder, folder / "clips", "train")
    assert not list((folder / "clips").rglob("*.wav"))
