"""Figures of a tuning. The figure of a sweep is in report/sections/sweep.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deltakwt.core.setting import SITES
from deltakwt.plotting import plain_text, pyplot, save_png
from deltakwt.tune.goals import Choice
from deltakwt.tune.measure import Measurement
from deltakwt.tune.refine import NUDGE, Slopes, threshold_table

DPI = 130
RED, GREEN, BLUE = "#b3242b", "#2a7f3f", "#1f5fa8"


@plain_text()
def plot_front(
    path: Path, measured: Sequence[Measurement], choices: Sequence[Choice], title: str
) -> None:
    """Draw accuracy against MACs of the whole model, and the speed-up that follows from them."""
    figure, axes = pyplot().subplots(figsize=(8, 5), layout="constrained")
    dense = measured[0].dense_accuracy
    macs = np.array([m.macs for m in measured])
    axes.axhline(dense, color=BLUE, linewidth=0.8, linestyle="--", label=f"dense, {dense:.2f}%")
    accuracy = [m.accuracy for m in measured]
    axes.plot(macs, accuracy, "^", color=RED, markersize=5, label="accuracy (left)")
    if choices:
        other = choices[0].test.dense_accuracy
        label = f"dense on test clips, {other:.2f}%"
        axes.axhline(other, color="black", linewidth=0.8, linestyle=":", label=label)
    for choice in choices:
        low, high = choice.accuracy_interval
        mine = choice.test
        error = [[mine.accuracy - low], [high - mine.accuracy]]
        axes.errorbar(mine.macs, mine.accuracy, error, fmt="s", color="black", capsize=3)
        axes.annotate(
            f"{choice.name} on test clips",
            (mine.macs, mine.accuracy),
            xytext=(6, -12),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_xlabel("MACs of the whole model, % of dense")
    axes.set_ylabel("accuracy, %", color=RED)
    axes.set_xlim(left=0)
    second = axes.twinx()
    second.plot(macs, 100 / macs, "v", color=GREEN, markersize=4, alpha=0.7)
    second.plot([], [], "v", color=GREEN, label="speed-up from MACs (right)")
    second.set_ylabel("speed-up from MACs, x", color=GREEN)
    second.set_ylim(bottom=0)
    handles = [axes.get_legend_handles_labels(), second.get_legend_handles_labels()]
    axes.legend(handles[0][0] + handles[1][0], handles[0][1] + handles[1][1], loc="center right")
    axes.set_title(title, fontsize=10)
    save_png(figure, path, DPI)


@plain_text()
def plot_parallel(path: Path, measured: Sequence[Measurement], layers: int, title: str) -> None:
    """Draw one line per setting across the sites (geometric mean over layers), coloured by loss."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    tables = [threshold_table(m.setting, layers) for m in measured]
    sites = [i for i in range(len(SITES)) if all((t[:, i] > 0).all() for t in tables)]
    values = np.array([np.exp(np.log(t[:, sites]).mean(axis=0)) for t in tables])  # (n, sites)
    low, high = values.min(axis=0), values.max(axis=0)
    places = np.log(values / low) / np.log(np.maximum(high / low, 1 + 1e-9))
    losses = np.array([m.loss for m in measured])
    colours = plt.cm.viridis_r((losses - losses.min()) / max(np.ptp(losses), 1e-9))
    for place, colour in zip(places, colours, strict=True):
        axes.plot(range(len(sites)), place, color=colour, linewidth=1.2, alpha=0.85)
    axes.set_xticks(
        range(len(sites)),
        [f"{SITES[s]}\n{lo:.2g} to {hi:.2g}" for s, lo, hi in zip(sites, low, high, strict=True)],
        fontsize=8,
    )
    axes.set_yticks([0, 1], ["lowest", "highest"])
    axes.grid(axis="x", alpha=0.4)
    scale = plt.cm.ScalarMappable(plt.Normalize(losses.min(), losses.max()), "viridis_r")
    figure.colorbar(scale, ax=axes, label="loss, points")
    axes.set_title(title, fontsize=10)
    save_png(figure, path, DPI)


@plain_text()
def plot_sensitivity(path: Path, slopes: Slopes, title: str) -> None:
    """Draw what raising each threshold by the same factor loses and saves, by site and layer."""
    figure, pair = pyplot().subplots(1, 2, figsize=(11, 5), layout="constrained", sharey=True)
    tables = (slopes.loss, slopes.saving)
    names = ("distance of the logits from dense", "MACs saved, % of the model")
    for axes, table, name in zip(pair, tables, names, strict=True):
        most = float(np.abs(table).max()) or 1.0
        colours, least = ("RdBu_r", -most) if table is slopes.loss else ("Greens", 0.0)
        image = axes.imshow(table, cmap=colours, vmin=least, vmax=most, aspect="auto")
        figure.colorbar(image, ax=axes, label=name)
        axes.set_xticks(range(len(SITES)), SITES, rotation=40, ha="right")
        axes.set_yticks(range(len(table)), range(1, len(table) + 1))
    pair[0].set_ylabel("layer")
    figure.suptitle(
        f"{title} (each threshold times {NUDGE:g}; standard error of the left {slopes.noise:.2g})",
        fontsize=10,
    )
    save_png(figure, path, DPI)
