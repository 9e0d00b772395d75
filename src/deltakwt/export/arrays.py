"""Numbers as C source: every float round-trips, lines stay under a hundred characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.uint16): "uint16_t",
}


def number(value: float) -> str:
    """A float32 as a C literal that reads back to the same bits."""
    text = f"{np.float32(value):.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def numbers(values: NDArray[Any]) -> Iterable[str]:
    flat = values.ravel()
    return map(number, flat) if flat.dtype == np.float32 else map(str, flat.tolist())


def wrapped(words: Iterable[str], width: int = 99) -> str:
    """Words separated by commas, in indented lines of at most `width` characters."""
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > width:
            lines.append(line)
            line = "   "
        line += f" {word},"
    return "\n".join([*lines, line])


def define(name: str, values: NDArray[Any], comment: str = "") -> str:
    """`static const` array with its shape in a comment."""
    shape = " x ".join(map(str, values.shape))
    head = f"static const {TYPES[values.dtype]} {name}[{values.size}]"
    return f"{head} = {{ /* {comment}{shape} */\n{wrapped(numbers(values))}\n}};\n"
