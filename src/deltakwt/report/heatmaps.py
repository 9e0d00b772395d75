"""Heat maps of tensors: tokens down, features across, black where nothing happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.report.style import PAPER, SOFT, WIDTH, amount, new, signed


@dataclass(frozen=True)
class Panel:
    """One tensor (T, width), and the one whose values set the scale."""

    title: str
    values: NDArray[Any]
    scale: NDArray[Any]


def stack(panels: list[Panel], height: float = 1.75) -> Any:
    """Panels one above the other, each with its colour bar."""
    canvas, axes = new(height * len(panels), len(panels), sharex=True, squeeze=False)
    for panel, axis in zip(panels, axes[:, 0], strict=True):
        draw(canvas, axis, panel, signed(), symmetric(panel.scale))
        axis.set_ylabel("token")
    axes[-1, 0].set_xlabel("feature")
    return canvas


@dataclass(frozen=True)
class HeadRow:
    """A tensor (T, heads * T), shown head by head, and the one whose values set the scale."""

    title: str
    values: NDArray[Any]
    scale: NDArray[Any]
    is_signed: bool = True


def heads(rows: list[HeadRow], count: int) -> Any:
    """A row of panels for each tensor, a column for each head."""
    side = WIDTH / max(count, 2)
    canvas, axes = new(
        len(rows) * max(side, 1.4) * 0.92 + 0.25, len(rows), count, sharex=True, squeeze=False
    )
    for line, row in zip(axes, rows, strict=True):
        limits = symmetric(row.scale) if row.is_signed else (0.0, top(row.scale))
        colours = signed() if row.is_signed else amount("#000000")
        for head, part in enumerate(np.hsplit(row.values, count)):
            image = plain(line[head], part, colours, limits)
            name = f"{row.title}, head {head + 1}" if count > 1 else row.title
            line[head].set_title(name, fontsize=8)
            line[head].tick_params(labelleft=not head)
        line[0].set_ylabel("query token")
        bar(canvas, image, list(line))
    for axis in axes[-1]:
        axis.set_xlabel("key token")
    return canvas


def draw(canvas: Any, axis: Any, panel: Panel, colours: Any, limits: tuple[float, float]) -> None:
    image = plain(axis, panel.values, colours, limits)
    axis.set_title(panel.title)
    bar(canvas, image, axis)


def plain(
    axis: Any, values: NDArray[Any], colours: Any, limits: tuple[float, float], aspect: str = "auto"
) -> Any:
    """The picture alone, one pixel a value."""
    image = axis.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect=aspect)
    axis.tick_params(length=2, width=0.6)
    axis.set_yticks([0, 25, 50, 75, len(values) - 1])
    return image


def bar(canvas: Any, image: Any, axes: Any) -> None:
    made = canvas.colorbar(image, ax=axes, fraction=0.045, pad=0.02, aspect=18)
    made.outline.set_visible(False)
    made.ax.tick_params(length=2, width=0.6, labelsize=7, color=SOFT)


def symmetric(values: NDArray[Any]) -> tuple[float, float]:
    """Limits around zero that a few outliers do not widen."""
    most = float(np.quantile(np.abs(values), 0.995)) or float(np.abs(values).max()) or 1.0
    return -most, most


def top(values: NDArray[Any]) -> float:
    return float(np.quantile(values, 0.995)) or 1.0


def cells(axis: Any, shape: tuple[int, ...]) -> None:
    """Thin gaps between the cells, no frame."""
    axis.set_xticks(np.arange(-0.5, shape[1]), minor=True)
    axis.set_yticks(np.arange(-0.5, shape[0]), minor=True)
    axis.grid(which="minor", color=PAPER, linewidth=1.2)
    axis.tick_params(which="both", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
