"""Counts of delta runs added up over clips, and what they mean on average."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.macs import Macs
from deltakwt.evaluate import storage


class Tally:
    """Executed MACs and kept values of any number of clips."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clips = 0
        self._macs: Any = 0  # (layers, 6)
        self._nonzeros: Any = 0  # (layers, 9)

    def add(self, macs: NDArray[np.int64] | None, nonzeros: NDArray[np.int64] | None) -> None:
        """Counts of n clips, (n, layers, 6) and (n, layers, 9); None for dense runs."""
        if macs is not None and nonzeros is not None:
            self.clips += len(macs)
            self._macs = self._macs + macs.sum(axis=0)
            self._nonzeros = self._nonzeros + nonzeros.sum(axis=0)

    @property
    def macs(self) -> Macs | None:
        """The mean over the clips; None if none was counted."""
        if not self.clips:
            return None
        return Macs(self.config, self._macs / self.clips, self._nonzeros / self.clips)

    @property
    def bytes(self) -> dict[str, Any] | None:
        """Bytes of the delta-encoded tensors, the mean over the clips."""
        return storage.report(self.config, self._nonzeros / self.clips) if self.clips else None

    def to_json(self) -> dict[str, Any]:
        """`macs` and `bytes`; empty for dense runs."""
        macs = self.macs
        return {} if macs is None else {"macs": macs.to_json(), "bytes": self.bytes}
