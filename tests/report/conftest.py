"""One report for all tests here: a trained model on a few clips of the official test set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report.made import LIMIT, Report

from deltakwt import load
from deltakwt.report.build import ReportRequest, write
from deltakwt.report.page import TENSORS


@pytest.fixture(scope="session")
def clips(request: pytest.FixtureRequest) -> Path:
    """The official test set, or one in its layout made of our own clips."""
    try:
        shared: Path = request.getfixturevalue("shared")
    except pytest.skip.Exception:
        made: Path = request.getfixturevalue("test_set")
        return made
    return shared / "data" / "speech_commands_test_set_v0.02"


@pytest.fixture(scope="session")
def report(trained: str, clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report") / "out"
    model = load(trained, arithmetic="float")
    write(model, ReportRequest(clips, folder, limit=LIMIT, clips=3, threads=2))
    document = json.loads((folder / "report.json").read_text())
    for name, tensors in json.loads((folder / "tensors.json").read_text()).items():
        document[name][TENSORS] = tensors
    return Report(folder, document, (folder / "report.html").read_text())
