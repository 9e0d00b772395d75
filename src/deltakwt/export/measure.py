"""The exported folder measured: an emulated Cortex-M7, and accuracy on a data set."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import SILENCE, UNKNOWN
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.data import speech_commands as dataset
from deltakwt.export.build import Host, Report, make, run_board
from deltakwt.export.settings import Export

BOARD = "cortex-m7"
Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Measured:
    """The figures of the reach table."""

    board: str
    ram: int  # static, bytes
    stack: int  # deepest, bytes
    flash: int
    word: float  # instructions, dense over delta, means over the clips
    noise: float
    silence: float
    word_instructions: int  # of a delta inference
    noise_instructions: int
    silence_instructions: int
    dense_instructions: int
    front_end_instructions: int  # of one second
    board_clips: int
    bit_equal: int  # clips whose logits have the same bits as on this machine
    same_label: int
    accuracy_clips: int
    accuracy: dict[str, float]  # float and exported, dense and delta

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def samples_of(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.rint(sound * 32768).clip(-32768, 32767).astype(np.int16)


def measure(
    export: Export, folder: Path, data: Path, clips: int, limit: int | None, progress: Progress
) -> Measured:
    """`clips` words and as many noises run on the board; `limit` clips for the accuracy."""
    report, host = _on_board(export, folder, data, clips)
    sizes = dict(line.split() for line in make(folder, f"size-{BOARD}").splitlines())
    groups = {
        kind: [clip for clip in report.clips if clip.name.rsplit("/", 1)[-1].startswith(kind)]
        for kind in ("word-", "noise-", "silence")
    }
    mean = {kind: int(np.mean([clip.delta for clip in group])) for kind, group in groups.items()}
    dense = int(np.mean([clip.dense for clip in report.clips]))
    pairs = list(zip(report.clips, host.clips, strict=True))
    accuracy, counted = _accuracy(export, folder, data, limit, progress)
    return Measured(
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
        sum(a.label == b.label for a, b in pairs),
        counted,
        accuracy,
    )


def _on_board(export: Export, folder: Path, data: Path, count: int) -> tuple[Report, Report]:
    """The same clips on the emulated board and on this machine."""
    manifest = dataset.draw(data, split="test", silence="noise", labels=export.config.labels)
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
                files[-1].write_bytes(samples_of(dataset.read(manifest, clip)).tobytes())
        return run_board(folder, BOARD, files), run_board(folder, "host", files)


def _accuracy(
    export: Export, folder: Path, data: Path, limit: int | None, progress: Progress
) -> tuple[dict[str, float], int]:
    """Share of clips named rightly: float weights on the engine, exported ones as exported."""
    manifest = dataset.draw(
        data, split="test", silence="zero", labels=export.config.labels, limit=limit
    )
    engine = Engine(export.config, export.tensors)
    host = Host(folder, len(export.config.labels))
    modes = ("dense",) if export.thresholds is None else ("dense", "delta")
    right = {f"{side} {mode}": 0 for side in ("float", "exported") for mode in modes}
    count = 0
    for group, sounds in dataset.batches(manifest, 64, 1, lambda failed: None):
        true = np.array([export.config.labels.index(clip.label) for clip in group])
        for mode in modes:
            thresholds = export.thresholds if mode == "delta" else None
            found = engine.batch(sounds, thresholds=thresholds, front_end=export.front_end).logits
            right[f"float {mode}"] += int((found.argmax(axis=1) == true).sum())
            dense = mode == "dense"
            found = np.stack([host.clip(samples_of(sound), dense) for sound in sounds])
            right[f"exported {mode}"] += int((found.argmax(axis=1) == true).sum())
        count += len(group)
        progress(count, len(manifest.clips))
    return {way: hits / count for way, hits in right.items()}, count
