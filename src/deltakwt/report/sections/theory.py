"""What needs no measurement: a worked example of delta encoding, and what the shape allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.config import KWT3
from deltakwt.core.macs import bounds
from deltakwt.core.reference import encode
from deltakwt.report import paper
from deltakwt.report.figures import INK, LINE, MHSA, OURS, PRODUCT_NAMES, SOFT, Figure, new
from deltakwt.report.page import Cell, Column, Content, Numbers, Section, Table
from deltakwt.report.study import Study

# A class token, then three tokens of four features. One feature falls below the threshold and comes
# back, one differs by exactly the threshold, one moves in small steps until their sum is enough.
TOKENS = (
    (0.0, 0.0, 0.0, 0.0),
    (2.0, -1.0, 4.0, 0.5),
    (2.6, 1.5, 3.0, 1.3),
    (3.4, 1.1, 4.2, 1.9),
)


def collect_example(study: Study) -> Numbers:
    del study
    tokens = np.array(TOKENS)
    encoded = encode(tokens, paper.EXAMPLE_THETA)
    return {
        "theta": paper.EXAMPLE_THETA,
        "x": tokens[1:].tolist(),
        "reference": np.round(encoded.reference[1:], 6).tolist(),
        "delta": np.round(encoded.delta[1:], 6).tolist(),
        "kept": encoded.kept[1:].astype(int).tolist(),
    }


def show_example(document: Numbers) -> Content:
    own, theirs = document["example"], document["paper"]
    token_ms = document["facts"]["constants"]["token_ms"]
    text = (
        "A Keyword Transformer cuts one second of sound into tokens, one every"
        f" {token_ms} ms, and passes them through layers of attention"
        " (MHSA) and small networks (MLP). Almost all of its work is matrix products, counted in"
        " multiply-accumulates (MACs). The delta algorithm saves MACs without retraining: for each"
        " token it multiplies only the features that changed since the token before, and adds the"
        " result to the product of that token."
        f"\n\nThe figure shows it for three tokens of four features and a threshold of"
        f" θ = {own['theta']:.1f}. The first token is stored as it is. After it, a feature is"
        " updated only where it differs by more than θ from its **reference** X̂, the value that"
        " was last passed on. It is not compared with the token just before, so small steps in one"
        " direction add up until they count. A difference of exactly θ is not more than θ."
        "\n\nA place where tokens are encoded is called a **site**: X, Q, K, scores, softmax and"
        " heads in attention (the paper's six), and here also the inputs of both MLP layers. Each"
        " site has its own threshold. Without thresholds the model runs **dense**."
        "\n\nThis page shows two counts of MACs. The **paper's count** takes Q·Kᵀ delta by delta:"
        " a MAC is counted where both factors changed. **Executed** is what this program really"
        " multiplies: for Q·Kᵀ the changed values of Q times whole rows of K, in whole vectors of"
        " the processor. Percentages are always of the dense model. MACs that are not called"
        " executed are the paper's count."
    )
    caption = (
        "Left: the tokens X. Middle: the differences ΔX that are stored and multiplied; empty cells"
        " are skipped. Right: the reference X̂ after each token. The colour of a value says which"
        " token it came from, so older colours in a row of X̂ are values that were reused."
    )
    figure = Figure("example", lambda: _draw(own), caption, f"θ = {own['theta']:g}")
    counterpart = theirs["counterparts"]["example"]
    return Content("How delta encoding works", counterpart, text, [figure])


def _draw(own: Numbers) -> Any:
    canvas, axes = new(1.3, 1, 3, sharey=True)
    kept = np.array(own["kept"], bool)
    source = _sources(kept)
    colours = (SOFT, MHSA, OURS)
    grids = (
        ("X", own["x"], np.repeat(np.arange(3)[:, None], kept.shape[1], axis=1), kept | True),
        ("ΔX", own["delta"], np.repeat(np.arange(3)[:, None], kept.shape[1], axis=1), kept),
        ("X̂", own["reference"], source, kept | True),
    )
    for axis, (title, values, origin, shown) in zip(axes, grids, strict=True):
        _grid(axis, np.array(values), origin, shown, colours)
        axis.set_title(title)
    axes[0].set_yticks([0.5, 1.5, 2.5], ["token 1", "token 2", "token 3"])
    return canvas


def _sources(kept: Any) -> Any:
    """Return which token each value of the reference was taken from."""
    source = np.zeros(kept.shape, int)
    for t in range(1, len(kept)):
        source[t] = np.where(kept[t], t, source[t - 1])
    return source


def _grid(axis: Any, values: Any, origin: Any, shown: Any, colours: Any) -> None:
    from matplotlib.patches import Rectangle

    rows, columns = values.shape
    for (row, column), value in np.ndenumerate(values):
        visible = shown[row, column]
        face = colours[origin[row, column]] if visible else "none"
        axis.add_patch(
            Rectangle(
                (column, row), 1, 1, facecolor=face, edgecolor=LINE, alpha=0.28 if visible else 1
            )
        )
        axis.add_patch(Rectangle((column, row), 1, 1, facecolor="none", edgecolor=LINE))
        if visible:
            axis.text(column + 0.5, row + 0.5, f"{value:g}", ha="center", va="center", color=INK)
    axis.set(xlim=(-0.05, columns + 0.05), ylim=(rows + 0.05, -0.05), xticks=[], aspect="equal")
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


# ------------------------------------------------------------------ what the shape allows


def collect_bounds(study: Study) -> Numbers:
    shapes = {"model": study.model.config, "kwt-3": KWT3}
    found = {name: bounds(config) for name, config in shapes.items()}
    return {name: {**b, "million_macs": b["macs"] / 1e6} for name, b in found.items()}


def show_bounds(document: Numbers) -> Content:
    own, kwt3, theirs = document["bounds"]["model"], document["bounds"]["kwt-3"], document["paper"]
    text = (
        "This section measures nothing: it follows from the sizes of the matrices. A clip costs"
        f" {own['million_macs']:.1f} million MACs, {own['mhsa_share_percent']:.1f}% of them in"
        f" attention (KWT-3: {kwt3['million_macs']:.1f} million,"
        f" {kwt3['mhsa_share_percent']:.1f}%; the paper: {theirs['mhsa_share_percent']:.0f}%)."
        " The last layer needs only the row of the class token. Leaving out the other rows saves"
        f" {own['last_layer']['mhsa_saving_percent']:.2f}% of that layer's attention and"
        f" {own['all_layers']['mhsa_saving_percent']:.2f}% of all attention (KWT-3:"
        f" {kwt3['last_layer']['mhsa_saving_percent']:.2f}% and"
        f" {kwt3['all_layers']['mhsa_saving_percent']:.2f}%; the paper:"
        f" {theirs['shortcut']['last_layer_percent']:.2f}% and"
        f" {theirs['shortcut']['mhsa_percent']:.2f}%). The table has the largest savings that are"
        " possible, when no token differs from the one before. By the executed count the saving of"
        f" Q·Kᵀ is at most {own['products']['qkt']['greatest_executed_saving_percent']:.2f}%."
    )
    columns = [Column("product")]
    kinds = ("share of attention", "largest saving", "in the last layer")
    columns += [
        Column(who, ".2f", f"{kind}, %")
        for kind in kinds
        for who in ("this model", "KWT-3", "paper")
    ]
    rows: list[list[Cell]] = []
    for product, title in PRODUCT_NAMES.items():
        printed = theirs["products"].get(product, {})
        row: list[Cell] = [title]
        for key, paper_key in (
            ("mhsa_share_percent", "share"),
            ("greatest_saving_percent", "saving"),
            ("greatest_saving_last_layer_percent", "last"),
        ):
            row += [
                own["products"][product][key],
                kwt3["products"][product][key],
                printed.get(paper_key),
            ]
        rows.append(row)
    caption = (
        "Share of each product in the MACs of attention, and its largest possible saving by the"
        " paper's count."
    )
    table = Table("bounds", caption, columns, rows)
    return Content("What the shape allows", theirs["counterparts"]["bounds"], text, tables=[table])


EXAMPLE = Section("example", collect_example, show_example)
BOUNDS = Section("bounds", collect_bounds, show_bounds)
