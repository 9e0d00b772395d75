"""Pareto fronts: the settings that nothing beats in both loss and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
Values = tuple[float, float]  # loss, cost: less is better


def pareto(items: Iterable[T], values: Callable[[T], Values]) -> list[T]:
    """The items that no other item beats, cheapest last."""
    front: list[T] = []
    best = float("inf")
    # By loss, and of equal losses the cheapest first: each kept item must be cheaper than all
    # before it.
    for item in sorted(items, key=values):
        cost = values(item)[1]
        if cost < best:
            front.append(item)
            best = cost
    return front


def dominated(candidate: Values, front: Sequence[Values], slack: float = 0.0) -> bool:
    """Whether something in the front costs no more and loses less, by more than `slack`."""
    return any(cost <= candidate[1] and loss + slack < candidate[0] for loss, cost in front)


def hypervolume(front: Iterable[Values], worst: Values) -> float:
    """The area between a front and the corner `worst`: one number for how good it is."""
    area, edge = 0.0, worst[0]
    for loss, cost in sorted(pareto(front, lambda v: v), key=lambda v: v[1]):
        if loss < edge and cost < worst[1]:
            area += (edge - loss) * (worst[1] - cost)
            edge = loss
    return area
