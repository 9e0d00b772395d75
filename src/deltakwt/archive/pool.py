"""Workers on this machine: one process per core, each with the model in memory.

A process that ends by itself (killed, out of memory, a decoder that crashes on a file) costs its
shard, which is done again. A file with which two processes have ended becomes a row with an error.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from deltakwt.archive.plan import Document, Shard
from deltakwt.archive.shard import Task, search_files
from deltakwt.core.errors import DeltakwtError
from deltakwt.locks import signals_deferred
from deltakwt.workers import start_process

DEATHS = 2  # of processes in the same file, until the file is given up

Finished = tuple[Shard, list[Document]]


def search_here(task: Task, shards: Iterator[Shard], workers: int) -> Iterator[Finished]:
    """Yield the rows of every shard, in the order in which they are finished."""
    pool = _Pool(task)
    try:
        for shard in shards:
            while len(pool.busy) == workers:
                yield from pool.collect()
            pool.start(_Job(shard))
        while pool.busy:
            yield from pool.collect()
    finally:
        pool.close()


class SearchFailed(DeltakwtError):
    """The run failed, although its input is right."""

    exit_code = 1


class _Job:
    """A shard, the file that is open now, and the files that have ended processes."""

    def __init__(self, shard: Shard) -> None:
        self.shard, self.current = shard, -1
        self.deaths: dict[int, int] = {}
        self.known: dict[int, str] = {}

    def died(self, code: int | None) -> None:
        """Note that the process of this job has ended."""
        count = self.deaths[self.current] = self.deaths.get(self.current, 0) + 1
        reason = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        if self.current < 0 and count > DEATHS:  # before it opened a file
            raise SearchFailed(f"worker processes end as soon as they start ({reason})")
        if self.current >= 0 and count >= DEATHS:
            file = self.shard.files[self.current]
            self.known[self.current] = f"{file}: the process that read it ended ({reason})"
        self.current = -1


class _Pool:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.context = multiprocessing.get_context("spawn")  # no state of this process
        self.idle: list[tuple[BaseProcess, Connection]] = []
        self.busy: dict[Connection, tuple[BaseProcess, _Job]] = {}

    def start(self, job: _Job) -> None:
        with signals_deferred():  # a worker that has started is known to `close`
            process, connection = self.idle.pop() if self.idle else self._worker()
            self.busy[connection] = process, job
        with suppress(OSError):  # it has ended while it was idle: `collect` sees that
            connection.send((job.shard.files, job.known))

    def _worker(self) -> tuple[BaseProcess, Connection]:
        here, there = self.context.Pipe()
        process = self.context.Process(target=_work, args=(self.task, there), daemon=True)
        start_process(process)
        there.close()
        return process, here

    def collect(self) -> Iterator[Finished]:
        """Wait for messages of workers, and yield what they have finished."""
        for connection in wait(list(self.busy)):
            assert isinstance(connection, Connection)
            process, job = self.busy[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                del self.busy[connection]
                process.join()
                job.died(process.exitcode)
                self.start(job)
                continue
            if isinstance(message, int):
                job.current = message
                continue
            del self.busy[connection]
            self.idle.append((process, connection))
            yield job.shard, message

    def close(self) -> None:
        """End all workers at once; what they were doing is lost."""
        workers = [process for process, _ in self.idle]
        workers += [process for process, _ in self.busy.values()]
        for process in workers:
            process.kill()
        for process in workers:
            process.join()


def _work(task: Task, connection: Connection) -> None:
    """Search shards until the parent is gone. The parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    model = task.model()
    while True:
        try:
            files, known = connection.recv()
        except EOFError:
            return
        connection.send(search_files(model, files, connection.send, known))
