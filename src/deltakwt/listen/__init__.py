"""Continuous spotting: words in sound that has no end."""

from deltakwt.listen.decision import Decision
from deltakwt.listen.spotter import Detection, Spotter, confirm_with

__all__ = ["Decision", "Detection", "Spotter", "confirm_with"]
