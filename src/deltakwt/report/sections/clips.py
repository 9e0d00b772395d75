"""Clip by clip: the MACs of each keyword, and every decision that deltas change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.macs import MHSA_PRODUCTS, Macs, dense_macs
from deltakwt.core.model import softmax
from deltakwt.core.setting import DENSE
from deltakwt.report.figures import (
    LINE,
    MHSA,
    PRODUCT_NAMES,
    SOFT,
    THEIRS,
    Figure,
    legend_above,
    new,
)
from deltakwt.report.html import audio_address
from deltakwt.report.page import Column, Content, Numbers, Section, Table
from deltakwt.report.study import PAPER, Study

COLUMNS = (*MHSA_PRODUCTS, "total")
ZERO_CLIP = "digital silence"
LARGEST_SOUND = 40_000  # bytes of one clip in the page


def collect_keywords(study: Study) -> Numbers:
    batch = study.batch(PAPER)
    assert batch.macs is not None
    percents = _percents(study, batch.macs)  # (n, 5)
    sample, rows = study.sample, []
    groups = [(label, sample.targets == i) for i, label in enumerate(sample.labels)]
    for label, mine in groups:
        mine = mine & ~sample.is_noise
        if mine.any():
            rows.append(_row(study, label, percents, mine, study.example(label)))
    if sample.is_noise.any():
        rows.append(_row(study, "noise", percents, sample.is_noise, int(sample.is_noise.argmax())))
    words = percents[sample.is_word]
    return {
        "thresholds": str(PAPER.thresholds),
        "rows": rows,
        "words": {"mean": _named(words.mean(axis=0)), "spread": _named(words.std(axis=0))},
        "executed_words_percent": study.macs(
            PAPER, sample.is_word.astype(float)
        ).executed_mhsa_percent,
    }


def _percents(study: Study, macs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (n, 5): each product of attention, and all four, in percent of dense."""
    dense = dense_macs(study.model.config).sum(axis=0)[: len(MHSA_PRODUCTS)]
    found = macs.sum(axis=1)[:, : len(MHSA_PRODUCTS)]
    total = found.sum(axis=1, keepdims=True) / dense.sum()
    return 100 * np.hstack([found / dense, total])


def _row(
    study: Study, label: str, percents: NDArray[np.float64], mine: NDArray[np.bool_], example: int
) -> Numbers:
    zero = bool(study.sample.is_zero[mine].all())
    return {
        "label": label,
        "clips": study.sample.zeros if zero else int(mine.sum()),
        "file": study.sample.clips[example].path or ZERO_CLIP,
        "instance": _named(percents[example]),
        "mean": _named(percents[mine].mean(axis=0)),
        "spread": _named(percents[mine].std(axis=0)),
        "least": float(percents[mine, -1].min()),
        "most": float(percents[mine, -1].max()),
    }


def _named(row: Any) -> dict[str, float]:
    return {name: float(value) for name, value in zip(COLUMNS, row, strict=True)}


def show_keywords(document: Numbers) -> Content:
    own, theirs = document["keywords"], document["paper"]
    printed = [row["total"] for label, row in theirs["keywords"].items() if label != "_silence_"]
    text = (
        f"With the paper's thresholds {own['thresholds']} (deltas in attention only) a spoken word"
        f" takes **{own['words']['mean']['total']:.1f}%** of the MACs of attention on average, with"
        f" a standard deviation of {own['words']['spread']['total']:.1f} from clip to clip"
        f" (executed: {own['executed_words_percent']:.1f}%). The paper's clips lie between"
        f" {min(printed):.2f} and {max(printed):.2f}%. Digital silence is the cheapest input there"
        " is. Recorded noise is not cheap: the logarithm of its energies jumps from frame to frame."
    )
    figure = Figure(
        "keywords",
        lambda: _draw(document),
        "MACs of attention by class. Dot: mean over all clips; thick bar: one standard deviation;"
        " thin line: least to most; diamond: the paper's one clip. Silence is far left, noise is"
        " right of most words.",
        own["thresholds"],
    )
    return Content(
        "MACs by keyword",
        theirs["counterparts"]["keywords"],
        text,
        [figure],
        [_instances(document), _means(document)],
    )


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
    caption = (
        "MACs of attention for one clip of each class, by the paper's count, beside the paper's own"
        " clip. Ours is the first clip that the dense model gets right."
    )
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
    caption = (
        "MACs of attention over all clips of a class, by the paper's count: mean and standard"
        " deviation."
    )
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
    axis.plot(means, places, "o", color=MHSA, markersize=4.5, label="all clips, mean")
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
    axis.set_xlabel("MACs of attention, the paper's count, %")
    axis.grid(True, axis="x")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_color(LINE)
    legend_above(axis)
    return canvas


# ------------------------------------------------------------------ changed decisions


def collect_changes(study: Study) -> Numbers:
    sample, setting, engine = study.sample, study.setting, study.model.engine
    dense, batch = study.batch(DENSE).logits, study.batch(setting)
    assert batch.macs is not None
    assert batch.nonzeros is not None
    before, after = softmax(dense), softmax(batch.logits)
    old, new = dense.argmax(axis=1), batch.logits.argmax(axis=1)
    rows = []
    for index in np.flatnonzero(old != new):
        clip, label = sample.clips[index], sample.labels
        macs = Macs(study.model.config, batch.macs[index], batch.nonzeros[index], engine.isa)
        rows.append(
            {
                "file": clip.path or ZERO_CLIP,
                "offset": clip.offset,
                "index": int(index),
                "true": clip.label,
                "dense": label[old[index]],
                "dense_score": float(before[index, old[index]]),
                "delta": label[new[index]],
                "delta_score": float(after[index, new[index]]),
                "outcome": _outcome(int(sample.targets[index]), int(old[index]), int(new[index])),
                "model_percent": macs.model_percent,
                "executed_model_percent": macs.executed_model_percent,
            }
        )
    outcomes = [row["outcome"] for row in rows]
    return {
        "clips": len(sample),
        "changed": len(rows),
        "changed_percent": 100 * len(rows) / len(sample),
        "outcomes": {kind: outcomes.count(kind) for kind in ("lost", "won", "wrong anyway")},
        "playable": 0,  # set when sounds go into the page
        "rows": rows,
    }


def _outcome(true: int, dense: int, delta: int) -> str:
    if dense == true:
        return "lost"
    return "won" if delta == true else "wrong anyway"


def sounds(study: Study, document: Numbers, most: int) -> dict[str, str]:
    """Return sounds for the page: index of a changed clip -> data: address. Losses come first."""
    rows = [row for row in document["changes"]["rows"] if row["file"] != ZERO_CLIP]
    order = {"lost": 0, "won": 1, "wrong anyway": 2}
    rows.sort(key=lambda row: order[row["outcome"]])
    made: dict[str, str] = {}
    for row in rows[:most]:
        address = audio_address(study.sample.sound(row["index"]))
        if len(address) <= LARGEST_SOUND:
            made[str(row["index"])] = address
    document["changes"]["playable"] = len(made)
    return made


def show_changes(document: Numbers) -> Content:
    own, sounds = document["changes"], document.get("sounds", {})
    outcomes = own["outcomes"]
    listen = (
        f" {own['playable']} of them can be played."
        if sounds
        else " This copy contains no recordings; `deltakwt report` adds them."
    )
    text = (
        f"Of {own['clips']:,} clips, deltas change the decision on **{own['changed']:,}**"
        f" ({own['changed_percent']:.2f}%): {outcomes['lost']} were right before,"
        f" {outcomes['won']} are right only now, and {outcomes['wrong anyway']} are wrong both"
        f" times.{listen if own['changed'] else ''}"
    )
    columns = [
        Column("clip"),
        Column("true"),
        Column("answer", "", "dense"),
        Column("score", ".2f", "dense"),
        Column("answer", "", "deltas"),
        Column("score", ".2f", "deltas"),
        Column("outcome"),
        Column("paper's count", ".1f", "all MACs, %"),
        Column("executed", ".1f", "all MACs, %"),
    ]
    keys = (
        *("file", "true", "dense", "dense_score", "delta", "delta_score", "outcome"),
        *("model_percent", "executed_model_percent"),
    )
    rows = [[row[key] for key in keys] for row in own["rows"]]
    players = [sounds.get(str(row["index"]), "") for row in own["rows"]] if sounds else []
    caption = "Every clip on which the decision differs from that of the dense model."
    setting = document["facts"]["setting"]["text"]
    table = Table("changes", caption, columns, rows, setting, players)
    counterpart = document["paper"]["counterparts"]["changes"]
    return Content("Changed decisions", counterpart, text, tables=[table])


KEYWORDS = Section("keywords", collect_keywords, show_keywords)
CHANGES = Section("changes", collect_changes, show_changes)
