"""The compact drawing of one explained sound, for a terminal."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.report.explain.collect import Document
from deltakwt.report.explain.figure import caption

if TYPE_CHECKING:
    from rich.console import Console

HEIGHTS = " ▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
SPECTRUM_ROWS = 6
MARGIN = 9  # columns of the names at the left
MOST_COLUMNS = 98  # one a token


def show(document: Document, console: Console) -> None:
    """Sound, spectrum and recomputed tokens along time, then work and scores side by side."""
    columns = max(20, min(MOST_COLUMNS, console.width - MARGIN - 1))
    where = f"{document['start']:.2f} s of {document['seconds']:.2f} s"
    console.print(f"[bold]{document['file']}[/bold] ({where}), {document['model']},"
                  f" {document['thresholds']['name']}", highlight=False)  # fmt: skip
    console.print(caption(document), highlight=False)
    console.print()
    for name, line, style in lines(document, columns):
        console.print(f"{name:>{MARGIN - 1}} [{style}]{line}[/{style}]", highlight=False)
    console.print(f"{'':>{MARGIN}}0 s{'1 s':>{columns - 3}}\n", highlight=False)
    for left, right in zip(*tables(document, columns), strict=True):
        console.print(f"{left}   {right}", highlight=False)


def lines(document: Document, columns: int) -> list[tuple[str, str, str]]:
    """Name, characters and style of each line along time."""
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
    """As many values as there are columns."""
    edges = np.linspace(0, len(values), columns + 1)
    return np.array([reduce(values[int(a) : max(int(a) + 1, int(b))]) for a, b in pairwise(edges)])


def drawn(values: NDArray[Any], low: float, high: float, characters: str) -> str:
    steps = (values - low) / max(high - low, 1e-9) * (len(characters) - 1)
    return "".join(characters[int(np.clip(round(float(s)), 0, len(characters) - 1))] for s in steps)


def tables(document: Document, columns: int) -> tuple[list[str], list[str]]:
    """Work of each layer, and scores, the best first; equally many lines."""
    width = max(6, (columns - 24) // 2)
    work = [
        f"{f'layer {number + 1}':>{MARGIN - 1}} [cyan]{bar(layer['model_percent'], width)}[/cyan]"
        f" {layer['model_percent']:5.1f}%"
        for number, layer in enumerate(document["macs"]["layers"])
    ]
    ranked = sorted(document["scores"].items(), key=lambda item: -item[1]["delta"])
    scores = [
        f"{label.strip('_')[:10]:>10} [green]{bar(100 * found['delta'], width)}[/green]"
        f" {found['delta']:.2f}"
        for label, found in ranked
    ]
    rows = max(len(work), min(len(scores), 12))
    blank = " " * (MARGIN + width + 7)
    return work + [blank] * (rows - len(work)), (scores + [""] * rows)[:rows]


def bar(percent: float, width: int) -> str:
    """A bar of eighths of a character, padded to `width`."""
    eighths = round(min(percent, 100) / 100 * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)
