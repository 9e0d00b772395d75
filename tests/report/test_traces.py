"""Quantities computed from a trace agree with the counts of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deltakwt import load
from deltakwt.core.macs import dense_macs
from deltakwt.report import traces
from deltakwt.report.study import PAPER as PAPER_SETTING
from deltakwt.report.study import WHOLE as WHOLE_SETTING

PAPER, WHOLE = PAPER_SETTING.thresholds, WHOLE_SETTING.thresholds


@pytest.fixture(scope="module")
def features(random_model: Path) -> np.ndarray:
    sound = np.random.default_rng(3).normal(0, 0.05, 16_000).astype(np.float32)
    sound[4000:9000] *= 5
    return load(random_model).engine.features(sound)


@pytest.mark.parametrize("thresholds", [PAPER, WHOLE], ids=["paper", "whole"])
def test_macs_of_the_tokens_add_up_to_the_run(
    random_model: Path, features: np.ndarray, thresholds: object
) -> None:
    model = load(random_model)
    run = model.engine.delta(features, thresholds)
    tokens = traces.token_macs(model.config, model.engine.trace(features, thresholds))
    layer = dense_macs(model.config)[0].sum()
    assert tokens.shape == (12, 99)
    found = tokens.sum(axis=1) / 100 * layer / model.config.tokens
    assert found == pytest.approx(run.macs.sum(axis=1), rel=1e-9)


def test_exact_traces_have_no_error(random_model: Path, features: np.ndarray) -> None:
    model = load(random_model)
    exact = model.engine.trace(features, traces.EXACT)
    assert traces.output_errors(model.config, exact, exact) == pytest.approx(np.zeros(12))
    delta = model.engine.trace(features, WHOLE)
    assert (traces.output_errors(model.config, exact, delta) > 0).all()


def test_small_differences_of_a_known_tensor(random_model: Path, features: np.ndarray) -> None:
    model = load(random_model)
    trace = model.engine.trace(features, traces.EXACT)
    rows = np.zeros((12, 99, 64), np.float32)
    rows[:, 50:] = 1  # one step of the whole range among 97 differences
    share = traces.small_differences(model.config, {**trace, "x": rows}, 0.01)
    assert share[:, 0] == pytest.approx(np.full(12, 100 * 96 / 97))
    assert np.isnan(share[-1, 1])  # the last layer has one query
    assert not np.isnan(share[:-1]).any()


def test_deltas_add_up_to_the_references(random_model: Path, features: np.ndarray) -> None:
    model = load(random_model)
    references = model.engine.trace(features, WHOLE)["x"][6]
    deltas = traces.deltas(references)
    assert deltas[:2] == pytest.approx(references[:2])
    assert np.cumsum(deltas[1:], axis=0) == pytest.approx(references[1:], abs=1e-4)
    assert (deltas[2:] == 0).any()
