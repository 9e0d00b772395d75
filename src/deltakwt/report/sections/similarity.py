"""How little changes from token to token, and what is left to compute once it is encoded.

The paper shows this for layer 7; here every layer is measured as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.macs import EXACT_ROWS
from deltakwt.core.setting import ALL_SITES
from deltakwt.report import paper, traces
from deltakwt.report.figures import SITE_NAMES, Figure, HeatMap, by_head, number_grid, stacked
from deltakwt.report.page import TENSORS, Column, Content, Numbers, Section, Table
from deltakwt.report.study import PAPER, Study

CLIPS = 120  # of which the shares of small differences are averaged
ZEROS = "digital silence"


def collect(study: Study) -> Numbers:
    config, engine = study.model.config, study.model.engine
    features = study.sample.features()
    fraction = paper.SMALL_PERCENT / 100
    word = study.example(study.word)
    silence = engine.features(np.zeros(CLIP_SAMPLES, np.float32))
    exact = engine.trace(features[word], traces.EXACT)
    silent = engine.trace(silence, traces.EXACT)
    shown = {"word": exact, "silence": silent}
    picks = study.sample.spread(CLIPS)
    shares, readings = [], []
    for index in picks:
        trace = engine.trace(features[index], traces.EXACT)
        shares.append(traces.small_differences(config, trace, fraction))
        readings.append(traces.small_by_reading(trace, study.layer, fraction))
        study.step(1)
    return {
        "word": study.word,
        "file": study.sample.clips[word].path,
        "layer": study.layer + 1,
        TENSORS: {
            name: {site: traces.rounded(trace[site][study.layer]) for site in ("x", "softmax")}
            for name, trace in shown.items()
        },
        "small_percent": {
            name: _named(traces.small_differences(config, trace, fraction)[study.layer])
            for name, trace in shown.items()
        },
        "range_percent": _range_percent(exact["x"][study.layer, 1:]),
        "clips": len(picks),
        "matrix": [_named(row) for row in np.mean(shares, axis=0)],
        "layer_x": _spread([share[study.layer, 0] for share in shares]),
        "readings": [
            {
                "reading": name,
                "word": _spread([found[name] for found in readings]),
                "silence": traces.small_by_reading(silent, study.layer, fraction)[name],
            }
            for name in traces.READINGS
        ],
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "least": float(min(values)), "most": float(max(values))}


def _range_percent(rows: Any) -> float:
    """Return how small, in percent of the range, the paper's share of the differences is here."""
    share = paper.SMALL_DIFFERENCES / 100
    return float(100 * np.quantile(np.abs(np.diff(rows, axis=0)), share) / np.ptp(rows))


def _named(row: Any) -> dict[str, float | None]:
    return {site: None if np.isnan(v) else float(v) for site, v in zip(ALL_SITES, row, strict=True)}


def show(document: Numbers) -> Content:
    own, theirs = document["similarity"], document["paper"]
    word, layer = own["word"], own["layer"]
    of_word, of_silence = (own["small_percent"][clip]["x"] for clip in ("word", "silence"))
    spread, percent = own["layer_x"], theirs["small_percent"]
    printed = theirs["small_differences_percent"]
    token_ms = document["facts"]["constants"]["token_ms"]
    text = (
        f"The model takes one token every {token_ms} ms. Sound changes slowly, and so do the"
        f" tokens, even deep inside the model. In X, the input of layer {layer},"
        f" **{of_word:.1f}%** of the differences between neighbouring tokens of one “{word}” are"
        f" smaller than {percent:.0f}% of the range of X (the paper, on {theirs['model']}:"
        f" **{printed:.0f}%**). Over {own['clips']} clips of all words it is {spread['mean']:.1f}%"
        f" on average, from {spread['least']:.1f} to {spread['most']:.1f}%; for {ZEROS} it is"
        f" {of_silence:.1f}%. In this “{word}”, {printed:.0f}% of the differences are smaller than"
        f" {own['range_percent']:.1f}% of the range."
        f"\n\nThe paper does not define “dynamic range” or “smaller”. The table below tries"
        f" several readings on the same layer. None gives {printed:.0f}% on X of a word by the size"
        " of the differences. A few features with large values would widen the range and so make"
        " all other differences small; that is the likely cause in the authors' model."
    )
    return Content(
        "How little changes from token to token",
        theirs["counterparts"]["similarity"],
        text,
        _figures(document),
        [_readings(own, printed)],
    )


def _figures(document: Numbers) -> list[Figure]:
    own, percent = document["similarity"], document["paper"]["small_percent"]
    word, layer = own["word"], own["layer"]
    many = document["facts"]["model"]["heads"] > 1
    by_head_text = ", one column of panels per head" if many else ""
    same = f"The same for {ZEROS}, on the same colour scale: almost nothing changes."
    return [
        Figure(
            "similarity-x-word",
            lambda: _x_figure(own, "word"),
            f"Above: X of layer {layer} for “{word}” ({own['file']}), one row per token, time from"
            " top to bottom; row 0 is the class token, which the decision is read from. Vertical"
            " stripes mean that a feature stays the same. Below: the difference from each row to"
            " the next. Black is no change; the word is where the rows are coloured.",
            "dense",
        ),
        Figure("similarity-x-silence", lambda: _x_figure(own, "silence"), same, "dense"),
        Figure(
            "similarity-softmax-word",
            lambda: _softmax_figure(document, "word"),
            f"Above: the attention weights (softmax) of layer {layer} for “{word}”{by_head_text}."
            " Below: their difference from each query token to the next. Most of it is black: the"
            " weights change where the word begins and ends.",
            "dense",
        ),
        Figure("similarity-softmax-silence", lambda: _softmax_figure(document, "silence"), same,
               "dense"),
        Figure(
            "similarity-layers",
            lambda: _grid(own["matrix"]),
            f"Percent of differences below {percent:.0f}% of the range, for every layer and site,"
            f" mean over {own['clips']} clips of words. Bright cells change little. The last layer"
            " computes only the class token after K and V, so it has no differences there.",
            "dense",
        ),
    ]  # fmt: skip


def _readings(own: Numbers, printed: float) -> Table:
    columns = [
        Column("what is compared, layer " + str(own["layer"])),
        Column("mean", ".1f", "words, %"),
        Column("least", ".1f", "words, %"),
        Column("most", ".1f", "words, %"),
        Column(ZEROS, ".1f", "%"),
    ]
    rows = [
        [r["reading"], *(r["word"][key] for key in ("mean", "least", "most")), r["silence"]]
        for r in own["readings"]
    ]
    caption = (
        f"Percent of small differences, by the reading of the paper's sentence (its number:"
        f" {printed:.0f}%), over {own['clips']} clips of words and for one clip of zeros."
    )
    return Table("similarity-readings", caption, columns, rows, "dense")


def _x_figure(own: Numbers, clip: str) -> Any:
    """Draw X and its changes on the scale of the word, so that black means the same in silence."""
    values, word = (np.array(own[TENSORS][name]["x"]) for name in (clip, "word"))
    changes = HeatMap("difference from the token before", _change(values), _change(word))
    return stacked([HeatMap("X", values, word), changes])


def _softmax_figure(document: Numbers, clip: str) -> Any:
    tensors = document["similarity"][TENSORS]
    values, word = (np.array(tensors[name]["softmax"]) for name in (clip, "word"))
    rows = [
        HeatMap("softmax", values, word, is_signed=False),
        HeatMap("difference", _change(values), _change(word)),
    ]
    return by_head(rows, document["facts"]["model"]["heads"])


def _change(values: Any) -> Any:
    """Return the changes; the class token and the first token have none before them in time."""
    change = np.zeros_like(values)
    change[2:] = np.diff(values[1:], axis=0)
    return change


def _grid(matrix: list[dict[str, float | None]]) -> Any:
    values = np.array([[np.nan if row[s] is None else row[s] for s in ALL_SITES] for row in matrix])
    return number_grid(values, [SITE_NAMES[site] for site in ALL_SITES], 100)


# ------------------------------------------------------------------ what is left to compute


def collect_deltas(study: Study) -> Numbers:
    engine = study.model.engine
    assert PAPER.thresholds is not None
    word = study.sample.features()[study.example(study.word)]
    silence = engine.features(np.zeros(CLIP_SAMPLES, np.float32))
    references: dict[str, Any] = {}
    zeros: dict[str, Any] = {}
    for name, features in {"word": word, "silence": silence}.items():
        trace = engine.trace(features, PAPER.thresholds)
        for site in ("x", "softmax"):
            kept = trace[f"{site}.mask"][study.layer]
            references.setdefault(name, {})[site] = traces.rounded(trace[site][study.layer])
            zeros.setdefault(name, {})[site] = float(100 * (1 - kept.mean()))
    return {
        "thresholds": str(PAPER.thresholds),
        "word": study.word,
        "layer": study.layer + 1,
        "zero_percent": zeros,
        TENSORS: references,
    }


def show_deltas(document: Numbers) -> Content:
    own, theirs = document["deltas"], document["paper"]
    word, silence = own["zero_percent"]["word"], own["zero_percent"]["silence"]
    text = (
        f"The same “{own['word']}” and the same layer {own['layer']}, now delta encoded with the"
        f" paper's thresholds {own['thresholds']}. Black is zero: it is neither stored nor"
        f" multiplied. **{word['x']:.1f}%** of X and **{word['softmax']:.1f}%** of the softmax"
        f" outputs are zero; for {ZEROS} {silence['x']:.1f}% and {silence['softmax']:.1f}%."
    )
    names = (("word", f"“{own['word']}”"), ("silence", ZEROS))
    figures = [
        Figure(
            f"deltas-{clip}",
            lambda clip=clip: _x_deltas(own, clip),  # type: ignore[misc]
            f"What is left of X in layer {own['layer']} for {name}. Each coloured cell is one value"
            " that is multiplied with a row of the weights. The top two rows, the class token and"
            " the first token, are always stored whole.",
            own["thresholds"],
        )
        for clip, name in names
    ]
    figures += [
        Figure(
            f"deltas-softmax-{clip}",
            lambda clip=clip: _softmax_deltas(document, clip),  # type: ignore[misc]
            f"What is left of the softmax output in layer {own['layer']} for {name}. A black row"
            " needs no product with V.",
            own["thresholds"],
        )
        for clip, name in names
    ]
    return Content("What is left to compute", theirs["counterparts"]["deltas"], text, figures)


def _x_deltas(own: Numbers, clip: str) -> Any:
    return stacked([HeatMap("ΔX", _deltas(own, clip, "x"), _moving(own, "x"))], height=2.1)


def _softmax_deltas(document: Numbers, clip: str) -> Any:
    own = document["deltas"]
    row = HeatMap("Δ softmax", _deltas(own, clip, "softmax"), _moving(own, "softmax"))
    return by_head([row], document["facts"]["model"]["heads"])


def _deltas(own: Numbers, clip: str, site: str) -> Any:
    return traces.deltas(np.array(own[TENSORS][clip][site]))


def _moving(own: Numbers, site: str) -> Any:
    """Return the word's deltas, which set the scale, without the first rows, which are none."""
    return _deltas(own, "word", site)[EXACT_ROWS:]


SECTION = Section("similarity", collect, show)
DELTAS = Section("deltas", collect_deltas, show_deltas)
