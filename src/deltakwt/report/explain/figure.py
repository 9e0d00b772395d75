"""The picture of one explained sound: five panels, the first three along time."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.config import CLIP_SAMPLES, FRAME_SAMPLES, FRAMES, HOP_SAMPLES, SAMPLE_RATE
from deltakwt.report.explain.collect import Document
from deltakwt.report.style import GOOD, LINE, OURS, THEIRS, WIDTH, Figure, amount, pyplot

# Frames lie at the middle of their 30 ms.
FIRST = FRAME_SAMPLES / 2 / SAMPLE_RATE
STEP = HOP_SAMPLES / SAMPLE_RATE
ALONG = (FIRST - STEP / 2, FIRST + (FRAMES - 0.5) * STEP)


def figure(document: Document) -> Figure:
    name = document["file"].rsplit(".", 1)[0]
    return Figure(name, lambda: draw(document), caption(document), document["thresholds"]["text"])


def caption(document: Document) -> str:
    macs, ms = document["macs"], document["ms"]
    return (
        f"“{document['label']}” {document['score']:.2f} (dense: “{document['dense_label']}”"
        f" {document['dense_score']:.2f}) with {macs['model_percent']:.1f}% of all MACs,"
        f" {macs['mhsa_percent']:.1f}% of attention's; {ms['delta']:.2f} ms, dense"
        f" {ms['dense']:.2f} ms."
    )


def draw(document: Document) -> Any:
    plt = pyplot()
    canvas = plt.figure(figsize=(WIDTH, 6.9), layout="constrained")
    upper, lower = canvas.subfigures(2, 1, height_ratios=(1.45, 1), hspace=0.04)
    along = upper.subplots(4, 1, sharex=True, height_ratios=(1, 1.3, 0.32, 1.3))
    _waveform(along[0], document["waveform"])
    _spectrum(along[1], document["spectrum"])
    strip = np.array(document["strip"])[:, 1:]  # without the class token, which has no time
    most = max(20.0, float(np.quantile(strip, 0.99)))  # the first token, always whole, is brighter
    _tokens(along[2], np.array(document["token_percent"])[None, 1:], most)
    image = _strip(along[3], strip, most)
    bar = upper.colorbar(image, ax=along[2:], fraction=0.035, pad=0.015, extend="max")
    bar.set_label("% of a token's MACs", fontsize=8)
    bar.outline.set_visible(False)
    left, right = lower.subplots(1, 2)
    _layers(left, document["macs"]["layers"])
    _scores(right, document["scores"])
    return canvas


def _waveform(axis: Any, pairs: list[list[float]]) -> None:
    low, high = np.array(pairs).T
    seconds = (np.arange(len(low)) + 0.5) / len(low) * CLIP_SAMPLES / SAMPLE_RATE
    axis.fill_between(seconds, low, high, color=OURS, linewidth=0)
    most = max(float(np.abs(pairs).max()), 1e-6)
    axis.set(ylim=(-1.05 * most, 1.05 * most), xlim=(0, 1), yticks=[])
    axis.set_title("sound")
    axis.spines["left"].set_visible(False)


def _spectrum(axis: Any, rows: list[list[float]]) -> None:
    values = np.array(rows).T  # (bands, frames)
    low, high = np.quantile(values, [0.02, 0.995])
    axis.imshow(values, cmap=amount("#000000"), origin="lower", aspect="auto", vmin=low,
                vmax=max(high, low + 1e-6), extent=(*ALONG, 0, len(values)))  # fmt: skip
    axis.set_title("MFCC, as the mel spectrum they describe")
    _frameless(axis)


def _tokens(axis: Any, values: Any, most: float) -> None:
    axis.imshow(values, cmap=amount("#000000"), aspect="auto", vmin=0, vmax=most,
                extent=(*ALONG, 0, 1))  # fmt: skip
    axis.set_title("recomputed, mean over the layers")
    _frameless(axis)


def _strip(axis: Any, values: Any, most: float) -> Any:
    layers = len(values)
    image = axis.imshow(values, cmap=amount("#000000"), aspect="auto", vmin=0, vmax=most,
                        extent=(*ALONG, layers + 0.5, 0.5))  # fmt: skip
    axis.set_title("recomputed, layer by layer")
    axis.set(ylabel="layer", xlabel="seconds", xlim=(0, 1))
    axis.set_yticks(range(1, layers + 1, 3))
    return image


def _layers(axis: Any, layers: list[dict[str, float]]) -> None:
    numbers = range(1, len(layers) + 1)
    axis.barh(numbers, [layer["model_percent"] for layer in layers], color=OURS, height=0.7)
    axis.set(yticks=list(numbers), xlabel="executed MACs, %", ylabel="layer")
    axis.set_title("work")
    axis.invert_yaxis()
    _quiet(axis)


def _scores(axis: Any, found: dict[str, dict[str, float]]) -> None:
    labels = list(found)
    places = np.arange(len(labels))
    best = max(found, key=lambda label: found[label]["delta"])
    colours = [GOOD if label == best else OURS for label in labels]
    axis.barh(places + 0.2, [found[label]["dense"] for label in labels], 0.36, color=THEIRS)
    axis.barh(places - 0.2, [found[label]["delta"] for label in labels], 0.36, color=colours)
    axis.set_yticks(places, [label.strip("_") for label in labels])
    axis.set(xlim=(0, 1), xlabel="score (grey: dense)")
    axis.set_title("decision")
    axis.invert_yaxis()
    _quiet(axis)


def _frameless(axis: Any) -> None:
    axis.set_yticks([])
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _quiet(axis: Any) -> None:
    axis.grid(True, axis="x")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_color(LINE)
