"""The microphone, through sounddevice (PortAudio). Nothing is imported until one is wanted."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.listen.sources import LIVE, Block, SourceLost

SILENT_FOR = 3.0  # seconds without a block: the device is gone, whatever its driver says
HELD = 100  # blocks that wait while the program is busy; more are dropped


class NoMicrophone(SourceLost):
    """No device, or none that lets us in."""

    exit_code = 2


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ImportError:
        raise MissingExtra("listening to a microphone", "listen") from None
    except OSError:  # the Python part is there, the C library is not
        raise DeltakwtError(
            "listening to a microphone needs the PortAudio library:"
            " apt install libportaudio2 (or brew install portaudio)"
        ) from None
    return sounddevice


def devices() -> list[dict[str, Any]]:
    """The input devices: number, name, channels, rate, and which one is the default."""
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
    """Blocks of a device (number, part of a name, or None for the default) until it is lost."""
    sound = _sounddevice()
    # PortAudio lists the devices once; only a fresh start sees one that was plugged in since.
    sound._terminate()
    sound._initialize()
    rate = _rate(sound, device)
    waiting: queue.Queue[Any] = queue.Queue(HELD)

    def take(block: Any, _frames: int, _time: Any, _status: Any) -> None:
        """Runs in PortAudio's thread."""
        if not waiting.full():
            waiting.put_nowait(block[:, 0].copy())

    try:
        with sound.InputStream(
            samplerate=rate,
            blocksize=round(LIVE * rate),
            device=device,
            channels=1,
            dtype="float32",
            callback=take,
        ):
            while True:
                yield waiting.get(timeout=SILENT_FOR), rate
    except queue.Empty:
        raise SourceLost(f"{_named(device)} gives no more sound") from None
    except sound.PortAudioError as error:
        raise SourceLost(f"{_named(device)} cannot be opened: {_reason(error)}") from error


def _rate(sound: Any, device: str | int | None) -> int:
    """16 kHz where the device has it, so that nothing is resampled; else its own rate."""
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
