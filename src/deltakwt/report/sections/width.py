"""How much of its width the model uses: a wide model must not be a narrow one several times."""

from __future__ import annotations

from typing import Any

from deltakwt.evaluate.width import MOST_CORRELATION, NARROW, VARIANCE, measure_width
from deltakwt.report.figures import MHSA, OURS, SOFT, Figure, legend_above, new
from deltakwt.report.page import Column, Content, Numbers, Section, Table
from deltakwt.report.study import Study

CLIPS = 120  # of words, dense


def collect(study: Study) -> Numbers:
    sounds = [study.sample.sound(index) for index in study.sample.spread(CLIPS)]
    found = measure_width(study.model, sounds)
    config = study.model.config
    return {
        **found.to_json(),
        "variance_percent": 100 * VARIANCE,
        "width": config.dim,
        "narrow": NARROW,
        "most_correlation": MOST_CORRELATION,
        "middle": found.middle,
    }


def show(document: Numbers) -> Content:
    own, heads = document["width"], document["facts"]["model"]["heads"]
    title = "How much of its width the model uses"
    counterpart = document["paper"]["counterparts"]["width"]
    middle = [line["components"] for line in own["layers"] if line["layer"] in own["middle"]]
    if not middle:
        text = "The model has too few layers for this: the first and the last one are left out."
        return Content(title, counterpart, text, [], [])
    text = (
        f"The tokens are {own['width']} wide. **{min(middle)} to {max(middle)}** principal"
        f" components carry {own['variance_percent']:.0f}% of the variance of X in the middle"
        f" layers, over {own['clips']} clips of words."
    )
    if heads > 1:
        alike = [line["head_correlation"] for line in own["layers"]]
        text += (
            " The attention weights of the two heads of a layer that are most alike correlate by"
            f" {min(alike):.2f} to {max(alike):.2f}. A model that was made by copying a KWT-1 has"
            f" at most {own['narrow']} components, and heads that attend alike (correlation near"
            " 1). Only with more components, and with heads that correlate by less than"
            f" {own['most_correlation']:.1f} in every layer, is it a test of the paper on a wide"
            f" model: this model **{'is' if own['independent'] else 'is not'}** one."
        )
    else:
        text += " It has one head, so no two heads can be compared."
    caption = (
        f"Components that carry {own['variance_percent']:.0f}% of the variance of X, the input of"
        " each layer (left axis)."
    )
    if heads > 1:
        caption += (
            " Orange, right axis: correlation of the two heads that are most alike. Above the"
            f" dashed line, {own['narrow']} components, the tokens cannot be copies of narrow ones."
        )
    figure = Figure("width", lambda: _draw(own, heads), caption, "dense")
    return Content(title, counterpart, text, [figure], [_table(own)])


def _table(own: Numbers) -> Table:
    columns = [
        Column("layer", "d"),
        Column("components", "d"),
        Column("correlation of heads", ".3f"),
    ]
    keys = ("layer", "components", "head_correlation")
    rows = [[line[key] for key in keys] for line in own["layers"]]
    caption = "Both figures, layer by layer; the first and the last layer are left out."
    return Table("width", caption, columns, rows, "dense")


def _draw(own: Numbers, heads: int) -> Any:
    canvas, axis = new(2.8)
    layers = [line["layer"] for line in own["layers"]]
    components = [line["components"] for line in own["layers"]]
    axis.plot(layers, components, color=OURS, marker="o", markersize=4, label="components")
    axis.set(xlabel="layer", ylabel="components of X", ylim=(0, own["width"]))
    axis.set_xticks(layers)
    axis.grid(True, axis="y")
    if heads > 1:
        axis.axhline(own["narrow"], color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)))
        right = axis.twinx()
        alike = [line["head_correlation"] for line in own["layers"]]
        right.plot(layers, alike, color=MHSA, marker="^", markersize=4.5, linestyle=":")
        right.set_ylim(min(0.0, *alike), 1)
        right.set_ylabel("correlation of heads", color=MHSA)
        right.spines["right"].set_visible(True)
        axis.plot([], [], color=MHSA, marker="^", markersize=4.5, linestyle=":",
                  label="correlation of heads (right axis)")  # fmt: skip
    legend_above(axis)
    return canvas


SECTION = Section("width", collect, show)
