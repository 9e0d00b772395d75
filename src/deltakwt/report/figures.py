"""The style of all figures, how they are saved, and the heat maps.

Every colour is named once. In an SVG that goes into the page each colour is replaced by a CSS
variable of the page, so a figure follows the reader's light or dark theme.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.files import write_atomically
from deltakwt.plotting import pyplot
from deltakwt.report.html import Html, escape

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure as Canvas

WIDTH = 4.4  # inches: legible on a phone, and two fit side by side on a desk
DPI = 160
STAMP = 5  # font size of the small print below a figure, in points
STAMP_CHARACTERS = 104  # of its lines: a browser may have a wider font than matplotlib

# name of the CSS variable: colour on white
COLOURS = {
    "ink": "#1c2128",
    "soft": "#68727f",
    "line": "#d8dde3",
    "paper": "#fefefe",
    "ours": "#0f7b8a",  # deltas in the whole model
    "mhsa": "#d9712b",  # deltas in attention only, as in the paper
    "theirs": "#7a7f87",  # the paper's own numbers, and dense runs
    "profile": "#8a4fb3",
    "good": "#2f8f5b",
}
INK, SOFT, LINE, BACKGROUND = (COLOURS[name] for name in ("ink", "soft", "line", "paper"))
OURS, MHSA, THEIRS = (COLOURS[name] for name in ("ours", "mhsa", "theirs"))
PROFILE, GOOD = COLOURS["profile"], COLOURS["good"]

PRODUCT_NAMES = {
    "xw": "X·W",
    "qkt": "Q·Kᵀ",
    "sv": "softmax·V",
    "proj": "heads·W",
    "mlp_in": "MLP in",
    "mlp_out": "MLP out",
}
SITE_NAMES = {
    "x": "X",
    "q": "Q",
    "k": "K",
    "scores": "scores",
    "softmax": "softmax",
    "heads": "heads",
    "mlp_in": "MLP in",
    "mlp_hidden": "MLP hidden",
    "v": "V",
}

RC = {
    "figure.dpi": DPI,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.7,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.parse_math": False,  # names of labels and profiles may contain a $
    "image.interpolation": "none",  # one pixel per value
    "image.composite_image": False,
}


@dataclass(frozen=True)
class Figure:
    """A picture that has not been drawn yet."""

    name: str  # of its files
    draw: Callable[[], Canvas]
    caption: str
    setting: str  # with which its numbers were measured


def new(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Canvas, Any]:
    """Return a canvas of the common width and its axes."""
    made: tuple[Canvas, Any] = pyplot().subplots(
        rows, columns, figsize=(WIDTH, height), layout="constrained", **options
    )
    return made


def legend_above(axis: Any, columns: int = 2, gap: float = 0.02) -> None:
    """Put the legend above the axes, where it covers nothing. `gap` is in heights of the axes."""
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1 + gap), ncols=columns, borderaxespad=0,
                handlelength=1.5, handletextpad=0.4, columnspacing=1.2)  # fmt: skip


def signed_colours() -> Colormap:
    """Return a map for differences: black is zero, blue is negative, orange is positive."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = ["#a8dcff", "#2f8fd8", "#123a63", "#000000", "#6b3206", "#e8812a", "#ffdca8"]
    return LinearSegmentedColormap.from_list("signed", steps)


def amount_colours(low: str = "#06141a", high: str = "#dff6f2") -> Colormap:
    """Return a colour map for amounts, from dark (small) to bright (large)."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("amount", [low, "#0b4f5c", "#1f9aa0", "#8fd8c4", high])


# ------------------------------------------------------------------ files


def save(figure: Figure, folder: Path, stamp: str) -> Html:
    """Write <name>.png and <name>.svg with small print, and return the SVG for the page."""
    plt = pyplot()
    with plt.rc_context(RC | {"svg.hashsalt": figure.name}):
        canvas = figure.draw()
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")  # the layout stays as it is now
        svg = _svg(canvas)
        lines = textwrap.wrap(stamp, STAMP_CHARACTERS)
        canvas.text(0.0, -0.01, "\n".join(lines), fontsize=STAMP, color=SOFT, va="top")
        picture = io.BytesIO()
        canvas.savefig(picture, format="png", dpi=DPI, facecolor="white", bbox_inches="tight")
        plt.close(canvas)
    write_atomically(folder / f"{figure.name}.png", _with_few_colours(picture))
    write_atomically(folder / f"{figure.name}.svg", _with_stamp(svg, lines).encode())
    return for_page(svg, figure.name)


def _with_few_colours(picture: io.BytesIO) -> bytes:
    """Return a PNG picture with a palette of 256 colours: a third of the bytes."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    file = io.BytesIO()
    small.save(file, format="PNG", optimize=True)
    return file.getvalue()


def _svg(canvas: Canvas) -> str:
    file = io.StringIO()
    metadata = {"Date": None}  # the same drawing gives the same file
    canvas.savefig(file, format="svg", metadata=metadata, bbox_inches="tight", pad_inches=0.06)
    return file.getvalue()


def _with_stamp(svg: str, lines: list[str]) -> str:
    """Return the SVG on white, with small print below the picture."""
    found = re.search(r'height="([\d.]+)pt" viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    width, height = float(found[2]), float(found[3])
    total = height + 1.3 * STAMP * (len(lines) + 1)
    svg = svg.replace(found[0], f'height="{total}pt" viewBox="0 0 {width} {total}"')
    text = "".join(
        f'<text x="4" y="{height + 1.3 * STAMP * (n + 1)}" fill="{SOFT}" '
        f'font-family="sans-serif" font-size="{STAMP}">{escape(line)}</text>'
        for n, line in enumerate(lines)
    )
    start = svg.index(">", svg.index("<svg")) + 1
    white = f'<rect width="{width}" height="{total}" fill="white"/>'
    return svg[:start] + white + svg[start:].replace("</svg>", f"{text}</svg>")


def for_page(svg: str, name: str) -> Html:
    """Return an SVG for the page: colours as CSS variables, the page's font, no style sheet.

    matplotlib has escaped all text in it.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # page.css has it for all figures
    svg = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', svg)
    svg = re.sub(r"font: ([\d.]+)px[^;\"]*", r"font-size: \1px", svg)
    svg = re.sub(
        r"font: (?:bold|700) ([\d.]+)px[^;\"]*", r"font-weight: bold; font-size: \1px", svg
    )
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return Html(
        svg.replace('id="', f'id="{name}-')
        .replace("url(#", f"url(#{name}-")
        .replace('xlink:href="#', f'href="#{name}-')
    )


# ------------------------------------------------------------------ heat maps


@dataclass(frozen=True)
class HeatMap:
    """A tensor (T, width) or (T, heads * T), and the tensor whose values set the colour scale."""

    title: str
    values: NDArray[Any]
    scale: NDArray[Any]
    is_signed: bool = True


def stacked(maps: list[HeatMap], height: float = 1.75) -> Canvas:
    """Draw heat maps one above the other, each with its colour bar."""
    canvas, axes = new(height * len(maps), len(maps), sharex=True, squeeze=False)
    for panel, axis in zip(maps, axes[:, 0], strict=True):
        image = _image(axis, panel.values, signed_colours(), symmetric_limits(panel.scale))
        axis.set_title(panel.title)
        _colour_bar(canvas, image, axis)
        axis.set_ylabel("token")
    axes[-1, 0].set_xlabel("feature")
    return canvas


def by_head(maps: list[HeatMap], heads: int) -> Canvas:
    """Draw a row of panels for each tensor and a column for each head."""
    side = WIDTH / max(heads, 2)
    canvas, axes = new(
        len(maps) * max(side, 1.4) * 0.92 + 0.25, len(maps), heads, sharex=True, squeeze=False
    )
    for line, row in zip(axes, maps, strict=True):
        limits = symmetric_limits(row.scale) if row.is_signed else (0.0, _most(row.scale))
        colours = signed_colours() if row.is_signed else amount_colours("#000000")
        for head, part in enumerate(np.hsplit(row.values, heads)):
            image = _image(line[head], part, colours, limits)
            name = f"{row.title}, head {head + 1}" if heads > 1 else row.title
            line[head].set_title(name, fontsize=8)
            line[head].tick_params(labelleft=not head)
        line[0].set_ylabel("query token")
        _colour_bar(canvas, image, list(line))
    for axis in axes[-1]:
        axis.set_xlabel("key token")
    return canvas


def _image(axis: Any, values: NDArray[Any], colours: Any, limits: tuple[float, float]) -> Any:
    image = axis.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    axis.tick_params(length=2, width=0.6)
    axis.set_yticks([0, 25, 50, 75, len(values) - 1])
    return image


def _colour_bar(canvas: Any, image: Any, axes: Any) -> None:
    bar = canvas.colorbar(image, ax=axes, fraction=0.045, pad=0.02, aspect=18)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, width=0.6, labelsize=7, color=SOFT)


def symmetric_limits(values: NDArray[Any]) -> tuple[float, float]:
    """Return colour limits around zero that a few outliers do not widen."""
    most = float(np.quantile(np.abs(values), 0.995)) or float(np.abs(values).max()) or 1.0
    return -most, most


def _most(values: NDArray[Any]) -> float:
    return float(np.quantile(values, 0.995)) or 1.0


def number_grid(
    values: NDArray[Any], columns: list[str], most: float, form: str = "{:.0f}"
) -> Canvas:
    """Draw a table of numbers, one row per layer, each cell coloured by its value."""
    canvas, axis = new(max(1.9, 0.26 * len(values) + 0.7))
    axis.imshow(values, cmap=amount_colours(), vmin=0, vmax=most, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = "#ffffff" if value < 0.7 * most else "#06141a"
            axis.text(column, row, form.format(value), ha="center", va="center", color=colour,
                      size=7.5)  # fmt: skip
    axis.set_xticks(range(len(columns)), columns, rotation=35, ha="right")
    axis.set_yticks(range(len(values)), [str(i + 1) for i in range(len(values))])
    axis.set_ylabel("layer")
    axis.set_xticks(np.arange(-0.5, values.shape[1]), minor=True)
    axis.set_yticks(np.arange(-0.5, values.shape[0]), minor=True)
    axis.grid(which="minor", color=BACKGROUND, linewidth=1.2)
    axis.tick_params(which="both", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return canvas
