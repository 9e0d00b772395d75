"""Thresholds and front ends as text, as they are given to the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import FrontEndSetting, Thresholds


def read(data: bytes, folder: Path) -> None:
    """Parse the text as both; what is good is printed and parsed again."""
    text = data.decode("utf-8", errors="surrogateescape")
    try:
        front_end = FrontEndSetting.parse(text)
    except DeltakwtError:
        pass
    else:
        FrontEndSetting.parse(str(front_end))
    thresholds = Thresholds.parse(text)
    Thresholds.parse(str(thresholds))
    assert Thresholds.from_json(thresholds.to_json()) == thresholds
    try:
        table = thresholds.array(12)
    except DeltakwtError:  # values for another number of layers
        return
    assert np.isfinite(table).all()
