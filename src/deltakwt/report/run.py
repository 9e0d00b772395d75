"""What the sections of a report share: the model, the clips, the thresholds, and runs made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.engine import Batch
from deltakwt.core.model import Model
from deltakwt.core.setting import PLAIN, FrontEndSetting, Thresholds
from deltakwt.report import paper
from deltakwt.report.sample import Sample

PAPER = Thresholds.parse(paper.THRESHOLDS)
WHOLE = Thresholds.parse(f"{paper.THRESHOLDS}_0.3_0.1")  # ours: the MLP, too
CHUNK = 256  # clips between two steps of the progress bar

Step = Callable[[int], None]
Remember = Callable[[str, Callable[[], dict[str, Any]]], dict[str, Any]]  # name, how to get it


@dataclass(frozen=True)
class Setting:
    """The thresholds a report looks at closely, and the front end they belong to."""

    name: str
    thresholds: Thresholds
    front_end: FrontEndSetting = PLAIN


@dataclass
class Run:
    """One report in the making."""

    model: Model
    sample: Sample
    chosen: Setting
    threads: int = 0
    step: Step = lambda clips: None
    remember: Remember = lambda name, compute: compute()
    _batches: dict[tuple[Thresholds | None, FrontEndSetting], Batch] = field(default_factory=dict)

    def batch(self, thresholds: Thresholds | None, front_end: FrontEndSetting = PLAIN) -> Batch:
        """Every clip at these thresholds; computed once."""
        key = (thresholds, front_end)
        if key not in self._batches:
            self._batches[key] = self._compute(thresholds, self.sample.features(front_end))
        return self._batches[key]

    def _compute(self, thresholds: Thresholds | None, features: NDArray[np.float32]) -> Batch:
        parts = []
        for start in range(0, len(features), CHUNK):
            chunk = features[start : start + CHUNK]
            parts.append(self.model.engine.batch(chunk, thresholds, threads=self.threads))
            self.step(len(chunk))
        logits = np.concatenate([part.logits for part in parts])
        if thresholds is None:
            return Batch(logits, None, None)
        macs = [part.macs for part in parts if part.macs is not None]
        nonzeros = [part.nonzeros for part in parts if part.nonzeros is not None]
        return Batch(logits, np.concatenate(macs), np.concatenate(nonzeros))

    def accuracy(self, logits: NDArray[np.float32], silence: str) -> float | None:
        """Percent, silence counted as "zero" or "noise"; None if no noise was recorded."""
        sample = self.sample
        if silence == "noise" and not sample.is_noise.any():
            return None
        weights = sample.weights(silence)
        right = logits.argmax(axis=1) == sample.targets
        return float(100 * (weights * right).sum() / weights.sum())

    def group_accuracy(self, logits: NDArray[np.float32], group: NDArray[np.bool_]) -> float | None:
        """Percent right within a group of clips."""
        if not group.any():
            return None
        right = logits.argmax(axis=1) == self.sample.targets
        return float(100 * right[group].mean())

    def example(self, label: str) -> int:
        """The first clip of a class that the dense model gets right (else its first clip)."""
        mine = np.array([clip.label == label for clip in self.sample.clips])
        mine &= ~self.sample.is_noise  # the paper's silence is digital
        right = self.batch(None).logits.argmax(axis=1) == self.sample.targets
        found = np.flatnonzero(mine & right)
        found = found if len(found) else np.flatnonzero(mine)
        return int(found[0])

    @property
    def word(self) -> str:
        """The word of the heat maps: the paper's, if this model and these clips have it."""
        present = [
            c.label for c, word in zip(self.sample.clips, self.sample.is_word, strict=True) if word
        ]
        words = [label for label in present if not label.startswith("_")] or present
        return paper.WORD if paper.WORD in words else words[0]

    @property
    def layer(self) -> int:
        """The layer of the heat maps, counted from zero."""
        return min(paper.LAYER, self.model.config.layers) - 1
