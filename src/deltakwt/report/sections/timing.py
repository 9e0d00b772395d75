"""Measured time: dense against delta, clip by clip, and where the time of a clip goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from deltakwt.core.engine import STAGES
from deltakwt.core.macs import PRODUCTS, Macs, dense_macs
from deltakwt.core.setting import ALL_SITES
from deltakwt.report.figures import (
    MHSA,
    OURS,
    PRODUCT_NAMES,
    SOFT,
    THEIRS,
    Figure,
    legend_above,
    new,
)
from deltakwt.report.page import Column, Content, Numbers, Section, Table
from deltakwt.report.study import Study

CLIPS = 200  # timed one by one
REPEATS = 5  # runs of each clip, dense and delta in turns; the fastest counts
BREAKDOWN_CLIPS = 40

# The parts of the breakdown, and the stages of the engine behind each.
PARTS = {
    **{p: (p,) for p in PRODUCTS},
    "comparing tokens": tuple(f"scan_{site}" for site in ALL_SITES),
    "softmax": ("softmax",),
    "GELU": ("gelu",),
    "norms": ("norm",),
    "layout": ("layout",),
}


def collect(study: Study) -> Numbers:
    engine, thresholds = study.model.engine, study.thresholds
    features, batch = study.sample.features(study.setting.front_end), study.batch(study.setting)
    assert batch.macs is not None
    assert batch.nonzeros is not None
    picks = _picks(study)
    clips = []
    for index in picks:
        clip = features[index]
        dense_ms, delta_ms = _interleaved(
            lambda clip=clip: engine.dense(clip),  # type: ignore[misc]
            lambda clip=clip: engine.logits(clip, thresholds),  # type: ignore[misc]
        )
        macs = Macs(study.model.config, batch.macs[index], batch.nonzeros[index], engine.isa)
        clips.append(
            {
                "kind": _kind(study, index),
                "model_percent": macs.model_percent,
                "executed_percent": macs.executed_model_percent,
                "dense_ms": dense_ms,
                "delta_ms": delta_ms,
            }
        )
        study.step(1)
    kinds = dict.fromkeys(clip["kind"] for clip in clips)
    breakdown = _breakdown(study, [i for i in picks if study.sample.is_word[i]][:BREAKDOWN_CLIPS])
    spent = {line["part"]: line["delta_ms"] for line in breakdown}
    return {
        "isa": engine.isa,
        "repeats": REPEATS,
        "timed": len(clips),
        "clips": clips,
        "kinds": {kind: _summary([c for c in clips if c["kind"] == kind]) for kind in kinds},
        "breakdown": breakdown,
        "delta_ms": sum(spent.values()),
        "products_ms": sum(spent[product] for product in PRODUCTS),
        "comparing_ms": spent["comparing tokens"],
    }


def _picks(study: Study) -> list[int]:
    """Return mostly words, some noise, and the digital silence."""
    sample = study.sample
    noise = sample.spread(CLIPS // 5, sample.is_noise) if sample.is_noise.any() else []
    zero = [int(sample.is_zero.argmax())] if sample.is_zero.any() else []
    return sample.spread(CLIPS - len(noise)) + noise + zero


def _kind(study: Study, index: int) -> str:
    if study.sample.is_zero[index]:
        return "digital silence"
    return "noise" if study.sample.is_noise[index] else "words"


def _interleaved(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """Return the fastest of a few calls each in ms, in turns, so that both see the same machine."""
    best = [float("inf"), float("inf")]
    for _ in range(REPEATS):
        for which, call in enumerate((one, other)):
            start = time.perf_counter()
            call()
            best[which] = min(best[which], 1e3 * (time.perf_counter() - start))
    return best[0], best[1]


def _summary(clips: list[Numbers]) -> Numbers:
    dense, delta, macs, executed = (
        np.array([c[key] for c in clips])
        for key in ("dense_ms", "delta_ms", "model_percent", "executed_percent")
    )
    return {
        "clips": len(clips),
        "dense_ms": float(np.median(dense)),
        "delta_ms": float(np.median(delta)),
        "speed_up": float(np.median(dense / delta)),
        "least_speed_up": float((dense / delta).min()),
        "most_speed_up": float((dense / delta).max()),
        "model_percent": float(macs.mean()),
        "executed_percent": float(executed.mean()),
        "macs_speed_up": float(100 / executed.mean()),
    }


def _breakdown(study: Study, picks: list[int]) -> list[Numbers]:
    """Return for each part: milliseconds of a word, dense and by deltas, and its MACs."""
    engine, thresholds = study.model.engine, study.thresholds
    features = study.sample.features(study.setting.front_end)
    spent = {True: np.zeros(len(STAGES)), False: np.zeros(len(STAGES))}
    for index in picks:
        for is_delta in (False, True):
            theta = thresholds if is_delta else None
            runs = [engine.times(features[index], theta) for _ in range(REPEATS)]
            spent[is_delta] += min(runs, key=np.sum).sum(axis=0) / 1e6
    chosen = np.zeros(len(study.sample))
    chosen[picks] = 1
    macs = study.macs(study.setting, chosen)
    executed = macs.executed
    assert executed is not None
    dense = dense_macs(study.model.config).sum(axis=0)
    lines: list[Numbers] = []
    for part, stages in PARTS.items():
        columns = [STAGES.index(stage) for stage in stages]
        product = PRODUCTS.index(part) if part in PRODUCTS else None
        lines.append(
            {
                "part": part,
                "dense_ms": float(spent[False][columns].sum() / len(picks)),
                "delta_ms": float(spent[True][columns].sum() / len(picks)),
                "macs_percent": None if product is None else macs.products[part],
                "executed_percent": None
                if product is None
                else float(100 * executed[:, product].sum() / dense[product]),
            }
        )
    return lines


def show(document: Numbers) -> Content:
    own, setting = document["timing"], document["facts"]["setting"]
    words = own["kinds"]["words"]
    text = (
        f"One core, one clip at a time, from features to logits, {own['isa']} kernels: a word takes"
        f" {words['dense_ms']:.2f} ms dense and **{words['delta_ms']:.2f} ms** with deltas, which"
        f" is **{words['speed_up']:.2f} times** as fast, with {words['executed_percent']:.1f}% of"
        f" the MACs executed ({words['macs_speed_up']:.1f} times fewer). The ratio of single clips"
        f" lies between {words['least_speed_up']:.2f} and {words['most_speed_up']:.2f}. A wide"
        " range means that the machine was busy; then none of these times should be quoted."
        f"\n\nTime does not fall as far as the MACs: of the {own['delta_ms']:.2f} ms in the"
        f" breakdown, {own['products_ms']:.2f} ms are the six products and"
        f" {own['comparing_ms']:.2f} ms are the comparisons of tokens, which deltas add. The rest"
        " has no MACs."
    )
    name = setting["text"]
    figures = [
        Figure("timing", lambda: _scatter(own),
               f"Each of {own['timed']} clips once dense (grey) and once with deltas, against its"
               " executed MACs. Coloured points further below the grey ones are faster. The fastest"
               f" of {own['repeats']} runs counts.", name),
        Figure("breakdown", lambda: _bars(own),
               "Where the time of a word goes, dense (grey) and with deltas. The products shrink;"
               " comparing tokens is the price.", name),
    ]  # fmt: skip
    tables = [_kinds_table(own, name), _breakdown_table(own, name)]
    return Content("Time", document["paper"]["counterparts"]["timing"], text, figures, tables)


def _kinds_table(own: Numbers, setting: str) -> Table:
    columns = [
        Column("sound"),
        Column("clips", ",d"),
        Column("dense", ".2f", "ms"),
        Column("deltas", ".2f", "ms"),
        Column("faster", ".2f", "times"),
        Column("fewer MACs executed", ".2f", "times"),
        Column("executed", ".1f", "all MACs, %"),
        Column("paper's count", ".1f", "all MACs, %"),
    ]
    keys = ("clips", "dense_ms", "delta_ms", "speed_up", "macs_speed_up", "executed_percent",
            "model_percent")  # fmt: skip
    rows = [[kind, *(found[key] for key in keys)] for kind, found in own["kinds"].items()]
    return Table("timing", "Median time by kind of sound.", columns, rows, setting)


def _breakdown_table(own: Numbers, setting: str) -> Table:
    columns = [
        Column("part"),
        Column("paper's count", ".1f", "MACs, %"),
        Column("executed", ".1f", "MACs, %"),
        Column("dense", ".3f", "ms"),
        Column("deltas", ".3f", "ms"),
    ]
    keys = ("macs_percent", "executed_percent", "dense_ms", "delta_ms")
    rows = [
        [PRODUCT_NAMES.get(line["part"], line["part"]), *(line[key] for key in keys)]
        for line in own["breakdown"]
    ]
    caption = "Time of a word by part, measured, beside the MACs of the part."
    return Table("breakdown", caption, columns, rows, setting)


def _scatter(own: Numbers) -> Any:
    canvas, axis = new(3.0)
    marks = {"words": (OURS, "o"), "noise": (MHSA, "^"), "digital silence": (SOFT, "D")}
    clips = own["clips"]
    axis.scatter([c["executed_percent"] for c in clips], [c["dense_ms"] for c in clips], s=6,
                 color=THEIRS, alpha=0.45, linewidth=0, label="dense", rasterized=True)  # fmt: skip
    for kind, (colour, mark) in marks.items():
        mine = [c for c in clips if c["kind"] == kind]
        if mine:
            axis.scatter([c["executed_percent"] for c in mine], [c["delta_ms"] for c in mine],
                         s=40 if len(mine) == 1 else 12, marker=mark, color=colour, alpha=0.75,
                         linewidth=0, label=f"deltas, {kind}")  # fmt: skip
    most = 1.6 * float(np.median([c["dense_ms"] for c in clips]))
    hidden = sum(max(c["dense_ms"], c["delta_ms"]) > most for c in clips)
    axis.set(xlim=(0, None), ylim=(0, most))
    if hidden:  # on a busy machine a few clips take many times as long
        axis.text(0.99, 0.98, f"{hidden} slower clips not shown", transform=axis.transAxes,
                  ha="right", va="top", fontsize=7, color=SOFT)  # fmt: skip
    axis.set_xlabel("executed MACs of the whole model, %")
    axis.set_ylabel("ms per clip")
    axis.grid(True)
    axis.set_axisbelow(True)
    legend_above(axis)
    return canvas


def _bars(own: Numbers) -> Any:
    lines = own["breakdown"]
    canvas, axis = new(0.27 * len(lines) + 0.8)
    places = np.arange(len(lines))
    for key, shift, colour, label in (
        ("dense_ms", -0.19, THEIRS, "dense"),
        ("delta_ms", 0.19, OURS, "deltas"),
    ):
        axis.barh(places + shift, [line[key] for line in lines], 0.36, color=colour, label=label)
    axis.set_yticks(places, [PRODUCT_NAMES.get(line["part"], line["part"]) for line in lines])
    axis.invert_yaxis()
    axis.set_xlabel("ms per word")
    axis.grid(True, axis="x")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    legend_above(axis)
    return canvas


SECTION = Section("timing", collect, show)
