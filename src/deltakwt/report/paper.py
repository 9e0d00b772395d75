"""The numbers that the paper prints, for comparison with every figure.

Jelcicova and Verhelst, "Delta Keyword Transformer", 2022: KWT-3, Speech Commands v0.02, 4,800 test
clips. Only numbers of the paper's text and tables are used; none was read off a picture.
"""

from __future__ import annotations

from typing import Any

THRESHOLDS = "0.2_0.2_0.2_0.05_0.001_0.05"  # x, q, k, scores, softmax, heads
LAYER = 7  # of the heat maps, counted from one
WORD = "right"  # of the heat maps
SMALL_PERCENT = 1.0  # of the dynamic range
SMALL_DIFFERENCES = 84.0  # percent of all
EXAMPLE_THETA = 1.0

# Percent of MACs executed for one instance of each class, at THRESHOLDS (tab:keywordOps).
KEYWORDS = {
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
    "keywords": "table 2: executed MACs for one instance of each class",
    "deltas": "figures 9 and 10: deltas of layer 7, zeros black",
    "layers": "nothing: section 7 leaves thresholds for each layer to future work",
    "storage": "sections 5 and 5.4: “data compression”, “only a single token has to be stored as a"
    " reference”, softmax with scaling factors; no numbers",
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
        "thresholds": THRESHOLDS,
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
        "points": [  # from the text: accuracy against counted MHSA MACs
            {"mhsa_percent": 100.0, "accuracy": 98.4},
            {"mhsa_percent": 23.7, "accuracy": 98.4},
            {"mhsa_percent": 20.0, "accuracy": 98.3},
            {"mhsa_percent": 13.3, "accuracy": 97.4},
            {"mhsa_percent": 6.35, "accuracy": 94.4},
        ],
        "keywords": {
            label: dict(zip(products, row, strict=True)) for label, row in KEYWORDS.items()
        },
    }
