"""Exported folders, built once for all tests that look at them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltakwt.core.setting import FrontEndSetting, Thresholds
from deltakwt.export.build import missing_tools
from deltakwt.export.folder import write_folder
from deltakwt.export.settings import Export
from deltakwt.listen.decision import Decision
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

THRESHOLDS = Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1")
STEADY = FrontEndSetting(smooth=True, floor=2.0)


def export_of(model: str, kind: str, **changes: object) -> Export:
    weights = load_weights(resolve(model))
    values = {
        "name": "test",
        "config": weights.config,
        "tensors": weights.tensors,
        "kind": kind,
        "profile": "test",
        "thresholds": THRESHOLDS,
        "steady": STEADY,
        "decision": Decision(on=0.6, off=0.3),
    }
    return Export(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def needs_host() -> None:
    if missing := missing_tools("host"):
        pytest.skip(missing)


@pytest.fixture(scope="session")
def int8(trained: str) -> Export:
    """A trained model with int8 weights: what most boards get."""
    return export_of(trained, "int8")


@pytest.fixture(scope="session")
def int8_folder(int8: Export, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8") / "out"
    write_folder(int8, folder)
    return folder
