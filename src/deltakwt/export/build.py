"""Run the exported folder's Makefile, and the exported code on this machine."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.errors import DeltakwtError

BOARDS = ("cortex-m7", "cortex-m4f", "rv32", "rv64")
_ARM = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
}
_RISCV = {"riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf"}
TOOLS = {  # of a board: program -> Debian packages
    "host": {"make": "make", "cc": "gcc"},
    "cortex-m7": _ARM,
    "cortex-m4f": _ARM,
    "rv32": _RISCV | {"qemu-system-riscv32": "qemu-system-misc"},
    "rv64": _RISCV | {"qemu-system-riscv64": "qemu-system-misc"},
}


def missing_tools(board: str) -> str:
    """Empty, or what is not installed and how Debian calls it."""
    wanted = TOOLS["host"] | TOOLS[board]
    missing = {tool: packages for tool, packages in wanted.items() if not which(tool)}
    if not missing:
        return ""
    return f"{', '.join(missing)} missing; on Debian: apt install {' '.join(missing.values())}"


def make(folder: Path, *arguments: str, timeout: float = 1800) -> str:
    """`make -s ...` in the folder -> what it printed."""
    command = ["make", "-s", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise DeltakwtError(f"{' '.join(command)}: still not done after {timeout} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise DeltakwtError(f"{' '.join(command)}: {words[-1]}")
    return done.stdout


@dataclass(frozen=True)
class Clip:
    """What a board says of one clip."""

    name: str
    label: str
    dense: int  # instructions
    delta: int
    front_end: int
    macs: int
    full_macs: int
    dense_logits: NDArray[np.float32]
    delta_logits: NDArray[np.float32]


@dataclass(frozen=True)
class Report:
    """What a board prints."""

    board: str
    clips: list[Clip]
    events: list[str]
    ram: int
    stack: int
    passed: bool


def run_board(folder: Path, board: str, clips: list[Path]) -> Report:
    """Boot the self-test, with more clips (raw 16-bit samples), on this machine or a board."""
    if missing := missing_tools(board):
        raise DeltakwtError(missing)
    target = "check" if board == "host" else f"run-{board}"
    names = " ".join(map(str, clips))
    return parse(make(folder, target, f"CLIPS={names}" if names else "CLIPS="))


def parse(text: str) -> Report:
    """The self-test's lines as numbers."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    logits = {(words[1], words[2]): _floats(words[3:]) for words in lines if words[0] == "logits"}
    clips = [
        _clip(words, logits[words[1], "dense"], logits[words[1], "delta"])
        for words in lines
        if words[0] == "clip"
    ]
    single = {words[0]: words[1] for words in lines if words[0] in ("board", "ram", "stack")}
    return Report(
        single["board"],
        clips,
        [" ".join(words[1:]) for words in lines if words[0] == "event"],
        int(single["ram"]),
        int(single["stack"]),
        ["self-test", "passed"] in lines,
    )


def _clip(words: list[str], dense: NDArray[np.float32], delta: NDArray[np.float32]) -> Clip:
    """A line "clip NAME label LABEL dense N delta N front_end N macs N of N"."""
    n_dense, n_delta, front_end, macs, full = (int(words[i]) for i in (5, 7, 9, 11, 13))
    return Clip(words[1], words[3], n_dense, n_delta, front_end, macs, full, dense, delta)


def _floats(words: list[str]) -> NDArray[np.float32]:
    return np.array([int(word, 16) for word in words], np.uint32).view(np.float32)


class _Event(ctypes.Structure):
    _fields_ = (
        ("label", ctypes.c_uint32),
        ("score", ctypes.c_float),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("time", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Word:
    """An event of the exported code; times in samples."""

    label: int
    score: float
    start: int
    end: int
    time: int


class Host:
    """The exported code, built for this machine and called from Python. One at a time."""

    def __init__(self, folder: Path, labels: int) -> None:
        if missing := missing_tools("host"):
            raise DeltakwtError(missing)
        make(folder, "shared")
        self._library = ctypes.CDLL(str((folder / "build" / "host" / "libdk.so").resolve()))
        self._library.dk_macs.restype = ctypes.POINTER(ctypes.c_uint32)
        self._labels = labels

    def clip(self, samples: NDArray[np.int16], dense: bool = False) -> NDArray[np.float32]:
        """(16000,) -> (labels,) logits, with the profile or dense."""
        if samples.shape != (CLIP_SAMPLES,) or samples.dtype != np.int16:
            raise ValueError("a clip is 16,000 samples of 16 bits")
        logits = np.zeros(self._labels, np.float32)
        self._library.dk_clip_features(_pointer(np.ascontiguousarray(samples)))
        self._library.dk_clip_infer(_pointer(logits), int(dense))
        return logits

    @property
    def macs(self) -> NDArray[np.int64]:
        """(6,) products of the last inference."""
        return np.array(self._library.dk_macs()[:6], np.int64)

    def start(self) -> None:
        self._library.dk_init()

    def push(self, samples: NDArray[np.int16]) -> Iterator[Word]:
        """Samples of a stream -> the words they complete."""
        samples = np.ascontiguousarray(samples, np.int16)
        self._library.dk_push(_pointer(samples), ctypes.c_size_t(len(samples)))
        event = _Event()
        while self._library.dk_result(ctypes.byref(event)):
            yield Word(event.label, event.score, event.start, event.end, event.time)


def _pointer(array: NDArray[np.int16] | NDArray[np.float32]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)
