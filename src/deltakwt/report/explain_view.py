"""One explained second of sound as a figure, and as a drawing for a terminal."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from deltakwt.core.config import CLIP_SAMPLES, FRAME_SAMPLES, HOP_SAMPLES, SAMPLE_RATE, STRIDES
from deltakwt.plotting import pyplot
from deltakwt.report.figures import GOOD, LINE, OURS, THEIRS, WIDTH, amount_colours

if TYPE_CHECKING:
    from rich.console import Console

Document = dict[str, Any]


def caption(document: Document) -> str:
    """Return the result in one sentence."""
    macs, ms = document["macs"], document["ms"]
    return (
        f"“{document['label']}” {document['score']:.2f} (dense: “{document['dense_label']}”"
        f" {document['dense_score']:.2f}) with {macs['model_percent']:.1f}% of all MACs by the"
        f" paper's count, {macs['executed']['model_percent']:.1f}% executed;"
        f" {ms['delta']:.2f} ms, dense {ms['dense']:.2f} ms."
    )


# ------------------------------------------------------------------ the figure


def _along(values: NDArray[Any]) -> tuple[float, float]:
    """Return where the frames of (rows, frames) begin and end, in seconds.

    A frame is drawn at the middle of its 30 ms.
    """
    frames = values.shape[1]
    first, step = FRAME_SAMPLES / 2 / SAMPLE_RATE, STRIDES[frames] * HOP_SAMPLES / SAMPLE_RATE
    return first - step / 2, first + (frames - 0.5) * step


def draw(document: Document) -> Any:
    """Draw five panels: the first four along time, then MACs and scores."""
    plt = pyplot()
    canvas = plt.figure(figsize=(WIDTH, 7.2), layout="constrained")
    upper, lower = canvas.subfigures(2, 1, height_ratios=(1.45, 1), hspace=0.04)
    along = upper.subplots(4, 1, sharex=True, height_ratios=(1, 1.3, 0.32, 1.3))
    _waveform(along[0], document["waveform"])
    _spectrum(along[1], document["spectrum"])
    layers = np.array(document["token_layers"])[:, 1:]  # the class token has no time
    # The first token is always computed whole: it is brighter than the scale goes.
    most = max(20.0, float(np.quantile(layers, 0.99)))
    _tokens(along[2], np.array(document["token_percent"])[None, 1:], most)
    image = _by_layer(along[3], layers, most)
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
    extent = (*_along(values), 0, len(values))
    axis.imshow(values, cmap=amount_colours("#000000"), origin="lower", aspect="auto", vmin=low,
                vmax=max(high, low + 1e-6), extent=extent)  # fmt: skip
    axis.set_title("MFCC, as the mel spectrum they describe")
    _frameless(axis)


def _tokens(axis: Any, values: Any, most: float) -> None:
    axis.imshow(values, cmap=amount_colours("#000000"), aspect="auto", vmin=0, vmax=most,
                extent=(*_along(values), 0, 1))  # fmt: skip
    axis.set_title("work per token, mean over the layers")
    _frameless(axis)


def _by_layer(axis: Any, values: Any, most: float) -> Any:
    layers = len(values)
    image = axis.imshow(values, cmap=amount_colours("#000000"), aspect="auto", vmin=0, vmax=most,
                        extent=(*_along(values), layers + 0.5, 0.5))  # fmt: skip
    axis.set_title("work per token, layer by layer")
    axis.set(ylabel="layer", xlabel="seconds", xlim=(0, 1))
    axis.set_yticks(range(1, layers + 1, 3))
    return image


def _layers(axis: Any, layers: list[dict[str, float]]) -> None:
    numbers = range(1, len(layers) + 1)
    axis.barh(numbers, [layer["model_percent"] for layer in layers], color=OURS, height=0.7)
    axis.set(yticks=list(numbers), xlabel="MACs, % of dense", ylabel="layer")
    axis.set_title("layers")
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
    axis.set_title("scores")
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


# ------------------------------------------------------------------ the terminal

HEIGHTS = " ▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
SPECTRUM_ROWS = 6
MARGIN = 9  # columns for the names at the left
MOST_COLUMNS = 98  # one per token


def show(document: Document, console: Console) -> None:
    """Print sound, spectrum and work along time, then layers and scores side by side."""
    width = min(console.width, MOST_COLUMNS + MARGIN + 1)
    columns = max(20, width - MARGIN - 1)

    def line(text: Any) -> None:
        console.print(text, overflow="fold", width=width)

    where = f"{document['start']:.2f} s of {document['seconds']:.2f} s"
    line(f"{document['file']} ({where}), {document['model']}, {document['setting']['name']}")
    line(caption(document))
    line("")
    for name, characters, style in lines(document, columns):
        line(Text.assemble(f"{name:>{MARGIN - 1}} ", (characters, style)))
    line(f"{'':>{MARGIN}}0 s{'1 s':>{columns - 3}}")
    line("")
    for left, right in zip(*tables(document, columns), strict=True):
        line(Text.assemble(left, "   ", right))


def lines(document: Document, columns: int) -> list[tuple[str, str, str]]:
    """Return name, characters and style of each line along time."""
    wave = np.abs(np.array(document["waveform"])).max(axis=1)
    spectrum = np.array(document["spectrum"]).T[::-1]  # (80, frames), high bands first
    bands = [bins(part.mean(axis=0), columns) for part in np.array_split(spectrum, SPECTRUM_ROWS)]
    low, high = np.quantile(bands, 0.1), np.max(bands)
    tokens = bins(np.array(document["token_percent"])[1:], columns)
    return [
        ("sound", drawn(bins(wave, columns, np.max), 0, max(wave.max(), 1e-6), HEIGHTS), "cyan"),
        *(
            ("" if row else "spectrum", drawn(band, low, high, SHADES), "white")
            for row, band in enumerate(bands)
        ),
        ("work", drawn(tokens, 0, 60, HEIGHTS), "yellow"),
    ]


def bins(values: NDArray[Any], columns: int, reduce: Any = np.mean) -> NDArray[Any]:
    """Return as many values as there are columns."""
    edges = np.linspace(0, len(values), columns + 1)
    return np.array([reduce(values[int(a) : max(int(a) + 1, int(b))]) for a, b in pairwise(edges)])


def drawn(values: NDArray[Any], low: float, high: float, characters: str) -> str:
    """Return one character per value, from the first (low) to the last (high)."""
    steps = (values - low) / max(high - low, 1e-9) * (len(characters) - 1)
    return "".join(characters[int(np.clip(round(float(s)), 0, len(characters) - 1))] for s in steps)


def tables(document: Document, columns: int) -> tuple[list[Text], list[Text]]:
    """Return the work of each layer, and the scores, best first; equally many lines."""
    width = max(6, (columns - 25) // 2)
    work = [
        Text.assemble(f"{f'layer {number + 1}':>{MARGIN - 1}} ",
                      (bar(layer["model_percent"], width), "cyan"),
                      f" {layer['model_percent']:5.1f}%")
        for number, layer in enumerate(document["macs"]["layers"])
    ]  # fmt: skip
    ranked = sorted(document["scores"].items(), key=lambda item: -item[1]["delta"])
    scores = [
        Text.assemble(f"{label.strip('_')[:10]:>10} ", (bar(100 * found["delta"], width), "green"),
                      f" {found['delta']:.2f}")
        for label, found in ranked
    ]  # fmt: skip
    rows = max(len(work), min(len(scores), 12))
    blank = Text(" " * (MARGIN + width + 7))
    return work + [blank] * (rows - len(work)), (scores + [Text()] * rows)[:rows]


def bar(percent: float, width: int) -> str:
    """Return a bar in eighths of a character, padded to `width`."""
    eighths = round(min(percent, 100) / 100 * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)
