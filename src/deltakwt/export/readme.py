"""The README of an exported folder: memory, compute, and the boards that can run the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from deltakwt.core.config import FRAME_SAMPLES, MEL_BANDS
from deltakwt.core.macs import shortcut_macs
from deltakwt.export.model import GROUP, Export
from deltakwt.export.sources import tables


@dataclass(frozen=True)
class Core:
    """The instructions that a kind of processor needs, fitted to runs of kwt-1 with int8 weights.

    Dense: instructions per MAC. With deltas: per MAC that is executed, and per MAC of the dense
    model for the work that does not depend on the sound (norms, comparisons), which grows with the
    size of the model.
    """

    dense: float
    per_mac: float
    per_dense_mac: float


# `make run-cortex-m7`, `run-cortex-m3` and `run-rv32` of kwt-1, profile accurate: dense, the word
# and digital silence of the self-test (176.2, 36.0 and 7.1; 306.2, 64.6 and 15.1; 452.4, 88.4 and
# 20.5 M instructions for 68.2, 10.4 and 1.4 M MACs).
DSP = Core(2.58, 3.21, 0.038)  # Cortex-M4, M7, M33
CORTEX_M3 = Core(4.49, 5.51, 0.106)
OTHER = Core(6.63, 7.55, 0.144)  # RISC-V and others
# Shorter rows need more instructions for a MAC. kwt-0, of width 32, needs 1.4 times as many dense,
# and 1.5 times as many for a word (10.6 and 4.5 M on a Cortex-M7): the power 0.6 of the ratio.
WIDTH = 64
# Instructions of the front end per second of sound, from the same runs: with a floating-point unit,
# and without.
FRONT_END, SOFT_CORTEX_M, SOFT_RISCV = 6_920_760, 89_317_520, 173_122_692


@dataclass(frozen=True)
class Board:
    """A public board."""

    name: str
    flash: int  # KiB
    ram: int  # KiB
    clock: int  # MHz
    core: Core = DSP
    front_end: int = FRONT_END  # instructions per second of sound


PUBLIC_BOARDS = (
    Board("Arduino Nano 33 BLE (nRF52840, Cortex-M4F)", 1024, 256, 64),
    Board("STM32F407 Discovery (Cortex-M4F)", 1024, 192, 168),
    Board("NUCLEO-L4R5ZI (Cortex-M4F)", 2048, 640, 120),
    Board("NUCLEO-F767ZI (Cortex-M7)", 2048, 512, 216),
    Board("NUCLEO-H743ZI (Cortex-M7)", 2048, 1024, 480),
    Board("Teensy 4.1 (i.MX RT1062, Cortex-M7)", 7936, 1024, 600),
    Board("Raspberry Pi Pico 2 (RP2350, Cortex-M33)", 4096, 520, 150),
    Board("Arduino Due (SAM3X8E, Cortex-M3, no FPU)", 512, 96, 84, CORTEX_M3, SOFT_CORTEX_M),
    Board("ESP32-C3-DevKitM (RV32IMC, no FPU)", 4096, 400, 160, OTHER, SOFT_RISCV),
    Board("ESP32-S3-DevKitC (Xtensa LX7)", 8192, 512, 240, OTHER),
    Board("ESP32-P4 (RV32)", 16384, 768, 400, OTHER),
)
# Boards that `make run-...` boots.
EMULATED = ("cortex-m7", "cortex-m4f", "cortex-m33", "cortex-m3", "rv32", "rv64")

# Code of the library and its share of the C library: gcc 12 -O2, Cortex-M7. `make size-cortex-m7`.
CODE_BYTES = 25_000
STREAM_BYTES = 48  # struct dk_stream without rows of bands
BAND_ROW_BYTES = 4 * MEL_BANDS
LAYER_BYTES = 108  # struct dk_flash_layer
OTHER_BYTES = 900  # decisions, events
STACK_BYTES = 2 * 1024  # the self-test measures 1.1 KB


# ---------------------------------------------------------------- memory


def flash_plan(export: Export) -> dict[str, int]:
    """Return the bytes of flash, part by part."""
    c = export.config
    matrices = c.layers * (4 * c.dim * c.dim + 2 * c.dim * c.mlp)
    plan = {f"weights of the layers ({export.kind})": matrices * export.weight_bits // 8}
    if export.kind == "int8":
        plan["shifts, one per row"] = c.layers * (5 * c.dim + c.mlp)
    plan["embedding, positions, last matrix"] = 2 * c.dim * (c.features + c.tokens + len(c.labels))
    plan["biases, norms"] = c.layers * (2 * (6 * c.dim + c.mlp) + LAYER_BYTES)
    plan["powers of the softmax"] = 1 << max(layer.score_bits for layer in export.weights().layers)
    plan["front end: window, FFT, mel, DCT"] = sum(table.nbytes for table in tables().values())
    table = export.thresholds()
    if table is not None:
        plan["thresholds"] = table.nbytes
    return plan | {"code, about": CODE_BYTES}


def ram_plan(export: Export) -> list[tuple[str, int, str]]:
    """Return (content, bytes, when it is used) for every part of the static memory."""
    c = export.config
    columns = -(-c.tokens // 2) * 2
    keys, values = 2 * (c.dim * columns + GROUP), 2 * c.tokens * c.dim
    counts = 2 * columns + 2 * c.dim + 4
    attention = keys + values + counts + _token_bytes(export)
    mlp = 2 * (2 * c.dim + 4 * c.mlp) + 4 * c.mlp
    front = export.setting.front_end
    rows = 2 * front.smooth + (front.floor > 0)
    plan = [
        (
            f"x ({c.tokens} x {c.dim}): input of a layer, replaced row by row by its output",
            2 * c.tokens * c.dim,
            "inference",
        ),
        ("K^, transposed", keys, "attention"),
        ("V^", values, "attention"),
        ("references and running results of one token", _token_bytes(export), "attention"),
        ("tokens of each column, counts", counts, "attention"),
        ("MLP, over K^ and V^: more than these", max(mlp - attention, 0), "inference"),
        ("kept differences of a row and their products", _row_bytes(export), "inference"),
        (
            f"features ({c.frames} x {c.features}) of the newest window",
            2 * c.frames * c.features,
            "always",
        ),
        ("samples that the next frame needs", 2 * (FRAME_SAMPLES - c.hop_samples), "always"),
        ("state of the front end", STREAM_BYTES + rows * BAND_ROW_BYTES, "always"),
    ]
    return [part for part in plan if part[1]]


def ram_bytes(export: Export) -> int:
    """Return DK_RAM_BYTES without the few hundred bytes of decisions and events."""
    return sum(size for _, size, _ in ram_plan(export))


def _token_bytes(export: Export) -> int:
    """Return the size of what the attention keeps from one token to the next."""
    c = export.config
    columns, padded = -(-c.tokens // 2) * 2, -(-c.tokens // GROUP) * GROUP
    return max(2 * 6 * c.dim + c.heads * (2 * padded + 6 * columns + 8), 2 * 5 * c.dim)


def _row_bytes(export: Export) -> int:
    """Return the size of the kept differences of a row and of the products that are added."""
    c = export.config
    term = 12 if export.kind == "int8" else 8  # products_dsp.h
    terms = 33 if c.dim < 64 else 65
    return 4 * c.dim + max(term * terms, 4 * (c.tokens + 1))


# ---------------------------------------------------------------- time


def inference_instructions(export: Export, macs: int, core: Core) -> float:
    """Return the estimated instructions of one inference with `macs` MACs."""
    dense = int(shortcut_macs(export.config).sum())
    narrow: float = max(1.0, WIDTH / export.config.dim) ** 0.6
    if macs == dense:
        return narrow * core.dense * dense
    return narrow * (core.per_mac * macs + core.per_dense_mac * dense)


def hop_instructions(export: Export, macs: int, board: Board) -> float:
    """Return the estimated instructions of one hop: one inference, and the front end."""
    seconds, stride = export.decision.hop_frames / 100, export.config.stride
    return inference_instructions(export, macs, board.core) + board.front_end / stride * seconds


def shortest_hop(export: Export, macs: int, board: Board) -> float:
    """Return the shortest hop in seconds that a board keeps up with, in whole frames.

    Infinite if the front end alone takes longer than the sound.
    """
    stride = export.config.stride
    free = 1e6 * board.clock - board.front_end / stride
    if free <= 0:
        return inf
    steps = 100 * inference_instructions(export, macs, board.core) / free  # of 10 ms
    return stride * ceil(steps / stride) / 100


def board_row(export: Export, board: Board, macs: int) -> tuple[str, ...]:
    """Return the row of a board in the table of boards.

    It fits if model and code leave a tenth of the flash, if RAM and stack suffice, and if the
    instructions of a hop take less time than the hop, at one instruction per cycle.
    """
    flash, ram = sum(flash_plan(export).values()), ram_bytes(export) + OTHER_BYTES + STACK_BYTES
    instructions = hop_instructions(export, macs, board)
    load = instructions / (1e4 * board.clock * export.decision.hop_frames)
    lacks = {
        "flash": flash > 0.9 * 1024 * board.flash,
        "RAM": ram > 1024 * board.ram,
        "time": load > 1,
    }
    missing = ", ".join(what for what, is_missing in lacks.items() if is_missing)
    hop = shortest_hop(export, macs, board)
    return (
        board.name,
        f"{board.flash:,} KB",
        f"{board.ram} KB",
        f"{board.clock} MHz",
        f"{instructions / 1e6:.0f} M of {board.clock * export.decision.hop_frames / 100:.0f} M",
        f"{hop:.2f} s" if hop <= 1 else "none",
        f"no: {missing}" if missing else "yes",
    )


# ---------------------------------------------------------------- text


def readme_source(export: Export, dense: int, macs: Mapping[str, int]) -> str:
    """Return README.md. `macs` maps a sound to the MACs of its inference, speech first.

    `dense` is the number of MACs without deltas.
    """
    flash, ram, stride = flash_plan(export), ram_plan(export), export.config.stride
    speech = next(iter(macs.values()))
    sounds = {"any sound, dense": dense} | (dict(macs) if export.setting.thresholds else {})
    return TEXT.format(
        name=export.name,
        kind=export.kind,
        setting=export.setting,
        thresholds=export.setting.thresholds or "none: dense",
        stabiliser=export.setting.front_end,
        front_end=f"{FRONT_END / stride / 1e6:.0f}",
        soft_front_end=(
            f"{SOFT_CORTEX_M / stride / 1e6:.0f} M on a Cortex-M3 and"
            f" {SOFT_RISCV / stride / 1e6:.0f}"
        ),
        labels=", ".join(export.config.labels),
        hop=f"{10 * export.decision.hop_frames} ms",
        flash=_rows(
            (part, f"{size:,}")
            for part, size in (*flash.items(), ("together", sum(flash.values())))
        ),
        ram=_rows(
            (what, f"{size:,}", when)
            for what, size, when in (*ram, ("decisions, events, about", OTHER_BYTES, "always"))
        ),
        ram_total=f"{ram_bytes(export) + OTHER_BYTES:,}",
        macs=_rows(
            (
                sound,
                f"{count / 1e6:.1f} M",
                f"{100 * count / dense:.1f}%",
                f"{inference_instructions(export, count, DSP) / 1e6:.0f} M",
                f"{inference_instructions(export, count, OTHER) / 1e6:.0f} M",
            )
            for sound, count in sounds.items()
        ),
        boards=_rows(board_row(export, board, speech) for board in PUBLIC_BOARDS),
        runs=" ".join(f"run-{board}" for board in EMULATED),
    )


def _rows(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


TEXT = """# {name} for microcontrollers

A Keyword Transformer in C11. It needs no operating system, no heap, and from the C library only
`memcpy`, `memset`, `memmove`, `memcmp`, `sqrtf`, `expf`, `exp` and `log`. Written by
`deltakwt export`.

Weights: {kind}. Setting: {setting} (thresholds {thresholds}; front end {stabiliser}).
One window every {hop}. Labels: {labels}.

```c
#include "dk.h"

dk_init();
for (;;) {{
    read_microphone(samples, 160); /* 16 kHz, mono, signed 16 bit */
    dk_push(samples, 160);         /* any number of samples */
    dk_event event;
    while (dk_result(&event)) react(dk_labels[event.label], event.score);
}}
```

`src/` is the library and `src/dk.h` its interface. Compile every `.c` file in `src/` with
optimisation and `-ffp-contract=off`, and link with `-lm`. Every processor then computes the same
logits to the last bit, with or without a floating-point unit: the model runs on integers, and the
front end uses no fused multiply-add.

    make check                # self-test on this machine
    make cortex-m7            # build for a board
    make {runs}
    make size-cortex-m7       # flash and RAM of the library alone
    make fuzz                 # random sound under the sanitizers

On Debian: `apt install make gcc gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc`.
`CLIPS="a.raw b.raw"` runs more clips on the board (one second, 16 kHz, 16 bit, mono, no header).

## Flash

| part | bytes |
|---|---|
{flash}

## RAM

One static block, `DK_RAM_BYTES`: about {ram_total} bytes. The stack needs 2 KB more, and a program
that calls `dk_clip` 32 KB.

| content | bytes | used |
|---|---|---|
{ram}

All numbers have 16 bits. A token goes through attention before the next one starts, and so it does
through the MLP: scores, softmax, heads and hidden features exist for one token only. The output of
a layer replaces its input in place, and the MLP uses the memory of K^ and V^. The front end uses
the memory of the inference for its FFT.

## Compute

| sound | MACs of a window | of the dense model | instructions, Cortex-M4, M7, M33 | other |
|---|---|---|---|---|
{macs}

The instructions of an inference are an estimate, fitted to runs of `kwt-1` on an emulated Cortex-M7
and RV32. `make run-cortex-m7` counts them for this model. The front end takes {front_end} M per
second, without a floating-point unit {soft_front_end} M on RV32. A window
that is close to the last computed one costs the front end only.

## Boards

| board | flash | RAM | clock | instructions in a hop | shortest hop | fits |
|---|---|---|---|---|---|---|
{boards}

"Instructions in a hop" compares what a hop of {hop} needs during speech with the clock cycles that
it has: in real time at one instruction per cycle. A real processor also waits for flash, and a
Cortex-M7 can run two instructions per cycle. "Shortest hop" is the smallest `--hop` that is in real
time, up to one second. "Fits" means that flash, RAM and time suffice. For a slow board, export with
a longer `--hop`.

## Arduino, PlatformIO, Zephyr, ESP-IDF

The folder is a library for each of them: `library.properties`, `library.json`, `zephyr/module.yml`
with `zephyr/CMakeLists.txt`, and `CMakeLists.txt` with `idf_component.yml`. `examples/` has a loop
over an I2S microphone for each.
"""
