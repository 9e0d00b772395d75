"""The paper's claims one by one, with what was measured here: made from the report's numbers."""

from __future__ import annotations

from typing import Any

from deltakwt.core.macs import MHSA_PRODUCTS
from deltakwt.report.section import Page
from deltakwt.report.style import PRODUCT_NAMES
from deltakwt.report.tables import Column, Table

Document = dict[str, Any]
LOSSES = ((0.0, 1), (0.1, 2), (1.0, 3), (4.0, 4))  # points of accuracy; the paper's point


def claims(document: Document) -> list[Document]:
    """[{claim, paper, here}]"""
    own, theirs = document["sweep"], document["paper"]
    dense = own["dense"]["accuracy"]
    mhsa = [p for p in own["points"] if p["kind"] == "mhsa"]
    best = max(p["accuracy"] for p in mhsa)
    words = document["keywords"]["words"]
    small = document["correlation"]
    rows = [_row("accuracy, dense", f"{theirs['points'][0]['accuracy']:.1f}%", f"{dense:.2f}%")]
    rows += [_loss(mhsa, dense, loss, theirs["points"][i]) for loss, i in LOSSES]
    rows += [
        _row(
            "best accuracy of any setting (dense)",
            f"{theirs['best_accuracy']}% ({theirs['points'][0]['accuracy']}%)",
            f"{best:.2f}% ({dense:.2f}%)",
        ),
    ]
    for product in ("total", *MHSA_PRODUCTS):
        low, high = _printed(theirs, product)
        mean, spread = words["mean"][product], words["spread"][product]
        what = f"{PRODUCT_NAMES[product]} MACs" if product in PRODUCT_NAMES else "MHSA MACs"
        claim = f"{what} of a word at the paper's thresholds"
        rows.append(_row(claim, f"{low} to {high}%", f"{mean:.2f} ± {spread:.2f}%"))
    rows += _silence(document)
    rows.append(
        _row(
            f"differences below {theirs['small_percent']:.0f}% of the range of X, layer"
            f" {small['layer']}",
            f"{theirs['small_differences_percent']:.0f}%",
            f"{small['layer_x']['mean']:.1f}%",
        )
    )
    return rows


def _row(claim: str, paper: str, here: str) -> Document:
    return {"claim": claim, "paper": paper, "here": here}


def _loss(points: list[Document], dense: float, loss: float, printed: Document) -> Document:
    """The cheapest of the swept settings that loses at most so much."""
    claim = f"for a loss of at most {loss:g} points" if loss else "without loss"
    good = [p for p in points if p["accuracy"] >= dense - loss]
    least = min(p["mhsa_percent"] for p in good) if good else 100.0
    theirs = printed["mhsa_percent"]
    return _row(
        f"fewest MHSA MACs {claim}",
        f"{theirs:g}% ({100 / theirs:.1f}×)",
        f"{least:.1f}% ({100 / least:.1f}×)",
    )


def _printed(theirs: Document, product: str) -> tuple[float, float]:
    values = [row[product] for label, row in theirs["keywords"].items() if label != "_silence_"]
    return min(values), max(values)


def _silence(document: Document) -> list[Document]:
    found = {row["label"]: row["mean"]["total"] for row in document["keywords"]["rows"]}
    rows = []
    if "_silence_" in found:
        printed = document["paper"]["keywords"]["_silence_"]["total"]
        rows.append(
            _row("MHSA MACs of digital silence", f"{printed:.2f}%", f"{found['_silence_']:.2f}%")
        )
    if "noise" in found:
        rows.append(_row("MHSA MACs of recorded noise", "–", f"{found['noise']:.2f}%"))
    return rows


def page(document: Document) -> Page:
    """As a section of the page."""
    theirs = document["paper"]["model"]
    columns = [Column("claim"), Column(f"the paper, {theirs}"), Column("here")]
    rows = [[row["claim"], row["paper"], row["here"]] for row in document["claims"]]
    own = document["sweep"]
    text = (
        f"<p>The paper measured {theirs}; here it is {document['setting']['model']['name']}. Its"
        " settings are known by one example only, so the sweep here takes"
        f" {own['swept']['mhsa']} multiples of that one. The rows with a loss show the cheapest of"
        " them <i>on these same clips</i>: they are read off the curve, not chosen beforehand on"
        f" others. One clip is {own['clip_points']:.2f} points of accuracy here, and smaller"
        " differences mean nothing.</p>"
    )
    caption = "Each claim with the paper's number and ours. Attention only, as in the paper."
    table = Table("claims", caption, columns, rows, "as in the sweep")
    counterpart = document["paper"]["counterparts"]["claims"]
    return Page("Claim by claim", counterpart, text, tables=[table])
