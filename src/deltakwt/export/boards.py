"""Build and run an exported folder: on this machine, on emulated boards, and over a data set."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, SILENCE, UNKNOWN
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Setting
from deltakwt.data import speech_commands
from deltakwt.export.folder import int16_samples
from deltakwt.export.model import Export

BOARD = "cortex-m7"  # the board that `measure` uses
Progress = Callable[[float, float], None]  # clips done, clips in all
_ARM = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
}
_RISCV = {"riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf"}
TOOLS = {  # of a board: program and its Debian packages
    "host": {"make": "make", "cc": "gcc"},
    "cortex-m7": _ARM,
    "cortex-m4f": _ARM,
    "cortex-m33": _ARM,
    "cortex-m3": _ARM,
    "rv32": _RISCV | {"qemu-system-riscv32": "qemu-system-misc"},
    "rv64": _RISCV | {"qemu-system-riscv64": "qemu-system-misc"},
}


def missing_tools(board: str) -> str:
    """Return which tools of a board are missing and their Debian packages, or an empty string."""
    wanted = TOOLS["host"] | TOOLS[board]
    missing = {tool: packages for tool, packages in wanted.items() if not which(tool)}
    if not missing:
        return ""
    return f"{', '.join(missing)} missing; on Debian: apt install {' '.join(missing.values())}"


def make(folder: Path, *arguments: str, timeout: float = 1800) -> str:
    """Run `make -s` in the folder and return its output."""
    command = ["make", "-s", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise DeltakwtError(f"{' '.join(command)}: not finished after {timeout} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise DeltakwtError(f"{' '.join(command)}: {words[-1]}")
    return done.stdout


@dataclass(frozen=True)
class BoardClip:
    """The result of one clip on a board."""

    name: str
    label: str
    dense: int  # instructions
    delta: int
    front_end: int
    macs: int
    dense_logits: NDArray[np.int32]
    delta_logits: NDArray[np.int32]


@dataclass(frozen=True)
class BoardReport:
    """The output of the self-test on a board."""

    board: str
    clips: list[BoardClip]
    events: list[str]
    ram: int
    stack: int
    passed: bool


def run_board(folder: Path, board: str, clips: list[Path]) -> BoardReport:
    """Run the self-test and more clips (raw 16-bit samples) on this machine ("host") or a board."""
    if missing := missing_tools(board):
        raise DeltakwtError(missing)
    target = "check" if board == "host" else f"run-{board}"
    names = " ".join(map(str, clips))
    return parse(make(folder, target, f"CLIPS={names}" if names else "CLIPS="))


def parse(text: str) -> BoardReport:
    """Read the output of the self-test."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    logits = {(words[1], words[2]): _integers(words[3:]) for words in lines if words[0] == "logits"}
    clips = [
        _clip(words, logits[words[1], "dense"], logits[words[1], "delta"])
        for words in lines
        if words[0] == "clip"
    ]
    single = {words[0]: words[1] for words in lines if words[0] in ("board", "ram", "stack")}
    return BoardReport(
        single["board"],
        clips,
        [" ".join(words[1:]) for words in lines if words[0] == "event"],
        int(single["ram"]),
        int(single["stack"]),
        ["self-test", "passed"] in lines,
    )


def _clip(words: list[str], dense: NDArray[np.int32], delta: NDArray[np.int32]) -> BoardClip:
    """Read a line "clip NAME label LABEL dense N delta N front_end N macs N of N"."""
    n_dense, n_delta, front_end, macs = (int(words[i]) for i in (5, 7, 9, 11))
    return BoardClip(words[1], words[3], n_dense, n_delta, front_end, macs, dense, delta)


def _integers(words: list[str]) -> NDArray[np.int32]:
    return np.array([int(word, 16) for word in words], np.uint32).view(np.int32)


class _Event(ctypes.Structure):
    _fields_ = (
        ("label", ctypes.c_uint32),
        ("score", ctypes.c_float),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("time", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class BoardEvent:
    """A word that the exported code found; times in samples."""

    label: int
    score: float
    start: int
    end: int
    time: int


class Host:
    """The exported code, built for this machine and called from Python.

    The code has one static state, so a process can use one exported folder at a time.
    """

    def __init__(self, folder: Path, labels: int) -> None:
        if missing := missing_tools("host"):
            raise DeltakwtError(missing)
        make(folder, "shared")
        self._library = ctypes.CDLL(str((folder / "build" / "host" / "libdk.so").resolve()))
        self._library.dk_macs.restype = ctypes.POINTER(ctypes.c_uint32)
        self._library.dk_logits.restype = ctypes.POINTER(ctypes.c_float)
        self._labels = labels

    def clip(self, samples: NDArray[np.int16], dense: bool = False) -> NDArray[np.int32]:
        """Return integer logits (labels,) of one second (16000,), with the setting or dense."""
        if samples.shape != (CLIP_SAMPLES,) or samples.dtype != np.int16:
            raise ValueError("a clip is 16,000 samples of 16 bits")
        logits = np.zeros(self._labels, np.int32)
        self._library.dk_clip_features(_pointer(np.ascontiguousarray(samples)))
        self._library.dk_clip_infer(_pointer(logits), int(dense))
        return logits

    @property
    def macs(self) -> NDArray[np.int64]:
        """The MACs (6,) of the products of the last inference."""
        return np.array(self._library.dk_macs()[:6], np.int64)

    @property
    def logits(self) -> NDArray[np.float32]:
        """The logits (labels,) of the last window of the stream."""
        return np.array(self._library.dk_logits()[: self._labels], np.float32)

    def start(self) -> None:
        """Start a new stream."""
        self._library.dk_init()

    def push(self, samples: NDArray[np.int16]) -> Iterator[BoardEvent]:
        """Push samples of a stream and yield the words that they complete."""
        samples = np.ascontiguousarray(samples, np.int16)
        self._library.dk_push(_pointer(samples), ctypes.c_size_t(len(samples)))
        event = _Event()
        while self._library.dk_result(ctypes.byref(event)):
            yield BoardEvent(event.label, event.score, event.start, event.end, event.time)


def _pointer(array: NDArray[np.int16] | NDArray[np.int32]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


# ---------------------------------------------------------------- measurement


@dataclass(frozen=True)
class BoardMeasurement:
    """Memory, instructions and accuracy of an export: the rows of the table of `--measure`."""

    board: str
    ram: int  # static, bytes
    stack: int  # deepest, bytes
    flash: int
    word: float  # dense instructions divided by delta instructions, means over the clips
    noise: float
    silence: float
    word_instructions: int  # of a delta inference
    noise_instructions: int
    silence_instructions: int
    dense_instructions: int
    front_end_instructions: int  # of one second
    board_clips: int
    bit_equal: int  # clips whose logits have the same bits as on this machine
    library_equal: int  # of the clips for the accuracy: logits with the bits of the library
    accuracy_clips: int
    accuracy: dict[str, float]  # float and exported, dense and delta

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    export: Export,
    folder: Path,
    data: Path,
    clips: int,
    limit: int | None,
    progress: Progress,
) -> BoardMeasurement:
    """Run `clips` words and as many noises on the board, and `limit` clips for the accuracy."""
    report, host = _on_board(export, folder, data, clips)
    sizes = dict(line.split() for line in make(folder, f"size-{BOARD}").splitlines())
    groups = {
        kind: [clip for clip in report.clips if clip.name.rsplit("/", 1)[-1].startswith(kind)]
        for kind in ("word-", "noise-", "silence")
    }
    mean = {kind: int(np.mean([clip.delta for clip in group])) for kind, group in groups.items()}
    dense = int(np.mean([clip.dense for clip in report.clips]))
    pairs = list(zip(report.clips, host.clips, strict=True))
    accuracy, equal, counted = _accuracy(export, folder, data, limit, progress)
    return BoardMeasurement(
        report.board,
        report.ram,
        report.stack,
        int(sizes["flash"]),
        dense / mean["word-"],
        dense / mean["noise-"],
        dense / mean["silence"],
        mean["word-"],
        mean["noise-"],
        mean["silence"],
        dense,
        int(np.mean([clip.front_end for clip in report.clips])),
        len(report.clips),
        sum(
            np.array_equal(a.dense_logits, b.dense_logits)
            and np.array_equal(a.delta_logits, b.delta_logits)
            for a, b in pairs
        ),
        equal,
        counted,
        accuracy,
    )


def _on_board(
    export: Export, folder: Path, data: Path, count: int
) -> tuple[BoardReport, BoardReport]:
    """Run the same clips on the emulated board and on this machine."""
    manifest = speech_commands.draw(
        data, split="test", silence="noise", labels=export.config.labels
    )
    groups = {
        "word": [c for c in manifest.clips if c.label not in (SILENCE, UNKNOWN)],
        "noise": [c for c in manifest.clips if c.label == SILENCE],
    }
    with tempfile.TemporaryDirectory(prefix="dk") as place:
        files = []
        for kind, found in groups.items():
            if not found:
                raise DeltakwtError(f"{data}: holds no {kind} to measure with")
            step = max(1, len(found) // count)
            for number, clip in enumerate(found[::step][:count]):
                files.append(Path(place) / f"{kind}-{number}")
                files[-1].write_bytes(int16_samples(speech_commands.read(manifest, clip)).tobytes())
        return run_board(folder, BOARD, files), run_board(folder, "host", files)


def _accuracy(
    export: Export,
    folder: Path,
    data: Path,
    limit: int | None,
    progress: Progress,
) -> tuple[dict[str, float], int, int]:
    """Return the accuracy of the float engine and of the exported code, and its clips.

    In between: the number of clips whose logits have the bits of the library's engine.
    """
    manifest = speech_commands.draw(
        data, split="test", silence="zero", labels=export.config.labels, limit=limit
    )
    engine = Engine(export.config, export.tensors, name=export.name)
    fixed, host = export.engine(), Host(folder, len(export.config.labels))
    modes = {"dense": Setting(front_end=export.setting.front_end)}
    if export.setting.thresholds is not None:
        modes["delta"] = export.setting
    right = {f"{side} {mode}": 0 for side in ("float", "exported") for mode in modes}
    count = equal = 0
    for group, sounds in speech_commands.batches(manifest, 64, 1, lambda failed: None):
        true = np.array([export.config.labels.index(clip.label) for clip in group])
        same = np.ones(len(group), np.bool_)
        samples = [int16_samples(sound) for sound in sounds]
        floats = np.stack(samples).astype(np.float32) / 32768
        for mode, setting in modes.items():
            found = engine.batch(sounds, setting).logits
            right[f"float {mode}"] += int((found.argmax(axis=1) == true).sum())
            exported = np.stack([host.clip(clip, mode == "dense") for clip in samples])
            right[f"exported {mode}"] += int((exported.argmax(axis=1) == true).sum())
            rounded = (exported * 2.0**-fixed.weights.head_bits).astype(np.float32)
            same &= (fixed.batch(floats, setting).logits == rounded).all(axis=1)
        equal += int(same.sum())
        count += len(group)
        progress(count, len(manifest.clips))
    return {way: hits / count for way, hits in right.items()}, equal, count
