"""The fixed-point engine: its arithmetic, its formats, and equality with its definition."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest
import soundfile
from conftest import CLIPS
from fixed_models import small_tensors

from deltakwt.core import fixed, fixed_arithmetic
from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_arithmetic import from_bytes, to_bytes
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_scales import calibrate
from deltakwt.core.fixed_weights import Scales, fixed_features, fixed_thresholds, quantize
from deltakwt.core.native import FrontEnd, available_isas
from deltakwt.core.setting import ALL_SITES, FrontEndSetting, Setting, Thresholds
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import find_scales, resolve

# Odd sizes: two heads of 10, rows that no vector divides.
ODD = Config(dim=20, heads=2, mlp=36, layers=3, labels=("a", "b", "c"), frames=37, features=5)
WIDE = Config(dim=64, heads=1, mlp=144, layers=2, frames=70)
THRESHOLDS = Thresholds.parse("0.3_0.2_0.2_0.1_0.01_0.1_0.3_0.1_0.05")
PAPER = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05")
ISAS = available_isas()


def clips(config: Config, count: int, seed: int = 0) -> np.ndarray:
    """Features that change slowly from frame to frame."""
    steps = np.random.default_rng(seed).normal(size=(count, config.frames, config.features))
    return np.cumsum(steps * 0.3, axis=1).astype(np.float32)


@pytest.fixture(scope="module", params=[ODD, WIDE], ids=["odd", "wide"])
def made(request: pytest.FixtureRequest) -> tuple[Config, dict[str, np.ndarray], Scales]:
    config = request.param
    tensors = small_tensors(config)
    return config, tensors, calibrate(config, tensors, clips(config, 4))


def assert_equals_definition(engine: FixedEngine, features: np.ndarray, thresholds) -> None:
    table = thresholds and fixed_thresholds(engine.config, engine.scales, thresholds)
    native = engine.integers(features, thresholds, 1, True)
    for i, clip in enumerate(features):
        run = fixed.run(engine.weights, clip, table)
        for name, got in zip(("logits", "macs", "nonzeros", "peaks"), native, strict=True):
            np.testing.assert_array_equal(getattr(run, name), got[i], err_msg=name)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("thresholds", [None, THRESHOLDS], ids=["dense", "delta"])
def test_native_equals_the_definition(made, isa: str, thresholds) -> None:
    config, tensors, scales = made
    engine = FixedEngine(config, tensors, scales, isa)
    assert_equals_definition(engine, engine.quantized(clips(config, 2, seed=7)), thresholds)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("thresholds", [None, THRESHOLDS], ids=["dense", "delta"])
def test_unchanged_frames_equal_the_definition(made, isa: str, thresholds) -> None:
    config, tensors, scales = made
    engine = FixedEngine(config, tensors, scales, isa)
    features = clips(config, 2, seed=8)
    features[0] = features[0, 0]  # as in digital silence
    features[1, 5:31] = features[1, 4]
    features[1, -1] = features[1, -2]
    assert_equals_definition(engine, engine.quantized(features), thresholds)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("site", ALL_SITES)
def test_one_site_alone_equals_the_definition(made, isa: str, site: str) -> None:
    config, tensors, scales = made
    engine = FixedEngine(config, tensors, scales, isa)
    only = Thresholds(**{site: getattr(THRESHOLDS, site)})
    assert_equals_definition(engine, engine.quantized(clips(config, 1, seed=8)), only)


@pytest.mark.parametrize("isa", ISAS)
def test_features_in_16_bits_equal_the_definition(made, isa: str) -> None:
    config, tensors, scales = made
    halves = np.arange(-0.5 * 40, 0.5 * 40, 0.5) / 2.0 ** max(scales.features)  # ties, to even
    values = np.concatenate([halves, [1e6, -1e6, 3e38, -3e38], clips(config, 1).ravel()])
    rows = np.resize(values, (len(values), config.features)).astype(np.float32)
    got = FixedEngine(config, tensors, scales, isa).quantized(rows)
    np.testing.assert_array_equal(got, fixed_features(scales, rows))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("thresholds", [None, THRESHOLDS, Thresholds.parse("0_0_0_0_0_0_0_0_0")])
def test_extreme_features_equal_the_definition_and_are_reported(made, isa: str, thresholds) -> None:
    config, tensors, scales = made
    shape = (2, config.frames, config.features)
    extremes = np.random.default_rng(3).choice([-32768, 0, 32767], shape).astype(np.int16)
    tight = Scales(**{**scales.__dict__, "x": (min(15, scales.x[0] + 3), *scales.x[1:])})
    for chosen in (scales, tight):
        try:
            engine = FixedEngine(config, tensors, chosen, isa)
        except DeltakwtError:
            continue  # the weights do not fit the tight scale
        assert_equals_definition(engine, extremes, thresholds)
    peaks = FixedEngine(config, tensors, scales, isa).integers(extremes, thresholds)[3]
    assert (peaks >= fixed_arithmetic.HIGHEST).any()


def test_close_to_the_float_engine(made) -> None:
    config, tensors, scales = made
    features = clips(config, 8, seed=9)
    exact = Engine(config, tensors).batch(features).logits
    got = FixedEngine(config, tensors, scales).batch(features)
    worst = np.abs(got.logits - exact).max(axis=1)  # of each clip
    assert np.median(worst) < 0.02 * np.abs(exact).max()
    assert not got.saturated.any()


def test_gelu_is_within_two_steps() -> None:
    x = np.arange(-32768, 32768)
    for bits in range(4, 14):
        real = x / 2**bits
        expected = real / 2 * (1 + np.tanh(sqrt(2 / pi) * (real + 0.044715 * real**3)))
        assert np.abs(fixed_arithmetic.gelu(x, bits) - expected * 2**bits).max() < 2


def test_reciprocal_root_is_exact_to_one_part_in_ten_thousand() -> None:
    for v in np.linspace(2**28, 2**30 - 1, 5000).astype(int):
        assert fixed_arithmetic.reciprocal_root(int(v)) * sqrt(v) / 2**29 == pytest.approx(
            1, abs=1e-4
        )


@pytest.mark.parametrize("bits", [4, 8, 11])
def test_softmax_is_close_to_the_float_one(bits: int) -> None:
    scores = np.random.default_rng(0).integers(-32768, 32768, (50, 99))
    scores[::2] //= 64
    real = scores / 2**bits
    powers = np.exp(real - real.max(axis=1, keepdims=True))
    got = fixed_arithmetic.softmax(scores.astype(np.int32), bits) / 2**15
    limit = 0.7 / 2**bits + 8 / 2**15  # rounding the exponent costs up to ln 2 / 2^bits
    assert np.abs(got - powers / powers.sum(axis=1, keepdims=True)).max() < limit


def test_scores_far_below_the_largest_get_nothing() -> None:
    scores = np.zeros((1, 99), np.int32)
    scores[0, 1:] = -12 << 10  # exp(-12) is less than half a step
    got = fixed_arithmetic.softmax(scores, 10)[0]
    assert got[0] >= 32765
    assert not got[1:].any()


def test_a_sum_that_returns_into_range_is_exact() -> None:
    w = np.array([[32767], [32767], [-32767]])
    got = fixed_arithmetic.multiply(np.array([[30000, 30000, 30000]]), w, np.zeros(1, np.int32))
    assert got == 29999


def test_weights_of_eight_bits_are_stored_exactly_and_near(made) -> None:
    config, tensors, scales = made
    whole, halved = (quantize(config, tensors, scales, bits) for bits in (16, 8))
    for name in ("q", "proj", "mlp_in", "mlp_out"):
        exact, got = (getattr(w.layers[0], name) for w in (whole, halved))
        values, shifts = to_bytes(got)
        np.testing.assert_array_equal(from_bytes(values, shifts), got)
        step = 1 << shifts[:, None].astype(int)
        assert (np.abs(got - exact) <= step).all()
        assert (np.abs(got) > 127).any()
    features = clips(config, 1, seed=5)
    for isa in ISAS:
        engine = FixedEngine(config, tensors, scales, isa, weight_bits=8)
        assert_equals_definition(engine, engine.quantized(features), THRESHOLDS)


def test_a_range_that_does_not_fit_is_refused_with_layer_and_site(made) -> None:
    config, tensors, _ = made
    broken = {**tensors, "blocks.1.q.weight": tensors["blocks.1.q.weight"] * np.float32(1e6)}
    with pytest.raises(DeltakwtError, match="layer 1, (q|scores)"):
        calibrate(config, broken, clips(config, 2))


def test_scales_survive_json_and_bad_json_is_refused(made) -> None:
    config, _, scales = made
    assert Scales.from_json(scales.to_json(), config) == scales
    for change in ({"format": 2}, {"x": [12]}, {"scores": [13] * config.layers}, {"k": ["1"]}):
        with pytest.raises(DeltakwtError, match=r"fixed\.json"):
            Scales.from_json(scales.to_json() | change, config)


def test_thresholds_keep_the_same_differences_as_floats(made) -> None:
    config, _, scales = made
    table = fixed_thresholds(config, scales, THRESHOLDS)
    column = ALL_SITES.index("x")
    theta, bits = THRESHOLDS.array(config.layers)[0, column], scales.x[0]
    for difference in (table[0, column], table[0, column] + 1):
        assert (difference / 2.0**bits > float(theta)) == (difference > table[0, column])
    dense = fixed_thresholds(config, scales, Thresholds(k=0.1))
    assert (dense[:, ALL_SITES.index("x")] == -1).all()


def test_real_clips_of_the_trained_model_are_bit_equal(trained: str) -> None:
    weights = load_weights(resolve(trained))
    config, tensors = weights.config, weights.tensors
    sounds = [soundfile.read(CLIPS / f"{w}.flac", dtype="float32")[0] for w in ("yes", "stop")]
    frontend = FrontEnd()
    features = np.array([frontend.features(np.resize(s, 16_000)) for s in sounds])
    scales = calibrate(config, tensors, features)
    for isa in ISAS:
        engine = FixedEngine(config, tensors, scales, isa)
        for thresholds in (None, PAPER):
            assert_equals_definition(engine, engine.quantized(features), thresholds)
        answers = engine.batch(features, Setting(PAPER)).logits.argmax(axis=1)
        assert [config.labels[i] for i in answers] == ["yes", "stop"]


@pytest.mark.parametrize("thresholds", [None, THRESHOLDS], ids=["dense", "delta"])
def test_sound_in_one_call_equals_features_and_run(trained: str, thresholds) -> None:
    path = resolve(trained)
    weights = load_weights(path)
    engine = FixedEngine(weights.config, weights.tensors, find_scales(path, weights))
    sound, _ = soundfile.read(CLIPS / "yes.flac", dtype="float32")
    sound = np.resize(sound, 16000)
    front_end = FrontEndSetting(smooth=True, floor=2.0)
    once = engine.classify(sound, front_end, thresholds)
    twice = engine.run(engine.features(sound, front_end), thresholds)
    np.testing.assert_array_equal(once.logits, twice.logits)
    np.testing.assert_array_equal(once.macs, twice.macs)
    np.testing.assert_array_equal(once.nonzeros, twice.nonzeros)
    with pytest.raises(DeltakwtError, match="sound: wrong length"):
        engine.classify(sound[:8000], front_end, thresholds)
