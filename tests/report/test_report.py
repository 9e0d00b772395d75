"""The report's numbers and files."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from report.made import FIGURES, LIMIT, TABLES, Report

from deltakwt import load
from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.plotting import pyplot
from deltakwt.report import build, paper
from deltakwt.report.build import FinishedParts, ReportRequest, write
from deltakwt.report.page import Section
from deltakwt.report.sections import accuracy, theory, timing
from deltakwt.report.sections import clips as clips_section


def test_every_figure_is_a_png_and_an_svg(report: Report) -> None:
    for name in FIGURES:
        with Image.open(report.folder / f"{name}.png") as image:
            assert image.width > 400, name
            assert len(image.getcolors(256) or []) > 8, name  # not an empty canvas
        root = ElementTree.fromstring((report.folder / f"{name}.svg").read_text())
        small_print = "".join(text.text or "" for text in root.findall("{*}text"))
        assert report.document["facts"]["model"]["name"] in small_print


def test_every_table_is_a_csv(report: Report) -> None:
    for name, least in TABLES.items():
        with (report.folder / f"{name}.csv").open(newline="") as file:
            head, *rows = csv.reader(file)
        assert len(rows) >= least
        assert all(len(row) == len(head) for row in rows)


def test_setting_names_everything(report: Report) -> None:
    facts = report.document["facts"]
    assert facts["data"]["clips"] == LIMIT or facts["data"]["name"] != "the official test set"
    assert facts["data"]["words"] + facts["data"]["digital_silence"] == facts["data"]["clips"]
    assert facts["command"]
    assert facts["machine"]["kernels"]


def test_closed_forms_are_the_papers(report: Report) -> None:
    ours, theirs = report.document["bounds"]["kwt-3"], report.document["paper"]
    for product, printed in theirs["products"].items():
        found = ours["products"][product]
        assert found["mhsa_share_percent"] == pytest.approx(printed["share"], abs=0.011)
        assert found["greatest_saving_percent"] == pytest.approx(printed["saving"], abs=0.006)
        last = found["greatest_saving_last_layer_percent"]
        assert last == pytest.approx(printed["last"], abs=0.006)


def test_worked_example_follows_the_papers_rule(report: Report) -> None:
    own = report.document["example"]
    x, kept = np.array(own["x"]), np.array(own["kept"], bool)
    reference, delta = np.array(own["reference"]), np.array(own["delta"])
    assert kept[0].all()
    for t in (1, 2):
        moved = np.abs(x[t] - reference[t - 1]) > own["theta"]
        assert (moved == kept[t]).all()
        assert np.allclose(reference[t], np.where(moved, x[t], reference[t - 1]))
        assert np.allclose(reference[t - 1] + delta[t], reference[t])
    assert kept[1:].any()
    assert not kept[1:].all()


def test_zero_thresholds_lose_nothing_and_larger_ones_run_less(report: Report) -> None:
    own = report.document["accuracy"]
    for kind in ("mhsa", "whole"):
        points = [p for p in own["points"] if p["kind"] == kind]
        executed = [accuracy.counted(p) for p in points]
        assert executed == sorted(executed, reverse=True)
    exact = own["points"][0]
    assert exact["accuracy"] == own["dense"]["accuracy"]
    shortcut = report.document["bounds"]["model"]["all_layers"]["mhsa_saving_percent"]
    assert exact["mhsa_percent"] == pytest.approx(100 - shortcut, abs=1)


def test_changed_decisions_add_up(report: Report) -> None:
    own = report.document["changes"]
    assert own["changed"] == len(own["rows"]) == sum(own["outcomes"].values())
    for row in own["rows"]:
        assert row["dense"] != row["delta"]
        assert (row["outcome"] == "lost") == (row["dense"] == row["true"])
    assert own["playable"] <= 3
    assert report.html.count("<audio") == own["playable"]


def test_both_counts_are_shown_and_differ_where_they_must(report: Report) -> None:
    for point in report.document["accuracy"]["points"]:
        assert point["executed_model_percent"] > point["model_percent"]
    lines = {line["product"]: line for line in report.document["layers"]["products"]}
    assert lines["qkt"]["executed_percent"] > 2 * lines["qkt"]["paper_percent"]
    assert lines["mlp_in"]["executed_percent"] == pytest.approx(lines["mlp_in"]["paper_percent"])


def test_exponentials_and_state(report: Report) -> None:
    own = report.document["storage"]
    exponentials = own["exponentials"]
    assert exponentials["dense"]["percent"] == 100
    assert exponentials["scaling_factors"]["percent"] < exponentials["core"]["percent"] <= 100
    state = own["state"]
    sums = {key: sum(site[key] for site in state["sites"].values()) for key in state["total"]}
    assert sums == state["total"]
    assert state["state"] < 0.2 * state["total"]["dense"]


def test_readings_of_small_differences(report: Report) -> None:
    own = report.document["similarity"]
    by_name = {row["reading"]: row for row in own["readings"]}
    first = by_name["size of the difference, range of X over the clip"]
    assert first["word"] == own["layer_x"]
    signed = by_name["signed difference, so that every decrease is small"]
    assert signed["word"]["mean"] > first["word"]["mean"]


def test_real_clips_are_near_the_paper(shared: Path, report: Report) -> None:
    del shared
    words = report.document["keywords"]["words"]["mean"]["total"]
    assert 15 < words < 40  # the paper: 23.46 to 30.33
    silence = next(r for r in report.document["keywords"]["rows"] if r["label"] == "_silence_")
    assert silence["mean"]["total"] < 5  # the paper: 2.46


def test_numbers_of_the_paper_are_consistent() -> None:
    for label, (xw, qkt, sv, proj, total) in paper.KEYWORD_MACS.items():
        shares = paper.numbers()["products"]
        mean = sum(
            shares[p]["share"] / 100 * v
            for p, v in zip(("xw", "qkt", "sv", "proj"), (xw, qkt, sv, proj), strict=True)
        )
        assert mean == pytest.approx(total, abs=0.1), label


def test_a_stopped_report_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / ".unfinished.json"
    first = FinishedParts(path, {"model": "a"})
    assert first.remember("sweep", lambda: {"points": [1]}) == {"points": [1]}
    again = FinishedParts(path, {"model": "a"})
    assert again.remember("sweep", lambda: {"points": ["anew"]}) == {"points": [1]}
    assert FinishedParts(path, {"model": "b"}).parts == {}
    path.write_text("{ half a")
    assert FinishedParts(path, {"model": "a"}).parts == {}


def test_interrupted_work_is_kept(
    random_model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ReportRequest(clips, tmp_path, limit=6, threads=1)
    section = accuracy.SECTION

    def stop(study: Any) -> Any:
        raise KeyboardInterrupt

    broken = Section("similarity", stop, section.show)
    monkeypatch.setattr(build, "SECTIONS", (section, broken))
    model = load(random_model)
    with pytest.raises(KeyboardInterrupt):
        write(model, request)
    kept = json.loads((tmp_path / ".unfinished.json").read_text())
    assert section.name in kept["parts"]
    assert sum(name.startswith("mhsa, ") for name in kept["parts"]) == len(accuracy.MHSA_SCALES)


def test_heat_maps_are_in_a_file_of_their_own(report: Report) -> None:
    numbers, tensors = build.without_tensors(report.document)
    assert set(tensors) == {"similarity", "deltas"}
    assert not any("tensors" in part for part in numbers.values() if isinstance(part, dict))
    assert (report.folder / "report.json").stat().st_size < 400_000
    assert np.array(tensors["similarity"]["word"]["x"]).shape[0] == 99


def test_a_report_without_times_measures_none(
    random_model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clock(study: Any) -> Any:
        raise AssertionError("time was measured")

    watched = Section("timing", clock, timing.SECTION.show)
    monkeypatch.setattr(build, "SECTIONS", (theory.EXAMPLE, watched))
    monkeypatch.setattr(timing, "SECTION", watched)
    monkeypatch.setattr(paper, "claims", lambda document: [])
    monkeypatch.setattr(clips_section, "sounds", lambda study, document, most: {})
    request = ReportRequest(clips, tmp_path, limit=4, threads=1, times=False)
    document, _ = build.measure(load(random_model), request)
    assert "timing" not in document
    with pytest.raises(AssertionError, match="time was measured"):
        build.measure(load(random_model), replace(request, times=True))


def test_a_page_without_times_names_none(report: Report, tmp_path: Path) -> None:
    document = {name: part for name, part in report.document.items() if name != "timing"}
    build.draw(document, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert '<section id="timing"' not in page
    assert " ms" not in page.replace("every 10 ms", "")
    assert "measured on words" not in page


def test_without_matplotlib_one_line_says_what_to_install(
    random_model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install '(matplotlib|\.\[report\])"):
        write(load(random_model), ReportRequest(clips, tmp_path / "out"))
    with pytest.raises(MissingExtra):
        pyplot()


def test_bad_input_gives_a_one_line_error(random_model: Path, clips: Path, tmp_path: Path) -> None:
    model = load(random_model)
    with pytest.raises(DeltakwtError, match="no such data folder"):
        write(model, ReportRequest(tmp_path / "nothing", tmp_path / "out"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeltakwtError, match="cannot be made"):
        write(model, ReportRequest(clips, tmp_path / "file" / "out"))
