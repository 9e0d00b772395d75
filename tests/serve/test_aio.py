"""AsyncSpotter: every kind of source, the event loop stays free, and leaving early is clean."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from conftest import PROJECT
from numpy.typing import NDArray

import deltakwt
from deltakwt import AsyncSpotter, DeltakwtError, Model, Spotter

Sound = NDArray[np.float32]
WORDS = ["yes", "left", "stop"]
EXAMPLES = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "python.md").read_text(), re.S)


def blocks(sound: Sound, size: int = 1_600) -> Iterator[Sound]:
    for start in range(0, len(sound), size):
        yield sound[start : start + size]


async def later(sound: Sound) -> AsyncIterator[tuple[Sound, int]]:
    for block in blocks(sound):
        await asyncio.sleep(0)
        yield block, 16_000


def words(events: list[Any]) -> list[str]:
    return [event.label for event in events]


def test_every_source_gives_the_events_of_a_spotter(model: Model, speech: Sound) -> None:
    spotter = Spotter(model)
    expected = [event for block in blocks(speech) for event in spotter.push(block)]
    expected += spotter.flush()
    assert words(expected) == WORDS

    async def run() -> list[list[Any]]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for block in [*blocks(speech), None]:
            queue.put_nowait(block)
        sources = (later(speech), queue, blocks(speech), list(blocks(speech)))
        return [[e async for e in AsyncSpotter(model, source)] for source in sources]

    assert asyncio.run(run()) == [expected] * 4


def test_a_callback_may_be_a_function_or_a_coroutine_function(model: Model, speech: Sound) -> None:
    received: list[Any] = []

    async def take(event: Any) -> None:
        await asyncio.sleep(0)
        received.append(event)

    async def run() -> None:
        await AsyncSpotter(model, later(speech)).run(received.append)
        await AsyncSpotter(model, later(speech)).run(take)

    asyncio.run(run())
    assert words(received) == WORDS * 2


def test_push_and_flush_at_another_rate(model: Model, speech: Sound) -> None:
    async def run() -> list[Any]:
        async with AsyncSpotter(model, sample_rate=48_000) as spotter:
            events = await spotter.push(soxr.resample(speech, 16_000, 48_000))
            return events + await spotter.flush()

    assert words(asyncio.run(run())) == WORDS


def test_the_event_loop_is_never_blocked(model: Model, speech: Sound) -> None:
    """The model is held up in its thread for 0.3 s a block; the loop goes on ticking."""
    threads = set()

    def slow(_event: Any, _window: Any) -> bool:
        threads.add(threading.current_thread())
        time.sleep(0.3)
        return True

    async def run() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        await AsyncSpotter(model, later(speech), verify=slow).run(lambda event: None)
        ticking.cancel()
        return ticks

    assert asyncio.run(run()) > 20
    assert threading.main_thread() not in threads


def test_leaving_early_closes_the_source(model: Model, speech: Sound) -> None:
    closed = []

    def endless() -> Iterator[Sound]:
        try:
            while True:
                yield from blocks(speech)
        finally:
            closed.append(True)

    async def run() -> None:
        async with AsyncSpotter(model, endless()) as spotter:
            async for event in spotter:
                assert event.label == "yes"
                break
        assert spotter.spotter.stopped
        with pytest.raises(StopAsyncIteration):
            await anext(spotter)

    asyncio.run(run())
    assert closed == [True]


def test_a_cancelled_task_leaves_the_spotter_to_one_thread(model: Model, speech: Sound) -> None:
    inside, most = 0, 0

    def slow(_event: Any, _window: Any) -> bool:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.2)
        inside -= 1
        return True

    async def run() -> list[Any]:
        with ThreadPoolExecutor(4) as pool:
            spotter = AsyncSpotter(model, verify=slow, executor=pool)
            task = asyncio.create_task(spotter.push(speech[: 3 * 16_000]))
            await asyncio.sleep(0.1)
            task.cancel()
            return await spotter.push(speech[3 * 16_000 :])

    assert words(asyncio.run(run())) == WORDS[1:]
    assert most == 1


def test_bad_sources_and_blocks_are_refused(model: Model, speech: Sound) -> None:
    async def run() -> None:
        with pytest.raises(DeltakwtError, match="int is not a source"):
            await anext(AsyncSpotter(model, 7))  # type: ignore[arg-type]
        with pytest.raises(DeltakwtError, match="give a source"):
            aiter(AsyncSpotter(model))
        bad = np.full(1_600, np.nan, np.float32)
        spotter = AsyncSpotter(model, [bad, speech])
        with pytest.raises(DeltakwtError, match="NaN"):
            await anext(spotter)
        assert (await anext(spotter)).label == "yes"  # the stream goes on

    asyncio.run(run())


def test_a_missing_sounddevice_is_named(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)

    async def run() -> None:
        with pytest.raises(DeltakwtError, match=r"pip install '(sounddevice|\.\[listen\])"):
            await anext(AsyncSpotter(model, deltakwt.microphone()))

    asyncio.run(run())


# As much of sounddevice as the microphone needs; it plays the example sentence.
DEVICE = """
import soundfile, threading
from types import SimpleNamespace
class PortAudioError(Exception): pass
default = SimpleNamespace(device=(0, 0))
_found = {"name": "test", "max_input_channels": 1, "default_samplerate": 16000.0}
def _terminate(): pass
def _initialize(): pass
def query_devices(device=None, kind=None): return _found if kind else [_found]
def check_input_settings(**_): pass
class InputStream:
    def __init__(self, callback, blocksize, **_):
        self.blocks = soundfile.blocks("examples/clips/sentence.flac", blocksize=blocksize,
                                       dtype="float32", always_2d=True, fill_value=0)
        self.callback = callback
    def __enter__(self):
        threading.Thread(target=self.play, daemon=True).start()
    def play(self):
        for block in self.blocks: self.callback(block, len(block), None, None)
        for _ in range(40): self.callback(0 * block, len(block), None, None)
    def __exit__(self, *_): pass
"""


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_page_runs(number: int, tmp_path: Path, trained: str) -> None:
    code = EXAMPLES[number]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 14
    (tmp_path / "sounddevice.py").write_text(DEVICE)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code.replace('"kwt-1"', repr(trained))],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    said = {"yes"} if "yes.flac" in code else {"go", "left", "stop"}
    assert said <= set(re.findall(r"[a-z]+", done.stdout)), done.stdout
