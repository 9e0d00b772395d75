"""Where sound comes from: files, in real time or fast, and microphones."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import check_whole_wav, open_sound
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.listen.pcm import SourceLost

Block = tuple[NDArray[np.floating[Any]], int]  # (n,) or (n, channels) samples, rate
LIVE_BLOCK = 0.1  # seconds of a block in real time
FAST_BLOCK = 10.0
RETRY_SECONDS = 1.0  # between attempts to open a lost source again
SILENT_SECONDS = 3.0  # without a block: the device is lost, even if its driver does not report it
MAX_QUEUED = 100  # blocks that wait while the program is busy; later ones are dropped


class NoMicrophone(SourceLost):
    """There is no such device, or this program may not use it."""

    exit_code = 2


def read_file(path: str, seconds: float) -> Iterator[Block]:
    """Yield blocks of a sound file at its own rate.

    A WAV file that was cut short raises `SourceLost` where its sound ends.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise DeltakwtError(f"{path}: not a regular file; pipe a stream into: listen --input -")
    with open_sound(path) as file:
        frames = max(1, round(seconds * file.samplerate))
        while len(block := file.read(frames, dtype="float32", always_2d=True)):
            yield block, file.samplerate
        _check_end(path, file)


def _check_end(path: str, file: Any) -> None:
    """Refuse the end of a file that was cut short."""
    try:
        check_whole_wav(path, file)
    except DeltakwtError as error:
        raise SourceLost(str(error)) from None


def paced(
    blocks: Iterable[Block],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Block]:
    """Yield each block at the time at which its sound would end in real time."""
    due = clock()
    for block, rate in blocks:
        due += len(block) / rate
        sleep(max(0.0, due - clock()))
        yield block, rate


def reconnecting(
    connect: Callable[[], Iterator[Block]],
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    retry: float = RETRY_SECONDS,
) -> Iterator[Block]:
    """Yield the blocks of a source that is opened again whenever it is lost.

    An error before the first block is raised: a wrong name stays wrong.
    """
    has_begun, waiting = False, False
    while True:
        try:
            for block in connect():
                if waiting:
                    tell("the source is back")
                has_begun, waiting = True, False
                yield block
            return
        except SourceLost as error:
            if not has_begun:
                raise
            if not waiting:
                tell(f"{error}; waiting for it to come back")
            waiting = True
        sleep(retry)


def _sounddevice() -> Any:
    """Import sounddevice (PortAudio), only when a microphone is wanted."""
    try:
        import sounddevice
    except ImportError:
        raise MissingExtra("listening to a microphone", "listen") from None
    except OSError:  # the Python package is installed, the C library is not
        raise DeltakwtError(
            "listening to a microphone needs the PortAudio library:"
            " apt install libportaudio2 (or brew install portaudio)"
        ) from None
    return sounddevice


def devices() -> list[dict[str, Any]]:
    """Return the input devices: number, name, channels, rate, and which one is the default."""
    sound = _sounddevice()
    default = sound.default.device[0]
    return [
        {
            "number": number,
            "name": str(device["name"]),
            "channels": int(device["max_input_channels"]),
            "rate": int(device["default_samplerate"]),
            "default": number == default,
        }
        for number, device in enumerate(sound.query_devices())
        if device["max_input_channels"] > 0
    ]


def microphone(device: str | int | None = None) -> Iterator[Block]:
    """Yield blocks of a device until it is lost: a number, part of a name, or None (default)."""
    sound = _sounddevice()
    # PortAudio lists the devices once; only a fresh start sees one that was plugged in since.
    sound._terminate()
    sound._initialize()
    rate = _rate(sound, device)
    waiting: queue.Queue[Any] = queue.Queue(MAX_QUEUED)

    def take(block: Any, _frames: int, _time: Any, _status: Any) -> None:
        """Queue a block; runs in PortAudio's thread."""
        if not waiting.full():
            waiting.put_nowait(block[:, 0].copy())

    try:
        with sound.InputStream(
            samplerate=rate,
            blocksize=round(LIVE_BLOCK * rate),
            device=device,
            channels=1,
            dtype="float32",
            callback=take,
        ):
            while True:
                yield waiting.get(timeout=SILENT_SECONDS), rate
    except queue.Empty:
        raise SourceLost(f"{_named(device)} gives no more sound") from None
    except sound.PortAudioError as error:
        raise SourceLost(f"{_named(device)} cannot be opened: {_reason(error)}") from error


def _rate(sound: Any, device: str | int | None) -> int:
    """Return 16 kHz if the device has it, so that nothing is resampled; else its own rate."""
    if not devices():
        raise NoMicrophone(
            "no microphone found; plug one in, or allow this program to use it in the system's"
            " privacy settings, or listen to a file or pipe with --input"
        )
    try:
        found = sound.query_devices(device, "input")
    except (ValueError, sound.PortAudioError) as error:
        raise NoMicrophone(
            f"{_named(device)}: no such microphone ({_reason(error)}); see: listen --devices"
        ) from None
    try:
        sound.check_input_settings(
            device=device, channels=1, dtype="float32", samplerate=SAMPLE_RATE
        )
    except (ValueError, sound.PortAudioError):
        return int(found["default_samplerate"])
    return SAMPLE_RATE


def _named(device: str | int | None) -> str:
    return "the default microphone" if device is None else f"microphone {device!r}"


def _reason(error: Exception) -> str:
    return " ".join(str(error.args[0] if error.args else error).split())
