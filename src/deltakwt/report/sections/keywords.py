"""Executed MACs by class: one instance as in the paper's table, and all clips with their spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.macs import MHSA_PRODUCTS, dense_macs
from deltakwt.report.run import PAPER, Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import LINE, MHSA, PRODUCT_NAMES, SOFT, THEIRS, Figure, new
from deltakwt.report.tables import Column, Table

COLUMNS = (*MHSA_PRODUCTS, "total")


def collect(run: Run) -> Numbers:
    batch = run.batch(PAPER)
    assert batch.macs is not None
    percents = _percents(run, batch.macs)  # (n, 5)
    sample, rows = run.sample, []
    groups = [(label, sample.targets == i) for i, label in enumerate(sample.labels)]
    for label, mine in groups:
        mine = mine & ~sample.is_noise
        if mine.any():
            rows.append(_row(run, label, percents, mine, run.example(label)))
    if sample.is_noise.any():
        rows.append(_row(run, "noise", percents, sample.is_noise, int(sample.is_noise.argmax())))
    words = percents[sample.is_word]
    return {
        "thresholds": str(PAPER),
        "rows": rows,
        "words": {"mean": _named(words.mean(axis=0)), "spread": _named(words.std(axis=0))},
    }


def _percents(run: Run, macs: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, 5): each product of attention, and all four, in percent of dense."""
    dense = dense_macs(run.model.config).sum(axis=0)[: len(MHSA_PRODUCTS)]
    found = macs.sum(axis=1)[:, : len(MHSA_PRODUCTS)]
    total = found.sum(axis=1, keepdims=True) / dense.sum()
    return 100 * np.hstack([found / dense, total])


def _row(
    run: Run, label: str, percents: NDArray[np.float64], mine: NDArray[np.bool_], example: int
) -> Numbers:
    zero = bool(run.sample.is_zero[mine].all())
    return {
        "label": label,
        "clips": run.sample.zeros if zero else int(mine.sum()),
        "file": run.sample.clips[example].path or "digital zero",
        "instance": _named(percents[example]),
        "mean": _named(percents[mine].mean(axis=0)),
        "spread": _named(percents[mine].std(axis=0)),
        "least": float(percents[mine, -1].min()),
        "most": float(percents[mine, -1].max()),
    }


def _named(row: Any) -> dict[str, float]:
    return {name: float(value) for name, value in zip(COLUMNS, row, strict=True)}


def show(document: Numbers) -> Page:
    own, theirs = document["keywords"], document["paper"]
    text = (
        f"<p>At the paper's thresholds {own['thresholds']} (attention only) a spoken word takes"
        f" <b>{own['words']['mean']['total']:.1f}%</b> of attention's MACs on average, give or take"
        f" {own['words']['spread']['total']:.1f} from clip to clip; the paper's instances lie"
        f" between {_least(theirs):.2f} and {_most(theirs):.2f}%. Digital silence is the cheapest"
        " input there is. Recorded noise is not: its log energies jump from frame to frame.</p>"
    )
    figure = Figure(
        "keywords",
        lambda: _draw(document),
        "Attention MACs by class: all clips (dot: mean; bar: one standard deviation; thin line:"
        " least to most) and the paper's one instance.",
        own["thresholds"],
    )
    return Page(
        "Executed MACs by keyword",
        theirs["counterparts"]["keywords"],
        text,
        [figure],
        [_instances(document), _means(document)],
    )


def _totals(theirs: Numbers) -> list[float]:
    return [row["total"] for label, row in theirs["keywords"].items() if label != "_silence_"]


def _least(theirs: Numbers) -> float:
    return min(_totals(theirs))


def _most(theirs: Numbers) -> float:
    return max(_totals(theirs))


def _instances(document: Numbers) -> Table:
    columns = [Column("class")]
    for product in COLUMNS:
        title = PRODUCT_NAMES.get(product, "total")
        columns += [Column("ours", ".2f", f"{title}, %"), Column("paper", ".2f", f"{title}, %")]
    rows: list[Any] = []
    for row in document["keywords"]["rows"]:
        printed = document["paper"]["keywords"].get(row["label"], {})
        pairs = [(row["instance"][p], printed.get(p)) for p in COLUMNS]
        rows.append([row["label"], *(value for pair in pairs for value in pair)])
    caption = "One instance of each class: the first that the dense model gets right."
    return Table("keywords-instance", caption, columns, rows, document["keywords"]["thresholds"])


def _means(document: Numbers) -> Table:
    columns = [Column("class"), Column("clips", ",d")]
    for product in COLUMNS:
        title = f"{PRODUCT_NAMES.get(product, 'total')}, %"
        columns += [Column("mean", ".2f", title), Column("±", ".2f", title)]
    rows: list[Any] = []
    for row in document["keywords"]["rows"]:
        pairs = [(row["mean"][p], row["spread"][p]) for p in COLUMNS]
        rows.append([row["label"], row["clips"], *(value for pair in pairs for value in pair)])
    caption = "All clips: mean and standard deviation over the clips of a class."
    return Table("keywords-mean", caption, columns, rows, document["keywords"]["thresholds"])


def _draw(document: Numbers) -> Any:
    rows, theirs = document["keywords"]["rows"], document["paper"]
    canvas, axis = new(max(1.8, 0.24 * len(rows) + 0.9))
    places = range(len(rows))
    means, spreads = ([row[key]["total"] for row in rows] for key in ("mean", "spread"))
    least, most = ([row[key] for row in rows] for key in ("least", "most"))
    axis.hlines(places, least, most, color=SOFT, linewidth=0.7)
    low, high = np.subtract(means, spreads), np.add(means, spreads)
    axis.hlines(places, low, high, color=MHSA, linewidth=4, alpha=0.45)
    axis.plot(means, places, "o", color=MHSA, markersize=4.5, label="all clips")
    printed = [
        (theirs["keywords"][row["label"]]["total"], place)
        for place, row in enumerate(rows)
        if row["label"] in theirs["keywords"]
    ]
    if printed:
        axis.plot(*zip(*printed, strict=True), "D", color=THEIRS, markersize=4.5,
                  markerfacecolor="none", label=f"the paper, {theirs['model']}")  # fmt: skip
    axis.set_yticks(places, [row["label"].strip("_") for row in rows])
    axis.invert_yaxis()
    axis.set_xlim(0)
    axis.set_xlabel("executed MACs of attention, %")
    axis.grid(True, axis="x")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_color(LINE)
    axis.legend(loc="upper right")
    return canvas


SECTION = Section("keywords", collect, show)
