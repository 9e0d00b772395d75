"""Accuracy, MACs and stored bytes of a model over the clips of a data set."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import Macs
from deltakwt.core.model import Model
from deltakwt.data.speech_commands import Failed, Manifest, batches
from deltakwt.evaluate.counts import DeltaCounts

BATCH = 256  # clips held at once: 16 MB of sound


@dataclass
class Evaluation:
    """The results of a model on the clips of a manifest."""

    labels: tuple[str, ...]
    confusion: NDArray[np.int64]  # (labels, labels): true, predicted
    counts: DeltaCounts
    counts_by_class: dict[str, DeltaCounts]
    seconds: float = 0.0
    failed: list[Failed] = field(default_factory=list)  # clips that could not be read

    @property
    def clips(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.confusion) / self.clips)

    @property
    def macs(self) -> Macs | None:
        """The mean over all clips; None for a dense run."""
        return self.counts.macs

    def to_json(self) -> dict[str, Any]:
        per_class = {}
        for index, label in enumerate(self.labels):
            clips = int(self.confusion[index].sum())
            if clips:
                accuracy = float(self.confusion[index, index] / clips)
                counts = self.counts_by_class[label].to_json()
                per_class[label] = {"accuracy": accuracy, "clips": clips, **counts}
        confusion = {
            label: dict(zip(self.labels, map(int, row), strict=True))
            for label, row in zip(self.labels, self.confusion, strict=True)
        }
        return {
            "accuracy": self.accuracy,
            "clips": self.clips,
            "per_class": per_class,
            "confusion": confusion,
            "seconds": self.seconds,
            **self.counts.to_json(),
        }


def evaluate(
    model: Model,
    manifest: Manifest,
    *,
    threads: int = 0,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Evaluation:
    """Run every clip with the model's setting on `threads` threads; 0 means one per core."""
    labels = model.labels
    known = {label: index for index, label in enumerate(labels)}
    unknown = {clip.label for clip in manifest.clips} - set(known)
    if unknown:
        raise DeltakwtError(
            f"the model has no label {min(unknown)!r}; draw the manifest with its labels"
        )
    result = Evaluation(
        labels,
        np.zeros((len(labels), len(labels)), np.int64),
        DeltaCounts(model.config),
        {label: DeltaCounts(model.config) for label in labels},
    )
    cores = threads or os.cpu_count() or 1
    start = time.perf_counter()
    for clips, sounds in batches(manifest, BATCH, cores, result.failed.append):
        batch = model.engine.batch(sounds, model.setting, threads)
        true = np.array([known[clip.label] for clip in clips])
        np.add.at(result.confusion, (true, batch.logits.argmax(axis=1)), 1)
        if batch.macs is not None and batch.nonzeros is not None:
            result.counts.add(batch.macs, batch.nonzeros)
            for index in np.unique(true):
                mine = true == index
                result.counts_by_class[labels[index]].add(batch.macs[mine], batch.nonzeros[mine])
        progress(result.clips + len(result.failed), len(manifest.clips))
    result.seconds = time.perf_counter() - start
    if not result.clips:
        raise DeltakwtError(f"{manifest.root}: no clip could be read: {result.failed[0][1]}")
    return result
