"""The paper's way: a grid on about a hundred clips, its Pareto points again on the full set.

The same threshold in every layer, 6 to 12 clips of each class, and only settings that keep an
accuracy worth having (94% in the paper) go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PLAIN, SITES, Thresholds
from deltakwt.tune.front import pareto
from deltakwt.tune.measure import Judge, Measured
from deltakwt.tune.pool import Pool
from deltakwt.tune.space import Point, check_site

SUBSET = 100
LEAST_ACCURACY = 94.0
MAX_SETTINGS = 20_000

# Around the settings in the paper's figure; the MLP stays dense, as there.
PAPER_GRID: dict[str, tuple[float, ...]] = {
    "x": (0.1, 0.2, 0.3, 0.5),
    "q": (0.1, 0.2, 0.5),
    "k": (0.1, 0.2, 0.5),
    "scores": (0.05, 0.2),
    "softmax": (0.001, 0.004),
    "heads": (0.05, 0.2),
}


@dataclass(frozen=True)
class Sweep:
    """Every setting on the subset, and the Pareto points on the full set."""

    subset: list[Measured]
    full: list[Measured]


def parse_grid(axes: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """`["x=0.1,0.2", "softmax=0.001"]`; a site left out stays dense."""
    grid: dict[str, tuple[float, ...]] = {}
    for axis in axes:
        site, _, values = axis.partition("=")
        check_site(site, "--grid")
        if site in grid:
            raise DeltakwtError(f"--grid {site}: given twice")
        try:
            grid[site] = tuple(dict.fromkeys(float(value) for value in values.split(",")))
        except ValueError:
            raise DeltakwtError(f"--grid {axis}: give values, such as {site}=0.1,0.2") from None
    return grid


def settings(grid: Mapping[str, Sequence[float]]) -> list[Point]:
    """Every combination."""
    count = int(np.prod([len(values) for values in grid.values()]))
    if count > MAX_SETTINGS:
        raise DeltakwtError(f"--grid: {count} settings, at most {MAX_SETTINGS}; give fewer values")
    sites = [site for site in SITES if site in grid]
    return [
        Point(Thresholds(**dict(zip(sites, values, strict=True))), PLAIN)
        for values in itertools.product(*(grid[site] for site in sites))
    ]


def subset_of(pool: Pool, size: int = SUBSET) -> Pool:
    """About `size` clips, the same number of each class (the paper has 6 to 12 of each)."""
    classes = sorted(set(pool.targets.tolist()))
    each = max(1, round(size / len(classes)))
    chosen = [int(i) for c in classes for i in np.flatnonzero(pool.targets == c)[:each]]
    return pool.take(chosen, f"{len(chosen)} clips of {pool.name}")


def sweep(
    small: Judge,
    full: Judge,
    points: Sequence[Point],
    least_accuracy: float = LEAST_ACCURACY,
    report: Callable[[float, float], None] = lambda done, total: None,
) -> Sweep:
    """Measure all on the small set, the Pareto-optimal ones among the accurate on the full one."""
    coarse = []
    for number, point in enumerate(points):
        coarse.append(small.measure(point))
        report(number + 1, len(points))
    accurate = [m for m in coarse if m.accuracy >= least_accuracy]
    best = pareto(accurate, lambda m: (m.loss, m.macs))
    return Sweep(coarse, [full.measure(m.point) for m in best])
