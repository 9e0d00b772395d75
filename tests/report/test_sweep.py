"""The sweep in a report: its answers, its figure and table, and files that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from report.made import Report

from deltakwt.core.errors import DeltakwtError
from deltakwt.report import build, figures, paper
from deltakwt.report.sections import accuracy, similarity, sweep

SITES = ("x", "q", "k", "scores", "softmax", "heads")


def measured(mhsa: float, loss: float, reach: float = 0.3) -> dict[str, Any]:
    return {
        "accuracy": 97.5 - loss,
        "loss": loss,
        "loss_interval": [loss - reach, loss + reach],
        "mhsa_percent": mhsa,
        "executed_mhsa_percent": mhsa + 3,
        "mcnemar_p": 0.5,
    }


def swept(model: str) -> dict[str, Any]:
    """A sweep.json whose settings lose more the cheaper they are; adjusting gains 0.1 points."""
    front = []
    for number, (mhsa, loss) in enumerate(((40, 0.0), (20, 0.2), (10, 0.9), (7, 3.5), (5, 9.0)), 1):
        thresholds = dict.fromkeys(SITES, 0.1 * number)
        adjusted = {"thresholds": thresholds, "full": measured(mhsa, loss - 0.1)}
        front.append(
            {
                "thresholds": thresholds,
                "subset": {"accuracy": 96.0},
                "full": measured(mhsa, loss),
                "adjusted": adjusted,
            }
        )
    return {
        "model": model,
        "data": {
            "subset": {"name": "s", "clips": 100},
            "full": {"name": "f", "clips": 4890},
            "validation": {"name": "v", "clips": 600},
        },
        "trials": [{}] * 500,
        "seed": 0,
        "command": "deltakwt sweep --data d",
        "machine": {"processor": "p"},
        "dense_accuracy": {"subset": 97.0, "full": 97.5},
        "front": front,
    }


def test_the_cheapest_point_answers_each_loss_of_the_paper() -> None:
    found = sweep.summary(swept("m"))["answers"]
    assert [answer["loss"] for answer in found] == [0.0, 0.1, 1.0, 4.0]
    assert [answer["point"]["mhsa_percent"] for answer in found] == [20, 20, 10, 7]
    assert [answer["paper"]["mhsa_percent"] for answer in found] == [23.7, 20.0, 13.3, 6.35]
    # No loss means that the interval contains zero: 20% loses 0.2 or 0.1 points, plus or minus 0.3.
    assert found[0]["point"]["loss_interval"][0] <= 0
    assert sweep.answers([])[0]["point"] is None


def test_the_figure_is_drawn_from_adjusted_points(tmp_path: Path) -> None:
    own = sweep.summary(swept("m"))
    assert {p["kind"] for p in sweep.final_points(own)} == {"adjusted"}
    figures.save(sweep.figure(own), tmp_path, "small print")
    svg = (tmp_path / "sweep.svg").read_text()
    assert "0.1_0.1_0.1_0.1_0.1_0.1" in svg  # thresholds in the legend
    assert "the paper, KWT-3" in svg
    assert (tmp_path / "sweep.png").stat().st_size > 10_000


def test_what_the_adjustment_changed() -> None:
    own = sweep.summary(swept("m"))
    assert own["adjustment"]["points"] == own["adjustment"]["better"] == 5
    assert own["adjustment"]["mean"] == pytest.approx(0.1)
    assert sweep.adjustment([p for p in own["points"] if p["kind"] == "front"]) is None


def test_the_claims_of_a_report_count_the_settings_of_its_sweep(report: Report) -> None:
    own = sweep.summary(swept(report.document["facts"]["model"]["name"]))
    for point in own["points"]:
        point["mhsa_percent"] /= 10  # now below every multiple of the paper's printed setting
    rows = {row["claim"]: row["here"] for row in paper.claims({**report.document, "sweep": own})}
    assert rows["fewest MHSA MACs without loss"].startswith("2.0% (50.0×)")
    assert rows["fewest MHSA MACs for a loss of at most 4 points"].startswith("0.7%")


def test_a_page_shows_the_sweep_after_the_accuracy(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = dict(report.document)
    monkeypatch.setattr(build, "SECTIONS", (accuracy.SECTION, similarity.SECTION))
    monkeypatch.setattr(figures, "DPI", 40)
    document["sweep"] = sweep.summary(swept(document["facts"]["model"]["name"]))
    build.draw(document, tmp_path)
    page = (tmp_path / "report.html").read_text()
    order = [page.index(f'<section id="{name}"') for name in ("accuracy", "sweep", "similarity")]
    assert order == sorted(order)
    assert len((tmp_path / "sweep.csv").read_text().splitlines()) == 11  # head and 5 points twice


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (swept("other"), "is a sweep of 'other', not of kwt-1"),
        ({"model": "kwt-1", "front": [{}]}, "not a sweep.json"),
        ({"model": "kwt-1"}, "not a sweep.json"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, content: dict[str, Any], message: str
) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(content))
    with pytest.raises(DeltakwtError, match=message):
        sweep.load(tmp_path / "sweep.json", "kwt-1")
