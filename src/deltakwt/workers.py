"""Start and end threads and processes so that a signal at any moment is safe: no hang, no orphan.

SIGINT and SIGTERM raise an exception in the main thread. `concurrent.futures` and `Thread.start`
hold locks that are written in Python: an exception in the middle of them leaves a lock locked, and
the program waits for it for ever. Here, threads are started and ended while signals wait, and the
main thread waits only for a `SimpleQueue`, which is written in C.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from deltakwt.locks import signals_deferred

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

PATIENCE = 1.0  # seconds until the threads are looked after

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Yield `function` of every item, in order, computed by threads up to `ahead` items ahead.

    Where the system refuses a thread, there are fewer. An exception of `function` is raised here in
    its turn. Closing the iterator ends the threads after their current items.
    """
    todo: SimpleQueue[Any] = SimpleQueue()
    done: SimpleQueue[Any] = SimpleQueue()

    def work() -> None:
        with suppress(MemoryError):  # not even memory to pass an error on: the thread ends
            while (job := todo.get()) is not None:
                number, item = job
                try:
                    done.put((number, function(item), None))
                except BaseException as error:
                    done.put((number, None, error))

    running: list[Thread] = []
    try:
        with signals_deferred():
            _start(running, work, threads)
        yield from _in_order(running, todo, done, iter(items), ahead)
    finally:
        with signals_deferred():
            _end(running, todo)


def _start(running: list[Thread], work: Callable[[], None], threads: int) -> None:
    for _ in range(threads):
        thread = Thread(target=work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system refuses another thread
            if not running:
                raise
            return
        running.append(thread)


def _in_order(
    running: list[Thread],
    todo: SimpleQueue[Any],
    done: SimpleQueue[Any],
    items: Iterator[Any],
    ahead: int,
) -> Iterator[Any]:
    """Send the items to the threads, and yield the results in the order of the items."""
    finished: dict[int, tuple[Any, BaseException | None]] = {}
    sent = wanted = 0
    while True:
        for item in islice(items, ahead - (sent - wanted)):
            todo.put((sent, item))
            sent += 1
        if wanted == sent:
            return
        while wanted not in finished:
            try:
                number, result, error = done.get(timeout=PATIENCE)
            except Empty:
                if any(thread.is_alive() for thread in running):
                    continue
                raise MemoryError("every thread ended") from None
            finished[number] = result, error
        result, error = finished.pop(wanted)
        wanted += 1
        if error is not None:
            raise error
        yield result


def _end(running: list[Thread], todo: SimpleQueue[Any]) -> None:
    with suppress(Empty):
        while True:
            todo.get_nowait()
    for _ in running:
        todo.put(None)
    for thread in running:
        thread.join()


def start_process(process: BaseProcess) -> None:
    """Start a process that does not see Ctrl-C, which a terminal sends to all its processes.

    Its parent ends it. A signal waits until the process has all that it needs to begin.
    """
    with signals_deferred():
        if sys.platform == "win32":
            process.start()
            return
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # its start, the first time, would unblock SIGINT again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it inherits this
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
