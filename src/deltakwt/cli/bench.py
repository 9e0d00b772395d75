"""`deltakwt bench`: the race against other runtimes, on one core, in one run."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from deltakwt.cli.common import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    ModelOption,
    console,
    fail,
    load_model,
    percent,
    print_json,
    progress,
    table,
)
from deltakwt.core.errors import DeltakwtError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("bench")(bench)


def bench(
    data: DataOption,
    model: ModelOption = DEFAULT_MODEL,
    clips: Annotated[int, typer.Option(min=1, help="Clips, in their natural mix.")] = 300,
    noise: Annotated[int, typer.Option(min=0, help="Noise clips at least.")] = 60,
    rounds: Annotated[int, typer.Option(min=1, help="The best of so many counts.")] = 5,
    peer: Annotated[
        list[str] | None, typer.Option(help="Race only these: ort, ort-int8, openvino, ...")
    ] = None,
    isa: Annotated[
        list[str] | None, typer.Option(help="Our kernels (default: every vector set there is).")
    ] = None,
    grow: Annotated[
        str | None, typer.Option(help="kwt-2 or kwt-3: widen the model first, same function.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draw of clips.")] = 0,
    receipt: Annotated[bool, typer.Option("--receipt", help="Time and MACs a site.")] = False,
    growth: Annotated[
        bool, typer.Option("--growth", help="Cost against tokens and loudness.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results: JSON and a picture.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Race this model's engines and other runtimes: milliseconds and ratios, batch 1."""
    from deltakwt.bench.run import Options, benchmark
    from deltakwt.bench.runners import PEERS
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    loaded, path = load_model(model), resolve(model)
    weights = load_weights(path)
    if grow:
        loaded, weights = _grown(loaded, weights, grow)
    options = Options(
        clips, noise, rounds, tuple(peer or PEERS), tuple(isa or ()), seed, growth, receipt
    )
    if out is not None:
        _make_folder(out)
    with progress("benchmark") as bar:
        document = benchmark(
            loaded, weights, path, data, options, lambda text: bar.tell(text), bar.update
        )
    if out is not None:
        from deltakwt.bench.draw import draw

        name = "bench-" + document["model"].replace(" ", "-")
        (out / f"{name}.json").write_text(json_module.dumps(document, indent=1) + "\n")
        draw(document, out / f"{name}.png")
    if json:
        print_json(document)
    else:
        _print(document)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"--out {out}: cannot be made ({error.strerror})") from None


def _grown(loaded: Any, weights: Any, size: str) -> tuple[Any, Any]:
    """The same function in a wider model, so its deltas are exactly as dense."""
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
    print(
        f"{document['model']} on {document['data']}: {clips['all']} clips, one core of"
        f" {machine['processor']}, batch 1, best of {document['rounds']}"
    )
    for part in ("all", "words", "noise", "zero"):
        mine = [row for row in document["rows"] if row["part"] == part]
        if not mine:
            continue
        rows = table(part, "engine", "deltas", "from", "ms", "against ORT fp32", "same word")
        for row in sorted(mine, key=lambda row: (row["input"], -row["ms"])):
            ratio = row["ratio_to_ort_fp32"]
            rows.add_row(
                row["engine"],
                row["setting"],
                row["input"],
                f"{row['ms']:.3f}",
                "" if ratio is None else f"{ratio:.2f}x",
                percent(row["agreement"]),
            )
        console().print(rows)
    for told in document.get("receipts", ()):
        _print_receipt(told)
    for name, reason in document["missing"].items():
        fail(f"{name}: {reason}")


def _print_receipt(told: dict[str, Any]) -> None:
    rows = table(
        f"receipt: {told['setting']}, {told['part']} ({told['clips']} clips)",
        *("stage", "MACs", "of dense", "us", "dense us"),
    )
    for line in told["products"]:
        rows.add_row(
            line["product"],
            f"{line['macs']:,.0f}",
            f"{line['macs'] / line['dense_macs']:.1%}",
            f"{line['us']:.1f}",
            f"{line['dense_us']:.1f}",
        )
    for stage, spent in told["other_us"].items():
        if spent >= 0.05:
            rows.add_row(stage, "", "", f"{spent:.1f}", f"{told['other_dense_us'][stage]:.1f}")
    rows.add_section()
    rows.add_row(
        "all",
        "",
        f"{told['macs_share']:.1%}",
        f"{told['delta_us']:.1f}",
        f"{told['dense_us']:.1f}",
    )
    console().print(rows)
    if told["achieved"] is not None:
        print(f"achieved {told['achieved']:.0%} of the MAC saving in time")
