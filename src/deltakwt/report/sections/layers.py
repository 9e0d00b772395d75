"""Layer by layer: both counts of MACs, and the error of each layer's output."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.macs import PRODUCTS, dense_macs, fill_macs
from deltakwt.report import traces
from deltakwt.report.figures import OURS, PRODUCT_NAMES, Figure, new, number_grid
from deltakwt.report.page import Column, Content, Numbers, Section, Table
from deltakwt.report.study import Study

CLIPS = 120  # whose layer outputs are compared with the dense ones


def collect(study: Study) -> Numbers:
    config, engine, thresholds = study.model.config, study.model.engine, study.thresholds
    words = study.sample.is_word
    macs = study.macs(study.setting, words.astype(float))
    both = macs.to_json()
    picks = study.sample.spread(CLIPS)
    errors, fills = [], []
    for index in picks:
        features = study.sample.features(study.setting.front_end)[index]
        dense = engine.trace(features, traces.EXACT)
        delta = engine.trace(features, thresholds)
        errors.append(traces.output_errors(config, dense, delta))
        fills.append(fill_macs(config, delta, thresholds.array(config.layers), engine.isa))
        study.step(1)
    low, middle, high = np.quantile(errors, [0.1, 0.5, 0.9], axis=0)
    fill = np.mean(fills, axis=0).sum(axis=0)
    return {
        "clips": int(words.sum()),
        "traced_clips": len(picks),
        "macs": [
            {"layer": n + 1, **paper, "executed_percent": executed["model_percent"]}
            for n, (paper, executed) in enumerate(
                zip(both["layers"], both["executed"]["layers"], strict=True)
            )
        ],
        "products": [
            {
                "product": name,
                "paper_percent": both["sites"][name],
                "executed_percent": both["executed"]["sites"][name],
                "fill_percent": float(100 * fill[n] / dense_macs(config)[:, n].sum()),
            }
            for n, name in enumerate(PRODUCTS)
        ],
        "total": {
            "paper_percent": macs.model_percent,
            "executed_percent": macs.executed_model_percent,
            "fill_percent": float(100 * fill.sum() / dense_macs(config).sum()),
        },
        "errors": [
            {"low": float(a), "median": float(b), "high": float(c)}
            for a, b, c in zip(low, middle, high, strict=True)
        ],
    }


def show(document: Numbers) -> Content:
    own, setting = document["layers"], document["facts"]["setting"]
    cheap, dear = _extremes(own["macs"])
    total = own["total"]
    text = (
        f"Words; setting: {setting['name']}. The cheapest layer runs {cheap:.1f}% of its"
        f" MACs, the most expensive {dear:.1f}%. Over the whole model it is"
        f" **{total['paper_percent']:.1f}%** by the paper's count and"
        f" **{total['executed_percent']:.1f}%** executed. The difference is Q·Kᵀ, which is executed"
        " as the changed values of Q times whole rows of K. The kernels also fill the list of each"
        f" row to a multiple of four with zeros, another {total['fill_percent']:.1f}% that is in"
        " neither count."
        f"\n\nThe output of a layer differs from the dense one by up to"
        f" {max(e['median'] for e in own['errors']):.1f}% of its length (median over clips). For"
        " the class token of the last layer, which alone decides, it is"
        f" {own['errors'][-1]['median']:.1f}%."
    )
    name = setting["text"]
    figures = [
        Figure("layers-macs", lambda: _macs(own),
               "MACs in percent of the dense layer, mean over"
               f" {own['clips']:,} words: each product by the paper's count, then all six by both"
               " counts. Bright cells are expensive.", name),
        Figure("layers-error", lambda: _errors(own),
               "Distance of each layer's output from the dense one in percent of its length: the"
               f" median over {own['traced_clips']} clips, and the band that leaves out a tenth of"
               " the clips at each end. The last layer computes only the class token, whose error"
               " is smaller.", name),
    ]  # fmt: skip
    counterpart = document["paper"]["counterparts"]["layers"]
    tables = [_products_table(own, name), _layers_table(own, name)]
    return Content("Layer by layer", counterpart, text, figures, tables)


def _extremes(layers: list[Numbers]) -> tuple[float, float]:
    """Return least and most of all but the last layer, which always has its shortcut."""
    totals = [layer["model_percent"] for layer in layers[:-1]] or [layers[0]["model_percent"]]
    return min(totals), max(totals)


def _products_table(own: Numbers, setting: str) -> Table:
    columns = [
        Column("product"),
        Column("paper's count", ".1f", "% of the dense product"),
        Column("executed", ".1f", "% of the dense product"),
        Column("zeros that fill lists", ".1f", "% of the dense product"),
    ]
    keys = ("paper_percent", "executed_percent", "fill_percent")
    rows: list[Any] = [
        [PRODUCT_NAMES[line["product"]], *(line[key] for key in keys)] for line in own["products"]
    ]
    rows.append(["all", *(own["total"][key] for key in keys)])
    caption = "The two counts of MACs, product by product, mean over words."
    return Table("counts", caption, columns, rows, setting)


def _layers_table(own: Numbers, setting: str) -> Table:
    columns = [Column("layer", "d")]
    columns += [Column(PRODUCT_NAMES[p], ".1f", "paper's count, %") for p in PRODUCTS]
    columns += [
        Column("attention", ".1f", "paper's count, %"),
        Column("all", ".1f", "paper's count, %"),
        Column("all", ".1f", "executed, %"),
        Column("error, %", ".2f"),
    ]
    keys = ("layer", *PRODUCTS, "mhsa_percent", "model_percent", "executed_percent")
    rows: list[Any] = [
        [*(layer[key] for key in keys), error["median"]]
        for layer, error in zip(own["macs"], own["errors"], strict=True)
    ]
    caption = "Each layer: MACs in percent of dense, and the median error of its output."
    return Table("layers", caption, columns, rows, setting)


def _macs(own: Numbers) -> Any:
    keys = (*PRODUCTS, "model_percent", "executed_percent")
    values = np.array([[layer[key] for key in keys] for layer in own["macs"]])
    names = [*(PRODUCT_NAMES[p] for p in PRODUCTS), "all", "executed"]
    return number_grid(values, names, max(60.0, float(values.max())), "{:.1f}")


def _errors(own: Numbers) -> Any:
    canvas, axis = new(2.6)
    layers = np.arange(1, len(own["errors"]) + 1)
    low, middle, high = ([e[key] for e in own["errors"]] for key in ("low", "median", "high"))
    axis.fill_between(layers, low, high, color=OURS, alpha=0.22, linewidth=0)
    axis.plot(layers, middle, color=OURS, marker="o", markersize=3.5)
    axis.set_xticks(layers)
    axis.set(xlabel="layer", ylabel="distance from dense, %", ylim=(0, None))
    axis.grid(True, axis="y")
    return canvas


SECTION = Section("layers", collect, show)
