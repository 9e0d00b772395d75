"""The README of an exported folder: memory, compute, and the boards that can run the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from deltakwt.core.macs import dense_macs
from deltakwt.export.model import Export, matrices, vectors
from deltakwt.export.sources import tables


@dataclass(frozen=True)
class Board:
    """A public board with a floating-point unit."""

    name: str
    flash: int  # KiB
    ram: int  # KiB
    clock: int  # MHz


PUBLIC_BOARDS = (
    Board("Arduino Nano 33 BLE (nRF52840, Cortex-M4F)", 1024, 256, 64),
    Board("STM32F407 Discovery (Cortex-M4F)", 1024, 192, 168),
    Board("NUCLEO-L4R5ZI (Cortex-M4F)", 2048, 640, 120),
    Board("NUCLEO-F767ZI (Cortex-M7)", 2048, 512, 216),
    Board("NUCLEO-H743ZI (Cortex-M7)", 2048, 1024, 480),
    Board("Teensy 4.1 (i.MX RT1062, Cortex-M7)", 7936, 1024, 600),
    Board("Raspberry Pi Pico 2 (RP2350, Cortex-M33)", 4096, 520, 150),
    Board("ESP32-S3-DevKitC (Xtensa LX7)", 8192, 512, 240),
    Board("ESP32-P4 (RV32)", 16384, 768, 400),
)
EMULATED = ("cortex-m7", "cortex-m4f", "rv32", "rv64")  # that `make run-...` boots

# Code of the library and its share of the C library: gcc 12 -O2, Cortex-M7. `make size-cortex-m7`.
CODE_BYTES = 26_000
STREAM_BYTES = 6_460  # struct dk_stream: a frame of samples, FFT work, three rows of bands
OTHER_BYTES = 700  # decisions, events, alignment
STACK_BYTES = 3 * 1024  # the self-test measures less than 2.5 KB

# Instructions of an inference, fitted to `make run-cortex-m7` of kwt-1 with int8 weights: 260.8 M
# for 68.2 M MACs (dense) and 66.9 M for 11.5 M MACs (a word). The second term is work that does
# not depend on the sound: unpacking weights, norms, comparisons. It grows with the size of the
# model, for which `dense_macs` stands.
PER_MAC, PER_DENSE_MAC = 3.42, 0.377
FRONT_END = 7_363_040  # instructions per second of sound, from the same run


# ---------------------------------------------------------------- memory


def flash_plan(export: Export) -> dict[str, int]:
    """Return the bytes of flash, part by part."""
    size = {"f32": 4, "f16": 2, "int8": 1}[export.kind]
    found = matrices(export.config, export.tensors)
    plan = {f"weights ({export.kind})": size * sum(m.size for m in found.values())}
    if export.kind == "int8":
        plan["scales, one per row"] = 4 * sum(len(m) for m in found.values())
    vector_bytes = sum(v.nbytes for v in vectors(export.config, export.tensors).values())
    plan["positions, biases, norms"] = vector_bytes
    plan["front end: window, FFT, mel, DCT"] = sum(table.nbytes for table in tables().values())
    if export.setting.thresholds is not None:
        plan["thresholds"] = export.setting.thresholds.array(export.config.layers).nbytes
    return plan | {"code, about": CODE_BYTES}


def ram_plan(export: Export) -> list[tuple[str, int, str]]:
    """Return (content, bytes, when it is used) for every part of the static memory."""
    c = export.config
    columns, half = -(-c.tokens // 4) * 4, 2 if export.small else 4
    bits = f"{8 * half}-bit"
    keys_and_values = 2 * columns * c.dim * half + 4 * c.dim * -(-columns // 32)
    shared = max(keys_and_values, 4 * c.tokens * c.dim)
    rows = [
        (
            f"x ({c.tokens} x {c.dim}): input of a layer, replaced row by row by its output",
            4 * c.tokens * c.dim,
            "always",
        ),
        (f"K^ and V ({bits}), then partial sums of the MLP", shared, "inference"),
    ]
    if c.heads > 1:
        rows.append(("sum over the heads", 4 * c.tokens * c.dim, "inference"))
    if export.kind != "f32":
        unpacked = 4 * c.dim * max(c.head_dim, c.features)
        rows.append(("weights unpacked to floats, a block at a time", unpacked, "inference"))
    rows.append(("references and running results of one token", _state_bytes(export), "inference"))
    masks = 4 * c.tokens * -(-c.dim // 32) + 8 * max(c.dim, columns) + 4 * c.dim + 4 * columns
    rows.append(("masks, lists, counts", masks, "inference"))
    rows.append(
        (
            f"features ({c.frames} x {c.features}, {bits}): newest and last computed window",
            2 * c.frames * c.features * half,
            "always",
        )
    )
    rows.append(("state of the front end", STREAM_BYTES, "always"))
    return rows


def ram_bytes(export: Export) -> int:
    """Return DK_RAM_BYTES without the few hundred bytes of decisions and events."""
    return sum(size for _, size, _ in ram_plan(export))


def _state_bytes(export: Export) -> int:
    """Return the size of the largest of the three sets of references."""
    c = export.config
    columns, block = -(-c.tokens // 4) * 4, c.head_dim // 2
    attention = 2 * c.dim + 4 * c.head_dim + 5 * columns + 1
    return 4 * max(attention, 2 * c.dim + 4 * block, c.dim + 5 * block)


# ---------------------------------------------------------------- time


def inference_instructions(export: Export, macs: int) -> float:
    """Return the estimated instructions of one inference with `macs` MACs."""
    return PER_MAC * macs + PER_DENSE_MAC * int(dense_macs(export.config).sum())


def hop_instructions(export: Export, macs: int) -> float:
    """Return the estimated instructions of one hop: one inference, and the front end."""
    seconds = export.decision.hop_frames / 100
    return inference_instructions(export, macs) + FRONT_END * seconds


def shortest_hop(export: Export, macs: int, board: Board) -> float:
    """Return the shortest hop in seconds that a board keeps up with, in steps of 10 ms."""
    return ceil(100 * inference_instructions(export, macs) / (1e6 * board.clock - FRONT_END)) / 100


def board_row(export: Export, board: Board, macs: int) -> tuple[str, ...]:
    """Return the row of a board in the table of boards.

    It fits if model and code leave a tenth of the flash, if RAM and stack suffice, and if the
    instructions of a hop take less time than the hop, at one instruction per cycle.
    """
    flash, ram = sum(flash_plan(export).values()), ram_bytes(export) + OTHER_BYTES + STACK_BYTES
    load = hop_instructions(export, macs) / (1e4 * board.clock * export.decision.hop_frames)
    lacks = {
        "flash": flash > 0.9 * 1024 * board.flash,
        "RAM": ram > 1024 * board.ram,
        "time": load > 1,
    }
    missing = ", ".join(what for what, is_missing in lacks.items() if is_missing)
    return (
        board.name,
        f"{board.flash:,} KB",
        f"{board.ram} KB",
        f"{board.clock} MHz",
        f"{100 * load:.0f}%",
        f"{shortest_hop(export, macs, board):.2f} s",
        f"no: {missing}" if missing else "yes",
    )


# ---------------------------------------------------------------- text


def readme_source(export: Export, dense: int, macs: Mapping[str, int]) -> str:
    """Return README.md. `macs` maps a sound to the MACs of its inference, speech first.

    `dense` is the number of MACs without deltas.
    """
    flash, ram = flash_plan(export), ram_plan(export)
    speech = next(iter(macs.values()))
    sounds = {"any sound, dense": dense} | (dict(macs) if export.setting.thresholds else {})
    return TEXT.format(
        name=export.name,
        kind=export.kind,
        setting=export.setting,
        thresholds=export.setting.thresholds or "none: dense",
        front_end=export.setting.front_end,
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
                f"{hop_instructions(export, count) / 1e6:.0f} M",
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
`memcpy`, `memset`, `sqrtf`, `fmaf`, `fabsf` and `log`. Written by `deltakwt export`.

Weights: {kind}. Setting: {setting} (thresholds {thresholds}; front end {front_end}).
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
optimisation and `-ffp-contract=off`, and link with `-lm`. Every processor with a fused multiply-add
then computes the same bits.

    make check                # self-test on this machine
    make cortex-m7            # build for a board; also cortex-m4f, rv32, rv64
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

One static block, `DK_RAM_BYTES`: about {ram_total} bytes. The stack needs 3 KB more.

| content | bytes | used |
|---|---|---|
{ram}

A token goes through attention and the MLP before the next one starts, so scores, softmax, heads and
hidden features exist for one token only. The output of a layer replaces its input in place.

## Compute

| sound | MACs of a window | of the dense model | instructions per hop |
|---|---|---|---|
{macs}

The instructions are an estimate, fitted to runs of `kwt-1` on an emulated Cortex-M7: one inference
and the front end of one hop. `make run-cortex-m7` counts them for this model. A window that is
close to the last computed one costs the front end only.

## Boards

| board | flash | RAM | clock | load in speech | shortest hop | fits |
|---|---|---|---|---|---|---|
{boards}

"Load" is the share of the clock cycles that a hop of {hop} needs during speech, at one
instruction per cycle. A real processor also waits for flash, and a Cortex-M7 can run two
instructions per cycle. "Shortest hop" is the smallest `--hop` for which the load stays below 100%.
"Fits" means that flash, RAM and time suffice. For a slow board, export with a longer `--hop`.

## Arduino, PlatformIO, Zephyr, ESP-IDF

The folder is a library for each of them: `library.properties`, `library.json`, `zephyr/module.yml`
with `zephyr/CMakeLists.txt`, and `CMakeLists.txt` with `idf_component.yml`. `examples/` has a loop
over an I2S microphone for each.
"""
