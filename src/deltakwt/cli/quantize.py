"""`deltakwt quantize`: scales for fixed point, from clips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import console, note, percent, print_json, say, table
from deltakwt.cli.options import DataOption, JsonOption, SeedOption
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.weights.quantize import Quantized


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("quantize")(quantize)


def quantize(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Use this model: a name, a folder, or a .tflite file with --out."
        ),
    ],
    data: DataOption,
    clips: Annotated[
        int,
        typer.Option(
            metavar="N", min=20, help="Use this many clips, a tenth of them recorded noise."
        ),
    ] = 200,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write fixed.json to this folder. Default: the model's folder.",
            show_default=False,
        ),
    ] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Choose the scales of a model for fixed point.

    They are written to the folder of the model as fixed.json.

    Both engines run on the clips. A model whose values do not fit 16 bits is refused with the layer
    and the tensor, and nothing is written.
    """
    from deltakwt.data.calibration import calibration_sounds
    from deltakwt.weights import quantize as scales
    from deltakwt.weights.folder import load_profiles, load_weights
    from deltakwt.weights.registry import file_profiles, resolve

    path = resolve(model)
    folder = out or path
    if not folder.is_dir():
        raise DeltakwtError(f"{folder}: is not a folder; give --out, or import the model first")
    weights = load_weights(path)
    profiles = load_profiles(path) if path.is_dir() else file_profiles(path)
    sounds = calibration_sounds(data, clips, seed)
    try:
        found = scales.quantize(weights, profiles, sounds)
    except DeltakwtError as error:
        raise DeltakwtError(f"{model}: {error}") from None
    written = scales.save_scales(folder, weights, found)
    if json:
        print_json({"path": str(written), **_document(found)})
        return
    _show(model, found)
    say(f"{written}: written")


def quantize_if_possible(folder: Path, data: Path) -> None:
    """Make the scales of a model folder as a part of another verb, or say why there are none."""
    from deltakwt.data.calibration import calibration_sounds
    from deltakwt.weights.quantize import quantize_folder

    try:
        quantize_folder(folder, calibration_sounds(data))
    except DeltakwtError as error:
        note(f"{folder}: no scales for fixed point: {error}")


def _document(found: Quantized) -> dict[str, Any]:
    """Return the scales and the headroom for `--json`."""
    from deltakwt.core.fixed_weights import PEAKS

    headroom = {
        name: [None if value == float("inf") else round(float(value), 3) for value in column]
        for name, column in zip(PEAKS, found.headroom.T, strict=True)
    }
    return {
        "clips": found.clips,
        "scales": found.scales.to_json(),
        "headroom": headroom,
        "same_answer": found.same,
    }


def _show(model: str, found: Quantized) -> None:
    """Print the headroom of every tensor, and how often both engines agree."""
    from deltakwt.core.fixed_weights import PEAKS

    rows = table(
        f"{model}: the limit of 16 bits over the largest value, {found.clips} clips",
        *("tensor", "least headroom", "in layer", "most headroom"),
    )
    for name, column in zip(PEAKS, found.headroom.T, strict=True):
        finite = [float(value) for value in column if value != float("inf")]
        if finite:  # without profiles there are no deltas
            layer = str(int(column.argmin()))
            rows.add_row(name, f"{min(finite):.2f}x", layer, f"{max(finite):.2f}x")
    console().print(rows)
    rows = table("", "setting", "same answer as in float")
    for setting, share in found.same.items():
        rows.add_row(setting, percent(share))
    console().print(rows)
