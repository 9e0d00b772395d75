"""A search from its inputs to its result: plan, workers, rows, and where an earlier run stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deltakwt.archive.cluster import check_cluster, search_on_cluster
from deltakwt.archive.output import check_output, write_output
from deltakwt.archive.plan import VERSION, Document, Shard, Work, find_files
from deltakwt.archive.pool import search_here
from deltakwt.archive.shard import Task
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.listen.spotter import decision_of

Progress = Callable[[float, float], None]  # bytes done, bytes in all


@dataclass
class Summary:
    """What a search has found."""

    out: Path
    files: int = 0
    words: int = 0
    unreadable: int = 0
    hours: float = 0.0  # of sound
    elapsed: float = 0.0  # seconds of this run
    resumed: int = 0  # shards of an earlier run
    shards: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # by word

    def to_json(self) -> Document:
        """Return the summary for --json."""
        return {**vars(self), "out": str(self.out)}


def search_archive(
    model: Model,
    inputs: list[str],
    out: Path,
    *,
    workers: int = 0,
    ray: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Find the words in all files that the inputs mean, and write them to `out`.

    0 workers means one per core. An interrupted search goes on with the same call.
    """
    check_output(out)
    if ray is not None:
        check_cluster(ray)
    if model.source is None:
        raise DeltakwtError(f"model {model.name}: made in memory; save it as a folder first")
    task = Task(model.source, model.name, model.setting, model.arithmetic)
    identity = {
        "version": VERSION,
        "inputs": inputs,
        "model": [model.name, model.source],
        "setting": str(model.setting),
        "decision": decision_of(model).to_json(),
    }
    begun = time.monotonic()
    work = Work(out)
    with work.opened(identity, find_files(inputs)):
        if not work.files:
            work.remove()
            raise DeltakwtError("no sound files were found; give folders, files or a list of them")
        waiting = _Waiting(work, progress)
        for shard, rows in _finished(task, waiting, workers, ray):
            work.finish(shard, rows)
            waiting.count(shard)
        summary = Summary(out, resumed=waiting.resumed, shards=work.shards)
        write_output(out, _counted(work, summary))
        summary.elapsed = time.monotonic() - begun
        work.remove()
    return summary


def _finished(
    task: Task, shards: Iterator[Shard], workers: int, ray: str | None
) -> Iterable[tuple[Shard, list[Document]]]:
    if ray is not None:
        return search_on_cluster(task, shards, ray)
    return search_here(task, shards, workers or os.cpu_count() or 1)


class _Waiting(Iterator[Shard]):
    """The shards that are still to be done. Those of an earlier run only count as done."""

    def __init__(self, work: Work, progress: Progress) -> None:
        self.work, self.progress = work, progress
        self.planned = work.planned()
        self.resumed = self.done = 0

    def __next__(self) -> Shard:
        for shard in self.planned:
            if not self.work.is_done(shard):
                return shard
            self.resumed += 1
            self.count(shard)
        raise StopIteration

    def count(self, shard: Shard) -> None:
        self.done += shard.bytes
        self.progress(self.done, self.work.bytes)


def _counted(work: Work, summary: Summary) -> Iterator[Document]:
    """Yield all rows in the order of the files, and add them up."""
    last = None
    summary.files = work.files
    for number in range(work.shards):
        for row in work.rows(number):
            if row["file"] != last:  # the rows of one file follow each other
                last = row["file"]
                summary.hours += (row["seconds"] or 0.0) / 3600
            summary.unreadable += row["error"] is not None
            if word := row["word"]:
                summary.words += 1
                summary.counts[word] = summary.counts.get(word, 0) + 1
            yield row
