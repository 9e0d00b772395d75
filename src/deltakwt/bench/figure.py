"""The times of a benchmark, and the growth of cost, as a picture."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any

from deltakwt.plotting import plain_text, pyplot, save_png

OURS, OTHERS, INK, SOFT = "#0f7b8a", "#9aa1a9", "#1c2128", "#68727f"
PART_NAMES = {"words": "words", "noise": "real noise", "zero": "digital silence"}


@plain_text()
def draw(document: dict[str, Any], path: Path) -> None:
    """Draw the times, and below them the growth of cost where it was measured."""
    parts = [p for p in PART_NAMES if any(row["part"] == p for row in document["rows"])]
    grows = "growth" in document
    figure, axes = pyplot().subplots(
        2 if grows else 1,
        len(parts),
        figsize=(4.2 * len(parts), 7.4 if grows else 4.6),
        layout="constrained",
        squeeze=False,
    )
    for axis, part in zip(axes[0], parts, strict=True):
        _bars(axis, document["rows"], part)
    if grows:
        _tokens(axes[1][0], document["growth"]["tokens"])
        _loudness(axes[1][1], document["growth"]["loudness"])
        for axis in axes[1][2:]:
            axis.axis("off")
    machine = document["machine"]
    stamp = (
        f"{document['model']} · {document['data']}, {document['clips']['all']} clips · one core of"
        f" {machine['processor']} ({machine['kernels']}) · {document['command']}"
    )
    figure.supxlabel("\n".join(wrap(stamp, 60 * len(parts))), fontsize=6, color=SOFT)
    save_png(figure, path, dpi=140)


def _bars(axis: Any, rows: list[dict[str, Any]], part: str) -> None:
    mine = [row for row in rows if row["part"] == part and row["input"] == "features"]
    mine.sort(key=lambda row: -row["ms"])
    names = [
        row["engine"] if row["mode"] == "dense" else f"{row['engine']}, {row['setting']}"
        for row in mine
    ]
    colours = [OURS if row["engine"].startswith("deltakwt") else OTHERS for row in mine]
    axis.barh(names, [row["ms"] for row in mine], color=colours, height=0.7)
    for place, row in enumerate(mine):
        ratio = row["ratio_to_ort_fp32"]
        text = f" {row['ms']:.2f} ms" + (f", {ratio:.1f}x" if ratio else "")
        axis.text(row["ms"], place, text, va="center", fontsize=6.5, color=INK)
    axis.set_xlim(0, 1.6 * max(row["ms"] for row in mine))  # room for the numbers
    axis.set_title(f"{PART_NAMES[part]}: features to logits, ms", fontsize=9, loc="left")
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


def _tokens(axis: Any, growth: dict[str, Any]) -> None:
    tokens = [point["tokens"] for point in growth["points"]]
    for key, colour, name in (
        ("dense_ms", OTHERS, "dense"),
        ("delta_ms", OURS, growth["setting"]),
    ):
        axis.plot(tokens, [p[key] for p in growth["points"]], "o-", color=colour, label=name)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(tokens, [str(token) for token in tokens])
    axis.set_title("one second cut into more tokens: ms", fontsize=9, loc="left")
    _finish(axis, "tokens")


def _loudness(axis: Any, growth: dict[str, Any]) -> None:
    points = growth["points"]
    places = range(len(points))
    axis.plot(places, [p["dense_ms"] for p in points], "o-", color=OTHERS, label="dense")
    names = list(points[0]["settings"])
    for mark, name in zip(cycle("osD^vP"), names, strict=False):
        values = [p["settings"][name]["ms"] for p in points]
        axis.plot(places, values, f"{mark}-", color=OURS, alpha=0.7, markersize=5, label=name)
    axis.set_xticks(places, [f"{p['amplitude']:g}" for p in points])
    axis.set_ylim(0)
    axis.set_title("white noise of growing amplitude: ms", fontsize=9, loc="left")
    _finish(axis, "amplitude")
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _finish(axis: Any, label: str) -> None:
    axis.set_xlabel(label, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.legend(fontsize=7, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
