"""`deltakwt bench`: time this model in our core and in other runtimes, on one core."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from deltakwt.cli.common import console, fail, load_model, percent, print_json, progress, say, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    ModelOption,
    SeedOption,
    claim_folder,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.weights.folder import Weights


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    data: DataOption,
    model: ModelOption = DEFAULT_MODEL,
    clips: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Time this many clips, drawn at random from the data."
        ),
    ] = 300,
    noise: Annotated[
        int, typer.Option(metavar="N", min=0, help="Time at least this many clips of noise.")
    ] = 60,
    rounds: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Run each clip this often; the fastest run counts."),
    ] = 5,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Compare with this runtime: ort, ort-int8, openvino, litert, torch or"
            " torch-compile. Can be repeated. Default: all that are installed.",
        ),
    ] = None,
    isa: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Use the deltakwt kernels for this instruction set. Can be repeated."
            " Default: every vector instruction set of this processor.",
        ),
    ] = None,
    arithmetic: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Time only float or only fixed. Default: both, if the model has scales for fixed"
            " point.",
        ),
    ] = None,
    grow: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Widen the model to kwt-2 or kwt-3 first; its outputs stay the same.",
        ),
    ] = None,
    seed: SeedOption = 0,
    breakdown: Annotated[
        bool, typer.Option("--breakdown", help="Also measure time and MACs of every product.")
    ] = False,
    growth: Annotated[
        bool,
        typer.Option("--growth", help="Also measure cost against tokens and against loudness."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the results as JSON and a picture to this folder."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Time a model in this engine and in other runtimes.

    One core is used, and one clip is run at a time.
    """
    from deltakwt.bench.benchmark import Options, benchmark
    from deltakwt.bench.runners import PEERS
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    loaded, path = load_model(model, arithmetic="float"), resolve(model)
    weights = load_weights(path)
    scales = _scales(path, weights, arithmetic, grow)
    if grow:
        loaded, weights = _grown(loaded, weights, grow)
    options = Options(
        clips,
        noise,
        rounds,
        tuple(peer or PEERS),
        tuple(isa or ()),
        seed,
        growth,
        breakdown,
        arithmetic != "fixed",
        scales,
    )
    if out is not None:
        claim_folder(out)
    with progress("benchmark") as bar:
        document = benchmark(
            loaded, weights, path, data, options, lambda text: bar.tell(text), bar.update
        )
    if out is not None:
        from deltakwt.bench.figure import draw
        from deltakwt.files import write_atomically

        name = "bench-" + document["model"].replace(" ", "-")
        write_atomically(
            out / f"{name}.json", (json_module.dumps(document, indent=1) + "\n").encode()
        )
        draw(document, out / f"{name}.png")
    if json:
        print_json(document)
    else:
        _print(document)


def _scales(path: Path, weights: Weights, arithmetic: str | None, grow: str | None) -> Any:
    """Return the scales of the fixed-point engine, or None if it is not to be timed."""
    from deltakwt.weights.registry import ARITHMETIC_NAMES, find_scales

    if arithmetic not in (None, *ARITHMETIC_NAMES):
        raise DeltakwtError(f"--arithmetic {arithmetic}: must be {' or '.join(ARITHMETIC_NAMES)}")
    scales = None if grow or arithmetic == "float" else find_scales(path, weights)
    if arithmetic == "fixed" and scales is None:
        raise DeltakwtError("--arithmetic fixed: this model has no scales; see deltakwt quantize")
    return scales


def _grown(loaded: Any, weights: Any, size: str) -> tuple[Any, Any]:
    """Return a wider model that computes the same function, so its deltas are just as dense."""
    from dataclasses import replace

    from deltakwt.core.config import SIZES
    from deltakwt.core.engine import Engine
    from deltakwt.core.model import Model
    from deltakwt.train.grow import grow
    from deltakwt.weights.folder import Weights

    if size not in SIZES:
        raise DeltakwtError(f"--grow {size}: must be one of {', '.join(SIZES)}")
    wide = replace(SIZES[size], labels=weights.config.labels)
    made = Weights(wide, grow(weights.config, weights.tensors, wide))
    name = f"{loaded.name} grown to {size}"
    return Model(wide, Engine(wide, made.tensors), loaded.profiles, name), made


def _print(document: dict[str, Any]) -> None:
    machine, clips = document["machine"], document["clips"]
    say(
        f"{document['model']} on {document['data']}: {clips['all']} clips, one core of"
        f" {machine['processor']}, batch 1, best of {document['rounds']}"
    )
    for part in ("all", "words", "noise", "zero"):
        mine = [row for row in document["rows"] if row["part"] == part]
        if not mine:
            continue
        rows = table(part, "engine", "setting", "input", "ms", "against ORT fp32", "same answer")
        for row in sorted(mine, key=lambda row: (row["input"], -row["ms"])):
            ratio = row["ratio_to_ort_fp32"]
            rows.add_row(
                row["engine"],
                escape(row["setting"]),
                row["input"],
                f"{row['ms']:.3f}",
                "" if ratio is None else f"{ratio:.2f}x",
                percent(row["agreement"]),
            )
        console().print(rows)
    for found in document.get("breakdowns", ()):
        _print_breakdown(found)
    for name, reason in document["missing"].items():
        fail(f"{name}: {reason}")


def _print_breakdown(found: dict[str, Any]) -> None:
    rows = table(
        escape(f"breakdown: {found['setting']}, {found['part']} ({found['clips']} clips)"),
        *("stage", "paper's count", "executed", "us", "dense us"),
    )
    for line in found["products"]:
        rows.add_row(
            line["product"],
            f"{line['macs'] / line['dense_macs']:.1%}",
            f"{line['executed'] / line['dense_macs']:.1%}",
            f"{line['us']:.1f}",
            f"{line['dense_us']:.1f}",
        )
    for stage, spent in found["other_us"].items():
        if spent >= 0.05:
            rows.add_row(stage, "", "", f"{spent:.1f}", f"{found['other_dense_us'][stage]:.1f}")
    rows.add_section()
    rows.add_row(
        "all",
        f"{found['macs_share']:.1%}",
        f"{found['executed_share']:.1%}",
        f"{found['delta_us']:.1f}",
        f"{found['dense_us']:.1f}",
    )
    console().print(rows)
    if found["achieved"] is not None:
        print(f"{found['achieved']:.0%} of the saved MACs are saved time")
