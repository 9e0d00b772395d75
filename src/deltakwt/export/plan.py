"""Where the bytes go: flash by part, RAM tensor by tensor."""

from __future__ import annotations

from deltakwt.export.settings import Export
from deltakwt.export.tables import tables
from deltakwt.export.weights import matrices, vectors

# Code of the library and its share of the C library: gcc 12 -O2, Cortex-M7. `make size-cortex-m7`.
CODE_BYTES = 26_000
STREAM_BYTES = 6_460  # struct dk_stream: a frame of samples, FFT work, three rows of bands
CLIP_BYTES = 4 * 98 * 81  # energies of a clip: it shares the memory of an inference


def flash_plan(export: Export) -> dict[str, int]:
    """Part -> bytes."""
    size = {"f32": 4, "f16": 2, "int8": 1}[export.kind]
    found = matrices(export.config, export.tensors)
    plan = {f"weights ({export.kind})": size * sum(m.size for m in found.values())}
    if export.kind == "int8":
        plan["their scales, one a row"] = 4 * sum(len(m) for m in found.values())
    vector_bytes = sum(v.nbytes for v in vectors(export.config, export.tensors).values())
    plan["positions, biases, norms"] = vector_bytes
    plan["front end: window, FFT, mel, DCT"] = sum(table.nbytes for table in tables().values())
    if export.thresholds is not None:
        plan["thresholds"] = export.thresholds.array(export.config.layers).nbytes
    return plan | {"code, about": CODE_BYTES}


def ram_plan(export: Export) -> list[tuple[str, int, str]]:
    """(what, bytes, when it is alive)."""
    c = export.config
    columns, half = -(-c.tokens // 4) * 4, 2 if export.small else 4
    bits = f"{8 * half}-bit"
    keys_and_values = 2 * columns * c.dim * half + 4 * c.dim * -(-columns // 32)
    shared = max(keys_and_values, 4 * c.tokens * c.dim)
    rows = [
        (
            f"x ({c.tokens} x {c.dim}), a layer's input and, row by row, its output",
            4 * c.tokens * c.dim,
            "always",
        ),
        (f"K^ and V ({bits}), later the MLP's partial sums", shared, "by turns"),
    ]
    if c.heads > 1:
        rows.append(("sum over the heads", 4 * c.tokens * c.dim, "attention"))
    if export.kind != "f32":
        unpacked = 4 * c.dim * max(c.head_dim, c.features)
        rows.append(("weights unpacked to floats, a block at a time", unpacked, "by turns"))
    rows.append(("references and running results of one token", _state_bytes(export), "by turns"))
    masks = 4 * c.tokens * -(-c.dim // 32) + 8 * max(c.dim, columns) + 4 * c.dim + 4 * columns
    rows.append(("masks, lists, counts", masks, "inference"))
    rows.append(
        (
            f"features ({c.frames} x {c.features}, {bits}): the last second, the last computed one",
            2 * c.frames * c.features * half,
            "always",
        )
    )
    rows.append(("the front end's stream", STREAM_BYTES, "always"))
    return rows


def ram_bytes(export: Export) -> int:
    """DK_RAM_BYTES, but for a few hundred bytes of decisions and events."""
    return sum(size for _, size, _ in ram_plan(export))


def _state_bytes(export: Export) -> int:
    """The largest of the three unions of references: attention's."""
    c = export.config
    columns, block = -(-c.tokens // 4) * 4, c.head_dim // 2
    attention = 2 * c.dim + 4 * c.head_dim + 5 * columns + 1
    return 4 * max(attention, 2 * c.dim + 4 * block, c.dim + 5 * block)
