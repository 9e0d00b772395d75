"""MAC counts against the figures the paper prints, and against first principles."""

import json

import numpy as np
import pytest

from deltakwt.core.config import KWT1, KWT3, SIZES, Config
from deltakwt.core.macs import PRODUCTS, Macs, bounds, dense_macs, fewest_macs, shortcut_macs


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
    assert set(document) == {"mhsa_percent", "model_percent", "sites", "layers"}
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
