"""Exported folders, written once for all tests that use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltakwt.core.setting import FrontEndSetting, Setting, Thresholds
from deltakwt.export.boards import missing_tools
from deltakwt.export.folder import write_folder
from deltakwt.export.model import Export
from deltakwt.listen.decision import Decision
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import find_scales, resolve

SETTING = Setting(
    Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1"),
    FrontEndSetting(smooth=True, floor=2.0),
    "test",
)


def export_of(model: str, kind: str, **changes: object) -> Export:
    weights = load_weights(resolve(model))
    values = {
        "name": "test",
        "config": weights.config,
        "tensors": weights.tensors,
        "kind": kind,
        "setting": SETTING,
        "decision": Decision(on=0.6, off=0.3, unknown_bias=0.75),
        "scales": find_scales(resolve(model), weights),
    }
    return Export(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def needs_host() -> None:
    if missing := missing_tools("host"):
        pytest.skip(missing)


@pytest.fixture(scope="session")
def int8(trained: str) -> Export:
    """A trained model with int8 weights, as for most boards."""
    return export_of(trained, "int8")


@pytest.fixture(scope="session")
def smallest() -> Export:
    """The smallest model that we ship."""
    return export_of("kwt-0", "int8")


@pytest.fixture(scope="session")
def int8_folder(int8: Export, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8") / "out"
    write_folder(int8, folder)
    return folder
