"""Keyword spotting in streams and files: `Spotter`, its decision rule, and sound sources."""

from deltakwt.listen.decision import Decision, Event
from deltakwt.listen.spotter import SecondStage, Spotter

__all__ = ["Decision", "Event", "SecondStage", "Spotter"]
