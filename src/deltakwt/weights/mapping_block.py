"""The tensors of one block of a foreign KWT: attention, MLP and two LayerNorms."""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deltakwt.weights.folder import LIMITS

Array = NDArray[np.float32]
ZERO = 1e-7  # a bias below this is none


class Problem(Exception):
    """One reason why tensors do not fit."""


class Attempt(Protocol):
    """The attempt to find a KWT that a block belongs to."""

    left: dict[str, Array]  # foreign tensors without a role
    ours: dict[str, Array]
    notes: list[str]

    def take(self, name: str, role: str, value: Array | None = None) -> None:
        """Give a foreign tensor its role."""

    def bias_of(self, weight: str, role: str, size: int) -> None:
        """Take the bias that belongs to a matrix."""


def has_word(name: str, words: tuple[str, ...]) -> bool:
    """Return whether a name has one of the words in it."""
    return any(word in name.lower() for word in words)


_Q = re.compile(r"(^|[._])(q|to_q|wq|q_proj|query|queries|q_lin|linear_q)([._]|$)", re.IGNORECASE)
_K = re.compile(r"(^|[._])(k|to_k|wk|k_proj|key|keys|k_lin|linear_k)([._]|$)", re.IGNORECASE)
_V = re.compile(r"(^|[._])(v|to_v|wv|v_proj|value|values|v_lin|linear_v)([._]|$)", re.IGNORECASE)


class Block:
    """The tensors of one block."""

    def __init__(self, attempt: Attempt, names: list[str], layer: int, dim: int) -> None:
        self.attempt, self.names, self.dim = attempt, names, dim
        self.role = f"blocks.{layer}."

    def run(self) -> int:
        """Take every tensor of the block and return the width of its MLP."""
        biases = self._attention()
        mlp = self._mlp()
        self._norms()
        self._fold(*biases)
        return mlp

    def _matrices(self, rows: int | None, columns: int | None) -> list[str]:
        left = self.attempt.left
        return [
            name
            for name in self.names
            if name in left
            and left[name].ndim == 2
            and left[name].shape[0] == (rows or left[name].shape[0])
            and left[name].shape[1] == (columns or left[name].shape[1])
        ]

    def _attention(self) -> tuple[Array, Array]:
        """Take the four matrices, and return the biases of the queries and of the values."""
        d, left = self.dim, self.attempt.left
        joined = [n for n in self._matrices(3 * d, d) if has_word(n, ("qkv", "in_proj"))]
        if joined:
            weight, bias = left[joined[0]], self._loose_bias(joined[0], 3 * d)
            for part, letter in enumerate("qkv"):
                role = f"{self.role}{letter}.weight"
                self.attempt.ours[role] = weight[part * d : (part + 1) * d].T.copy()
            self.attempt.take(joined[0], f"{self.role}qkv.weight", weight)
            biases = bias[:d], bias[2 * d :]
        else:
            found = [self._named(pattern) for pattern in (_Q, _K, _V)]
            biases_of = [self._loose_bias(name, d) for name in found]
            for name, letter in zip(found, "qkv", strict=True):
                self.attempt.take(name, f"{self.role}{letter}.weight", left[name].T)
            biases = biases_of[0], biases_of[2]
        self._projection()
        return biases

    def _named(self, pattern: re.Pattern[str]) -> str:
        found = [name for name in self._matrices(self.dim, self.dim) if pattern.search(name)]
        if len(found) != 1:
            raise Problem(f"{self.role[:-1]}: queries, keys and values were not found")
        return found[0]

    def _projection(self) -> None:
        d = self.dim
        words = ("attn", "attention", "to_out", "proj", "wo", "out")
        found = [
            n for n in self._matrices(d, d) if has_word(n, words) and not has_word(n, ("mlp", "ff"))
        ]
        if found:
            weight = found[0]
            self.attempt.take(weight, f"{self.role}proj.weight", self.attempt.left[weight].T)
            self.attempt.bias_of(weight, f"{self.role}proj.bias", d)
            return
        # Codes after vit-pytorch leave the projection out if there is one head of the full width.
        self.attempt.ours[f"{self.role}proj.weight"] = np.eye(d, dtype=np.float32)
        self.attempt.ours[f"{self.role}proj.bias"] = np.zeros(d, np.float32)
        note = "no projection after the heads: an identity matrix is stored"
        if note not in self.attempt.notes:
            self.attempt.notes.append(note)

    def _mlp(self) -> int:
        first = self._matrices(None, self.dim)
        if not first:
            raise Problem(f"{self.role[:-1]}: no MLP was found")
        mlp = len(self.attempt.left[first[0]])
        if mlp > LIMITS["mlp"]:
            raise Problem(f"an MLP of width {mlp}, at most {LIMITS['mlp']} is accepted")
        second = [name for name in self._matrices(self.dim, mlp) if name != first[0]]
        if not second:
            raise Problem(f"{self.role[:-1]}: no second layer of the MLP ({self.dim}, {mlp})")
        sizes = (("mlp_in", first[0], mlp), ("mlp_out", second[0], self.dim))
        for part, name, size in sizes:
            self.attempt.take(name, f"{self.role}{part}.weight", self.attempt.left[name].T)
            self.attempt.bias_of(name, f"{self.role}{part}.bias", size)
        return mlp

    def _norms(self) -> None:
        """Take the two LayerNorms in the order of their names."""
        left = self.attempt.left
        scales = [
            name
            for name in self.names
            if name in left and left[name].shape == (self.dim,) and name.endswith("weight")
        ]
        if any(has_word(name, ("before", "pre_norm", "prenorm")) for name in scales):
            raise Problem(f"{scales[0]}: a norm before the attention; a KWT has LN(x + f(x))")
        if any(f"{name.removesuffix('norm.weight')}fn." in " ".join(self.names) for name in scales):
            raise Problem(
                f"{scales[0]}: this norm wraps f alone, as in vit-pytorch: x + LN(f(x)) or"
                " x + f(LN(x)); a KWT has LN(x + f(x))"
            )
        if len(scales) != 2:
            raise Problem(f"{self.role[:-1]}: {len(scales)} LayerNorms, a KWT has two")
        for number, name in enumerate(scales, start=1):
            self.attempt.take(name, f"{self.role}norm{number}.weight", left[name])
            self.attempt.bias_of(name, f"{self.role}norm{number}.bias", self.dim)

    def _loose_bias(self, weight: str, size: int) -> Array:
        """Take the bias of queries, keys or values, which a KWT does not have."""
        name = f"{weight[: -len('weight')]}bias"
        bias = self.attempt.left.get(name)
        if bias is None or bias.shape != (size,):
            return np.zeros(size, np.float32)
        self.attempt.take(name, "added to the projection's bias", None)
        return bias

    def _fold(self, queries: Array, values: Array) -> None:
        """Put the bias of the values into the projection's; that of the keys has no effect.

        Rows of the softmax sum to 1, so a constant of V passes through; a constant of K adds the
        same to all scores of a query. A constant of Q does not vanish.
        """
        largest = float(np.abs(queries).max(initial=0))
        if not largest <= ZERO:
            raise Problem(
                f"{self.role[:-1]}: the queries have a bias (up to {largest:.2g}); a KWT has none"
            )
        ours = self.attempt.ours
        ours[f"{self.role}proj.bias"] = (
            ours[f"{self.role}proj.bias"] + values @ ours[f"{self.role}proj.weight"]
        ).astype(np.float32)
