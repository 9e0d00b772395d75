"""`deltakwt export`: a model as C, as a file for the C library or the browser, or for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import console, load_model, print_json, progress, say, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    JsonOption,
    ModelOption,
    ProfileOption,
    ThresholdsOption,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.fixed_weights import Scales
    from deltakwt.core.setting import Setting
    from deltakwt.export.boards import BoardMeasurement
    from deltakwt.export.model import Export
    from deltakwt.weights.folder import Weights


TARGETS = ("c", "bin", "web", "onnx", "tflite")
CALIBRATION_CLIPS = 200  # as many as `deltakwt quantize` takes
# What the weights of a single file can be; the first is the default.
FILE_WEIGHTS = {
    "bin": ("f32", "int16"),
    "web": ("int16", "f16"),
    "onnx": ("f32",),
    "tflite": ("f32",),
}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("export")(export)


def export(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            help="Write to this folder, which must be new or empty, or, with a target other than c,"
            " to this file.",
        ),
    ],
    model: ModelOption = DEFAULT_MODEL,
    target: Annotated[
        str,
        typer.Option(
            metavar="TARGET",
            help="Choose what to write: 'c' is a folder of C for microcontrollers (default), 'bin'"
            " is one model file for the C library, 'web' is one compressed file for the browser,"
            " 'onnx' and 'tflite' are the dense model with its front end for other runtimes.",
        ),
    ] = "c",
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Store the weights like this: with target c int8 (default) or int16, with bin f32"
            " (default) or int16, with web int16 (default for a model with scales) or f16; the"
            " others have f32.",
        ),
    ] = None,
    profile: ProfileOption = None,
    thresholds: ThresholdsOption = None,
    front_end: Annotated[
        str | None,
        typer.Option(
            metavar="FRONT_END",
            help="Use this front end with --thresholds: plain (default), smooth, or"
            " smooth_FLOOR[_QUANTILE], for example smooth_2.",
        ),
    ] = None,
    hop: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Compute a window every this many seconds. Default: the model's own, else 0.1.",
        ),
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Run clips of this Speech Commands folder on an emulated Cortex-M7 and print"
            " memory, instructions and accuracy.",
        ),
    ] = None,
    clips: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="With --measure: run this many clips of words and as many of noise.",
        ),
    ] = 10,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --measure: use this many clips for the accuracy. Default: all.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With target c and a model without scales for fixed point: choose them with clips"
            " of this Speech Commands folder.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Export a model as C, or as one file for other programs."""
    if target not in TARGETS:
        raise DeltakwtError(f"--target {target}: must be one of {', '.join(TARGETS)}")
    possible = FILE_WEIGHTS.get(target)
    if possible and measure:
        raise DeltakwtError(f"--measure: runs C on a board, not --target {target}; give --target c")
    if possible and weights not in (None, *possible):
        names = " or ".join(possible)
        raise DeltakwtError(f"--weights {weights}: with --target {target} give {names}")
    if target in ("onnx", "tflite"):
        _write_dense(target, model, out, any((profile, thresholds, front_end, hop)), json)
        return
    kind = weights or (_file_weights(target, model) if possible else "int8")
    wanted = _wanted(model, kind, _setting(model, profile, thresholds, front_end), hop, data)
    if possible:
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
    )
    if found:
        _show(wanted, found)


def _file_weights(target: str, name: str) -> str:
    """Return how the weights of a file are stored unless told otherwise."""
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import find_scales, resolve

    first, *others = FILE_WEIGHTS[target]
    path = resolve(name)
    has_scales = first != "int16" or find_scales(path, load_weights(path)) is not None
    return first if has_scales else others[0]


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


def _wanted(name: str, kind: str, setting: Setting, hop: float | None, data: Path | None) -> Export:
    from deltakwt.export.model import BOARD_KINDS, Export
    from deltakwt.listen.spotter import decision_of
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    decision = decision_of(load_model(name))
    if hop is not None:
        decision = replace(decision, hop=hop)
    path = resolve(name)
    weights = load_weights(path)
    known = Path(name).stem if Path(name).exists() else name
    scales = _scales(path, weights, data) if kind in BOARD_KINDS else None
    if kind in BOARD_KINDS and scales is None:
        raise DeltakwtError(
            f"{name}: has no scales for fixed point; make them with:"
            f" deltakwt quantize {quote(name)} --data DIR"
        )
    return Export(known, weights.config, weights.tensors, kind, setting, decision, scales)


def _scales(path: Path, weights: Weights, data: Path | None) -> Scales | None:
    """Return the scales of a model; without any, make them from clips of `data`, if given."""
    from deltakwt.data.calibration import calibration_sounds
    from deltakwt.weights.folder import load_profiles
    from deltakwt.weights.quantize import quantize
    from deltakwt.weights.registry import file_profiles, find_scales

    found = find_scales(path, weights)
    if found is not None or data is None:
        return found
    profiles = load_profiles(path) if path.is_dir() else file_profiles(path)
    return quantize(weights, profiles, calibration_sounds(data, CALIBRATION_CLIPS, 0)).scales


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
    rows.add_row("static RAM", f"{found.ram / 1024:.1f} KB", "64 KB", "48 KB")
    rows.add_row("deepest stack", f"{found.stack} bytes", "", "")
    rows.add_row("flash", f"{found.flash / 1024:.1f} KB", "720 KB", "660 KB")
    for mode, change in points.items():
        exported, clips = found.accuracy[f"exported {mode}"], found.accuracy_clips
        rows.add_row(
            f"accuracy against the float engine, {mode} ({100 * exported:.2f}% of {clips} clips)",
            f"{change:+.2f} points",
            "0.2",
            "0.05",
        )
    for name, ratio, count, least, stretch in (
        ("word", found.word, found.word_instructions, 35, 22),
        ("real noise", found.noise, found.noise_instructions, 30, 18),
        ("digital silence", found.silence, found.silence_instructions, 7, 4),
    ):
        rows.add_row(
            f"{name}: instructions ({ratio:.1f} times fewer than dense)",
            f"{count / 1e6:.1f} M",
            f"{least} M",
            f"{stretch} M",
        )
    rows.add_row("dense instructions", f"{found.dense_instructions / 1e6:.1f} M", "", "")
    rows.add_row("front end, one second", f"{found.front_end_instructions / 1e6:.1f} M", "", "")
    rows.add_row(
        "logits on the board with the bits of this machine", f"{found.bit_equal}", "all", ""
    )
    rows.add_row(
        "logits with the bits of the library",
        f"{found.library_equal} of {found.accuracy_clips}",
        "all",
        "",
    )
    console().print(rows)
