"""`deltakwt export`: a model as a folder of C for a microcontroller."""

from __future__ import annotations

from pathlib import Path
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
    table,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.export.measure import Measured
    from deltakwt.export.settings import Export


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("export")(export)


def export(
    out: Annotated[Path, typer.Option("--out", help="A new or empty folder.")],
    model: ModelOption = DEFAULT_MODEL,
    target: Annotated[str, typer.Option(help="c: C11 for microcontrollers.")] = "c",
    weights: Annotated[str, typer.Option(help="f32, f16 or int8.")] = "int8",
    profile: ProfileOption = None,
    thresholds: ThresholdsOption = None,
    steady: Annotated[
        str | None, typer.Option(help="Front end for --thresholds: plain, or e.g. smooth_2.")
    ] = None,
    hop: Annotated[
        float | None, typer.Option(help="Seconds between windows, if not as the model has it.")
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(help="A Speech Commands folder: run clips of it on an emulated Cortex-M7."),
    ] = None,
    clips: Annotated[int, typer.Option(min=1, help="Words, and noises, that --measure runs.")] = 10,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Clips for --measure's accuracy; default all.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a folder that stands alone: the core in C, the model as constants, a self-test."""
    from deltakwt.export.folder import write_folder
    from deltakwt.export.plan import flash_plan, ram_bytes

    if target != "c":
        raise DeltakwtError(f"--target {target}: the only target is c")
    wanted = _wanted(model, weights, profile, thresholds, steady, hop)
    write_folder(wanted, out)
    flash, ram = sum(flash_plan(wanted).values()), ram_bytes(wanted)
    found = _measure(wanted, out, measure, clips, limit) if measure else None
    if json:
        document: dict[str, Any] = {"out": str(out), "flash_bytes": flash, "ram_bytes": ram}
        print_json(document | ({"measured": found.to_json()} if found else {}))
        return
    console().print(
        f"{out}: {wanted.name}, {weights} weights, profile {wanted.profile};"
        f" about {flash / 1024:.0f} KB of flash and {ram / 1024:.0f} KB of RAM.\n"
        f"Try it: make -C {out} check; make -C {out} run-cortex-m7",
        soft_wrap=True,
        highlight=False,
    )
    if found:
        _show(wanted, found)


def _wanted(
    name: str,
    kind: str,
    profile: str | None,
    thresholds: str | None,
    steady: str | None,
    hop: float | None,
) -> Export:
    from dataclasses import replace

    from deltakwt.core.setting import FrontEndSetting
    from deltakwt.export.settings import Export
    from deltakwt.listen.spotter import decision_of
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    model = load_model(name, profile, thresholds)
    if steady is not None:
        if thresholds is None:
            raise DeltakwtError("--steady belongs to --thresholds; a profile has its own front end")
        model.steady = FrontEndSetting.parse(steady)
    decision = decision_of(model)
    if hop is not None:
        decision = replace(decision, hop=hop)
    return Export(
        Path(name).stem if Path(name).exists() else name,
        model.config,
        load_weights(resolve(name)).tensors,
        kind,
        model.profile or ("thresholds" if thresholds else "dense"),
        model.thresholds,
        model.steady,
        decision,
    )


def _measure(wanted: Export, out: Path, data: Path, clips: int, limit: int | None) -> Measured:
    from deltakwt.export.measure import measure

    with progress("accuracy of the exported weights") as bar:
        return measure(wanted, out, data, clips, limit, bar.update)


def _show(wanted: Export, found: Measured) -> None:
    """The reach table: what was found beside what is aimed at, for KWT-1 with int8 weights."""
    points = {
        mode: 100 * (found.accuracy[f"exported {mode}"] - found.accuracy[f"float {mode}"])
        for mode in ("dense", "delta")
        if f"float {mode}" in found.accuracy
    }
    rows = table(
        f"{wanted.name}, {wanted.kind} weights, profile {wanted.profile}, emulated {found.board},"
        f" {found.board_clips} clips",
        "what",
        "found",
        "at least",
        "stretch",
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
