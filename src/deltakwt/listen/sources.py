"""Where sound comes from: files at their own pace or fast, pipes, sources that come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import MAX_CHANNELS
from deltakwt.core.errors import DeltakwtError

Block = tuple[NDArray[np.floating[Any]], int]  # (n,) or (n, channels) samples, rate
LIVE = 0.1  # seconds of a block in real time
FAST = 10.0
RETRY = 1.0  # seconds between attempts to get a lost source back


class SourceLost(DeltakwtError):
    """A live source went away, as a microphone does that is unplugged. It may come back."""

    exit_code = 1


def read_file(path: str, seconds: float) -> Iterator[Block]:
    """Blocks of a sound file at its own rate; a file cut short ends where its sound ends."""
    import soundfile

    try:
        with soundfile.SoundFile(path) as file:
            if not 1 <= file.channels <= MAX_CHANNELS:
                raise DeltakwtError(f"{path}: {file.channels} channels, at most {MAX_CHANNELS}")
            frames = max(1, round(seconds * file.samplerate))
            while len(block := file.read(frames, dtype="float32", always_2d=True)):
                yield block, file.samplerate
    except soundfile.LibsndfileError as error:
        reason = error.error_string.removeprefix("Error : ").strip().rstrip(".")
        if not Path(path).exists():
            reason = "no such file"
        raise DeltakwtError(f"{path}: not readable as sound: {reason}") from error


def paced(
    blocks: Iterable[Block],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Block]:
    """Each block when its sound would be over in real time."""
    due = clock()
    for block, rate in blocks:
        due += len(block) / rate
        sleep(max(0.0, due - clock()))
        yield block, rate


def reconnecting(
    connect: Callable[[], Iterator[Block]],
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    retry: float = RETRY,
) -> Iterator[Block]:
    """A source that is opened again whenever it is lost, once it has given sound.

    An error before the first block is the caller's: a wrong name does not become right.
    """
    heard, waiting = False, False
    while True:
        try:
            for block in connect():
                if waiting:
                    tell("the source is back")
                heard, waiting = True, False
                yield block
            return
        except SourceLost as error:
            if not heard:
                raise
            if not waiting:
                tell(f"{error}; waiting for it to come back")
            waiting = True
        sleep(retry)
