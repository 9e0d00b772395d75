"""Measured time: dense against delta, clip by clip, and the receipt of where it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from deltakwt.core.engine import STAGES
from deltakwt.core.macs import PRODUCTS, Macs, dense_macs
from deltakwt.core.setting import ALL_SITES
from deltakwt.report.run import Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import MHSA, OURS, PRODUCT_NAMES, SOFT, THEIRS, Figure, new
from deltakwt.report.tables import Column, Table

CLIPS = 200  # timed one by one
REPEATS = 5  # of each, dense and delta in turns; the fastest counts
RECEIPTS = 40

# What a receipt tells apart, and the engine's stages behind it.
PARTS = {
    **{p: (p,) for p in PRODUCTS},
    "comparing tokens": tuple(f"scan_{site}" for site in ALL_SITES),
    "softmax": ("softmax",),
    "GELU": ("gelu",),
    "norms": ("norm",),
    "layout": ("layout",),
}


def collect(run: Run) -> Numbers:
    thresholds, front_end = run.chosen.thresholds, run.chosen.front_end
    engine, features = run.model.engine, run.sample.features(run.chosen.front_end)
    batch = run.batch(thresholds, front_end)
    assert batch.macs is not None
    picks = _picks(run)
    clips = []
    for index in picks:
        clip = features[index]
        dense_ms, delta_ms = _interleaved(
            lambda clip=clip: engine.dense(clip),  # type: ignore[misc]
            lambda clip=clip: engine.logits(clip, thresholds),  # type: ignore[misc]
        )
        clips.append(
            {
                "kind": _kind(run, index),
                "model_percent": Macs(run.model.config, batch.macs[index]).model_percent,
                "dense_ms": dense_ms,
                "delta_ms": delta_ms,
            }
        )
        run.step(1)
    kinds = dict.fromkeys(clip["kind"] for clip in clips)
    receipt = _receipt(run, [i for i in picks if run.sample.is_word[i]][:RECEIPTS])
    spent = {line["part"]: line["delta_ms"] for line in receipt}
    return {
        "thresholds": str(thresholds),
        "isa": engine.isa,
        "repeats": REPEATS,
        "timed": len(clips),
        "clips": clips,
        "kinds": {kind: _summary([c for c in clips if c["kind"] == kind]) for kind in kinds},
        "receipt": receipt,
        "delta_ms": sum(spent.values()),
        "products_ms": sum(spent[product] for product in PRODUCTS),
        "comparing_ms": spent["comparing tokens"],
    }


def _picks(run: Run) -> list[int]:
    """Mostly words, some noise, and the digital silence."""
    sample = run.sample
    noise = sample.spread(CLIPS // 5, sample.is_noise) if sample.is_noise.any() else []
    zero = [int(sample.is_zero.argmax())] if sample.is_zero.any() else []
    return sample.spread(CLIPS - len(noise)) + noise + zero


def _kind(run: Run, index: int) -> str:
    if run.sample.is_zero[index]:
        return "digital silence"
    return "noise" if run.sample.is_noise[index] else "words"


def _interleaved(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """Fastest of a few calls each, in turns, in milliseconds: noise of the machine hits both."""
    best = [float("inf"), float("inf")]
    for _ in range(REPEATS):
        for which, call in enumerate((one, other)):
            start = time.perf_counter()
            call()
            best[which] = min(best[which], 1e3 * (time.perf_counter() - start))
    return best[0], best[1]


def _summary(clips: list[Numbers]) -> Numbers:
    dense, delta, macs = (
        np.array([c[key] for c in clips]) for key in ("dense_ms", "delta_ms", "model_percent")
    )
    return {
        "clips": len(clips),
        "dense_ms": float(np.median(dense)),
        "delta_ms": float(np.median(delta)),
        "speed_up": float(np.median(dense / delta)),
        "least_speed_up": float((dense / delta).min()),
        "most_speed_up": float((dense / delta).max()),
        "model_percent": float(macs.mean()),
        "macs_speed_up": float(100 / macs.mean()),
    }


def _receipt(run: Run, picks: list[int]) -> list[Numbers]:
    """Per part: milliseconds of a word dense and by deltas, and the MACs it was predicted from."""
    engine, features = run.model.engine, run.sample.features(run.chosen.front_end)
    spent = {True: np.zeros(len(STAGES)), False: np.zeros(len(STAGES))}
    counts = np.zeros(len(PRODUCTS))
    for index in picks:
        for is_delta in (False, True):
            thresholds = run.chosen.thresholds if is_delta else None
            runs = [engine.times(features[index], thresholds) for _ in range(REPEATS)]
            spent[is_delta] += min(runs, key=np.sum).sum(axis=0) / 1e6
        counts += engine.delta(features[index], run.chosen.thresholds).macs.sum(axis=0)
    dense = dense_macs(run.model.config).sum(axis=0)
    lines: list[Numbers] = []
    for part, stages in PARTS.items():
        columns = [STAGES.index(stage) for stage in stages]
        product = PRODUCTS.index(part) if part in PRODUCTS else None
        lines.append(
            {
                "part": part,
                "dense_ms": float(spent[False][columns].sum() / len(picks)),
                "delta_ms": float(spent[True][columns].sum() / len(picks)),
                "macs_percent": None
                if product is None
                else float(100 * counts[product] / len(picks) / dense[product]),
            }
        )
    return lines


def show(document: Numbers) -> Page:
    own, chosen = document["timing"], document["setting"]["thresholds"]
    words = own["kinds"]["words"]
    text = (
        f"<p>One core, one clip at a time, features to logits, {own['isa']} kernels: a word takes"
        f" {words['dense_ms']:.2f} ms dense and <b>{words['delta_ms']:.2f} ms</b> by deltas,"
        f" <b>{words['speed_up']:.2f}×</b> as fast at {words['model_percent']:.1f}% of the MACs"
        f" ({words['macs_speed_up']:.1f}× fewer). From clip to clip the ratio lies between"
        f" {words['least_speed_up']:.2f} and {words['most_speed_up']:.2f}: a wide range means a"
        " busy machine, and then none of these times should be quoted. Of the"
        f" {own['delta_ms']:.2f} ms on the receipt, {own['products_ms']:.2f} ms are the six"
        f" products and {own['comparing_ms']:.2f} ms is comparing tokens.</p>"
    )
    figures = [
        Figure("timing", lambda: _scatter(own),
               f"Time of {own['timed']} clips against their executed MACs: dense (grey) and by"
               f" deltas. The fastest of {own['repeats']} runs each, dense and delta in turns.",
               chosen["text"]),
        Figure("receipt", lambda: _bars(own),
               "The receipt: where the time of a word goes, dense and by deltas.",
               chosen["text"]),
    ]  # fmt: skip
    tables = [_kinds_table(own, chosen["text"]), _receipt_table(own, chosen["text"])]
    return Page("Time", document["paper"]["counterparts"]["timing"], text, figures, tables)


def _kinds_table(own: Numbers, thresholds: str) -> Table:
    columns = [
        Column("sound"),
        Column("clips", ",d"),
        Column("dense", ".2f", "ms"),
        Column("delta", ".2f", "ms"),
        Column("faster", ".2f", "times"),
        Column("fewer MACs", ".2f", "times"),
        Column("all MACs, %", ".1f"),
    ]
    keys = ("clips", "dense_ms", "delta_ms", "speed_up", "macs_speed_up", "model_percent")
    rows = [[kind, *(found[key] for key in keys)] for kind, found in own["kinds"].items()]
    return Table("timing", "Median time by kind of sound.", columns, rows, thresholds)


def _receipt_table(own: Numbers, thresholds: str) -> Table:
    columns = [
        Column("part"),
        Column("MACs executed, %", ".1f"),
        Column("dense", ".3f", "ms"),
        Column("delta", ".3f", "ms"),
    ]
    rows = [
        [PRODUCT_NAMES.get(line["part"], line["part"]), line["macs_percent"],
         line["dense_ms"], line["delta_ms"]]
        for line in own["receipt"]
    ]  # fmt: skip
    caption = "The receipt of a word: MACs predicted, milliseconds measured."
    return Table("receipt", caption, columns, rows, thresholds)


def _scatter(own: Numbers) -> Any:
    canvas, axis = new(3.0)
    marks = {"words": (OURS, "o"), "noise": (MHSA, "^"), "digital silence": (SOFT, "D")}
    clips = own["clips"]
    axis.scatter([c["model_percent"] for c in clips], [c["dense_ms"] for c in clips], s=6,
                 color=THEIRS, alpha=0.45, linewidth=0, label="dense", rasterized=True)  # fmt: skip
    for kind, (colour, mark) in marks.items():
        mine = [c for c in clips if c["kind"] == kind]
        if mine:
            axis.scatter([c["model_percent"] for c in mine], [c["delta_ms"] for c in mine],
                         s=40 if len(mine) == 1 else 12, marker=mark, color=colour, alpha=0.75,
                         linewidth=0, label=f"deltas, {kind}")  # fmt: skip
    axis.set(xlim=(0, None), ylim=(0, None))
    axis.set_xlabel("executed MACs of the whole model, %")
    axis.set_ylabel("ms a clip")
    axis.grid(True)
    axis.set_axisbelow(True)
    canvas.legend(loc="outside upper center", ncols=2, handletextpad=0.2, columnspacing=1.2)
    return canvas


def _bars(own: Numbers) -> Any:
    lines = own["receipt"]
    canvas, axis = new(0.27 * len(lines) + 0.8)
    places = np.arange(len(lines))
    for key, shift, colour, label in (
        ("dense_ms", -0.19, THEIRS, "dense"),
        ("delta_ms", 0.19, OURS, "deltas"),
    ):
        axis.barh(places + shift, [line[key] for line in lines], 0.36, color=colour, label=label)
    axis.set_yticks(places, [PRODUCT_NAMES.get(line["part"], line["part"]) for line in lines])
    axis.invert_yaxis()
    axis.set_xlabel("ms a word")
    axis.grid(True, axis="x")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
    axis.legend(loc="lower right")
    return canvas


SECTION = Section("timing", collect, show)
