"""`deltakwt eval`: accuracy, MACs and stored bytes of a model over a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import console, fail, load_model, percent, print_json, progress, say, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    ArithmeticOption,
    DataOption,
    JsonOption,
    LimitOption,
    ModelOption,
    ProfileOption,
    SeedOption,
    SplitOption,
    ThreadsOption,
    ThresholdsOption,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.macs import Macs
    from deltakwt.core.model import Model
    from deltakwt.evaluate.accuracy import Evaluation


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("eval")(evaluate)


def evaluate(
    data: DataOption,
    model: ModelOption = DEFAULT_MODEL,
    split: SplitOption = "test",
    silence: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Use these silence clips: zero (digital silence, as in the paper) or noise"
            " (recorded background noise).",
        ),
    ] = "zero",
    limit: LimitOption = None,
    seed: SeedOption = 0,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read the list of clips from this file; write it if it does not exist.",
        ),
    ] = None,
    thresholds: ThresholdsOption = None,
    profile: ProfileOption = None,
    arithmetic: ArithmeticOption = None,
    threads: ThreadsOption = 0,
    json: JsonOption = False,
) -> None:
    """Measure accuracy, MACs and stored bytes on Speech Commands."""
    from deltakwt.data import speech_commands as dataset
    from deltakwt.evaluate.accuracy import evaluate as run
    from deltakwt.provenance import command

    if silence not in dataset.SILENCES:
        raise DeltakwtError(f"--silence {silence}: must be zero or noise")
    loaded = load_model(model, profile, thresholds, arithmetic)
    if manifest is not None and manifest.exists():
        clips = dataset.load_manifest(manifest, data)
    else:
        clips = dataset.draw(data, split, silence, seed=seed, limit=limit, labels=loaded.labels)
        if manifest is not None:
            clips.save(manifest)
    with progress("evaluating") as bar:
        result = run(loaded, clips, threads=threads, progress=bar.update)
    for _, reason in result.failed:
        fail(reason)
    if json:
        setting = {
            "model": model,
            "data": str(data),
            "split": clips.split,
            "silence": clips.silence,
            "seed": clips.seed,
            "failed": [{"file": file, "error": reason} for file, reason in result.failed],
            "profile": loaded.setting.name or None,
            **loaded.setting.to_json(),
            "isa": loaded.engine.isa,
            "arithmetic": loaded.arithmetic,
            "command": command(),
        }
        print_json({**result.to_json(), **setting})
    else:
        _print(result, loaded, f"{data.name}, {clips.split} split, silence: {clips.silence}")
    if result.failed:
        raise typer.Exit(1)


def _print(result: Evaluation, model: Model, data: str) -> None:
    say(f"{model.name} ({model.setting}, {model.arithmetic}, {model.engine.isa}) on {data}")
    columns = ["class", "clips", "right", "most often taken for"]
    if result.macs:
        columns += ["MHSA MACs", "executed", "all MACs", "executed"]
    rows = table("", *columns)
    for index, label in enumerate(result.labels):
        row = result.confusion[index]
        clips, right = int(row.sum()), int(row[index])
        if not clips:
            continue
        wrong = row.copy()
        wrong[index] = 0
        taken = f"{result.labels[wrong.argmax()]} ({wrong.max()})" if wrong.any() else ""
        cells = [label, str(clips), percent(right / clips), taken]
        if macs := result.counts_by_class[label].macs:
            cells += _both_counts(macs, 1)
        rows.add_row(*cells)
    cells = ["all", str(result.clips), percent(result.accuracy), f"in {result.seconds:.1f} s"]
    if macs := result.macs:
        cells += _both_counts(macs, 2)
    rows.add_section()
    rows.add_row(*cells)
    console().print(rows)
    if bytes_ := result.counts.bytes:
        total = bytes_["total"]
        print(
            f"delta-encoded tensors: {total['bitmap'] / total['dense']:.1%} of the dense bytes "
            f"as bitmap + values, {total['index'] / total['dense']:.1%} as index + values"
        )


def _both_counts(macs: Macs, digits: int) -> list[str]:
    """Return attention, then the whole model: each by the paper's count and as executed."""
    shares = (
        *(macs.mhsa_percent, macs.executed_mhsa_percent),
        *(macs.model_percent, macs.executed_model_percent),
    )
    return ["" if share is None else f"{share:.{digits}f}%" for share in shares]
