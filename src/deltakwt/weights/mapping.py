"""The tensors of another KWT code under the names of `Config.shapes`.

A tensor is recognised by its shape, by its place in the stack of blocks, and only then by words in
its name such as `qkv`. What the code of the other project computes cannot be read from its
weights, so everything that this package does not compute is refused if it leaves a trace: a
LayerNorm before the head, a bias of the queries, a second class token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import FEATURES, LABELS, STRIDES, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.folder import LIMITS, MAX_LABELS
from deltakwt.weights.mapping_block import Block, Problem, has_word

Array = NDArray[np.float32]
Tensors = dict[str, Array]
MAX_REASON = 400  # characters
HEAD_DIM = 64  # of every KWT of the paper
# Prefixes that wrappers put before every name.
WRAPPERS = ("module.", "model.", "_orig_mod.", "net.", "student.", "backbone.", "encoder.")


@dataclass(frozen=True)
class Row:
    """What became of one tensor."""

    name: str  # in the file
    shape: tuple[int, ...]
    role: str  # the name here, or what is wrong


class DoesNotFit(DeltakwtError):
    """The tensors are not those of a KWT. `rows` says what each of them was taken for."""

    def __init__(self, message: str, rows: list[Row]) -> None:
        super().__init__(message)
        self.rows = rows


@dataclass
class Mapped:
    """A KWT that was found in foreign tensors."""

    config: Config
    tensors: Tensors
    rows: list[Row]
    notes: list[str] = field(default_factory=list)  # what the weights alone cannot tell
    difference: float | None = None  # largest, of the logits of the file's own graph


def map_tensors(
    source: str, foreign: Mapping[str, Array], heads: int | None, labels: tuple[str, ...] | None
) -> Mapped:
    """Return the KWT in foreign tensors, or raise `DoesNotFit` with the table of all of them."""
    attempt = _Attempt({_unwrapped(name): tensor for name, tensor in foreign.items()})
    try:
        return attempt.run(heads, labels)
    except Problem as problem:
        reason = str(problem)[:MAX_REASON]  # names of tensors may be long
        raise DoesNotFit(f"{source}: {reason}", attempt.rows()) from None


def _unwrapped(name: str) -> str:
    while prefix := next((p for p in WRAPPERS if name.startswith(p) and name != p), None):
        name = name[len(prefix) :]
    return name


def _has_rows(tensor: Array, rows: int) -> bool:
    """Return whether it is one matrix of so many rows; other dimensions are 1."""
    shape = tensor.shape
    return tensor.ndim in (2, 3) and shape[-2] == rows and tensor.size == rows * shape[-1]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which block 2 comes before block 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


class _Attempt:
    """One attempt to find a KWT. Every tensor that is used gets a role."""

    def __init__(self, foreign: Tensors) -> None:
        self.foreign = foreign
        self.left = dict(foreign)  # without those that have a role
        self.roles: dict[str, str] = {}
        self.ours: Tensors = {}
        self.notes: list[str] = []

    def rows(self) -> list[Row]:
        return [
            Row(name, self.foreign[name].shape, self.roles.get(name, "not used"))
            for name in sorted(self.foreign, key=_natural)
        ]

    def run(self, heads: int | None, labels: tuple[str, ...] | None) -> Mapped:
        stacks, layers = self._stacks()
        dim, frames = self._positions()
        self._class_token(dim)
        blocks = [self._block_names(stacks, layer) for layer in range(layers)]
        mlp = 0
        for layer, names in enumerate(blocks):
            mlp = Block(self, names, layer, dim).run()
        self._embedding(dim)
        count = self._head(dim)
        if self.left:
            raise Problem(self._excess())
        config = Config(
            *(dim, self._heads(dim, heads), mlp, layers, self._labels(count, labels)),
            frames=frames,
            stride=STRIDES[frames],
        )
        for name, shape in config.shapes().items():
            if self.ours[name].shape != shape:
                raise Problem(f"{name} has the shape {self.ours[name].shape}, expected {shape}")
        return Mapped(config, {n: self.ours[n] for n in config.shapes()}, self.rows(), self.notes)

    def take(self, name: str, role: str, value: Array | None = None) -> None:
        """Give a tensor its role; `value` is what is stored, None stores nothing."""
        self.left.pop(name, None)
        self.roles[name] = role if value is not None else f"none: {role}"
        if value is not None:
            self.ours[role] = np.ascontiguousarray(value, np.float32)

    def _stacks(self) -> tuple[list[str], int]:
        """Return the prefixes under which blocks are numbered 0 to L - 1, and L.

        Either one list has whole blocks (`layers.3.attn`), or several lists have a part of each
        (`attn.3`, `norm1.3`). All entries of a list look the same.
        """
        signatures: dict[str, dict[int, set[tuple[str, tuple[int, ...]]]]] = {}
        for name, tensor in self.foreign.items():
            parts = name.split(".")
            for at, part in enumerate(parts[:-1]):
                if part.isdigit():
                    entry = signatures.setdefault(".".join(parts[:at]), {})
                    rest = (".".join(parts[at + 1 :]), tensor.shape)
                    entry.setdefault(int(part), set()).add(rest)
        alike = {
            prefix: len(entries)
            for prefix, entries in signatures.items()
            if sorted(entries) == list(range(len(entries)))
            and len({frozenset(entry) for entry in entries.values()}) == 1
        }
        sizes: dict[int, int] = {}
        for prefix, count in alike.items():
            sizes[count] = sizes.get(count, 0) + sum(map(len, signatures[prefix].values()))
        if not sizes:
            raise Problem("no numbered blocks: these are not the tensors of a Transformer")
        layers = max(sizes, key=lambda count: (count > 1, sizes[count]))
        if layers > LIMITS["layers"]:
            raise Problem(f"{layers} blocks, at most {LIMITS['layers']} are accepted")
        lists = [prefix for prefix, count in alike.items() if count == layers]
        inner = {p for p in lists for q in lists if p != q and p.startswith(q + ".")}
        chosen = [p for p in lists if p not in inner] if layers > 1 else [max(lists, key=len)]
        return chosen, layers

    def _block_names(self, stacks: list[str], layer: int) -> list[str]:
        heads = tuple(f"{prefix}.{layer}." for prefix in stacks)
        return sorted((name for name in self.foreign if name.startswith(heads)), key=_natural)

    def _positions(self) -> tuple[int, int]:
        """Return the width and the number of frames, from the tensor of the positions."""
        for frames, stride in STRIDES.items():
            name = next((n for n, t in self.left.items() if _has_rows(t, frames + 1)), None)
            if name is None:
                continue
            dim = int(self.left[name].shape[-1])
            if not 1 <= dim <= LIMITS["dim"]:
                raise Problem(f"a width of {dim}, at most {LIMITS['dim']} is accepted")
            self.take(name, "positions", self.left[name].reshape(frames + 1, dim))
            if stride > 1:
                self.notes.append(
                    f"{frames} frames: a stride of {stride}, one per {10 * stride} ms"
                )
            return dim, frames
        most, *fewer = STRIDES
        raise Problem(
            f"no position embedding ({most + 1}, width): deltakwt runs KWTs of {most} frames, or"
            f" {' or '.join(map(str, fewer))} with a stride, and one class token"
        )

    def _class_token(self, dim: int) -> None:
        words = ("cls", "class", "token", "g_feature")
        found = [
            name
            for name, tensor in self.left.items()
            if tensor.size == dim
            and (tensor.shape[:-1] == (1, 1) or has_word(name, words))
            and not name.endswith("bias")
        ]
        if len(found) != 1:
            raise Problem(f"{len(found)} class tokens of width {dim}, a KWT has one")
        self.take(found[0], "class_token", self.left[found[0]].reshape(dim))

    def _embedding(self, dim: int) -> None:
        found = [
            name
            for name, tensor in self.left.items()
            if tensor.ndim >= 2 and tensor.shape[0] == dim and tensor.size == dim * FEATURES
        ]
        if not found:
            raise Problem(f"no projection of {FEATURES} features to the width {dim}")
        self.take(found[0], "embed.weight", self.left[found[0]].reshape(dim, FEATURES).T)
        self.bias_of(found[0], "embed.bias", dim)

    def _head(self, dim: int) -> int:
        found = [
            name
            for name, tensor in self.left.items()
            if tensor.ndim == 2 and tensor.shape[1] == dim and 2 <= len(tensor) <= MAX_LABELS
        ]
        if len(found) != 1:
            raise Problem(f"{len(found)} heads (labels, {dim}), a KWT has one")
        count = len(self.left[found[0]])
        self.take(found[0], "head.weight", self.left[found[0]].T)
        self.bias_of(found[0], "head.bias", count)
        return count

    def bias_of(self, weight: str, role: str, size: int) -> None:
        """Take the bias that belongs to a matrix; without one it is zero."""
        name = f"{weight[: -len('weight')]}bias" if weight.endswith("weight") else ""
        if name in self.left and self.left[name].shape == (size,):
            self.take(name, role, self.left[name])
        else:
            self.ours[role] = np.zeros(size, np.float32)

    def _excess(self) -> str:
        name = min(self.left, key=lambda name: (name.endswith("bias"), _natural(name)))
        shape = self.left[name].shape
        if len(shape) == 1 and not name.endswith("bias"):
            return (
                f"{name} {shape} looks like a LayerNorm before the head; a KWT normalises after"
                " each sum, LN(x + f(x)), and has none there"
            )
        return f"{name} {shape} and {len(self.left) - 1} others do not belong to a KWT"

    def _heads(self, dim: int, heads: int | None) -> int:
        if heads is None:
            heads = dim // HEAD_DIM if dim % HEAD_DIM == 0 else 1
            self.notes.append(f"{heads} heads (the weights do not say; --heads changes it)")
        if not 1 <= heads <= LIMITS["heads"] or dim % heads:
            raise Problem(f"--heads {heads}: must divide the width {dim}")
        return heads

    def _labels(self, count: int, labels: tuple[str, ...] | None) -> tuple[str, ...]:
        if labels is None and count == len(LABELS):
            self.notes.append("the twelve labels in the authors' order (--labels changes them)")
            return LABELS
        if labels is None:
            raise Problem(f"its head has {count} labels: name them in order with --labels")
        if len(labels) != count:
            raise Problem(f"--labels has {len(labels)} labels, the head has {count}")
        return labels
