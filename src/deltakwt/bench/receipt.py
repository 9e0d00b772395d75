"""Where the time of a delta run goes: MACs predicted, milliseconds measured, a layer and site."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.engine import STAGES, Engine
from deltakwt.core.macs import PRODUCTS, dense_macs
from deltakwt.core.setting import Thresholds

Floats = NDArray[np.float32]
REPEATS = 5


def receipt(engine: Engine, features: list[Floats], thresholds: Thresholds) -> dict[str, Any]:
    """Over all clips: for each product MACs and time, dense and delta; the scans; the rest.

    A share of the MAC saving is achieved where the saved part of the time is as large as the
    saved part of the MACs.
    """
    dense = _microseconds(engine, features, None)  # (layers, stages)
    delta = _microseconds(engine, features, thresholds)
    runs = [engine.delta(clip, thresholds).macs for clip in features]
    executed = np.mean(runs, axis=0)  # (layers, products)
    full = np.array(dense_macs(engine.config), float)
    columns = {stage: STAGES.index(stage) for stage in STAGES}
    products = [
        _line(name, executed[:, n], full[:, n], delta[:, columns[name]], dense[:, columns[name]])
        for n, name in enumerate(PRODUCTS)
    ]
    other = [stage for stage in STAGES if stage not in PRODUCTS]
    overhead = {stage: float(delta[:, columns[stage]].sum()) for stage in other}
    macs = float(executed.sum() / full.sum())
    time = float(delta.sum() / dense.sum())
    return {
        "clips": len(features),
        "dense_us": float(dense.sum()),
        "delta_us": float(delta.sum()),
        "macs_share": macs,
        "time_share": time,
        "achieved": (1 - time) / (1 - macs) if macs < 1 else None,
        "products": products,
        "other_us": overhead,
        "other_dense_us": {stage: float(dense[:, columns[stage]].sum()) for stage in other},
        "layers": [
            {
                "macs_share": float(executed[n].sum() / full[n].sum()),
                "dense_us": float(dense[n].sum()),
                "delta_us": float(delta[n].sum()),
            }
            for n in range(engine.config.layers)
        ],
    }


def _line(
    name: str,
    macs: NDArray[np.float64],
    full: NDArray[np.float64],
    delta: NDArray[np.float64],
    dense: NDArray[np.float64],
) -> dict[str, Any]:
    return {
        "product": name,
        "macs": float(macs.sum()),
        "dense_macs": float(full.sum()),
        "us": float(delta.sum()),
        "dense_us": float(dense.sum()),
        "layers": [
            {"macs": float(m), "dense_macs": float(f), "us": float(u), "dense_us": float(d)}
            for m, f, u, d in zip(macs, full, delta, dense, strict=True)
        ],
    }


def _microseconds(
    engine: Engine, features: list[Floats], thresholds: Thresholds | None
) -> NDArray[np.float64]:
    """(layers, stages): the mean over the clips of each stage's best of several runs."""
    times = [
        np.min([engine.times(clip, thresholds) for _ in range(REPEATS)], axis=0)
        for clip in features
    ]
    return np.asarray(np.mean(times, axis=0) / 1e3)
