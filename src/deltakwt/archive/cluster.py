"""Workers on a Ray cluster: the same shards, done wherever there is a free core.

Every machine needs deltakwt, the model under the same name and the files under the same paths.
Ray repeats the shard of a lost worker. If a shard fails again and again, its files are done one by
one, and one that still ends its worker becomes a row with an error.
"""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from deltakwt.archive.plan import Document, Shard
from deltakwt.archive.pool import SearchFailed
from deltakwt.archive.shard import Task, search_files
from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.core.model import Model
from deltakwt.text import one_line

RETRIES = 4  # of a shard whose worker or machine was lost
CONNECT_SECONDS = 10.0
AHEAD = 2  # shards that wait, per core of the cluster

Finished = tuple[Shard, list[Document]]


@lru_cache(maxsize=2)
def _model(task: Task) -> Model:
    """Return the model of a task; a worker of the cluster keeps it for the next shard."""
    return task.model()


def remote_search(task: Task, files: tuple[str, ...], known: dict[int, str]) -> list[Document]:
    """Search files on a worker of the cluster."""
    try:
        model = _model(task)
    except DeltakwtError as error:
        raise DeltakwtError(f"on {platform.node()}: {error}") from None
    return search_files(model, files, known=known)


def search_on_cluster(task: Task, shards: Iterator[Shard], address: str) -> Iterator[Finished]:
    """Yield the rows of every shard, in the order in which they are finished."""
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except ValueError as error:
        raise DeltakwtError(f"--ray {address}: not an address: {one_line(error)}") from error
    except (ConnectionError, RuntimeError) as error:
        raise _no_answer(address, error) from error
    try:
        yield from _search(ray, task, shards)
    finally:
        ray.shutdown()


def check_cluster(address: str) -> None:
    """Refuse an address at which nobody listens. Ray itself would try for minutes."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MissingExtra("--ray", "cluster") from None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto": Ray finds the cluster of this machine
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_answer(address, error) from error


def _no_answer(address: str, error: Exception) -> SearchFailed:
    return SearchFailed(f"--ray {address}: no cluster answers there: {one_line(error)}")


def _search(ray: Any, task: Task, shards: Iterator[Shard]) -> Iterator[Finished]:
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(remote_search)
    waiting: dict[Any, Shard] = {}
    more = True
    while more or waiting:
        room = max(1, int(AHEAD * ray.cluster_resources().get("CPU", 1)))
        while more and len(waiting) < room:
            shard = next(shards, None)
            more = shard is not None
            if shard is not None:
                waiting[remote.remote(task, shard.files, {})] = shard
        if not waiting:
            return
        done, _ = ray.wait(list(waiting), num_returns=1)
        shard = waiting.pop(done[0])
        rows = _rows(ray, done[0])
        yield shard, _one_by_one(ray, task, shard) if rows is None else rows


def _one_by_one(ray: Any, task: Task, shard: Shard) -> list[Document]:
    """Return the rows of a shard that ends its workers: each file in a call of its own."""
    remote = ray.remote(num_cpus=1, max_retries=1)(remote_search)
    rows: list[Document] = []
    for file in shard.files:
        found = _rows(ray, remote.remote(task, (file,), {}))
        if found is None:
            reason = f"{file}: the process that read it ended"
            found = ray.get(remote.remote(task, (file,), {0: reason}))
        rows += found
    return rows


def _rows(ray: Any, answer: Any) -> list[Document] | None:
    """Return the rows that a worker sent, or None if the worker was lost and so were its retries.

    A worker that raises an error lacks something: deltakwt, the model, memory for it.
    """
    errors = ray.exceptions
    lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError)
    try:
        rows: list[Document] = ray.get(answer)
        return rows
    except (*lost, errors.OutOfMemoryError):
        return None
    except errors.RayTaskError as error:
        kind = "" if isinstance(error, DeltakwtError) else f"{type(error.cause).__name__}: "
        reason = kind + one_line(error.cause)[:400]
        raise SearchFailed(f"--ray: a worker failed: {reason}") from error
