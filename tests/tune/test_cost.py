"""The cost model of the search by time."""

from __future__ import annotations

import numpy as np
import pytest

from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.setting import ALL_SITES
from deltakwt.evaluate import cost
from deltakwt.weights.folder import random_tensors

SMALL = Config(dim=16, heads=1, mlp=32, layers=2)


def test_known_factors_are_found() -> None:
    dice = np.random.default_rng(1)
    rows = np.column_stack([np.ones(40), dice.uniform(0, 5000, (40, len(ALL_SITES)))])
    factors = np.array([0.2, 1e-5, 3e-5, 0, 2e-6, 5e-6, 0, 4e-5, 1e-5, 0])
    np.testing.assert_allclose(cost.least_squares(rows, rows @ factors), factors, atol=1e-9)


def test_factors_are_not_negative() -> None:
    dice = np.random.default_rng(2)
    rows = np.column_stack([np.ones(30), dice.uniform(0, 100, (30, 3)), np.zeros(30)])
    wanted = 1 + 0.02 * rows[:, 1] - 0.001 * rows[:, 2]
    found = cost.least_squares(rows, wanted)
    assert (found >= 0).all()
    assert found[4] == 0  # a site that keeps nothing costs nothing
    assert found[1] == pytest.approx(0.02, rel=0.3)


def test_a_model_is_fitted_to_an_engine() -> None:
    engine = Engine(SMALL, random_tensors(SMALL))
    clips = np.random.default_rng(3).normal(0, 3, (4, 98, 40)).astype(np.float32)
    fitted = cost.fit(engine, clips, count=12)
    setting = cost.drawn_settings(1, 9)[0]
    batch = engine.batch(clips, setting)
    assert batch.nonzeros is not None
    predicted = fitted.milliseconds(batch.nonzeros)
    assert predicted.shape == (4,)
    assert (predicted > 0).all()
    assert (fitted.factors >= 0).all()
    assert fitted.to_json()["settings"] == 12


def test_a_model_survives_json_and_counts_tokens() -> None:
    engine = Engine(SMALL, random_tensors(SMALL))
    clips = np.random.default_rng(4).normal(0, 3, (2, 98, 40)).astype(np.float32)
    fitted = cost.fit(engine, clips, count=8)
    again = cost.CostModel.from_json(fitted.to_json())
    kept = engine.batch(clips, cost.drawn_settings(1, 5)[0]).nonzeros
    assert kept is not None
    np.testing.assert_allclose(again.milliseconds(kept), fitted.milliseconds(kept), rtol=1e-3)
    exact = cost.always_kept(SMALL)
    nothing = np.broadcast_to(exact, (1, SMALL.layers, len(exact))).astype(np.int64)
    tokens = cost.changed_tokens(nothing, exact, SMALL.tokens)
    assert not tokens.any()  # the first two tokens always cost the same
    most = cost.changed_tokens(nothing * 1000, exact, SMALL.tokens)
    np.testing.assert_allclose(most, SMALL.layers * (SMALL.tokens - cost.EXACT), rtol=1e-3)
