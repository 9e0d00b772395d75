"""examples/notebook.ipynb runs from top to bottom and shows plausible numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import PROJECT

NOTEBOOK = PROJECT / "examples" / "notebook.ipynb"


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'deltakwt[report]'")
    pytest.importorskip("ipykernel", reason="needs ipykernel")
    client = pytest.importorskip("nbclient", reason="needs nbclient")
    nbformat: Any = pytest.importorskip("nbformat", reason="needs nbformat")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(PROJECT)}}
    client.NotebookClient(notebook, timeout=300, resources=resources).execute()
    text = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
    assert "blocks.0.mlp_in.bias" in text
    row = next(line for line in text.splitlines() if line.startswith("yes "))
    assert row.split()[1] == "yes"
    assert 5 < float(row.split()[2].rstrip("%")) < 60
    silence = next(line for line in text.splitlines() if line.startswith("silence"))
    assert float(silence.split()[-1].rstrip("%")) < 5


def test_the_notebook_is_stored_without_results() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
