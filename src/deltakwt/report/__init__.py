"""The paper's figures and tables from one command, and ours beside them.

Numbers are collected first, section by section, into one JSON document; figures, tables and the
page are then made from that document alone, so nothing can be shown that is not in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import PLAIN
from deltakwt.report import claims, paper, style
from deltakwt.report.run import WHOLE, Run, Setting
from deltakwt.report.sample import draw_sample
from deltakwt.report.sections import SECTIONS, correlation, layers, sweep, timing
from deltakwt.report.setting import setting, stamp
from deltakwt.report.sounds import sounds
from deltakwt.weights.folder import write_atomically

FORMAT = 1
GIVEN = "the given thresholds"  # those of the command line
Progress = Callable[[float, float], None]  # done, total
Document = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What to report on, and where to."""

    data: Path
    out: Path
    split: str = "test"
    seed: int = 0
    limit: int | None = None
    clips: int = 24  # recordings in the page
    threads: int = 0


def write(model: Model, request: Request) -> Document:
    """Measure everything and write figures, tables, JSON and page to `request.out`."""
    document, embedded = measure(model, request)
    draw(document, request.out, embedded)
    return document


def measure(
    model: Model, request: Request, progress: Progress = lambda done, total: None
) -> tuple[Document, dict[str, str]]:
    """All numbers, written to report.json, and the sounds for the page."""
    style.pyplot()  # a missing extra is told before the work, not after it
    _make(request.out)
    run = prepare(model, request)
    document = collect(run, request, progress)
    embedded = sounds(run, document, request.clips)
    _write(request.out / "report.json", json.dumps(document, allow_nan=False) + "\n")
    return document, embedded


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"{folder}: cannot be made: {error.strerror}") from None


def prepare(model: Model, request: Request) -> Run:
    sample = draw_sample(request.data, model.labels, request.split, request.seed, request.limit)
    return Run(model, sample, chosen(model), request.threads)


def chosen(model: Model) -> Setting:
    """The thresholds to look at closely: the model's own, else ours on the whole model."""
    if model.thresholds is None:
        return Setting("our thresholds", WHOLE)
    return Setting(model.profile or GIVEN, model.thresholds, model.front_end)


def collect(run: Run, request: Request, progress: Progress) -> Document:
    """Section by section; what an interrupted run had finished is taken up again."""
    total, done = _work(run), 0

    def step(clips: int) -> None:
        nonlocal done
        done += clips
        progress(min(done, total), total)

    profiles = run.model.profiles.profiles.values()
    front_ends = {PLAIN, run.chosen.front_end, *(profile.front_end for profile in profiles)}
    run.sample.load(run.model.engine, front_ends, step, run.threads)
    run.step = step
    facts = setting(run)
    kept = Kept(request.out / ".unfinished.json", facts)
    document: Document = {"format": FORMAT, "setting": facts, "paper": paper.numbers()}
    run.remember = kept.remember
    for section in SECTIONS:
        document[section.name] = kept.remember(section.name, lambda s=section: s.collect(run))  # type: ignore[misc]
    document["claims"] = claims.claims(document)
    kept.forget()
    return document


def _work(run: Run) -> int:
    """About how many clips will be run, for the progress bar."""
    swept = sum(1 for _ in sweep.points(run)) + 2  # and reading, and dense
    return swept * len(run.sample) + correlation.CLIPS + layers.CLIPS + timing.CLIPS


class Kept:
    """Finished parts of a report that was interrupted, as long as nothing about it changed."""

    def __init__(self, path: Path, facts: Document) -> None:
        self.path, self.facts = path, facts
        self.parts: Document = {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["setting"] == facts:
                self.parts = found["parts"]
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def remember(self, name: str, compute: Callable[[], Document]) -> Document:
        """What `compute` gives, now or in the run before."""
        if name not in self.parts:
            self.parts[name] = tidy(compute())
            _write(self.path, json.dumps({"setting": self.facts, "parts": self.parts}))
        part: Document = self.parts[name]
        return part

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def tidy(value: Any) -> Any:
    """Six significant digits are more than anything here is known to; NaN is not JSON."""
    if isinstance(value, dict):
        return {key: tidy(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def draw(
    document: Document,
    folder: Path,
    embedded: dict[str, str] | None = None,
    progress: Progress = lambda done, total: None,
) -> None:
    """Figures, tables and page of a document, into `folder`."""
    from deltakwt.report.page import render

    shown = {**document, "sounds": embedded or {}}
    pages = {section.name: section.show(shown) for section in SECTIONS}
    pages["claims"] = claims.page(shown)
    total, pictures = sum(len(page.figures) for page in pages.values()), {}
    for page in pages.values():
        for figure in page.figures:
            line = stamp(document["setting"], figure.thresholds)
            pictures[figure.name] = style.save(figure, folder, line)
            progress(len(pictures), total)
        for table in page.tables:
            table.save(folder)
    _write(folder / "report.html", render(shown, pages, pictures))


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from None
