"""Layer by layer: executed MACs, bytes of the stored tensors, error of each layer's output."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.macs import PRODUCTS, Macs
from deltakwt.core.setting import ALL_SITES
from deltakwt.evaluate import counts as storage
from deltakwt.report import traces
from deltakwt.report.heatmaps import cells
from deltakwt.report.run import Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import (
    MHSA,
    OURS,
    PRODUCT_NAMES,
    SITE_NAMES,
    THEIRS,
    Figure,
    amount,
    new,
)
from deltakwt.report.tables import Column, Table

CLIPS = 120  # whose layer outputs are compared with the dense ones


def collect(run: Run) -> Numbers:
    config, chosen = run.model.config, run.chosen
    batch = run.batch(chosen.thresholds, chosen.front_end)
    assert batch.macs is not None
    assert batch.nonzeros is not None
    words = run.sample.is_word
    macs = Macs(config, batch.macs[words].mean(axis=0))
    bytes_ = storage.stored_bytes(config, batch.nonzeros[words].mean(axis=0))
    picks = run.sample.spread(CLIPS)
    errors = []
    for index in picks:
        features = run.sample.features(chosen.front_end)[index]
        dense = run.model.engine.trace(features, traces.EXACT)
        delta = run.model.engine.trace(features, chosen.thresholds)
        errors.append(traces.output_errors(config, dense, delta))
        run.step(1)
    low, middle, high = np.quantile(errors, [0.1, 0.5, 0.9], axis=0)
    total = bytes_["total"]
    return {
        "thresholds": str(chosen.thresholds),
        "clips": int(words.sum()),
        "error_clips": len(picks),
        "macs": [{"layer": n + 1, **layer} for n, layer in enumerate(macs.layers)],
        "bytes": bytes_,
        "layer_kib": [_over_sites(layer) for layer in bytes_["layers"]],
        "bytes_percent": {form: 100 * total[form] / total["dense"] for form in storage.FORMS},
        "errors": [
            {"low": float(a), "median": float(b), "high": float(c)}
            for a, b, c in zip(low, middle, high, strict=True)
        ],
    }


def _over_sites(layer: Numbers) -> Numbers:
    return {form: sum(site[form] for site in layer.values()) / 1024 for form in storage.FORMS}


def show(document: Numbers) -> Page:
    own, chosen = document["layers"], document["setting"]["thresholds"]
    cheap, dear = _extremes(own["macs"])
    percent = own["bytes_percent"]
    text = (
        f"<p>Words at {chosen['name']}. The cheapest layer runs {cheap:.1f}% of its MACs, the"
        f" dearest {dear:.1f}%. Stored as deltas, the tensors of a clip take"
        f" <b>{percent['bitmap']:.1f}%</b> of their bytes as bitmap and values,"
        f" {percent['index']:.1f}% as index and values. A layer's output lies up to"
        f" {max(e['median'] for e in own['errors']):.1f}% of its length away from the dense one;"
        f" of the last layer's class token, which alone decides, it is"
        f" {own['errors'][-1]['median']:.1f}%.</p>"
    )
    name = chosen["text"]
    figures = [
        Figure("layers-macs", lambda: _macs(own),
               f"Executed MACs, percent of the dense layer, mean over {own['clips']:,} words.",
               name),
        Figure("layers-bytes", lambda: _bytes(own),
               "Bytes of each site's tensors over all layers, dense and as deltas, mean over the"
               " same clips. V only where a threshold is set for it.", name),
        Figure("layers-error", lambda: _errors(own),
               "Distance of each layer's output from the dense one, in percent of its length:"
               f" median and all but a tenth at either end of {own['error_clips']} clips.", name),
    ]  # fmt: skip
    return Page(
        "Layer by layer",
        document["paper"]["counterparts"]["layers"],
        text,
        figures,
        [_table(own, name)],
    )


def _extremes(layers: list[Numbers]) -> tuple[float, float]:
    """Of all but the last layer, which always has its shortcut."""
    totals = [layer["model_percent"] for layer in layers[:-1]] or [layers[0]["model_percent"]]
    return min(totals), max(totals)


def _table(own: Numbers, name: str) -> Table:
    columns = [Column("layer", "d")]
    columns += [Column(PRODUCT_NAMES[p], ".1f", "executed MACs, %") for p in PRODUCTS]
    columns += [
        Column("attention", ".1f", "executed MACs, %"),
        Column("all", ".1f", "executed MACs, %"),
        Column("dense", ".1f", "KiB"),
        Column("bitmap", ".1f", "KiB"),
        Column("index", ".1f", "KiB"),
        Column("error, %", ".2f"),
    ]
    rows: list[Any] = []
    for layer, kib, error in zip(own["macs"], own["layer_kib"], own["errors"], strict=True):
        rows.append(
            [
                layer["layer"],
                *(layer[p] for p in PRODUCTS),
                layer["mhsa_percent"],
                layer["model_percent"],
                *(kib[form] for form in storage.FORMS),
                error["median"],
            ]
        )
    caption = "Each layer: executed MACs, bytes of its tensors, median error of its output."
    return Table("layers", caption, columns, rows, name)


def _macs(own: Numbers) -> Any:
    layers = own["macs"]
    keys = (*PRODUCTS, "model_percent")
    values = np.array([[layer[key] for key in keys] for layer in layers])
    canvas, axis = new(max(1.9, 0.26 * len(layers) + 0.7))
    axis.imshow(values, cmap=amount(), vmin=0, vmax=max(60, values.max()), aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        colour = "#ffffff" if value < 0.7 * max(60, values.max()) else "#06141a"
        axis.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour, size=7.5)
    names = [PRODUCT_NAMES.get(key, "all") for key in keys]
    axis.set_xticks(range(len(keys)), names, rotation=35, ha="right")
    axis.set_yticks(range(len(layers)), [str(i + 1) for i in range(len(layers))])
    axis.set_ylabel("layer")
    cells(axis, values.shape)
    return canvas


def _bytes(own: Numbers) -> Any:
    canvas, axis = new(2.9)
    forms = (("dense", THEIRS), ("bitmap", OURS), ("index", MHSA))
    places = np.arange(len(ALL_SITES))
    for number, (form, colour) in enumerate(forms):
        kib = [own["bytes"]["sites"][site][form] / 1024 for site in ALL_SITES]
        axis.bar(places + 0.27 * (number - 1), kib, 0.25, color=colour, label=form)
    axis.set_xticks(places, [SITE_NAMES[s] for s in ALL_SITES], rotation=35, ha="right")
    axis.set_ylabel("KiB a clip")
    axis.grid(True, axis="y")
    axis.set_axisbelow(True)
    axis.tick_params(axis="x", length=0)
    axis.legend(loc="upper left")
    return canvas


def _errors(own: Numbers) -> Any:
    canvas, axis = new(2.6)
    layers = np.arange(1, len(own["errors"]) + 1)
    low, middle, high = ([e[key] for e in own["errors"]] for key in ("low", "median", "high"))
    axis.fill_between(layers, low, high, color=OURS, alpha=0.22, linewidth=0)
    axis.plot(layers, middle, color=OURS, marker="o", markersize=3.5)
    axis.set_xticks(layers)
    axis.set(xlabel="layer", ylabel="error, %", ylim=(0, None))
    axis.grid(True, axis="y")
    return canvas


SECTION = Section("layers", collect, show)
