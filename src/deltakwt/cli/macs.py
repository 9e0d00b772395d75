"""`deltakwt macs`: what a model's shape says about its multiply-accumulates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from deltakwt.cli.common import DEFAULT_MODEL, JsonOption, ModelOption, console, print_json, table

if TYPE_CHECKING:
    from deltakwt.core.config import Config

NAMES = {
    "xw": "X W_QKV",
    "qkt": "Q K^T",
    "sv": "softmax V",
    "proj": "heads W_P",
    "mlp_in": "MLP in",
    "mlp_out": "MLP out",
}


def register(app: typer.Typer) -> None:
    @app.command()
    def macs(model: ModelOption = DEFAULT_MODEL, as_json: JsonOption = False) -> None:
        """MACs of each product, and the most that deltas can save: the paper's closed forms."""
        from dataclasses import asdict

        from deltakwt.core.macs import bounds

        config = _config(model)
        figures = bounds(config)
        if as_json:
            shape = asdict(config) | {"tokens": config.tokens}
            del shape["labels"]
            print_json({"model": model, "shape": shape, **figures})
        else:
            _show(model, figures)


def _config(model: str) -> Config:
    """A size by name needs no weights; anything else is a model to load."""
    from deltakwt.core.config import SIZES

    if model in SIZES:
        return SIZES[model]
    from deltakwt.core.model import load

    return load(model).config


def _show(model: str, figures: dict[str, Any]) -> None:
    rows = table(
        f"{model}: {figures['macs'] / 1e6:.1f} M MACs a clip,"
        f" {figures['mhsa_share_percent']:.2f}% in MHSA,"
        f" {figures['mlp_share_percent']:.2f}% in the MLP",
        "product",
        "MACs (M)",
        "% of MHSA",
        "% of model",
        "greatest saving %",
        "in the last layer %",
    )
    for product, figure in figures["products"].items():
        share = figure["mhsa_share_percent"]
        rows.add_row(
            NAMES[product],
            f"{figure['macs'] / 1e6:.2f}",
            "" if share is None else f"{share:.2f}",
            f"{figure['model_share_percent']:.2f}",
            f"{figure['greatest_saving_percent']:.2f}",
            f"{figure['greatest_saving_last_layer_percent']:.2f}",
        )
    out = console()
    out.print(rows)
    out.print(
        "Only the class token in the last layer saves"
        f" {figures['last_layer']['mhsa_saving_percent']:.2f}% of that layer's MHSA,"
        f" {figures['all_layers']['mhsa_saving_percent']:.2f}% of all MHSA"
        f" ({figures['all_layers']['model_saving_percent']:.2f}% of the model).\n"
        f"With every delta zero, {figures['greatest']['mhsa_saving_percent']:.2f}% of MHSA is"
        f" saved ({figures['greatest']['model_saving_percent']:.2f}% of the model)."
    )
