"""The delta algorithm: every equation against plain products, on any shapes and thresholds."""

import numpy as np
import pytest
import reconstruct
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deltakwt.core import reference
from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import dense_macs, fewest_macs, shortcut_macs
from deltakwt.core.reference import delta_delta_product, delta_product, delta_softmax, encode
from deltakwt.core.setting import ALL_SITES, Thresholds

thetas = st.none() | st.floats(0, 3)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def rows(draw, values=st.floats(-5, 5), width=None):
    """Any (rows, width), from one row of one value on; hypothesis tries equal and tiny values."""
    shape = draw(st.integers(1, 12)), width or draw(st.integers(1, 9))
    return draw(arrays(np.float64, shape, elements=values))


huge_and_tiny = st.floats(-1e30, 1e30) | st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1e-310])


def test_the_papers_example_of_three_tokens_at_threshold_one():
    x = np.array([[9.0, 9, 9], [1, 2, 3], [1.5, 3.5, 3], [2.5, 3.0, 4.0], [2.0, 6.0, 4.5]])
    encoded = encode(x, 1.0)
    assert encoded.delta.tolist() == [[9, 9, 9], [1, 2, 3], [0, 1.5, 0], [1.5, 0, 0], [0, 2.5, 1.5]]
    assert encoded.reference.tolist() == [
        [9, 9, 9], [1, 2, 3], [1, 3.5, 3], [2.5, 3.5, 3], [2.5, 6, 4.5],
    ]  # fmt: skip


@given(rows(huge_and_tiny), thetas)
def test_a_reference_is_never_further_than_the_threshold(x, theta):
    encoded = encode(x, theta)
    np.testing.assert_array_equal(encoded.reference[:2], x[:2])
    assert encoded.kept[:2].all()
    np.testing.assert_array_equal(encoded.reference[encoded.kept], x[encoded.kept])
    assert (np.abs(x - encoded.reference) <= (theta or 0)).all()
    if theta == 0 or theta is None:
        np.testing.assert_array_equal(encoded.reference, x)
    assert (encoded.delta[~encoded.kept] == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_rejected(bad):
    x = np.zeros((4, 3))
    x[2, 1] = bad
    with pytest.raises(DeltakwtError, match="not finite"):
        encode(x, 0.1)


@given(rows(width=6), thetas, seeds)
def test_delta_product_is_the_product_of_the_references(x, theta, seed):
    w = np.random.default_rng(seed).normal(size=(6, 4))
    encoded = encode(x, theta)
    result, macs = delta_product(encoded, w)
    np.testing.assert_allclose(result, encoded.reference @ w, atol=1e-12)
    assert macs == encoded.kept.sum() * 4 <= x.size * 4


@given(rows(width=5), rows(width=5), thetas, thetas)
def test_delta_delta_product_is_the_product_of_the_references(a, b, theta_a, theta_b):
    a_, b_ = encode(a, theta_a), encode(b, theta_b)
    result, macs = delta_delta_product(a_, b_)
    np.testing.assert_allclose(result, a_.reference @ b_.reference.T, atol=1e-11)
    assert macs == (a_.kept.sum(axis=0) * b_.kept.sum(axis=0)).sum() <= a.size * len(b)


@given(rows(st.floats(-2000, 2000)), thetas)
def test_delta_softmax_is_the_softmax_of_the_references(scores, theta):
    encoded = encode(scores, theta)
    expected = reference.softmax(encoded.reference)
    np.testing.assert_allclose(delta_softmax(encoded), expected, atol=1e-10)


def test_a_probability_that_underflowed_comes_back():
    scores = np.array([[0, 0], [0, -1000], [0, -1000], [0, 1000], [0, 0]], np.float32)
    expected = [[0.5, 0.5], [1, 0], [1, 0], [0, 1], [0.5, 0.5]]
    np.testing.assert_allclose(delta_softmax(encode(scores, 0.1)), expected, atol=1e-4)


@given(
    arrays(np.float64, st.integers(2, 30), elements=st.floats(0, 1)),
    st.sampled_from([-1, 1]),
    st.floats(0, 3),
    st.floats(0, 3),
)
def test_on_a_ramp_a_higher_threshold_never_keeps_more(steps, sign, one, other):
    ramp = sign * np.cumsum(steps)[:, None]
    low, high = sorted([one, other])
    assert encode(ramp, high).kept.sum() <= encode(ramp, low).kept.sum()


# ------------------------------------------------------------------ whole models, any shape


def random_model(config, seed):
    """Weights of a working size: these tests need no trained model."""
    rng = np.random.default_rng(seed)
    return {
        name: 1.0 + 0.1 * rng.normal(size=shape)
        if name.endswith(("norm1.weight", "norm2.weight"))
        else rng.normal(size=shape) / np.sqrt(shape[0] if len(shape) > 1 else 10)
        for name, shape in config.shapes().items()
    }


@st.composite
def configs(draw):
    heads = draw(st.integers(1, 3))
    return Config(
        dim=heads * draw(st.integers(1, 4)),
        heads=heads,
        mlp=draw(st.integers(1, 9)),
        layers=draw(st.integers(1, 3)),
        frames=draw(st.integers(1, 9)),
        features=draw(st.integers(1, 5)),
        labels=("a", "b", "c"),
    )


@st.composite
def any_thresholds(draw, layers):
    # Never 0, where the last bit of a rounding error decides whether a value changed.
    one = st.floats(1e-3, 2)
    value = st.none() | one | st.lists(one, min_size=layers, max_size=layers).map(tuple)
    return Thresholds(**{site: draw(value) for site in ALL_SITES})


@settings(max_examples=25, deadline=None)
@given(st.data(), configs(), seeds)
def test_recurrences_and_reconstruction_are_the_same_algorithm(data, config, seed):
    thresholds = data.draw(any_thresholds(config.layers))
    weights = random_model(config, seed)
    clips = np.random.default_rng(seed).normal(size=(2, config.frames, config.features))
    batch = reconstruct.delta(config, weights, clips, thresholds)
    for i, clip in enumerate(clips):
        run = reference.delta(config, weights, clip, thresholds)
        np.testing.assert_allclose(batch.logits[i], run.logits, atol=1e-9)
        np.testing.assert_array_equal(batch.macs[i], run.macs)
        np.testing.assert_array_equal(batch.nonzeros[i], run.nonzeros)
        assert (run.macs <= shortcut_macs(config)).all()
        assert (run.macs >= fewest_macs(config)).all()


@settings(max_examples=15, deadline=None)
@given(configs(), seeds, st.sampled_from(["0_0_0_0_0_0", "0_0_0_0_0_0_0_0_0", "-_-_-_-_-_-"]))
def test_without_thresholds_the_result_is_dense(config, seed, text):
    weights = random_model(config, seed)
    clip = np.random.default_rng(seed).normal(size=(config.frames, config.features))
    run = reference.delta(config, weights, clip, Thresholds.parse(text))
    np.testing.assert_allclose(run.logits, reference.dense(config, weights, clip), atol=1e-9)
    assert (run.macs <= dense_macs(config)).all()
    if text.startswith("-"):
        np.testing.assert_array_equal(run.macs, shortcut_macs(config))


def test_equal_tokens_cost_nothing():
    config = Config(dim=6, heads=2, mlp=8, layers=3, frames=7, features=4, labels=("a", "b"))
    weights = random_model(config, 0)
    weights["positions"] = np.tile(weights["positions"][:1], (config.tokens, 1))
    clip = np.tile(np.arange(4.0), (config.frames, 1))
    run = reference.delta(config, weights, clip, Thresholds.parse("_".join(["1e-9"] * 9)))
    np.testing.assert_array_equal(run.macs, fewest_macs(config))


def test_features_of_a_wrong_shape_or_with_nan_are_rejected():
    config = Config(dim=2, heads=1, mlp=2, layers=1, frames=3, features=2, labels=("a",))
    weights = random_model(config, 0)
    for clip in (np.zeros((2, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(DeltakwtError, match="finite numbers of shape"):
            reference.dense(config, weights, clip)
