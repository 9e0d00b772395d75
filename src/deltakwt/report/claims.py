"""The claims of the paper and the values measured here, from the numbers of the report."""

from __future__ import annotations

from typing import Any

from deltakwt.core.macs import MHSA_PRODUCTS
from deltakwt.report.figures import PRODUCT_NAMES
from deltakwt.report.section import Column, Content, Table

Document = dict[str, Any]
LOSSES = ((0.0, 1), (0.1, 2), (1.0, 3), (4.0, 4))  # points of accuracy; the paper's point


def claims(document: Document) -> list[Document]:
    """Return one row per claim: {claim, paper, here}."""
    own, theirs = document["accuracy"], document["paper"]
    dense = own["dense"]["accuracy"]
    mhsa = [p for p in own["points"] if p["kind"] == "mhsa"]
    best = max(p["accuracy"] for p in mhsa)
    rows = [_row("accuracy, dense", f"{theirs['points'][0]['accuracy']:.1f}%", f"{dense:.2f}%")]
    rows += [_loss(mhsa, dense, loss, theirs["points"][i]) for loss, i in LOSSES]
    least = min((p["mhsa_percent"] for p in mhsa if p["accuracy"] >= dense), default=100.0)
    skipped = theirs["skipped_percent"]
    rows += [
        _row(
            "MHSA MACs skipped without loss",
            f"{skipped['abstract']:.0f}% in the abstract, {skipped['results']}% in the results",
            f"{100 - least:.1f}%",
        ),
        _at_most(mhsa, theirs["introduction"]),
        _row(
            "best accuracy of any setting (dense)",
            f"{theirs['best_accuracy']}% ({theirs['points'][0]['accuracy']}%)",
            f"{best:.2f}% ({dense:.2f}%)",
        ),
    ]
    return rows + _words(document) + _silence(document) + _differences(document) + _memory(document)


def _at_most(points: list[Document], printed: Document) -> Document:
    """Return the accuracy of the point whose MACs come nearest to the introduction's speed-up."""
    near = min(points, key=lambda p: abs(100 / p["mhsa_percent"] - printed["speed_up"]))
    return _row(
        f"accuracy at about {printed['speed_up']:.0f}× in attention",
        f"about {printed['accuracy']:.0f}% in the introduction, 94.4% at 15.7× in the figure",
        f"{near['accuracy']:.2f}% at {100 / near['mhsa_percent']:.1f}×",
    )


def _words(document: Document) -> list[Document]:
    theirs, words = document["paper"], document["keywords"]["words"]
    rows = []
    for product in ("total", *MHSA_PRODUCTS):
        low, high = _printed(theirs, product)
        mean, spread = words["mean"][product], words["spread"][product]
        what = f"{PRODUCT_NAMES[product]} MACs" if product in PRODUCT_NAMES else "MHSA MACs"
        claim = f"{what} of a word with the paper's thresholds"
        rows.append(_row(claim, f"{low} to {high}%", f"{mean:.2f} ± {spread:.2f}%"))
    executed = document["keywords"]["executed_words_percent"]
    rows.append(
        _row("executed MHSA MACs of a word with the same thresholds", "–", f"{executed:.2f}%")
    )
    return rows


def _differences(document: Document) -> list[Document]:
    theirs, own = document["paper"], document["similarity"]
    claim = (
        f"differences below {theirs['small_percent']:.0f}% of the range of X, layer {own['layer']}"
    )
    printed = theirs["small_differences_percent"]
    return [_row(claim, f"{printed:.0f}%", f"{own['layer_x']['mean']:.1f}%")]


def _memory(document: Document) -> list[Document]:
    own = document["storage"]
    state, exps = own["state"], own["exponentials"]
    return [
        _row(
            "state: “only a single token has to be stored as a reference”",
            "one row per site",
            f"{state['total']['reference']:,} bytes of references and {state['total']['running']:,}"
            f" of running results; dense tensors {state['total']['dense']:,}",
        ),
        _row(
            "“data compression” of the tensors, V included",
            "no number",
            f"{own['percent']['bitmap']:.1f}% as bitmap, {own['percent']['index']:.1f}% as index",
        ),
        _row(
            "exponentials with softmax scaling factors",
            "no number",
            f"{exps['scaling_factors']['percent']:.1f}% would do; the C core computes"
            f" {exps['core']['percent']:.1f}%",
        ),
    ]


def _row(claim: str, paper: str, here: str) -> Document:
    return {"claim": claim, "paper": paper, "here": here}


def _loss(points: list[Document], dense: float, loss: float, printed: Document) -> Document:
    """Return the row for the cheapest of the settings that loses at most so much."""
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


def content(document: Document) -> Content:
    """Return the claims as a section of the page."""
    theirs = document["paper"]["model"]
    columns = [Column("claim"), Column(f"the paper, {theirs}"), Column("here")]
    rows = [[row["claim"], row["paper"], row["here"]] for row in document["claims"]]
    own = document["accuracy"]
    text = (
        f"The paper measured {theirs}; here it is {document['facts']['model']['name']}. The paper"
        f" prints one setting, so {own['swept']['mhsa']} multiples of that one are run here. The"
        " rows with a loss show the cheapest of them **on these same clips**: they are read off the"
        f" curve, not chosen beforehand on other clips. One clip is {own['clip_points']:.2f} points"
        " of accuracy, and smaller differences mean nothing. MACs are the paper's count unless the"
        " row says executed."
    )
    caption = "Each claim with the paper's number and ours. Attention only, as in the paper."
    table = Table("claims", caption, columns, rows, "as in the section Accuracy")
    counterpart = document["paper"]["counterparts"]["claims"]
    return Content("Claim by claim", counterpart, text, tables=[table])
