"""MAC counts against the figures the paper prints, and against first principles."""

import json
from pathlib import Path

import numpy as np
import pytest

from deltakwt import load
from deltakwt.audio import read_clip
from deltakwt.core.config import KWT1, KWT3, SIZES, Config
from deltakwt.core.engine import Engine
from deltakwt.core.macs import (
    LANES,
    PRODUCTS,
    Macs,
    bounds,
    dense_macs,
    fewest_macs,
    fill_macs,
    shortcut_macs,
)
from deltakwt.core.setting import ALL_SITES, Thresholds
from deltakwt.weights.folder import random_tensors


@pytest.fixture(scope="module")
def our_clips():
    """Two clips that are shipped as examples."""
    folder = Path(__file__).parent.parent / "examples" / "clips"
    return [read_clip(folder / name) for name in ("yes.flac", "left.flac")]


def test_the_papers_closed_forms_to_the_printed_digit():
    figures = bounds(KWT3)
    products = figures["products"]

    def printed(key):
        return [round(products[name][key], 2) for name in PRODUCTS[:4]]

    assert printed("mhsa_share_percent") == [59.63, 10.25, 10.25, 19.88]
    assert printed("greatest_saving_percent") == [97.98, 99.96, 97.98, 97.98]
    assert printed("greatest_saving_last_layer_percent") == [98.32, 99.98, 98.99, 98.99]
    assert round(figures["last_layer"]["mhsa_saving_percent"], 2) == 59.64
    assert round(figures["all_layers"]["mhsa_saving_percent"], 2) == 4.97
    assert round(figures["mhsa_share_percent"]) == 39
    assert round(figures["mlp_share_percent"]) == 61


@pytest.mark.parametrize(
    ("size", "millions"), [("kwt-1", 73.4), ("kwt-2", 263.7), ("kwt-3", 570.7)]
)
def test_macs_of_a_clip(size, millions):
    assert round(bounds(SIZES[size])["macs"] / 1e6, 1) == millions


@pytest.mark.parametrize("config", [KWT1, KWT3, Config(dim=6, heads=2, mlp=5, layers=1, frames=3)])
def test_dense_counts_are_the_sizes_of_the_products(config):
    T, d, m, h = config.tokens, config.dim, config.mlp, config.head_dim
    by_hand = [3 * T * d * d, config.heads * T * h * T, config.heads * T * T * h, T * d * d,
               T * d * m, T * m * d]  # fmt: skip
    np.testing.assert_array_equal(dense_macs(config), [by_hand] * config.layers)
    assert (fewest_macs(config) <= shortcut_macs(config)).all()
    assert (shortcut_macs(config) <= dense_macs(config)).all()


def test_percentages_are_of_the_full_dense_model():
    dense, shortcut = Macs(KWT3, dense_macs(KWT3)), Macs(KWT3, shortcut_macs(KWT3))
    assert dense.mhsa_percent == dense.model_percent == 100
    assert set(dense.products.values()) == {100.0}
    assert round(100 - shortcut.mhsa_percent, 2) == 4.97
    assert shortcut.layers[0]["mhsa_percent"] == 100
    assert round(shortcut.layers[-1]["mhsa_percent"], 2) == round(100 - 59.64, 2)


def test_json_has_the_documented_keys():
    document = Macs(KWT1, shortcut_macs(KWT1)).to_json()
    assert set(document) == {"mhsa_percent", "model_percent", "sites", "layers", "executed"}
    assert document["executed"] is None  # not known without the kept values
    assert tuple(document["sites"]) == PRODUCTS
    assert len(document["layers"]) == 12
    json.dumps(document)


def test_the_command_prints_the_papers_table(deltakwt):
    shown = deltakwt("macs", "--model", "kwt-3")
    assert shown.returncode == 0
    shares, savings, last = (
        (59.63, 10.25, 19.88),
        (97.98, 98.32, 99.96, 99.98, 98.99),
        (59.64, 4.97),
    )
    for figure in (*shares, *savings, *last):
        assert f"{figure:.2f}" in shown.stdout


def test_the_command_prints_one_json_document(deltakwt):
    document = json.loads(deltakwt("macs", "--model", "kwt-1", "--json").stdout)
    assert document["shape"]["tokens"] == 99
    assert document["macs"] == 73446912


def test_an_unknown_model_is_one_line_and_exit_code_two(deltakwt):
    shown = deltakwt("macs", "--model", "nowhere/at/all")
    assert shown.returncode == 2
    assert shown.stderr.count("\n") == 1
    assert "nowhere/at/all" in shown.stderr


# ------------------------------------------------------------------ the executed count


def multiplications(trace, config, theta, lanes):
    """Count what the core multiplies, entry by entry: an independent count from a trace.

    It follows native/src: two exact rows in full, then for every row the list of its kept values,
    filled to a multiple of four, times one row of the other factor in whole vectors.
    """
    d, m, T, heads = config.dim, config.mlp, config.tokens, config.heads
    kept_only = np.zeros((config.layers, 6), np.int64)
    filled = np.zeros((config.layers, 6), np.int64)
    for layer in range(config.layers):
        last = layer == config.layers - 1
        jobs = [  # product, site, columns of the other factor, lists in a row
            (0, "x", 2 * d if last else 3 * d, 1),
            (1, "q", T, heads),
            (2, "softmax", d // heads, heads),
            (3, "heads", d, 1),
            (4, "mlp_in", m, 1),
            (5, "mlp_hidden", d, 1),
        ]
        for product, site, columns, lists in jobs:
            vectors = 0
            while vectors * lanes < columns:
                vectors += 1
            rows = T if site == "x" or not last else 1
            for t in range(rows):
                for part in np.split(trace[f"{site}.mask"][layer, t], lists):
                    entries = len(np.flatnonzero(part))
                    kept_only[layer, product] += entries * vectors * lanes
                    if t >= 2 and theta[layer, ALL_SITES.index(site)] >= 0:
                        while entries % 4:
                            entries += 1
                    filled[layer, product] += entries * vectors * lanes
        if last:
            query = d * -(-d // lanes) * lanes  # the class token's query, dense
            kept_only[layer, 0] += query
            filled[layer, 0] += query
    return kept_only, filled


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512"])
@pytest.mark.parametrize("size", ["kwt-1", "kwt-2", "kwt-3"])
def test_executed_count_is_that_of_the_core(size, isa, our_clips):
    config = SIZES[size]
    engine = Engine(config, random_tensors(config, seed=4))
    for thresholds in (
        Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05"),
        Thresholds.parse("0.4_0.16_0.29_0.1_0.0034_0.07_0.47_0.08"),
    ):
        theta = thresholds.array(config.layers)
        for clip in our_clips:
            features = engine.features(clip)
            run, trace = engine.delta(features, thresholds), engine.trace(features, thresholds)
            kept_only, filled = multiplications(trace, config, theta, LANES[isa])
            executed = Macs(config, run.macs, run.nonzeros, isa).executed
            np.testing.assert_array_equal(executed, kept_only)
            fill = fill_macs(config, trace, theta, isa)
            np.testing.assert_array_equal(executed + fill, filled)
            differs = executed != run.macs
            assert differs[:, 1].all()  # Q K^T: counted delta by delta, executed by whole rows
            if isa == "scalar":  # no other product differs without padding
                np.testing.assert_array_equal(np.delete(differs, 1, axis=1), False)


def test_lists_of_kept_values_give_the_scores_of_the_core(arm_kwt1, our_clips):
    """What is counted is what is computed: the lists of dQ times whole rows of K^."""
    model = load(arm_kwt1, arithmetic="float")
    thresholds = Thresholds.parse("0.4_0.16_0.29_0_0.0034_0.07_0.47_0.08")
    trace = model.engine.trace(model.engine.features(our_clips[0]), thresholds)
    q, k, scores = (trace[site][6] for site in ("q", "k", "scores"))
    running = np.array(q[1] @ k.T)
    for t in range(2, len(q)):
        (entries,) = np.nonzero(trace["q.mask"][6, t])
        for feature in entries:  # each kept value is multiplied with a whole row of K^T
            running += (q[t, feature] - q[t - 1, feature]) * k[:, feature]
        np.testing.assert_allclose(running / 8, scores[t], atol=2e-3)


def test_both_counts_are_in_the_json(our_clips):
    config = SIZES["kwt-1"]
    engine = Engine(config, random_tensors(config, seed=4))
    thresholds = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05")
    run = engine.delta(engine.features(our_clips[0]), thresholds)
    document = Macs(config, run.macs, run.nonzeros).to_json()
    executed = document["executed"]
    assert set(executed) == set(document) - {"executed"}
    assert executed["sites"]["qkt"] > document["sites"]["qkt"]
    assert executed["model_percent"] > document["model_percent"]
    json.dumps(document)
