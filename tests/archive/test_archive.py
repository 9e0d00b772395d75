"""`deltakwt spot --out`: files found, rows written, interrupted runs continued, workers lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, Run

import deltakwt as package
from deltakwt.archive import plan
from deltakwt.archive.plan import find_files
from deltakwt.archive.pool import SearchFailed, _Job, search_here
from deltakwt.archive.search import search_archive
from deltakwt.archive.shard import COLUMNS, Task
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def model(trained: str) -> Model:
    return package.load(trained)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three words, a sentence, a file that is no sound, one that is too short, and a note."""
    made = tmp_path / "archive"
    (made / "deeper").mkdir(parents=True)
    for name in ("yes", "no", "sentence"):
        (made / "deeper" / f"{name}.FLAC").symlink_to(CLIPS / f"{name}.flac")
    soundfile.write(made / "stereo.wav", np.zeros((44_100, 2)), 44_100)
    (made / "bad.wav").write_bytes(b"RIFF and nothing")
    (made / "notes.md").write_text("not searched")
    return made


def read(out: Path) -> Rows:
    if out.suffix == ".jsonl":
        return [json.loads(line) for line in out.read_text().splitlines()]
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'deltakwt[archive]'")
    rows: Rows = parquet.read_table(out).to_pylist()
    return rows


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_are_the_events_of_spot(
    suffix: str, model: Model, folder: Path, tmp_path: Path
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pip install 'deltakwt[archive]'")
    out = tmp_path / f"events{suffix}"
    summary = search_archive(model, [str(folder)], out, workers=1)
    rows = read(out)
    assert all(tuple(row) == COLUMNS for row in rows)
    names = [Path(row["file"]).name for row in rows]
    assert list(dict.fromkeys(names)) == [
        *("bad.wav", "stereo.wav", "no.FLAC", "sentence.FLAC", "yes.FLAC"),
    ]
    bad, silent = rows[:2]
    assert "not readable as sound" in bad["error"]
    assert bad["word"] is None
    assert (silent["word"], silent["seconds"], silent["error"]) == (None, 1.0, None)
    for row in rows[2:]:
        assert (row["model"], row["setting"]) == (model.name, str(model.setting))
    expected = model.spot(CLIPS / "sentence.flac").events
    found = [row for row in rows if row["file"].endswith("sentence.FLAC")]
    assert [(r["word"], r["start"], r["end"], r["time"]) for r in found] == [
        (e.label, e.start, e.end, e.time) for e in expected
    ]
    np.testing.assert_allclose([r["score"] for r in found], [e.score for e in expected], atol=1e-6)
    assert (summary.files, summary.unreadable) == (5, 1)
    assert summary.words == sum(row["word"] is not None for row in rows)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [out.name]
    assert not out.with_name(out.name + ".part").exists()


def test_files_come_from_folders_lists_and_names(folder: Path, monkeypatch: Any) -> None:
    (folder / "list.txt").write_bytes(b"a.wav\r\n\nb\xff.wav\n")
    found = list(find_files([str(folder / "list.txt"), str(folder / "bad.wav"), str(folder)]))
    assert found[:3] == ["a.wav", "b\udcff.wav", str(folder / "bad.wav")]
    assert len(found) == 3 + 5
    (folder / "list.txt").write_bytes(b"a" * 20_000)
    with pytest.raises(DeltakwtError, match="line 1: longer than"):
        list(find_files([str(folder / "list.txt")]))


def test_an_interrupted_search_goes_on(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SHARD_FILES", 3)
    files = [str(path) for path in sorted(CLIPS.glob("*.flac"))]
    whole = search_archive(model, files, tmp_path / "whole.jsonl", workers=2)
    assert (whole.resumed, whole.shards) == (0, -(-len(files) // 3))

    def stop(done: float, total: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_archive(model, files, tmp_path / "events.jsonl", workers=2, progress=stop)
    assert not (tmp_path / "events.jsonl").exists()
    with pytest.raises(DeltakwtError, match="belongs to a search with another"):
        search_archive(model, files[1:], tmp_path / "events.jsonl", workers=1)
    shown: list[float] = []
    again = search_archive(
        model,
        files,
        tmp_path / "events.jsonl",
        workers=1,
        progress=lambda done, total: shown.append(done / total),
    )
    assert again.resumed >= 1
    assert shown[-1] == 1.0
    assert shown == sorted(shown)
    assert read(tmp_path / "events.jsonl") == read(tmp_path / "whole.jsonl")
    with pytest.raises(DeltakwtError, match="exists already"):
        search_archive(model, files, tmp_path / "events.jsonl")


def test_a_killed_worker_costs_nothing_but_time(model: Model, tmp_path: Path) -> None:
    files = tuple(str(path) for path in sorted(CLIPS.glob("*.flac")))
    shards = [plan.Shard(number, files, 1) for number in range(3)]
    assert model.source is not None
    task = Task(model.source, model.name, model.setting, model.arithmetic)
    running = search_here(task, iter(shards), 2)
    first, rows = next(running)
    children = multiprocessing.active_children()
    assert children
    for child in children:
        child.kill()
    rest = dict(running)
    assert {first, *rest} == set(shards)
    assert all(found == rows for found in rest.values())


def test_a_file_that_ends_two_workers_is_given_up() -> None:
    job = _Job(plan.Shard(0, ("a", "b"), 1))
    for _ in range(2):
        assert job.known == {}
        job.current = 1
        job.died(-11)
    assert job.known == {1: "b: the process that read it ended (signal 11)"}
    job.died(1)
    job.died(1)
    with pytest.raises(SearchFailed, match="end as soon as they start"):
        job.died(1)


def test_workers_that_cannot_start_end_the_search(model: Model) -> None:
    task = Task("no such model", "x", model.setting, "float")
    with pytest.raises(SearchFailed, match="exit code 1"):
        list(search_here(task, iter([plan.Shard(0, ("a",), 1)]), 1))


def test_ctrl_c_on_the_command_line(trained: str, tmp_path: Path, deltakwt: Run) -> None:
    names = tmp_path / "list.txt"
    names.write_text(f"{CLIPS / 'yes.flac'}\n" * 160)
    command = ("spot", names, "--out", tmp_path / "events.jsonl", "-m", trained, "--threads", 1)
    with subprocess.Popen(
        [sys.executable, "-m", "deltakwt", *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as process:
        first = tmp_path / "events.jsonl.part" / "00000.jsonl"
        for _ in range(600):
            if first.exists() or process.poll() is not None:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "run the same command again to continue" in errors
    done = deltakwt(*command, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["resumed"] >= 1
    assert (summary["files"], summary["counts"]) == (160, {"yes": 160})


def test_refusals(deltakwt: Run, tmp_path: Path, monkeypatch: Any, model: Model) -> None:
    for options, message in (
        (("--out", tmp_path / "a.csv"), "must end in .parquet or .jsonl"),
        (("--ray", "auto"), "--ray needs --out"),
        (("--out", tmp_path / "a.jsonl", "--json=full"), "--json=full: --out writes words only"),
    ):
        done = deltakwt("spot", tmp_path, *options)
        assert done.returncode == 2
        assert message in done.stderr
    with pytest.raises(DeltakwtError, match="no sound files were found"):
        search_archive(model, [str(tmp_path)], tmp_path / "a.jsonl")
    assert not list(tmp_path.glob("a.jsonl*"))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DeltakwtError, match=r"pip install .*(ray|\.\[cluster\])"):
        search_archive(model, [str(CLIPS)], tmp_path / "a.jsonl", ray="auto")
    assert not list(tmp_path.glob("a.jsonl*"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DeltakwtError, match=r"pip install '(pyarrow|\.\[archive\])"):
        search_archive(model, [str(tmp_path)], tmp_path / "a.parquet")
