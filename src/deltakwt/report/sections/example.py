"""The paper's worked example of delta encoding, computed by the reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltakwt.core.reference import encode
from deltakwt.report import paper
from deltakwt.report.run import Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import INK, LINE, MHSA, OURS, SOFT, Figure, new

# A class token, then three tokens of four features: one falls below the threshold and comes back,
# one differs by exactly the threshold, one drifts in small steps until the sum is large enough.
TOKENS = (
    (0.0, 0.0, 0.0, 0.0),
    (2.0, -1.0, 4.0, 0.5),
    (2.6, 1.5, 3.0, 1.3),
    (3.4, 1.1, 4.2, 1.9),
)


def collect(run: Run) -> Numbers:
    del run
    tokens = np.array(TOKENS)
    encoded = encode(tokens, paper.EXAMPLE_THETA)
    return {
        "theta": paper.EXAMPLE_THETA,
        "x": tokens[1:].tolist(),
        "reference": np.round(encoded.reference[1:], 6).tolist(),
        "delta": np.round(encoded.delta[1:], 6).tolist(),
        "kept": encoded.kept[1:].astype(int).tolist(),
    }


def show(document: Numbers) -> Page:
    own = document["example"]
    text = (
        f"<p>Three tokens, threshold θ = {own['theta']:.1f}. The first token is stored as it is."
        " After it a feature is updated only where it has moved by more than θ from its"
        " <i>reference</i> X̂, the value last propagated, not from the token just before: small"
        " steps in one direction add up until they count. Exactly θ is not more than θ."
        " Computed by the same <code>encode</code> that the tests hold the engine against.</p>"
    )
    caption = (
        "X as it comes, the differences ΔX that are stored and multiplied (skipped ones blank),"
        " and the reference X̂ after each token; the colour tells which token a value came from."
    )
    figure = Figure("example", lambda: _draw(own), caption, f"θ = {own['theta']:g}")
    counterpart = document["paper"]["counterparts"]["example"]
    return Page("Delta encoding, worked through", counterpart, text, [figure])


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
    """Which token each value of the reference was taken from."""
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


SECTION = Section("example", collect, show)
