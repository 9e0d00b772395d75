"""Repeat the paper's experiment for one model, and bring docs/reproduction.md up to date.

    python benchmarks/reproduction.py --model M --data DIR --validation DIR --out docs/FOLDER
    python benchmarks/reproduction.py --tables    # only rewrite the tables of the page

It runs `deltakwt sweep` and `deltakwt report`, keeps in --out what the repository holds of a report
(the page, its numbers, its tables and the figure of the sweep), and rewrites every part of
docs/reproduction.md that stands between `<!-- NAME -->` and `<!-- end -->`. A sweep that is
finished in --work is not run again; remove its folder to repeat it. The page shows the commands as
they ran, so give paths relative to the repository: data/speech_commands_test_set_v0.02.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from reproduction_claims import MEASURED, WITHOUT_NUMBER, interval, rows

from deltakwt.report.sections.sweep import answers

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
FOLDERS = {"KWT-1": ROOT / "docs" / "report", "`kwt-3`": ROOT / "docs" / "report-kwt-3"}
KEPT = ("report.html", "report.json", "sweep.png", "*.csv")
CLOSE = {  # the setting that a report looks at closely, for models without profiles of their own
    "arm-kwt-1": ["--thresholds", "0.4_0.16_0.29_0.1_0.0034_0.07_0.47_0.08"],
}
Report = dict[str, Any]
Rows = list[list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model")
    parser.add_argument("--data", type=Path, help="the official test set of v0.02")
    parser.add_argument("--validation", type=Path, help="a full data set with a validation split")
    parser.add_argument("--out", type=Path, help="a folder of docs/, as in FOLDERS")
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--trials", default="500")
    parser.add_argument("--adjust-clips", default="600")
    parser.add_argument("--times", action="store_true", help="measure time: on a quiet machine")
    parser.add_argument("--tables", action="store_true", help="only rewrite the tables")
    given = parser.parse_args()
    if not given.tables:
        for name in ("model", "data", "validation", "out"):
            if getattr(given, name) is None:
                parser.error(f"--{name} is missing")
        measure(given)
    update(PAGE, load())


def measure(given: argparse.Namespace) -> None:
    """Run the sweep and the report, and keep what belongs to the repository."""
    name = Path(given.model).name
    sweep, report = given.work / f"sweep-{name}", given.work / f"report-{name}"
    if not (sweep / "sweep.json").is_file():
        run("sweep", "--model", given.model, "--data", given.data, "--validation", given.validation,
            "--trials", given.trials, "--adjust-clips", given.adjust_clips,
            "--out", sweep)  # fmt: skip
    run("report", "--model", given.model, "--data", given.data, "--sweep", sweep / "sweep.json",
        "--recordings", "0", "--times" if given.times else "--no-times", *CLOSE.get(name, []),
        "--out", report)  # fmt: skip
    keep(report, given.out)


def run(*words: object) -> None:
    command = [sys.executable, "-m", "deltakwt", *map(str, words)]
    print("deltakwt", *words, flush=True)
    subprocess.run(command, check=True)


def keep(report: Path, folder: Path) -> None:
    """Replace the files of a report in the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in (*KEPT, "*.png", "*.svg"):
        for old in folder.glob(pattern):
            old.unlink()
    for pattern in KEPT:
        for file in report.glob(pattern):
            shutil.copy(file, folder / file.name)


def load() -> dict[str, Report]:
    """Return the reports that the repository holds, by the name of their column."""
    files = {name: folder / "report.json" for name, folder in FOLDERS.items()}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}


def update(page: Path, reports: dict[str, Report]) -> None:
    """Rewrite the parts of the page that come from reports."""
    page.write_text(updated(page.read_text(encoding="utf-8"), reports), encoding="utf-8")


def updated(text: str, reports: dict[str, Report]) -> str:
    """Return the text with every part between `<!-- NAME -->` and `<!-- end -->` made anew."""
    parts = {
        "setup": setup(reports),
        "counts": markdown(counts(reports)),
        "answers": markdown(answered(reports)),
        "multiples": markdown(multiples(reports)),
        "measured": markdown(rows(MEASURED, reports)),
        "without number": markdown(without_paper(rows(WITHOUT_NUMBER, reports))),
        "readings": markdown(readings(reports)),
        "width": markdown(width(reports)),
        "beyond": markdown(beyond(reports)),
        **{f"sweep {name.strip('`')}": swept(name, report) for name, report in reports.items()},
    }

    def new(found: re.Match[str]) -> str:
        made = parts.get(found[1])
        return found[0] if made is None else f"<!-- {found[1]} -->\n{made}\n<!-- end -->"

    return re.sub(r"<!-- ([\w -]+) -->\n.*?\n<!-- end -->", new, text, flags=re.DOTALL)


def markdown(table: Rows) -> str:
    head, *body = table
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def setup(reports: dict[str, Report]) -> str:
    """Return how each column was made."""
    parts = []
    for name, report in reports.items():
        facts, sweep = report["facts"], report["sweep"]
        machine = facts["machine"]
        commands = "\n".join(folded(command) for command in (sweep["command"], facts["command"]))
        parts.append(
            f"{name} ([page]({FOLDERS[name].name}/report.html)), {machine['processor']},"
            f" {machine['cores']} cores, {machine['kernels']} kernels:\n\n```text\n{commands}\n```"
        )
    return "\n\n".join(parts)


def folded(command: str) -> str:
    """Return a long command on lines of at most 100 characters, each option with its value."""
    first, *options = re.split(" (?=--)", command)
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) > 97:
            lines.append(f"    {option}")
        else:
            lines[-1] += f" {option}"
    return " \\\n".join(lines)


def counts(reports: dict[str, Report]) -> Rows:
    table = [["model", "setting", "accuracy, change against dense", "MHSA MACs: paper / executed",
              "all MACs: paper / executed", "all MACs of words: paper / executed"]]  # fmt: skip
    for name, report in reports.items():
        for p in report["accuracy"]["points"]:
            if p["name"] in ("paper × 1", "whole × 1") or p["kind"] == "profile":
                setting = p["thresholds"] if "," not in p["thresholds"] else "one per layer"
                label = "" if p["name"] == "given thresholds" else f"{p['name']}: "
                table.append([
                    name, f"{label}{setting}",
                    f"{p['accuracy']:.2f}%, {p['difference']:+.2f} ± {p['interval']:.2f}",
                    both(p, "mhsa_percent", "executed_mhsa_percent"),
                    both(p, "model_percent", "executed_model_percent"),
                    both(p, "words_model_percent", "words_executed_percent"),
                ])  # fmt: skip
    return table


def both(point: Report, paper: str, executed: str) -> str:
    return f"{point[paper]:.1f} / {point[executed]:.1f}%"


def cost(point: Report | None) -> list[str]:
    """Return two cells: both counts and the speed-up, and the loss with its interval."""
    if point is None:
        return ["no such setting", ""]
    macs = both(point, "mhsa_percent", "executed_mhsa_percent")
    return [f"{macs} ({100 / point['mhsa_percent']:.1f}x)", interval(point)]


def answered(reports: dict[str, Report]) -> Rows:
    table = [["loss", "paper", *(c for n in reports for c in (f"{n}, MHSA MACs", "loss, points"))]]
    found = [report["sweep"]["answers"] for report in reports.values()]
    for same in zip(*found, strict=True):
        loss, printed = same[0]["loss"], same[0]["paper"]["mhsa_percent"]
        name = f"at most {loss:g} {'point' if loss == 1 else 'points'}" if loss else "none"
        cells = [c for answer in same for c in cost(answer["point"])]
        table.append([name, f"{printed:g}% ({100 / printed:.1f}x)", *cells])
    return table


def multiples(reports: dict[str, Report]) -> Rows:
    """Return the same answers for multiples of the printed setting, without a search."""
    return answered(
        {
            name: {"sweep": {"answers": answers([_as_swept(p) for p in _printed(report)])}}
            for name, report in reports.items()
        }
    )


def _printed(report: Report) -> list[Report]:
    return [point for point in report["accuracy"]["points"] if point["kind"] == "mhsa"]


def _as_swept(point: Report) -> Report:
    """Return a point of the accuracy section with its loss as a sweep states it."""
    loss, reach = -point["difference"], point["interval"]
    return {**point, "loss": loss, "loss_interval": [loss - reach, loss + reach]}


def swept(name: str, report: Report) -> str:
    """Return the figure of a sweep and its front: each point before and after the adjustment."""
    own, picture = report["sweep"], f"{FOLDERS[name].name}/sweep.png"
    text = (
        f"![{name.strip('`')}: accuracy and speed-up against attention MACs, with the paper's"
        f" points]({picture})\n\nThe front of {name}, each point as it was found and adjusted:\n\n"
    )
    table = [["", "thresholds", "100 clips", "accuracy", "loss, points", "MHSA MACs"]]
    for point in own["points"]:
        subset = point["subset_accuracy"]
        macs, loss = cost(point)
        table.append([
            str(point["number"]), f"`{point['thresholds']}`",
            "adjusted" if subset is None else f"{subset:.1f}%", f"{point['accuracy']:.2f}%", loss,
            macs,
        ])  # fmt: skip
    change = own["adjustment"]
    return (
        f"{text}{markdown(table)}\n\nAfter the adjustment, {change['better']} of"
        f" {change['points']} settings have a higher accuracy on the test clips; the mean change is"
        f" {change['mean']:+.2f} points."
    )


def readings(reports: dict[str, Report]) -> Rows:
    heads = [f"{name}, {what}" for name in reports for what in ("words", "digital silence")]
    table = [["what is compared with 1%, layer 7", *heads]]
    for same in zip(*(r["similarity"]["readings"] for r in reports.values()), strict=True):
        shares = [f"{v:.1f}%" for one in same for v in (one["word"]["mean"], one["silence"])]
        table.append([same[0]["reading"], *shares])
    return table


def width(reports: dict[str, Report]) -> Rows:
    table = [["model", "width", "components of X, middle layers", "correlation of heads",
              "independent of a KWT-1"]]  # fmt: skip
    for name, report in reports.items():
        own = report["width"]
        middle = [c["components"] for c in own["layers"] if c["layer"] in own["middle"]]
        alike = [c["head_correlation"] for c in own["layers"] if c["head_correlation"] is not None]
        heads = f"{min(alike):.3f} to {max(alike):.3f}" if alike else "one head"
        verdict = ("yes" if own["independent"] else "no") if alike else "it is a KWT-1"
        table.append([name, str(own["width"]), f"{min(middle)} to {max(middle)}", heads, verdict])
    return table


def beyond(reports: dict[str, Report]) -> Rows:
    table = [["", *reports, "command"]]
    found = [_beyond(report) for report in reports.values()]
    for name in found[0]:
        table.append([name, *(one[name] for one in found), "R"])
    return table


def _beyond(report: Report) -> dict[str, str]:
    """Return what the paper does not try, for one model."""
    named = {p["name"]: p for p in report["accuracy"]["points"]}
    whole, alone, changed = named["whole × 1"], named["paper × 1"], report["changes"]
    facts, outcomes = report["facts"]["data"], changed["outcomes"]
    return {
        "deltas before both MLP layers, paper's thresholds and 0.3, 0.1": (
            f"{whole['accuracy']:.2f}% at {whole['model_percent']:.1f} /"
            f" {whole['executed_model_percent']:.1f}% of **all** MACs (attention alone:"
            f" {alone['model_percent']:.1f} / {alone['executed_model_percent']:.1f}%)"
        ),
        "decisions that differ from the dense model's at the setting of the page": (
            f"{changed['changed']} of {changed['clips']:,} ({facts['words']:,} words,"
            f" {facts['noise']} of noise, one zero): {outcomes['lost']} lost, {outcomes['won']}"
            f" won, {outcomes['wrong anyway']} wrong either way"
        ),
        "padding of lists with zeros, in neither count": (
            f"{report['layers']['total']['fill_percent']:.1f}% of all dense MACs of words"
        ),
    }


def without_paper(table: Rows) -> Rows:
    """Return the table without the paper's column, which is empty."""
    return [[line[0], *line[2:]] for line in table]


if __name__ == "__main__":
    main()
