"""Files, pipes and microphones, and what happens when they fail."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from deltakwt.core.errors import DeltakwtError
from deltakwt.listen import sources as mic
from deltakwt.listen.pcm import SAMPLE_BYTES, Format, SourceLost, read_stream
from deltakwt.listen.sources import Block, paced, read_file, reconnecting

TONE = (0.5 * np.sin(np.arange(8_000) * 0.05)).astype(np.float32)


def joined(blocks: Iterator[Block]) -> tuple[np.ndarray, int]:
    parts = list(blocks)
    return np.concatenate([block for block, _ in parts])[:, 0], parts[0][1]


def encode(kind: str) -> bytes:
    if kind == "f32":
        return TONE.astype("<f4").tobytes()
    if kind == "u8":
        return np.round(TONE * 127 + 128).astype(np.uint8).tobytes()
    bits = 8 * SAMPLE_BYTES[kind]
    wide = np.round(TONE.astype(np.float64) * (2 ** (bits - 1) - 1)).astype("<i4")
    return wide.view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()


@pytest.mark.parametrize("kind", SAMPLE_BYTES)
def test_raw_samples_of_every_kind(kind: str) -> None:
    sound, rate = joined(read_stream(io.BytesIO(encode(kind)), Format(kind, 8_000), 0.1))
    assert rate == 8_000
    np.testing.assert_allclose(sound, TONE, atol=2e-2 if kind == "u8" else 1e-4)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT"])
@pytest.mark.parametrize("kind", ["WAV", "WAVEX"])
def test_a_wav_file_from_a_pipe_is_read_by_its_header(subtype: str, kind: str) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.stack([TONE, TONE], 1), 22_050, subtype, format=kind)
    file.seek(0)
    blocks = list(read_stream(file, Format(), 0.1))
    assert all(block.shape[1] == 2 and rate == 22_050 for block, rate in blocks)
    sound = np.concatenate([block for block, _ in blocks])[: len(TONE), 0]
    np.testing.assert_allclose(sound, TONE, atol=2e-2 if subtype == "PCM_U8" else 1e-4)


class Dribble(io.RawIOBase):
    """A pipe whose writer sends odd numbers of bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.size)
        part, self.data = self.data[:size], self.data[size:]
        return part


def test_a_pipe_that_dribbles_loses_nothing() -> None:
    blocks = read_stream(Dribble(encode("s16"), 13), Format(), 0.1)  # type: ignore[arg-type]
    assert len(joined(blocks)[0]) == len(TONE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"fLaC" + bytes(100), "FLAC cannot be decoded from a pipe"),
        (b"RIFF\0\0\0\0AVI " + bytes(100), "is not one"),
        (b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1", "damaged or cut short"),
        (b"RIFF\0\0\0\0WAVEdata\0\0\0\0", "damaged or cut short"),
        (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff" + bytes(50), "damaged or cut short"),
        (b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x55\0\1\0" + bytes(12), "format 85"),
    ],
)
def test_pipes_that_hold_no_sound(data: bytes, message: str) -> None:
    with pytest.raises(DeltakwtError, match=message):
        list(read_stream(io.BytesIO(data), Format(), 0.1))


@pytest.mark.parametrize("bad", [("s8", 16_000, 1), ("s16", 10, 1), ("s16", 16_000, 0)])
def test_bad_raw_formats(bad: tuple[str, int, int]) -> None:
    with pytest.raises(DeltakwtError):
        Format(*bad)


def test_files_come_in_blocks_of_the_wanted_length(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", TONE, 8_000)
    blocks = list(read_file(str(tmp_path / "a.flac"), 0.3))
    assert [len(block) for block, _ in blocks] == [2400, 2400, 2400, 800]
    with pytest.raises(DeltakwtError, match="no such file"):
        list(read_file(str(tmp_path / "b.wav"), 0.3))
    (tmp_path / "c.wav").write_text("nonsense")
    with pytest.raises(DeltakwtError, match="not readable as sound"):
        list(read_file(str(tmp_path / "c.wav"), 0.3))


def test_real_time_is_kept_even_if_the_reader_is_slow() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        now[0] += seconds

    blocks = ((np.zeros(1_600), 16_000) for _ in range(4))
    for number, _ in enumerate(paced(blocks, lambda: now[0], sleep)):
        now[0] += 0.25 if number == 1 else 0.02  # one stall, caught up with afterwards
    assert slept == [0.1, 0.08, 0.0, 0.0]


class Flaky:
    """Gives two blocks, fails, cannot be opened twice, then is back."""

    def __init__(self) -> None:
        self.opened = 0

    def __call__(self) -> Iterator[Block]:
        self.opened += 1
        if self.opened in (2, 3):
            raise SourceLost("the microphone is gone")
        yield np.zeros(5), 16_000
        if self.opened == 1:
            yield np.zeros(6), 16_000
            raise SourceLost("the microphone is gone")


def test_a_lost_source_comes_back() -> None:
    notices: list[str] = []
    waits: list[float] = []
    flaky = Flaky()
    lengths = [len(b) for b, _ in reconnecting(flaky, notices.append, waits.append, retry=0.5)]
    assert lengths == [5, 6, 5]
    assert flaky.opened == 4
    assert waits == [0.5] * 3
    assert notices == [
        "the microphone is gone; waiting for it to come back",
        "the source is back",
    ]


def test_a_source_that_never_was_is_an_error() -> None:
    def absent() -> Iterator[Block]:
        raise SourceLost("no such thing")
        yield

    with pytest.raises(SourceLost, match="no such thing"):
        list(reconnecting(absent, print, lambda _: None))


class FakeError(Exception):
    pass


class FakeSound(SimpleNamespace):
    """As much of sounddevice as is used."""

    PortAudioError = FakeError

    def __init__(self, *names: str, rates: tuple[int, ...] = (16_000, 48_000)) -> None:
        self.found = [
            {"name": "speaker", "max_input_channels": 0, "default_samplerate": 48_000.0},
            *({"name": n, "max_input_channels": 2, "default_samplerate": 48_000.0} for n in names),
        ]
        self.rates = rates
        self.default = SimpleNamespace(device=(1, 0))
        self.starts = 0
        self.refuse = ""
        self.blocks = 3

    def _terminate(self) -> None:
        pass

    def _initialize(self) -> None:
        self.starts += 1

    def query_devices(self, device: Any = None, kind: str | None = None) -> Any:
        if kind is None:
            return self.found
        if isinstance(device, str):
            matches = [d for d in self.found if device in d["name"]]
            if not matches:
                raise ValueError(f"No input device matching {device!r}")
            return matches[0]
        if device is not None and device >= len(self.found):
            raise FakeError("Error querying device")
        return self.found[1 if device is None else device]

    def check_input_settings(self, samplerate: int, **_: Any) -> None:
        if samplerate not in self.rates:
            raise FakeError("Invalid sample rate")

    def InputStream(self, callback: Any, blocksize: int, **settings: Any) -> Any:  # noqa: N802
        if self.refuse:
            raise FakeError(self.refuse)
        self.settings = settings
        outer = self

        class Stream:
            def __enter__(self) -> None:
                for number in range(outer.blocks):
                    callback(np.full((blocksize, 1), number / 10, np.float32), blocksize, None, 0)

            def __exit__(self, *_: object) -> None:
                pass

        return Stream()


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> FakeSound:
    fake = FakeSound("built-in", "USB headset")
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    monkeypatch.setattr(mic, "SILENT_SECONDS", 0.05)
    return fake


def test_microphones_are_listed(sound: FakeSound) -> None:
    assert [(d["number"], d["name"], d["default"]) for d in mic.devices()] == [
        (1, "built-in", True),
        (2, "USB headset", False),
    ]


def test_a_microphone_gives_blocks_until_it_stalls(sound: FakeSound) -> None:
    stream = mic.microphone("USB")
    blocks = [next(stream) for _ in range(3)]
    assert [(len(block), rate) for block, rate in blocks] == [(1_600, 16_000)] * 3
    assert sound.settings["device"] == "USB"
    with pytest.raises(SourceLost, match="'USB' gives no more sound"):
        next(stream)


def test_a_microphone_without_16_khz_is_taken_at_its_own_rate(sound: FakeSound) -> None:
    sound.rates = (48_000,)
    assert next(mic.microphone())[1] == 48_000


def test_no_microphone_no_such_one_and_no_permission(
    sound: FakeSound, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeltakwtError, match=r"'radio': no such microphone .*--devices"):
        next(mic.microphone("radio"))
    with pytest.raises(DeltakwtError, match="microphone 9: no such microphone"):
        next(mic.microphone(9))
    sound.refuse = "Device unavailable [PaErrorCode -9985]"
    with pytest.raises(SourceLost, match="default microphone cannot be opened: Device unavailable"):
        next(mic.microphone())
    monkeypatch.setitem(sys.modules, "sounddevice", FakeSound())
    with pytest.raises(DeltakwtError, match="no microphone found; plug one in, or allow"):
        next(mic.microphone())


def test_an_unplugged_microphone_comes_back(sound: FakeSound) -> None:
    notices: list[str] = []

    def replug(_seconds: float) -> None:
        sound.refuse = "gone" if sound.starts < 3 else ""

    stream = reconnecting(mic.microphone, notices.append, replug)
    assert len([next(stream) for _ in range(6)]) == 6
    assert sound.starts == 4  # a fresh list of devices at every attempt
    assert notices[0].endswith("waiting for it to come back")
    assert notices[-1] == "the source is back"


def test_a_full_queue_drops_blocks_instead_of_growing(sound: FakeSound) -> None:
    sound.blocks = 5 * mic.MAX_QUEUED
    received: list[Block] = []
    with pytest.raises(SourceLost):
        received.extend(mic.microphone())
    assert len(received) == mic.MAX_QUEUED


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(DeltakwtError, match=r"pip install '(sounddevice|\.\[listen\])"):
        mic.devices()

    class NoLibrary:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "sounddevice":
                raise OSError("PortAudio library not found")

    monkeypatch.delitem(sys.modules, "sounddevice")
    monkeypatch.setattr(sys, "meta_path", [NoLibrary(), *sys.meta_path])
    with pytest.raises(DeltakwtError, match="apt install libportaudio2"):
        mic.devices()
