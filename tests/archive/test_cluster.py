"""A search on a real Ray cluster of two nodes: a killed node, a killed worker, a deadly file."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import CLIPS

import deltakwt as package
from deltakwt.archive import plan
from deltakwt.archive.pool import SearchFailed
from deltakwt.archive.search import search_archive
from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.registry import resolve

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'deltakwt[cluster]'")


FILES = [str(path) for path in sorted(CLIPS.glob("*.flac"))]

# Python runs this at its start. A file of this name ends the process that opens it, as a decoder
# that crashes would.
DEADLY = """
import os
opened = os.open
def open_or_end(path, *rest, **more):
    if str(path).endswith("deadly.wav"):
        os._exit(9)
    return opened(path, *rest, **more)
os.open = open_or_end
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One node with one core; its workers have DEADLY."""
    from ray.cluster_utils import Cluster

    start = tmp_path_factory.mktemp("start")
    (start / "sitecustomize.py").write_text(DEADLY)
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(start), path]))
    arguments = {"num_cpus": 1, "include_dashboard": False}
    for left in (2, 1, 0):  # Ray gives a node 30 seconds to start, which a busy machine may miss
        try:
            made = Cluster(initialize_head=True, head_node_args=arguments)
            break
        except Exception:
            if not left:
                raise
    yield made
    made.shutdown()
    os.environ["PYTHONPATH"] = path


def test_a_lost_node_and_a_lost_worker_lose_no_row_and_double_none(
    cluster: Any, trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SHARD_FILES", 10)
    model = package.load(trained)
    files = FILES * 30
    files.append(str(tmp_path / "absent.wav"))
    search_archive(model, files, tmp_path / "here.jsonl", workers=2)
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    done: list[int] = []

    def kill_in_the_middle(_done: float, _total: float) -> None:
        done.append(1)
        if len(done) == 8:
            threading.Thread(target=cluster.remove_node, args=(second, False)).start()
        if len(done) == 16:
            kill_a_worker()

    summary = search_archive(
        model, files, tmp_path / "there.jsonl", ray=cluster.address, progress=kill_in_the_middle
    )
    assert summary.shards > 30
    assert summary.unreadable == 1
    assert len(cluster.list_all_nodes()) == 1
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def kill_a_worker() -> None:
    """Kill a worker of Ray as soon as one is seen that searches."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if (folder / "cmdline").read_bytes().startswith(b"ray::remote_search"):
                    os.kill(int(folder.name), signal.SIGKILL)
                    return
        time.sleep(0.01)
    raise AssertionError("no worker was seen")


def test_a_file_that_ends_its_workers_is_a_row_with_an_error(
    cluster: Any, trained: str, tmp_path: Path
) -> None:
    deadly = shutil.copy(FILES[0], tmp_path / "deadly.wav")
    out = tmp_path / "events.jsonl"
    found = search_archive(
        package.load(trained), [FILES[0], str(deadly), FILES[1]], out, ray=cluster.address
    )
    assert (found.files, found.unreadable) == (3, 1)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["file"] for row in rows if row["error"]] == [str(deadly)]
    assert "the process that read it ended" in rows[-2]["error"]


def test_a_worker_without_the_model_ends_the_search_with_one_line(
    cluster: Any, trained: str, tmp_path: Path
) -> None:
    """The folder goes away after it was loaded here: the workers do not find it."""
    shutil.copytree(resolve(trained), tmp_path / "model")
    model = package.load(tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(SearchFailed, match="a worker failed: on .*no such model"):
        search_archive(model, FILES, tmp_path / "events.jsonl", ray=cluster.address)


def test_no_cluster_is_one_line(trained: str, tmp_path: Path) -> None:
    model = package.load(trained)
    with pytest.raises(SearchFailed, match="--ray 127.0.0.1:1: no cluster answers"):
        search_archive(model, FILES, tmp_path / "a.jsonl", ray="127.0.0.1:1")
    assert not list(tmp_path.iterdir())
    with pytest.raises(DeltakwtError, match="--ray nonsense: not an address"):
        search_archive(model, FILES, tmp_path / "a.jsonl", ray="nonsense")
