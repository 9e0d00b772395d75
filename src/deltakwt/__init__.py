"""Keyword spotting whose compute follows the sound.

>>> import deltakwt, numpy
>>> model = deltakwt.load("kwt-1")
>>> silence = numpy.zeros(16_000)  # or the path of a sound file
>>> result = model(silence)
>>> result.label
'_silence_'
>>> result.macs.model_percent < 5  # of the MACs of the dense model
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltakwt.core.errors import DeltakwtError
    from deltakwt.core.model import Model, Result, load
    from deltakwt.core.setting import FrontEndSetting, Setting, Thresholds
    from deltakwt.listen.aio import AsyncSpotter
    from deltakwt.listen.decision import Event
    from deltakwt.listen.sources import microphone
    from deltakwt.listen.spotter import Spotter, Spotting

__version__ = "0.1.0"
__all__ = [
    "AsyncSpotter",
    "DeltakwtError",
    "Event",
    "FrontEndSetting",
    "Model",
    "Result",
    "Setting",
    "Spotter",
    "Spotting",
    "Thresholds",
    "__version__",
    "load",
    "microphone",
]

_HOMES = {
    "AsyncSpotter": "listen.aio",
    "DeltakwtError": "core.errors",
    "Event": "listen.decision",
    "FrontEndSetting": "core.setting",
    "Model": "core.model",
    "Result": "core.model",
    "Setting": "core.setting",
    "Spotter": "listen.spotter",
    "Spotting": "listen.spotter",
    "Thresholds": "core.setting",
    "load": "core.model",
    "microphone": "listen.sources",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import deltakwt` takes little time."""
    if name not in _HOMES:
        raise AttributeError(f"module 'deltakwt' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"deltakwt.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
