"""One look for all figures, light on paper and adaptable on the page.

Every colour is named once. In an SVG that goes into the page each is replaced by the page's own
CSS variable, so a figure follows the reader's light or dark theme.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltakwt.core.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure as Canvas

WIDTH = 4.4  # inches: legible on a phone, two beside each other on a desk
DPI = 160
STAMP = 5  # points of the small print below a figure

# name of the CSS variable: colour on white
COLOURS = {
    "ink": "#1c2128",
    "soft": "#68727f",
    "line": "#d8dde3",
    "paper": "#fefefe",
    "ours": "#0f7b8a",  # the whole model by deltas
    "mhsa": "#d9712b",  # attention alone, as the paper has it
    "theirs": "#7a7f87",  # the paper's own numbers
    "profile": "#8a4fb3",
    "good": "#2f8f5b",
}
INK, SOFT, LINE, PAPER = (COLOURS[name] for name in ("ink", "soft", "line", "paper"))
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
    "image.interpolation": "none",  # a value is a pixel; SVG holds no more than that
    "image.composite_image": False,
}


@dataclass(frozen=True)
class Figure:
    """A picture that has not been drawn yet."""

    name: str  # of its files
    draw: Callable[[], Canvas]
    caption: str
    thresholds: str  # in force when its numbers were measured


def pyplot() -> Any:
    """Drawing without a screen; matplotlib comes with the extra `report`."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("drawing figures", "report") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def new(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Canvas, Any]:
    """A canvas and its axes."""
    made: tuple[Canvas, Any] = pyplot().subplots(
        rows, columns, figsize=(WIDTH, height), layout="constrained", **options
    )
    return made


def signed() -> Colormap:
    """Black where nothing is, blue below and orange above: for values and their differences."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = ["#a8dcff", "#2f8fd8", "#123a63", "#000000", "#6b3206", "#e8812a", "#ffdca8"]
    return LinearSegmentedColormap.from_list("signed", steps)


def amount(low: str = "#06141a", high: str = "#dff6f2") -> Colormap:
    """Dark where little is, bright where much is."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("amount", [low, "#0b4f5c", "#1f9aa0", "#8fd8c4", high])


def save(figure: Figure, folder: Path, stamp: str) -> str:
    """Write <name>.png and <name>.svg, stamped; the SVG for the page comes back unstamped."""
    plt = pyplot()
    with plt.rc_context(RC | {"svg.hashsalt": figure.name}):
        canvas = figure.draw()
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")  # laid out once is enough
        svg = _svg(canvas)
        lines = textwrap.wrap(stamp, 112)
        canvas.text(0.0, -0.01, "\n".join(lines), fontsize=STAMP, color=SOFT, va="top")
        path = folder / f"{figure.name}.png"
        canvas.savefig(path, dpi=DPI, facecolor="white", bbox_inches="tight")
        plt.close(canvas)
    _squeeze(path)
    (folder / f"{figure.name}.svg").write_text(_stamped(svg, lines), encoding="utf-8")
    return themed(svg, figure.name)


def _squeeze(path: Path) -> None:
    """Sixteen million colours are not needed: a palette makes the file a third as large."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def _svg(canvas: Canvas) -> str:
    file = io.StringIO()
    canvas.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _stamped(svg: str, lines: list[str]) -> str:
    """On white, with small print below the picture."""
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


def themed(svg: str, name: str) -> str:
    """An SVG for the page: no XML head, colours by CSS variable, the page's font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', svg)
    svg = re.sub(r"font: ([\d.]+)px[^;\"]*", r"font-size: \1px", svg)
    svg = re.sub(
        r"font: (?:bold|700) ([\d.]+)px[^;\"]*", r"font-weight: bold; font-size: \1px", svg
    )
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return (
        svg.replace('id="', f'id="{name}-')
        .replace("url(#", f"url(#{name}-")
        .replace('xlink:href="#', f'href="#{name}-')
    )
