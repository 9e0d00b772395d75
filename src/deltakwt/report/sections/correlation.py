"""How little changes from token to token: the paper's analysis of layer 7, and all other layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.setting import ALL_SITES
from deltakwt.report import paper, traces
from deltakwt.report.heatmaps import HeadRow, Panel, cells, heads, stack
from deltakwt.report.run import Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import SITE_NAMES, Figure, amount, new

CLIPS = 120  # of the layer x site matrix


def collect(run: Run) -> Numbers:
    config, engine = run.model.config, run.model.engine
    features = run.sample.features()
    fraction = paper.SMALL_PERCENT / 100
    word = run.example(run.word)
    silence = engine.features(np.zeros(CLIP_SAMPLES, np.float32))
    exact = engine.trace(features[word], traces.EXACT)
    shown = {"word": features[word], "silence": silence}
    maps: dict[str, Any] = {}
    for name, clip in shown.items():
        trace = engine.trace(clip, traces.EXACT)
        maps[name] = {
            "x": traces.rounded(trace["x"][run.layer]),
            "softmax": traces.rounded(trace["softmax"][run.layer]),
            "small_percent": _named(traces.small_differences(config, trace, fraction)[run.layer]),
        }
    picks = run.sample.spread(CLIPS)
    shares = []
    for index in picks:
        trace = engine.trace(features[index], traces.EXACT)
        shares.append(traces.small_differences(config, trace, fraction))
        run.step(1)
    mean = np.mean(shares, axis=0)  # (layers, 9), NaN where the last layer has one row
    layer_x = [share[run.layer, 0] for share in shares]
    return {
        "word": run.word,
        "file": run.sample.clips[word].path,
        "layer": run.layer + 1,
        "maps": maps,
        "range_percent": _range_percent(exact["x"][run.layer, 1:]),
        "clips": len(picks),
        "matrix": [_named(row) for row in mean],
        "layer_x": {
            "mean": float(np.mean(layer_x)),
            "least": float(np.min(layer_x)),
            "most": float(np.max(layer_x)),
        },
    }


def _range_percent(rows: Any) -> float:
    """How small, in percent of the range, are as many differences as the paper calls small."""
    share = paper.SMALL_DIFFERENCES / 100
    return float(100 * np.quantile(np.abs(np.diff(rows, axis=0)), share) / np.ptp(rows))


def _named(row: Any) -> dict[str, float | None]:
    return {site: None if np.isnan(v) else float(v) for site, v in zip(ALL_SITES, row, strict=True)}


def show(document: Numbers) -> Page:
    own, theirs = document["correlation"], document["paper"]
    word, layer = own["word"], own["layer"]
    of_word = own["maps"]["word"]["small_percent"]["x"]
    of_silence = own["maps"]["silence"]["small_percent"]["x"]
    spread = own["layer_x"]
    text = (
        f"<p>Sound changes slowly, and so do the tokens, even deep inside the model. In the input"
        f" X of layer {layer}, <b>{of_word:.1f}%</b> of the differences between subsequent tokens"
        f" of one “{word}” are smaller than {theirs['small_percent']:.0f}% of X's dynamic range"
        f" (the paper, on {theirs['model']}: <b>{theirs['small_differences_percent']:.0f}%</b>)."
        f" Over {own['clips']} clips of all words it is {spread['mean']:.1f}% on average, from"
        f" {spread['least']:.1f} to {spread['most']:.1f}%; for digital silence"
        f" {of_silence:.1f}%. In this “{word}”, {theirs['small_differences_percent']:.0f}% of the"
        f" differences are smaller than {own['range_percent']:.1f}% of the range.</p>"
    )
    silence = "digital silence"
    dense = "dense"
    figures = [
        Figure(
            "correlation-x-word",
            lambda: _x_figure(own, "word"),
            f"Input X of layer {layer} for “{word}” ({own['file']}), and its difference from token"
            " to token. Tokens run from top to bottom; the first row is the class token.",
            dense,
        ),
        Figure(
            "correlation-x-silence",
            lambda: _x_figure(own, "silence"),
            f"The same for {silence}, on the same scale.",
            dense,
        ),
        Figure(
            "correlation-softmax-word",
            lambda: _softmax_figure(document, "word"),
            f"Softmax output of layer {layer}, every head, for “{word}”, and its difference from"
            " token to token.",
            dense,
        ),
        Figure(
            "correlation-softmax-silence",
            lambda: _softmax_figure(document, "silence"),
            f"The same for {silence}, on the same scale.",
            dense,
        ),
        Figure(
            "correlation-matrix",
            lambda: _matrix(own["matrix"]),
            f"Percent of differences below {theirs['small_percent']:.0f}% of the dynamic range,"
            f" every layer and site, mean over {own['clips']} clips of words. The last layer has"
            " only the class token after K and V.",
            dense,
        ),
    ]
    return Page(
        "How little changes from token to token",
        theirs["counterparts"]["correlation"],
        text,
        figures,
    )


def _x_figure(own: Numbers, clip: str) -> Any:
    """On the word's scale, so that black means the same in silence."""
    values, word = (np.array(own["maps"][name]["x"]) for name in (clip, "word"))
    return stack(
        [
            Panel("X", values, word),
            Panel("difference to the token before", _change(values), _change(word)),
        ]
    )


def _softmax_figure(document: Numbers, clip: str) -> Any:
    maps = document["correlation"]["maps"]
    values, word = (np.array(maps[name]["softmax"]) for name in (clip, "word"))
    rows = [
        HeadRow("softmax", values, word, is_signed=False),
        HeadRow("difference", _change(values), _change(word)),
    ]
    return heads(rows, document["setting"]["model"]["heads"])


def _change(values: Any) -> Any:
    """The class token and the first token have none before them in time."""
    change = np.zeros_like(values)
    change[2:] = np.diff(values[1:], axis=0)
    return change


def _matrix(matrix: list[dict[str, float | None]]) -> Any:
    canvas, axes = new(max(1.9, 0.26 * len(matrix) + 0.7))
    values = np.array([[np.nan if row[s] is None else row[s] for s in ALL_SITES] for row in matrix])
    axes.imshow(values, cmap=amount(), vmin=0, vmax=100, aspect="auto")
    for (layer, site), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = "#ffffff" if value < 70 else "#06141a"
            axes.text(site, layer, f"{value:.0f}", ha="center", va="center", color=colour, size=7.5)
    axes.set_xticks(
        range(len(ALL_SITES)), [SITE_NAMES[s] for s in ALL_SITES], rotation=35, ha="right"
    )
    axes.set_yticks(range(len(matrix)), [str(i + 1) for i in range(len(matrix))])
    axes.set_ylabel("layer")
    cells(axes, values.shape)
    return canvas


SECTION = Section("correlation", collect, show)
