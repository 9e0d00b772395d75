"""A search on a real Ray cluster of two nodes, one of which is killed in the middle."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import CLIPS

import deltakwt as package
from deltakwt.archive import plan
from deltakwt.archive.search import search_archive
from deltakwt.core.errors import DeltakwtError

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'deltakwt[cluster]'")


@pytest.fixture
def cluster() -> Any:
    from ray.cluster_utils import Cluster

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


def test_a_lost_node_loses_no_row_and_doubles_none(
    cluster: Any, trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SHARD_FILES", 10)
    model = package.load(trained)
    files = [str(path) for path in sorted(CLIPS.glob("*.flac"))] * 30
    files.append(str(tmp_path / "absent.wav"))
    search_archive(model, files, tmp_path / "here.jsonl", workers=2)
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    shards: list[float] = []

    def kill_in_the_middle(done: float, total: float) -> None:
        shards.append(done / total)
        if len(shards) == 8:
            threading.Thread(target=cluster.remove_node, args=(second, False)).start()

    summary = search_archive(
        model, files, tmp_path / "there.jsonl", ray=cluster.address, progress=kill_in_the_middle
    )
    assert summary.shards > 30
    assert summary.unreadable == 1
    assert len(cluster.list_all_nodes()) == 1
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def test_no_cluster_is_one_line(trained: str, tmp_path: Path) -> None:
    with pytest.raises(DeltakwtError, match="--ray 127.0.0.1:1: no cluster answers"):
        search_archive(package.load(trained), [str(CLIPS)], tmp_path / "a.jsonl", ray="127.0.0.1:1")
