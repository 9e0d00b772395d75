"""Thresholds and profiles: parsed, checked, saved, read back."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import (
    ALL_SITES,
    SITES,
    FrontEndSetting,
    Profile,
    Profiles,
    Setting,
    Thresholds,
)
from deltakwt.weights.folder import load_profiles, save_profiles

PAPER = "0.2_0.2_0.2_0.05_0.001_0.05"
numbers = st.floats(0, 1e6, width=32)
values = st.none() | numbers | st.lists(numbers, min_size=3, max_size=3).map(tuple)
thresholds = st.builds(Thresholds, **dict.fromkeys(ALL_SITES, values))


def test_the_papers_string_names_six_sites_and_leaves_the_mlp_dense():
    parsed = Thresholds.parse(PAPER)
    assert parsed == Thresholds(x=0.2, q=0.2, k=0.2, scores=0.05, softmax=0.001, heads=0.05)
    assert str(parsed) == PAPER
    table = parsed.array(12)
    assert table.shape == (12, len(SITES) + 1)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table[3], [0.2, 0.2, 0.2, 0.05, 0.001, 0.05, -1, -1, -1])


def test_eight_values_add_the_mlp_and_a_ninth_v():
    assert Thresholds.parse(PAPER + "_0.3_0.1").mlp_hidden == 0.1
    assert Thresholds.parse(PAPER + "_-_0.1_0.4").v == 0.4
    assert Thresholds.parse(PAPER + "_-_0.1_0.4").mlp_in is None


def test_commas_give_one_threshold_a_layer():
    parsed = Thresholds.parse("1,2,3_0_0_0_0_0")
    np.testing.assert_array_equal(parsed.array(3)[:, 0], [1, 2, 3])
    with pytest.raises(DeltakwtError, match="3 values for a model of 12 layers"):
        parsed.array(12)


@given(thresholds)
def test_json_and_array_round_trip(given_thresholds):
    document = json.loads(json.dumps(given_thresholds.to_json()))
    assert Thresholds.from_json(document) == given_thresholds
    table = given_thresholds.array(3)
    for column, site in enumerate(ALL_SITES):
        value = getattr(given_thresholds, site)
        np.testing.assert_array_equal(table[:, column], np.float32(-1 if value is None else value))


@given(thresholds)
def test_the_string_reads_back(given_thresholds):
    again = Thresholds.parse(str(given_thresholds))
    np.testing.assert_allclose(again.array(3), given_thresholds.array(3), rtol=1e-5)


@pytest.mark.parametrize(
    "text", ["", "0.2", "0.2_0.2", PAPER + "_0.3", "a_b_c_d_e_f", "-1_0_0_0_0_0", "nan_0_0_0_0_0",
             "inf_0_0_0_0_0", "0.2 0.2 0.2 0.05 0.001 0.05", "0,_0_0_0_0_0"],
)  # fmt: skip
def test_a_bad_string_is_refused_in_one_line(text):
    with pytest.raises(DeltakwtError) as error:
        Thresholds.parse(text)
    assert "threshold" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bad", [{"y": 1}, {"x": "0.2"}, {"x": [0.1, "a"]}, {"x": {}}, {"x": -1}])
def test_bad_json_is_refused(bad):
    with pytest.raises(DeltakwtError, match="threshold"):
        Thresholds.from_json(bad)


def test_profiles_are_saved_and_loaded(tmp_path):
    assert load_profiles(tmp_path) == Profiles()
    room = Profile(
        "room",
        Setting(Thresholds.parse(PAPER), FrontEndSetting(True, 2.0), "room"),
        {"accuracy": 0.97},
        "deltakwt eval",
    )
    profiles = Profiles().with_profile(room, default=True)
    save_profiles(tmp_path, profiles)
    assert load_profiles(tmp_path) == profiles
    assert [path.name for path in tmp_path.iterdir()] == ["profiles.json"]
    with pytest.raises(DeltakwtError, match="has: room"):
        profiles["kitchen"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "profiles": {}}',
        '{"format": 1, "profiles": []}',
        '{"format": 1, "default": "a", "profiles": {}}',
        '{"format": 1, "profiles": {"a": {}}}',
        '{"format": 1, "profiles": {"a": {"thresholds": {"x": -1}}}}',
        '{"format": 1, "profiles": {"a": {"thresholds": 3}}}',
        '{"format": 1, "profiles": {"a": {"thresholds": {}, "extra": 1}}}',
    ],
)
def test_a_malformed_profiles_file_is_refused_by_name(tmp_path, text):
    (tmp_path / "profiles.json").write_text(text)
    with pytest.raises(DeltakwtError, match=r"profiles\.json"):
        load_profiles(tmp_path)
