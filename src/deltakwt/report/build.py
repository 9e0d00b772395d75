"""Measure a model and write its report: figures, tables, a JSON document and one HTML page.

Numbers are collected first, section by section, into one JSON document. Figures, tables and the
page are then made from that document alone, so nothing is shown that is not in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltakwt
from deltakwt.core.config import HOP_SAMPLES, SAMPLE_RATE, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import PLAIN, Setting
from deltakwt.files import write_atomically
from deltakwt.plotting import pyplot
from deltakwt.provenance import command, machine, model_name
from deltakwt.report import figures, paper
from deltakwt.report.page import TENSORS, render
from deltakwt.report.sections import (
    SECTIONS,
    accuracy,
    clips,
    layers,
    similarity,
    storage,
    sweep,
    timing,
)
from deltakwt.report.study import WHOLE, Study, draw_sample

FORMAT = 2
Progress = Callable[[float, float], None]  # done, total
Document = dict[str, Any]


@dataclass(frozen=True)
class ReportRequest:
    """What to report on, and the folder to write to."""

    data: Path
    out: Path
    split: str = "test"
    seed: int = 0
    limit: int | None = None
    clips: int = 24  # recordings in the page
    threads: int = 0
    sweep: Path | None = None  # sweep.json of the same model
    times: bool = True  # whether to measure time, which needs a machine with nothing else to do


def write(model: Model, request: ReportRequest) -> Document:
    """Measure everything and write figures, tables, JSON and page to `request.out`."""
    document, sounds = measure(model, request)
    draw(document, request.out, sounds)
    return document


def measure(
    model: Model, request: ReportRequest, progress: Progress = lambda done, total: None
) -> tuple[Document, dict[str, str]]:
    """Return all numbers and the sounds for the page.

    The numbers are also written: report.json, and the tensors of the heat maps to tensors.json.
    """
    pyplot()  # a missing extra is reported before the work, not after it
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"{request.out}: cannot be made: {error.strerror}") from None
    swept = sweep.load(request.sweep, model_name(model.name)) if request.sweep else None
    sample = draw_sample(request.data, model.labels, request.split, request.seed, request.limit)
    study = Study(model, sample, chosen_setting(model), request.threads)
    document = collect(study, request, progress)
    if swept is not None:
        document[sweep.NAME] = rounded(swept)
    document["claims"] = paper.claims(document)
    sounds = clips.sounds(study, document, request.clips)
    numbers, tensors = without_tensors(document)
    _write(request.out / "tensors.json", json.dumps(tensors, allow_nan=False) + "\n")
    _write(request.out / "report.json", json.dumps(numbers, allow_nan=False) + "\n")
    return document, sounds


def without_tensors(document: Document) -> tuple[Document, Document]:
    """Return the document without the tensors of the heat maps, and these by section."""
    numbers, tensors = dict(document), {}
    for name, part in document.items():
        if isinstance(part, dict) and TENSORS in part:
            tensors[name] = part[TENSORS]
            numbers[name] = {key: value for key, value in part.items() if key != TENSORS}
    return numbers, tensors


def chosen_setting(model: Model) -> Setting:
    """Return the setting to look at closely: the model's own, or else deltas in the whole model."""
    return WHOLE if model.setting.thresholds is None else model.setting


def collect(study: Study, request: ReportRequest, progress: Progress) -> Document:
    """Return the document. Parts that an interrupted run had finished are not computed again."""
    total, done = _work(study), 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(min(done, total), total)

    profiles = study.model.profiles.profiles.values()
    front_ends = {PLAIN, study.setting.front_end, *(p.setting.front_end for p in profiles)}
    study.sample.load(study.model.engine, front_ends, step, study.threads)
    study.step = step
    facts = facts_of(study)
    finished = FinishedParts(request.out / ".unfinished.json", facts)
    document: Document = {"format": FORMAT, "facts": facts, "paper": paper.numbers()}
    study.remember = finished.remember
    for section in SECTIONS:
        if section is timing.SECTION and not request.times:
            continue
        document[section.name] = finished.remember(
            section.name,
            lambda section=section: section.collect(study),  # type: ignore[misc]
        )
    finished.remove()
    return document


def _work(study: Study) -> int:
    """Return about how many clips will be run, for the progress bar."""
    settings = sum(1 for _ in accuracy.settings(study)) + 2  # and reading, and dense
    traced = (similarity.CLIPS, layers.CLIPS, storage.CLIPS, timing.CLIPS)
    return settings * len(study.sample) + sum(traced)


def facts_of(study: Study) -> Document:
    """Return the facts that every figure states: model, data, setting, machine, command."""
    config, sample, setting = study.model.config, study.sample, study.setting
    return {
        "model": {
            "name": model_name(study.model.name),
            "dim": config.dim,
            "heads": config.heads,
            "mlp": config.mlp,
            "layers": config.layers,
        },
        "data": {
            "name": sample.manifest.root.resolve().name,
            "split": sample.manifest.split,
            "seed": sample.manifest.seed,
            "clips": int(sample.weights("zero").sum()),
            "words": int(sample.is_word.sum()),
            "digital_silence": sample.zeros,
            "noise": int(sample.is_noise.sum()),
            "unreadable": [file for file, _ in sample.failed],
        },
        "setting": describe(setting),
        "constants": {"token_ms": _token_ms(config), "loss_points": 0.1},  # of the text
        "machine": machine(study.model.engine.isa),
        "command": command(),
        "version": deltakwt.__version__,
    }


def _token_ms(config: Config) -> int:
    return 1000 * HOP_SAMPLES * config.stride // SAMPLE_RATE


def describe(setting: Setting) -> Document:
    """Return a setting for people and as numbers. Per-layer thresholds would fill a page."""
    full_text = str(setting.thresholds)
    return {
        "name": setting.name or "given thresholds",
        "text": full_text if "," not in full_text else "one threshold per layer (in the JSON)",
        "full_text": full_text,
        "front_end": str(setting.front_end),
        "values": setting.to_json(),
    }


def stamp(facts: Document, setting: str) -> str:
    """Return the small print below a figure that stands alone."""
    data, machine_ = facts["data"], facts["machine"]
    return (
        f"{facts['model']['name']} · {data['name']}, {data['clips']:,} {data['split']} clips ·"
        f" setting: {setting} · {machine_['processor']}, {machine_['cores']} cores,"
        f" {machine_['kernels']} · {facts['command']} · deltakwt {facts['version']}"
    )


class FinishedParts:
    """Finished parts of a report that was interrupted, as long as its facts stay the same."""

    def __init__(self, path: Path, facts: Document) -> None:
        self.path, self.facts = path, facts
        self.parts: Document = {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["facts"] == facts:
                self.parts = found["parts"]
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def remember(self, name: str, compute: Callable[[], Document]) -> Document:
        """Return what `compute` gives, or what it gave in the run before."""
        if name not in self.parts:
            self.parts[name] = rounded(compute())
            _write(self.path, json.dumps({"facts": self.facts, "parts": self.parts}))
        part: Document = self.parts[name]
        return part

    def remove(self) -> None:
        """Delete the file, once the report is complete."""
        self.path.unlink(missing_ok=True)


def rounded(value: Any) -> Any:
    """Return a document with six significant digits; NaN, which JSON does not have, is null."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def draw(
    document: Document,
    folder: Path,
    sounds: dict[str, str] | None = None,
    progress: Progress = lambda done, total: None,
) -> None:
    """Write figures, tables and page of a document to `folder`."""
    shown = {**document, "sounds": sounds or {}}
    contents = {}
    for section in SECTIONS:
        if section.name not in document:
            continue
        contents[section.name] = section.show(shown)
        if section is accuracy.SECTION and sweep.NAME in document:
            contents[sweep.NAME] = sweep.show(shown)
    contents["claims"] = paper.claims_content(shown)
    total, pictures = sum(len(part.figures) for part in contents.values()), {}
    for part in contents.values():
        for figure in part.figures:
            line = stamp(document["facts"], figure.setting)
            pictures[figure.name] = figures.save(figure, folder, line)
            progress(len(pictures), total)
        for table in part.tables:
            table.save(folder)
    _write(folder / "report.html", render(shown, contents, pictures))


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from None
