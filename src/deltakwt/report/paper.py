"""The numbers that the paper prints, and its claims beside the values measured here.

Jelcicova and Verhelst, "Delta Keyword Transformer", 2022: KWT-3, Speech Commands v0.02, 4,800 test
clips. Only numbers of the paper's text and tables are used; none was read off a picture.
"""

from __future__ import annotations

from typing import Any

from deltakwt.core.macs import MHSA_PRODUCTS
from deltakwt.core.setting import PAPER_THRESHOLDS
from deltakwt.report.figures import PRODUCT_NAMES
from deltakwt.report.page import Column, Content, Table

Document = dict[str, Any]

LAYER = 7  # of the heat maps, counted from one
WORD = "right"  # of the heat maps
SMALL_PERCENT = 1.0  # of the dynamic range
SMALL_DIFFERENCES = 84.0  # percent of all
EXAMPLE_THETA = 1.0
POINTS = (  # of the text: accuracy against counted MHSA MACs, the dense model first
    {"mhsa_percent": 100.0, "accuracy": 98.4},
    {"mhsa_percent": 23.7, "accuracy": 98.4},
    {"mhsa_percent": 20.0, "accuracy": 98.3},
    {"mhsa_percent": 13.3, "accuracy": 97.4},
    {"mhsa_percent": 6.35, "accuracy": 94.4},
)
LOSSES = ((0.0, 1), (0.1, 2), (1.0, 3), (4.0, 4))  # points of accuracy; the place in POINTS

# Percent of MACs executed for one instance of each class, at its thresholds (tab:keywordOps).
KEYWORD_MACS = {
    "_silence_": (3.02, 0.08, 2.4, 2.02, 2.46),
    "_unknown_": (35.97, 7.68, 26.95, 16.93, 28.36),
    "yes": (31.82, 6.26, 24.06, 16.31, 25.32),
    "no": (36.98, 8.93, 25.42, 14.27, 28.41),
    "up": (33.48, 6.28, 23.64, 13.32, 25.68),
    "down": (29.88, 5.08, 22.38, 14.24, 23.46),
    "left": (38.73, 10.09, 26.95, 16.97, 30.26),
    "right": (33.52, 6.68, 25.65, 16.55, 26.59),
    "on": (31.13, 5.64, 21.21, 13.02, 23.9),
    "off": (39.5, 10.17, 26.68, 15.11, 30.33),
    "stop": (32.39, 6.15, 23.36, 13.72, 25.06),
    "go": (33.37, 6.57, 23.26, 14.65, 25.87),
}

COUNTERPARTS = {  # what each section of a report corresponds to
    "similarity": "figures 2 to 4: input and softmax of the 7th layer for “right”, its input for"
    " silence; section 4: the share of small differences",
    "example": "figure 5: three tokens, θ = 1.0",
    "bounds": "section 5.4: computational savings",
    "accuracy": "figure 8: accuracy and speed-up against executed MACs",
    "sweep": "section 6 and figure 8: a sweep on 100 clips, its front on all clips, adjusted",
    "keywords": "table 2: executed MACs for one instance of each class",
    "deltas": "figures 9 and 10: deltas of layer 7, zeros black",
    "layers": "nothing: section 7 leaves thresholds for each layer to future work",
    "storage": "sections 5 and 5.4: “data compression”, “only a single token has to be stored as a"
    " reference”, softmax with scaling factors; no numbers",
    "width": "table 1: KWT-3, width 192 and three heads",
    "timing": "nothing: the paper derives speed-up from MACs and measures no time",
    "changes": "nothing",
    "claims": "abstract, introduction, sections 4, 5.4, 6 and 7",
}


def numbers() -> dict[str, Any]:
    """Return the `paper` part of the JSON document of a report."""
    products = ("xw", "qkt", "sv", "proj", "total")
    return {
        "model": "KWT-3",
        "counterparts": COUNTERPARTS,
        "clips": 4800,
        "thresholds": str(PAPER_THRESHOLDS),
        "data_licence": "4.0",  # CC BY
        "layer": LAYER,
        "word": WORD,
        "small_percent": SMALL_PERCENT,
        "small_differences_percent": SMALL_DIFFERENCES,
        "example_theta": EXAMPLE_THETA,
        "mhsa_share_percent": 39.0,
        "mlp_share_percent": 61.0,
        "products": {  # share of MHSA, greatest saving, the same in the last layer
            "xw": {"share": 59.63, "saving": 97.98, "last": 98.32},
            "qkt": {"share": 10.25, "saving": 99.96, "last": 99.98},
            "sv": {"share": 10.25, "saving": 97.98, "last": 98.99},
            "proj": {"share": 19.88, "saving": 97.98, "last": 98.99},
        },
        "shortcut": {"last_layer_percent": 59.64, "mhsa_percent": 4.97},
        "best_accuracy": 98.48,  # of all settings
        "skipped_percent": {"abstract": 80.0, "results": 76.3},  # without loss
        "introduction": {"speed_up": 16.0, "accuracy": 95.0},  # the figure draws 94.4 at 15.7x
        "points": list(POINTS),
        "keywords": {
            label: dict(zip(products, row, strict=True)) for label, row in KEYWORD_MACS.items()
        },
    }


def claims(document: Document) -> list[Document]:
    """Return one row per claim: {claim, paper, here}."""
    own, theirs = document["accuracy"], document["paper"]
    dense = own["dense"]["accuracy"]
    mhsa = attention_points(document)
    best = max(p["accuracy"] for p in mhsa)
    rows = [_row("accuracy, dense", f"{theirs['points'][0]['accuracy']:.1f}%", f"{dense:.2f}%")]
    rows += [_loss(mhsa, loss, theirs["points"][i]) for loss, i in LOSSES]
    least = min((p["mhsa_percent"] for p in mhsa if _is_lossless(p)), default=100.0)
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


def attention_points(document: Document) -> list[Document]:
    """Return the settings of attention only: multiples of the printed one, and those of a sweep.

    Each has its loss against dense in points, and the end of its paired 95% interval that is
    nearer to a gain.
    """
    own = [p for p in document["accuracy"]["points"] if p["kind"] == "mhsa"]
    points = [
        {**p, "loss": -p["difference"], "least_loss": -p["difference"] - p["interval"]} for p in own
    ]
    swept = document.get("sweep", {"points": []})["points"]
    return points + [{**p, "least_loss": p["loss_interval"][0]} for p in swept]


def _is_lossless(point: Document) -> bool:
    return float(point["least_loss"]) <= 0


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


def _loss(points: list[Document], loss: float, printed: Document) -> Document:
    """Return the row for the cheapest of the settings that loses at most so much."""
    unit = "point" if loss == 1 else "points"
    claim = f"for a loss of at most {loss:g} {unit}" if loss else "without loss"
    good = [p for p in points if (p["loss"] <= loss if loss else _is_lossless(p))]
    theirs, cheapest = printed["mhsa_percent"], min(good, key=lambda p: p["mhsa_percent"])
    least = cheapest["mhsa_percent"]
    return _row(
        f"fewest MHSA MACs {claim}",
        f"{theirs:g}% ({100 / theirs:.1f}×)",
        f"{least:.1f}% ({100 / least:.1f}×), executed {cheapest['executed_mhsa_percent']:.1f}%;"
        f" loss {cheapest['loss']:+.2f} points",
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


def claims_content(document: Document) -> Content:
    """Return the claims as a section of the page."""
    theirs = document["paper"]["model"]
    columns = [Column("claim"), Column(f"the paper, {theirs}"), Column("here")]
    rows = [[row["claim"], row["paper"], row["here"]] for row in document["claims"]]
    own = document["accuracy"]
    others = (
        f", and {len(document['sweep']['points'])} settings of the sweep"
        if "sweep" in document
        else ""
    )
    text = (
        f"The paper measured {theirs}; here it is {document['facts']['model']['name']}. The rows"
        f" with a loss show the cheapest of {own['swept']['mhsa']} multiples of the one setting"
        f" that the paper prints{others}. Without loss means that the paired 95% interval of the"
        " loss contains zero. They are read off **these same clips**, not chosen beforehand on"
        f" other clips, so they flatter a little. One clip is {own['clip_points']:.2f} points of"
        " accuracy. MACs are the paper's count unless the row says executed."
    )
    caption = "Each claim with the paper's number and ours. Attention only, as in the paper."
    table = Table("claims", caption, columns, rows, "as in the section Accuracy")
    counterpart = document["paper"]["counterparts"]["claims"]
    return Content("Claim by claim", counterpart, text, tables=[table])
