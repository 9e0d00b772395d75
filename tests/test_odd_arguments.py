"""Values of every wrong kind for every argument of the Python interface.

Each call is accepted or raises `DeltakwtError` with a message of one line: never another exception.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltakwt
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.native import FrontEnd
from deltakwt.core.setting import FrontEndSetting, Setting, Thresholds
from deltakwt.listen import Decision, Spotter

ODD: list[Any] = [
    None, True, 0, -1, 2**70, 10**400, 1.5, float("nan"), float("inf"), "x", "", b"x", "\0",
    "a\nb", [], [[1], [1, 2]], {}, {1}, (1,), range(3), object(), int, lambda: 0, Path("/x"),
    np.array(1.0), np.array([]), np.zeros((2, 3, 4)), np.array(["a"]), np.array([None]),
    np.zeros(5, complex),
]  # fmt: skip
CLIP = np.zeros(16_000, np.float32)
FEATURES = np.zeros((98, 40), np.float32)


def calls_of_a_model(model: Model) -> dict[str, Callable[[Any], object]]:
    engine = model.engine
    return {
        "call": model,
        "sample_rate": lambda odd: model(CLIP, odd),
        "setting": lambda odd: model(CLIP, setting=odd),
        "spot": model.spot,
        "spot sample_rate": lambda odd: model.spot(CLIP, odd),
        "batch": engine.batch,
        "batch setting": lambda odd: engine.batch(CLIP[None], odd),
        "batch threads": lambda odd: engine.batch(CLIP[None], threads=odd),
        "dense": engine.dense,
        "delta": lambda odd: engine.delta(FEATURES, odd),
        "features": engine.features,
        "front end": lambda odd: engine.features(CLIP, odd),
        "push": lambda odd: Spotter(model).push(odd),
        "push rate": lambda odd: Spotter(model).push(CLIP, odd),
        "sound": lambda odd: Spotter(model).sound(odd, 100),
        "decision": lambda odd: Spotter(model, decision=odd),
        "verify": lambda odd: Spotter(model, verify=odd),
    }


def other_calls() -> dict[str, Callable[[Any], object]]:
    return {
        "load": deltakwt.load,
        "arithmetic": lambda odd: deltakwt.load("kwt-1", arithmetic=odd),
        "spotter": Spotter,
        "frontend": FrontEnd,
        "frontend batch": lambda odd: FrontEnd().batch(odd),
        "frontend threads": lambda odd: FrontEnd().batch(CLIP[None], threads=odd),
        "stream": lambda odd: FrontEnd().stream(odd),
        "stream push": lambda odd: FrontEnd().stream().push(odd),
        "thresholds": Thresholds.parse,
        "threshold": lambda odd: Thresholds(x=odd),
        "smooth": FrontEndSetting,
        "floor": lambda odd: FrontEndSetting(True, odd),
        "quantile": lambda odd: FrontEndSetting(True, 1.0, odd),
        "setting thresholds": Setting,
        "setting front end": lambda odd: Setting(None, odd),
        **{
            f"decision {one.name}": lambda odd, name=one.name: Decision(**{name: odd})
            for one in fields(Decision)
        },
    }


def refusal(call: Callable[[Any], object], odd: object) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy about odd casts
            call(odd)
    except DeltakwtError as error:
        return str(error)
    return None


def check(name: str, call: Callable[[Any], object]) -> None:
    for odd in ODD:
        message = refusal(call, odd)
        assert message is None or len(message.splitlines()) == 1, f"{name} of {odd!r}"


@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
def test_a_model_refuses_in_one_line(trained: str, arithmetic: str) -> None:
    for name, call in calls_of_a_model(deltakwt.load(trained, arithmetic=arithmetic)).items():
        check(name, call)


def test_all_else_refuses_in_one_line() -> None:
    for name, call in other_calls().items():
        check(name, call)
