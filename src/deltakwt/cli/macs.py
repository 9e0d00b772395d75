"""`deltakwt macs`: the multiply-accumulates and the state that follow from a model's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from deltakwt.cli.common import console, print_json, table
from deltakwt.cli.options import DEFAULT_MODEL, JsonOption, ModelOption

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
        """Print the MACs of each product and the largest savings.

        These are the paper's closed forms, and beside them the largest saving of the MACs that the
        core executes. `--json` adds the bytes of state that deltas need, site by site.
        """
        from dataclasses import asdict

        from deltakwt.core.macs import bounds
        from deltakwt.report.sections.storage import state_bytes

        config = _config(model)
        figures, state = bounds(config), state_bytes(config)
        if as_json:
            shape = asdict(config) | {"tokens": config.tokens}
            del shape["labels"]
            print_json({"model": model, "shape": shape, **figures, "state_bytes": state})
        else:
            _show(model, figures, state)


def _config(model: str) -> Config:
    """Return the shape of a size by name, which needs no weights, or of a model."""
    from deltakwt.core.config import SIZES

    if model in SIZES:
        return SIZES[model]
    from deltakwt.core.model import load

    return load(model).config


def _show(model: str, figures: dict[str, Any], state: dict[str, Any]) -> None:
    rows = table(
        f"{model}: {figures['macs'] / 1e6:.1f} M MACs per clip,"
        f" {figures['mhsa_share_percent']:.2f}% in MHSA,"
        f" {figures['mlp_share_percent']:.2f}% in the MLP",
        "product",
        "MACs (M)",
        "% of MHSA",
        "% of model",
        "largest saving %",
        "in the last layer %",
        "largest executed %",
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
            f"{figure['greatest_executed_saving_percent']:.2f}",
        )
    rows.columns[0].no_wrap = True
    console().print(rows)
    print(
        "Computing only the class token in the last layer saves"
        f" {figures['last_layer']['mhsa_saving_percent']:.2f}% of that layer's MHSA,"
        f" {figures['all_layers']['mhsa_saving_percent']:.2f}% of all MHSA"
        f" ({figures['all_layers']['model_saving_percent']:.2f}% of the model).\n"
        f"With every delta zero, {figures['greatest']['mhsa_saving_percent']:.2f}% of MHSA is"
        f" saved ({figures['greatest']['model_saving_percent']:.2f}% of the model).\n"
        f"Deltas keep {state['state']:,} bytes from token to token, {state['state_percent']:.1f}%"
        f" of the {state['total']['dense']:,} bytes of tensors of a dense layer."
    )
