"""What is left to compute: the deltas of layer 7, zeros black."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.reference import UNTOUCHED
from deltakwt.report import traces
from deltakwt.report.heatmaps import HeadRow, Panel, heads, stack
from deltakwt.report.run import PAPER, Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import Figure


def collect(run: Run) -> Numbers:
    engine = run.model.engine
    word = run.sample.features()[run.example(run.word)]
    silence = engine.features(np.zeros(CLIP_SAMPLES, np.float32))
    clips: dict[str, Any] = {}
    for name, features in {"word": word, "silence": silence}.items():
        trace = engine.trace(features, PAPER)
        clips[name] = {
            site: {
                "references": traces.rounded(trace[site][run.layer]),
                "zero_percent": float(100 * (1 - trace[f"{site}.mask"][run.layer].mean())),
            }
            for site in ("x", "softmax")
        }
    return {"thresholds": str(PAPER), "word": run.word, "layer": run.layer + 1, "clips": clips}


def show(document: Numbers) -> Page:
    own, theirs = document["deltas"], document["paper"]
    word, silence = own["clips"]["word"], own["clips"]["silence"]
    text = (
        f"<p>The same “{own['word']}” and the same layer {own['layer']} as above, now by deltas at"
        f" {own['thresholds']}. Black is zero: neither stored nor multiplied."
        f" <b>{word['x']['zero_percent']:.1f}%</b> of X and"
        f" <b>{word['softmax']['zero_percent']:.1f}%</b> of the softmax outputs are; for digital"
        f" silence {silence['x']['zero_percent']:.1f}% and"
        f" {silence['softmax']['zero_percent']:.1f}%.</p>"
    )
    figures = [
        Figure(
            f"deltas-{clip}",
            lambda clip=clip: _x(own, clip),  # type: ignore[misc]
            f"Deltas of X, layer {own['layer']}, {name}. The class token and the first token are"
            " always whole.",
            own["thresholds"],
        )
        for clip, name in (("word", f"“{own['word']}”"), ("silence", "digital silence"))
    ]
    figures += [
        Figure(
            f"deltas-softmax-{clip}",
            lambda clip=clip: _softmax(document, clip),  # type: ignore[misc]
            f"Deltas of the softmax output, layer {own['layer']}, every head, {name}.",
            own["thresholds"],
        )
        for clip, name in (("word", f"“{own['word']}”"), ("silence", "digital silence"))
    ]
    return Page("What is left to compute", theirs["counterparts"]["deltas"], text, figures)


def _x(own: Numbers, clip: str) -> Any:
    return stack([Panel("ΔX", _deltas(own, clip, "x"), _moving(own, "x"))], height=2.1)


def _softmax(document: Numbers, clip: str) -> Any:
    own = document["deltas"]
    row = HeadRow("Δ softmax", _deltas(own, clip, "softmax"), _moving(own, "softmax"))
    return heads([row], document["setting"]["model"]["heads"])


def _deltas(own: Numbers, clip: str, site: str) -> Any:
    return traces.deltas(np.array(own["clips"][clip][site]["references"]))


def _moving(own: Numbers, site: str) -> Any:
    """The word's deltas set the scale, without the first tokens, which are no deltas."""
    return _deltas(own, "word", site)[UNTOUCHED:]


SECTION = Section("deltas", collect, show)
