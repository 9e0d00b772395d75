"""`deltakwt export`: a model as C, as a file for the C library or the browser, or for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import (
    DEFAULT_MODEL,
    JsonOption,
    ModelOption,
    ProfileOption,
    ThresholdsOption,
    console,
    load_model,
    print_json,
    progress,
    say,
    table,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.setting import Setting
    from deltakwt.export.boards import BoardMeasurement
    from deltakwt.export.model import Export


TARGETS = ("c", "bin", "web", "onnx", "tflite")
ONLY_WEIGHTS = {"bin": "f32", "web": "f16", "onnx": "f32", "tflite": "f32"}  # of the single files


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("export")(export)


def export(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Write to this new or empty folder; for other targets than c: to this file.",
        ),
    ],
    model: ModelOption = DEFAULT_MODEL,
    target: Annotated[
        str,
        typer.Option(
            help="Choose what to write: 'c' is a folder of C for microcontrollers (default), 'bin'"
            " is one model file for the C library, 'web' is one compressed file for the browser,"
            " 'onnx' and 'tflite' are the dense model with its front end for other runtimes."
        ),
    ] = "c",
    weights: Annotated[
        str | None,
        typer.Option(
            help="Store weights as f32, f16 or int8 (default int8; web has f16, other files f32)."
        ),
    ] = None,
    profile: ProfileOption = None,
    thresholds: ThresholdsOption = None,
    front_end: Annotated[
        str | None,
        typer.Option(
            help="Use this front end with --thresholds: plain (default), smooth, or"
            " smooth_FLOOR[_QUANTILE], for example smooth_2."
        ),
    ] = None,
    hop: Annotated[
        float | None,
        typer.Option(
            help="Start a window every this many seconds (default: the model's own, else 0.1)."
        ),
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(
            help="Run clips of this Speech Commands folder on an emulated Cortex-M7 and print"
            " memory, instructions and accuracy."
        ),
    ] = None,
    clips: Annotated[
        int,
        typer.Option(
            min=1, help="With --measure: run this many clips of words and as many of noise."
        ),
    ] = 10,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --measure: use this many clips for the accuracy (default: all)."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Export a model as C for microcontrollers, or as one file for the C library or others."""
    if target not in TARGETS:
        raise DeltakwtError(f"--target {target}: must be one of {', '.join(TARGETS)}")
    only = ONLY_WEIGHTS.get(target)
    if only and (weights not in (None, only) or measure):
        option = "--measure" if measure else f"--weights {weights}"
        raise DeltakwtError(f"{option}: --target {target} has {only} weights and runs nothing")
    if target in ("onnx", "tflite"):
        _write_dense(target, model, out, any((profile, thresholds, front_end, hop)), json)
        return
    kind = only or weights or "int8"
    wanted = _wanted(model, kind, _setting(model, profile, thresholds, front_end), hop)
    if only:
        _write_file(wanted, model, target, out, json)
    else:
        _write_sources(wanted, out, measure, clips, limit, json)


def _write_dense(target: str, model: str, out: Path, is_set: bool, json: bool) -> None:
    from deltakwt.export.dense import DESCRIPTIONS, write_dense
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    if is_set:
        raise DeltakwtError(
            f"--target {target}: is dense with the plain front end; leave out --profile,"
            " --thresholds, --front-end and --hop"
        )
    size = write_dense(target, load_weights(resolve(model)), out)
    if json:
        print_json({"out": str(out), "bytes": size})
        return
    say(f"{out}: {model}, {DESCRIPTIONS[target]}, {size / 1024:.0f} KB.")


def _write_file(wanted: Export, model: str, target: str, out: Path, json: bool) -> None:
    from deltakwt.export.binary import write_model_file
    from deltakwt.export.web import write_web_model

    if target == "web":
        size = write_web_model(wanted, load_model(model).profiles, out)
    else:
        size = write_model_file(wanted, out)
    if json:
        print_json({"out": str(out), "bytes": size})
        return
    console().print(
        f"{out}: {wanted.name}, setting {wanted.setting}, {size / 1024:.0f} KB.",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def _write_sources(
    wanted: Export, out: Path, measure: Path | None, clips: int, limit: int | None, json: bool
) -> None:
    from deltakwt.export.folder import write_folder
    from deltakwt.export.readme import flash_plan, ram_bytes

    write_folder(wanted, out)
    flash, ram = sum(flash_plan(wanted).values()), ram_bytes(wanted)
    found = _measure(wanted, out, measure, clips, limit) if measure else None
    if json:
        document: dict[str, Any] = {"out": str(out), "flash_bytes": flash, "ram_bytes": ram}
        print_json(document | ({"measured": found.to_json()} if found else {}))
        return
    console().print(
        f"{out}: {wanted.name}, {wanted.kind} weights, setting {wanted.setting};"
        f" about {flash / 1024:.0f} KB of flash and {ram / 1024:.0f} KB of RAM.\n"
        f"Try it: make -C {quote(str(out))} check; make -C {quote(str(out))} run-cortex-m7",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    if found:
        _show(wanted, found)


def _setting(
    name: str, profile: str | None, thresholds: str | None, front_end: str | None
) -> Setting:
    """Return the setting that the options name: a profile, or thresholds and a front end."""
    from deltakwt.core.setting import FrontEndSetting, Setting

    if front_end is not None and thresholds is None:
        raise DeltakwtError("--front-end needs --thresholds; a profile has its own front end")
    chosen = load_model(name, profile, thresholds).setting
    if front_end is None:
        return chosen
    return Setting(chosen.thresholds, FrontEndSetting.parse(front_end))


def _wanted(name: str, kind: str, setting: Setting, hop: float | None) -> Export:
    from deltakwt.export.model import Export
    from deltakwt.listen.spotter import decision_of
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    decision = decision_of(load_model(name))
    if hop is not None:
        decision = replace(decision, hop=hop)
    weights = load_weights(resolve(name))
    known = Path(name).stem if Path(name).exists() else name
    return Export(known, weights.config, weights.tensors, kind, setting, decision)


def _measure(
    wanted: Export, out: Path, data: Path, clips: int, limit: int | None
) -> BoardMeasurement:
    from deltakwt.export.boards import measure

    with progress("accuracy of the exported weights") as bar:
        return measure(wanted, out, data, clips, limit, bar.update)


def _show(wanted: Export, found: BoardMeasurement) -> None:
    """Print the measurements beside the targets that were set for KWT-1 with int8 weights."""
    points = {
        mode: 100 * (found.accuracy[f"exported {mode}"] - found.accuracy[f"float {mode}"])
        for mode in ("dense", "delta")
        if f"float {mode}" in found.accuracy
    }
    rows = table(
        f"{wanted.name}, {wanted.kind} weights, setting {wanted.setting}, emulated {found.board},"
        f" {found.board_clips} clips",
        "quantity",
        "measured",
        "target",
        "stretch target",
    )
    rows.add_row("static RAM", f"{found.ram / 1024:.1f} KB", "192 KB", "96 KB")
    rows.add_row("deepest stack", f"{found.stack} bytes", "", "")
    rows.add_row("flash", f"{found.flash / 1024:.1f} KB", "720 KB", "660 KB")
    for mode, change in points.items():
        exported, clips = found.accuracy[f"exported {mode}"], found.accuracy_clips
        rows.add_row(
            f"accuracy against float weights, {mode} ({100 * exported:.2f}% of {clips} clips)",
            f"{change:+.2f} points",
            "0.2",
            "0.05",
        )
    for name, ratio, count, least, stretch in (
        ("word", found.word, found.word_instructions, "3x", "5x"),
        ("real noise", found.noise, found.noise_instructions, "4x", "10x"),
        ("digital silence", found.silence, found.silence_instructions, "12x", "25x"),
    ):
        rows.add_row(
            f"{name}: dense / delta instructions ({count / 1e6:.1f} M)",
            f"{ratio:.1f}x",
            least,
            stretch,
        )
    rows.add_row("dense instructions", f"{found.dense_instructions / 1e6:.1f} M", "", "")
    rows.add_row("front end, one second", f"{found.front_end_instructions / 1e6:.1f} M", "", "")
    rows.add_row("same label as on this machine", f"{found.same_label}", "all", "")
    rows.add_row("same bits as on this machine", f"{found.bit_equal}", "", "all")
    console().print(rows)
