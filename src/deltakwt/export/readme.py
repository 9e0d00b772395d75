"""The exported folder's README: what it is, what it costs, where it fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltakwt.core.macs import dense_macs
from deltakwt.export.build import BOARDS
from deltakwt.export.clips import Heard
from deltakwt.export.plan import flash_plan, ram_bytes, ram_plan
from deltakwt.export.settings import Export

# Public boards with an FPU: flash and RAM in KiB, MHz.
PUBLIC_BOARDS = (
    ("Arduino Nano 33 BLE (nRF52840, Cortex-M4F)", 1024, 256, 64),
    ("STM32F407 Discovery (Cortex-M4F)", 1024, 192, 168),
    ("NUCLEO-L4R5ZI (Cortex-M4F)", 2048, 640, 120),
    ("NUCLEO-F767ZI (Cortex-M7)", 2048, 512, 216),
    ("NUCLEO-H743ZI (Cortex-M7)", 2048, 1024, 480),
    ("Teensy 4.1 (i.MX RT1062, Cortex-M7)", 7936, 1024, 600),
    ("Raspberry Pi Pico 2 (RP2350, Cortex-M33)", 4096, 520, 150),
    ("ESP32-S3-DevKitC (Xtensa LX7)", 8192, 512, 240),
    ("ESP32-P4 (RV32)", 16384, 768, 400),
)
STACK_BYTES = 3 * 1024  # the self-test measures under 2.5 KB


def readme_source(export: Export, word: Heard, silence: Heard) -> str:
    """README.md"""
    flash, ram = flash_plan(export), ram_plan(export)
    total, ram_total = sum(flash.values()), ram_bytes(export) + 700
    return TEXT.format(
        name=export.name,
        kind=export.kind,
        profile=export.profile,
        thresholds=export.thresholds or "none: dense",
        front_end=export.front_end,
        labels=", ".join(export.config.labels),
        hop=f"{10 * export.decision.hop_frames} ms",
        flash=_rows((part, f"{size:,}") for part, size in (*flash.items(), ("together", total))),
        ram=_rows(
            (what, f"{size:,}", when)
            for what, size, when in (*ram, ("decisions, events, alignment, about", 700, "always"))
        ),
        ram_total=f"{ram_total:,}",
        macs=_macs(export, word, silence),
        boards=_rows(_fit(name, total, ram_total, *sizes) for name, *sizes in PUBLIC_BOARDS),
        runs=" ".join(f"run-{board}" for board in BOARDS),
    )


def _rows(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _macs(export: Export, word: Heard, silence: Heard) -> str:
    dense = int(dense_macs(export.config).sum())
    lines = [("dense, any sound", f"{dense / 1e6:.1f} M", "100%")]
    for name, heard in (('the self-test\'s "right"', word), ("digital silence", silence)):
        if heard.macs is not None:
            share = heard.macs.model_percent
            lines.append((name, f"{dense * share / 1e8:.1f} M", f"{share:.1f}%"))
    return _rows(lines)


def _fit(
    name: str, flash_bytes: int, ram: int, flash: int, memory: int, clock: int
) -> tuple[str, ...]:
    """Fits when model and code leave a tenth of the flash, and the block and a stack the RAM."""
    room = flash_bytes <= 0.9 * 1024 * flash
    fits = room and ram + STACK_BYTES <= 1024 * memory
    why = "yes" if fits else "no: " + ("RAM" if room else "flash")
    return name, f"{flash:,} KB", f"{memory} KB", f"{clock} MHz", why


TEXT = """# {name} for microcontrollers

A Keyword Transformer in C11 that needs no operating system, no heap and no other library than the
C library's `memcpy`, `memset`, `memcmp`, `sqrtf`, `fmaf` and `log`. Made by `deltakwt export`.

Weights {kind}; profile {profile} (thresholds {thresholds}; front end {steady}); a window every
{hop}. Words: {labels}.

```c
#include "dk.h"

dk_init();
for (;;) {{
    read_microphone(samples, 160); /* 16 kHz, mono, signed 16 bit */
    dk_push(samples, 160);         /* any number at a time */
    dk_event event;
    while (dk_result(&event)) react(dk_labels[event.label], event.score);
}}
```

`src/` is all there is; `src/dk.h` is the interface. Compile every `.c` in it with optimisation and
`-ffp-contract=off`, link with `-lm`. Every processor with a fused multiply-add then computes the
same bits.

    make check                # on this machine
    make cortex-m7            # for a board; also cortex-m4f, rv32, rv64
    make {runs}
    make size-cortex-m7       # flash and RAM of the library alone
    make fuzz                 # random sound under the sanitizers

On Debian: `apt install make gcc gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc`.
`CLIPS="a.raw b.raw"` runs more clips (one second, 16 kHz, 16 bit, mono, no header) on the board.

## Flash

| part | bytes |
|---|---|
{flash}

## RAM

One static block, `DK_RAM_BYTES`: about {ram_total} bytes, and a stack of 3 KB.

| what | bytes | alive |
|---|---|---|
{ram}

A token passes through attention and the MLP before the next one comes, so scores, softmax, heads
and hidden features exist for one token only; the layer's output replaces its input in place.

## Compute

| sound (one second) | MACs | of the dense model |
|---|---|---|
{macs}

`make run-cortex-m7` prints instructions, dense and with the profile, for every clip it hears.
The time between two windows (`DK_HOP_FRAMES` in `src/config.h`, in 10 ms) must be longer than an
inference takes; a slow processor wants a longer one.

## Boards

| board | flash | RAM | clock | fits |
|---|---|---|---|---|
{boards}

## Arduino, PlatformIO, Zephyr, ESP-IDF

The folder is a library for each of them: `library.properties`, `library.json`, `zephyr/module.yml`
with `zephyr/CMakeLists.txt`, and `CMakeLists.txt` with `idf_component.yml`. `examples/` has an I2S
microphone loop for each.
"""
