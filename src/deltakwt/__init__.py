"""Keyword spotting whose compute follows the sound.

>>> import deltakwt
>>> model = deltakwt.load("kwt-1")
>>> model("examples/clips/yes-us.flac").label
'yes'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltakwt.errors import DeltakwtError
    from deltakwt.listen import Spotter  # type: ignore[import-not-found, unused-ignore]
    from deltakwt.model import Event, Model, Result, Spotting, load
    from deltakwt.thresholds import Thresholds

__version__ = "0.1.0"
__all__ = [
    "DeltakwtError",
    "Event",
    "Model",
    "Result",
    "Spotter",
    "Spotting",
    "Thresholds",
    "__version__",
    "load",
]

_HOMES = {
    "DeltakwtError": "errors",
    "Event": "model",
    "Model": "model",
    "Result": "model",
    "Spotter": "listen",
    "Spotting": "model",
    "Thresholds": "thresholds",
    "load": "model",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import deltakwt` stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module 'deltakwt' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"deltakwt.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
