"""Memory: the state that deltas need, the bytes of encoded tensors, and the softmax's exponentials.

Three claims of the paper that have no number there. The state follows from the sizes of the model;
bytes and exponentials are measured on clips, and every encoded tensor is decoded again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.config import Config
from deltakwt.core.setting import ALL_SITES, Thresholds
from deltakwt.report import traces
from deltakwt.report.encoding import FORMATS, encoded_bytes
from deltakwt.report.figures import MHSA, OURS, SITE_NAMES, THEIRS, Figure, legend_above, new
from deltakwt.report.section import Column, Content, Numbers, Section, Table
from deltakwt.report.study import Study

CLIPS = 24  # whose tensors are written and read back
V_THRESHOLD = 0.3  # of V where the setting leaves it dense: the paper's future work
VALUE_BYTES = 4


def state_bytes(config: Config) -> Numbers:
    """Return the bytes that deltas keep from token to token, site by site, and the dense tensors.

    It follows native/src/plan.c. A reference is one row of the site. A running result is one row of
    the product, which the next token adds to; scores keep a held row as well. K and V need no extra
    row, because their references overwrite the tensor itself. `dense` is the tensor that a dense
    run holds at the site for the tokens of a clip; scores and softmax are held for one head at a
    time. The core uses one state for all layers, since it
    finishes a layer before the next; `all_layers` is for a run token by token.
    """
    T, d, m, h = config.tokens, config.dim, config.mlp, config.heads
    rows = {  # site: reference, running result, dense tensor, in values
        "x": (d, 3 * d, T * d),
        "q": (d, h * T, T * d),
        "k": (0, 0, T * d),
        "scores": (h * T, 0, T * T),
        "softmax": (h * T, d, T * T),
        "heads": (d, d, T * d),
        "mlp_in": (d, m, T * d),
        "mlp_hidden": (m, d, T * m),
        "v": (0, 0, T * d),
    }
    sites = {
        site: {
            "reference": VALUE_BYTES * reference,
            "running": VALUE_BYTES * running,
            "dense": VALUE_BYTES * dense,
        }
        for site, (reference, running, dense) in rows.items()
    }
    total = {key: sum(site[key] for site in sites.values()) for key in sites["x"]}
    state = total["reference"] + total["running"]
    return {
        "sites": sites,
        "total": total,
        "state": state,
        "all_layers": config.layers * state,
        "state_percent": 100 * state / total["dense"],
    }


def collect(study: Study) -> Numbers:
    config, engine = study.model.config, study.model.engine
    thresholds = _with_v(study.thresholds)
    picks = study.sample.spread(CLIPS)
    written = np.zeros((len(ALL_SITES), len(FORMATS)))
    counts: dict[str, Any] = {}
    for index in picks:
        features = study.sample.features(study.setting.front_end)[index]
        trace = engine.trace(features, thresholds)
        found = encoded_bytes(config, trace)
        written += [[found[site][form] for form in FORMATS] for site in ALL_SITES]
        for name, layers in traces.exponentials(config, trace).items():
            counts[name] = counts.get(name, 0) + layers[:-1] / len(picks)
        study.step(1)
    mean = {
        site: dict(zip(FORMATS, (written[n] / len(picks)).tolist(), strict=True))
        for n, site in enumerate(ALL_SITES)
    }
    total = {form: sum(site[form] for site in mean.values()) for form in FORMATS}
    shares = {
        site: {form: 100 * found[form] / found["dense"] for form in FORMATS}
        for site, found in (*mean.items(), ("all", total))
    }
    dense = counts["dense"].sum()
    return {
        "clips": len(picks),
        "thresholds": str(thresholds),
        "v_threshold": thresholds.v,
        "state": state_bytes(config),
        "bytes": mean,
        "total": total,
        "percent": shares["all"],
        "shares": shares,
        "exponentials": {
            name: {
                "millions": float(layers.sum() / 1e6),
                "percent": float(100 * layers.sum() / dense),
                "least": float((100 * layers / counts["dense"]).min()),
                "most": float((100 * layers / counts["dense"]).max()),
            }
            for name, layers in counts.items()
        },
    }


def _with_v(thresholds: Thresholds) -> Thresholds:
    """Return the thresholds with one for V, which they may leave dense."""
    values = {site: getattr(thresholds, site) for site in ALL_SITES}
    if values["v"] is None:
        values["v"] = V_THRESHOLD
    return Thresholds(**values)


def show(document: Numbers) -> Content:
    own = document["storage"]
    state, percent, exps = own["state"], own["percent"], own["exponentials"]
    text = (
        "**State.** The paper says that only a single token has to be stored as a reference. That"
        " is so at each site; the row of results that the next token adds to is needed as well."
        f" Both together take **{state['state']:,} bytes** here, {state['state_percent']:.1f}% of"
        f" the {state['total']['dense']:,} bytes of tensors that a dense layer works on. A run"
        f" token by token through all layers needs {state['all_layers']:,} bytes."
        "\n\n**Bytes.** Every tensor of"
        f" {own['clips']} clips was encoded, written, read back and compared: all of them came back"
        f" exactly. They take **{percent['bitmap']:.1f}%** of the dense bytes as a bitmap and"
        f" values and {percent['index']:.1f}% as indices and values. V is encoded too, with a"
        f" threshold of {own['v_threshold']}; it saves no MACs."
        "\n\n**Exponentials.** The paper computes the softmax of a changed row from that of the row"
        " before, with one exponential per changed score and a scaling factor. The C core computes"
        " a row anew if any of its scores changed:"
        f" **{exps['core']['percent']:.1f}%** of the exponentials of a dense run, where scaling"
        f" factors would need {exps['scaling_factors']['percent']:.1f}% (layer by layer"
        f" {exps['core']['least']:.0f} to {exps['core']['most']:.0f}% against"
        f" {exps['scaling_factors']['least']:.0f} to {exps['scaling_factors']['most']:.0f}%; the"
        " last layer has one row and is left out). Scaling factors would add a division per row and"
        " a multiplication per value; whether they pay in C has not been measured."
    )
    figure = Figure(
        "storage",
        lambda: _draw(own),
        "Bytes written for each site, all layers of one clip, mean over the clips. The shorter a"
        " coloured bar is beside its grey one, the better the site compresses. A site that is left"
        " dense has three equal bars.",
        own["thresholds"] if "," not in own["thresholds"] else "one threshold per layer",
    )
    counterpart = document["paper"]["counterparts"]["storage"]
    return Content("Memory", counterpart, text, [figure], [_bytes_table(own), _state_table(state)])


def _bytes_table(own: Numbers) -> Table:
    columns = [Column("site"), *(Column(form, ",.0f", "bytes written") for form in FORMATS)]
    columns += [Column(form, ".1f", "% of dense") for form in ("bitmap", "index")]
    rows: list[Any] = []
    for name, found in (*own["bytes"].items(), ("all", own["total"])):
        percents = [own["shares"][name][form] for form in ("bitmap", "index")]
        rows.append([SITE_NAMES.get(name, name), *(found[form] for form in FORMATS), *percents])
    return Table("storage", "Bytes of the encoded tensors of one clip.", columns, rows)


def _state_table(state: Numbers) -> Table:
    columns = [
        Column("site"),
        Column("reference row", ",d", "delta state, bytes"),
        Column("running result", ",d", "delta state, bytes"),
        Column("dense tensor", ",d", "bytes"),
    ]
    rows: list[Any] = [
        [SITE_NAMES.get(name, name), found["reference"], found["running"], found["dense"]]
        for name, found in (*state["sites"].items(), ("all", state["total"]))
    ]
    caption = "State that deltas keep for one layer, and the tensors of a dense layer."
    return Table("state", caption, columns, rows)


def _draw(own: Numbers) -> Any:
    canvas, axis = new(3.0)
    places = np.arange(len(ALL_SITES))
    for number, (form, colour) in enumerate((("dense", THEIRS), ("bitmap", OURS), ("index", MHSA))):
        kib = [own["bytes"][site][form] / 1024 for site in ALL_SITES]
        axis.bar(places + 0.27 * (number - 1), kib, 0.25, color=colour, label=form)
    axis.set_xticks(places, [SITE_NAMES[s] for s in ALL_SITES], rotation=35, ha="right")
    axis.set_ylabel("KiB per clip")
    axis.grid(True, axis="y")
    axis.set_axisbelow(True)
    axis.tick_params(axis="x", length=0)
    legend_above(axis, columns=3)
    return canvas


SECTION = Section("storage", collect, show)
