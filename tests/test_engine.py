"""The native engine: equal to the authors' model and to the NumPy reference, stage by stage."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import reconstruct
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from deltakwt.core import reference
from deltakwt.core.config import KWT1, KWT3, Config
from deltakwt.core.engine import STAGES, Engine, WindowRunner
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.frontend import mfcc
from deltakwt.core.macs import PRODUCTS
from deltakwt.core.native import FrontEnd, available_isas
from deltakwt.core.setting import ALL_SITES, SITES, Setting, Thresholds
from deltakwt.weights.folder import random_tensors
from deltakwt.weights.tflite import read_tflite

PAPER = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05")
WHOLE = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1")
ZERO = Thresholds.parse("0_0_0_0_0_0_0_0_0")
SMALL = Config(dim=24, heads=3, mlp=40, layers=3, frames=20, features=7, labels=("a", "b", "c"))

CLIPS = Path(__file__).parent.parent / "examples" / "clips"
WORDS = ("yes", "no", "stop", "left", "silence")
Floats = NDArray[np.float32]


def clip(name: str) -> Floats:
    sound, _ = soundfile.read(CLIPS / f"{name}.flac", dtype="float32")
    return np.pad(sound, (0, max(0, 16_000 - len(sound))))[:16_000]


@pytest.fixture(scope="session")
def authors(arm_kwt1: Path) -> tuple[Config, dict[str, Floats]]:
    return read_tflite(arm_kwt1)


@pytest.fixture(scope="session")
def official(shared: Path) -> list[Floats]:
    """Two clips of each class of the official test set, and an all-zero one."""
    folders = sorted((shared / "data" / "speech_commands_test_set_v0.02").glob("*/"))
    paths = [path for folder in folders for path in sorted(folder.glob("*.wav"))[:2]]
    sounds = [soundfile.read(path, dtype="float32")[0] for path in paths]
    return [np.zeros(16_000, np.float32)] + [np.pad(s, (0, 16_000 - len(s))) for s in sounds]


def test_the_best_kernels_are_chosen_unless_the_environment_names_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DELTAKWT_ISA", raising=False)
    assert FrontEnd().isa == available_isas()[-1]
    monkeypatch.setenv("DELTAKWT_ISA", "scalar")
    assert FrontEnd().isa == "scalar"
    monkeypatch.setenv("DELTAKWT_ISA", "mmx")
    with pytest.raises(DeltakwtError, match="DELTAKWT_ISA 'mmx'.*scalar"):
        FrontEnd()


# ---------------------------------------------------------------- dense


def test_logits_equal_those_of_the_authors_model(
    isa: str, authors: tuple[Config, dict[str, Floats]], official: list[Floats], arm_kwt1: Path
) -> None:
    tflite = pytest.importorskip("ai_edge_litert.interpreter", reason="needs ai-edge-litert")
    interpreter = tflite.Interpreter(str(arm_kwt1))
    interpreter.allocate_tensors()
    engine = Engine(*authors, isa)
    for sound in official:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sound[None])
        interpreter.invoke()
        (expected,) = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        logits = engine.dense(engine.features(sound))
        assert logits.argmax() == expected.argmax()
        np.testing.assert_allclose(logits, expected, atol=2e-4 if isa == "scalar" else 1e-3)


@pytest.mark.parametrize("config", [SMALL, replace(KWT3, layers=2)], ids=["small", "kwt-3"])
def test_dense_equals_the_reference(isa: str, config: Config) -> None:
    tensors = random_tensors(config)
    dice = np.random.default_rng(1)
    features = dice.normal(size=(config.frames, config.features)).astype(np.float32)
    expected = reference.dense(config, tensors, features.astype(np.float64))
    np.testing.assert_allclose(Engine(config, tensors, isa).dense(features), expected, atol=2e-5)


# ---------------------------------------------------------------- delta


def test_thresholds_of_zero_equal_dense(
    isa: str, authors: tuple[Config, dict[str, Floats]], official: list[Floats]
) -> None:
    engine = Engine(*authors, isa)
    for sound in official:
        features = engine.features(sound)
        dense, delta = engine.dense(features), engine.delta(features, ZERO)
        assert delta.logits.argmax() == dense.argmax()
        np.testing.assert_allclose(delta.logits, dense, atol=1e-4)


def test_silence_takes_at_most_three_percent_of_attention(
    isa: str, authors: tuple[Config, dict[str, Floats]]
) -> None:
    engine = Engine(*authors, isa)
    features = engine.features(np.zeros(16_000, np.float32))
    run = engine.delta(features, WHOLE)
    expected = reconstruct.delta(*authors, features[None], WHOLE)
    np.testing.assert_array_equal(run.macs, expected.macs[0])
    dense = 12 * (99 * 64 * 64 * 3 + 2 * 99 * 99 * 64 + 99 * 64 * 64)
    assert run.macs[:, :4].sum() < 0.03 * dense


def held(raw: NDArray[np.float64], references: Floats, theta: float, slack: float) -> None:
    """`references` are a delta encoding of `raw` at `theta`, but for decisions within `slack`."""
    np.testing.assert_allclose(references[:2], raw[:2], atol=slack)
    before, after = references[1:-1], references[2:]
    change = np.abs(raw[2:] - before)
    kept = before != after
    np.testing.assert_allclose(after[kept], raw[2:][kept], atol=slack)
    assert (change[kept] > theta - slack).all()
    assert (change[~kept] <= theta + slack).all()


def softmax_rows(scores: NDArray[np.float64], heads: int) -> NDArray[np.float64]:
    return np.hstack([reference.softmax(part) for part in np.split(scores, heads, axis=1)])


@pytest.mark.parametrize("thresholds", [PAPER, WHOLE], ids=["paper", "whole"])
def test_every_stage_follows_from_the_one_before_it(isa: str, thresholds: Thresholds) -> None:
    """Each stage gets the native input of that stage, so no flipped decision can spread."""
    config = replace(KWT1, dim=48, heads=2, mlp=80, layers=3)
    weights = random_tensors(config, seed=3)
    engine = Engine(config, weights, isa)
    features = engine.features(clip("yes")) / 40
    trace = {k: v.astype(np.float64) for k, v in engine.trace(features, thresholds).items()}
    exact = reference.embed(config, weights, features.astype(np.float64))
    heads = reference.head_columns(config)
    for layer in range(config.layers - 1):  # the last has only its class token
        w = reference.block_weights(weights, layer)
        at = {site: trace[site][layer] for site in ALL_SITES}
        theta = dict(zip(ALL_SITES, thresholds.array(config.layers)[layer], strict=True))
        scores = [at["q"][:, h] @ at["k"][:, h].T / sqrt(config.head_dim) for h in heads]
        softmax = np.split(at["softmax"], config.heads, axis=1)
        raw = {
            "x": exact,
            "q": at["x"] @ w["q.weight"],
            "k": at["x"] @ w["k.weight"],
            "v": at["x"] @ w["v.weight"],
            "scores": np.hstack(scores),
            "softmax": softmax_rows(at["scores"], config.heads),
            "heads": np.hstack([p @ at["v"][:, h] for p, h in zip(softmax, heads, strict=True)]),
        }
        mhsa = at["heads"] @ w["proj.weight"] + w["proj.bias"]
        middle = reference.layer_norm(mhsa + exact, w["norm1.weight"], w["norm1.bias"])
        raw["mlp_in"] = middle
        raw["mlp_hidden"] = reference.gelu(at["mlp_in"] @ w["mlp_in.weight"] + w["mlp_in.bias"])
        for site in ALL_SITES:
            held(raw[site], at[site], max(theta[site], 0.0), slack=1e-5)
        mlp = at["mlp_hidden"] @ w["mlp_out.weight"] + w["mlp_out.bias"]
        exact = trace["output"][layer]
        expected = reference.layer_norm(mlp + middle, w["norm2.weight"], w["norm2.bias"])
        np.testing.assert_allclose(exact, expected, atol=1e-5)


def test_counts_are_the_kept_deltas_times_their_fan_out(isa: str) -> None:
    config = replace(KWT1, dim=48, heads=2, mlp=80, layers=3)
    engine = Engine(config, random_tensors(config), isa)
    features = engine.features(clip("stop")) / 40
    run, trace = engine.delta(features, WHOLE), engine.trace(features, WHOLE)
    masks = [trace[f"{site}.mask"].astype(np.int64) for site in ALL_SITES]
    np.testing.assert_array_equal(
        run.nonzeros, np.stack([mask.sum(axis=(1, 2)) for mask in masks], axis=1)
    )
    kept = dict(zip(ALL_SITES, masks, strict=True))
    d, m, n = config.dim, config.mlp, run.nonzeros[1]
    pairs = (kept["q"][1].sum(axis=0) * kept["k"][1].sum(axis=0)).sum()
    assert list(run.macs[1]) == [n[0] * 3 * d, pairs, n[4] * d // 2, n[5] * d, n[6] * m, n[7] * d]
    assert run.macs[2, 0] == run.nonzeros[2, 0] * 2 * d + d * d


@pytest.fixture(scope="session")
def reconstructed(
    authors: tuple[Config, dict[str, Floats]], official: list[Floats]
) -> tuple[Floats, reconstruct.Batch]:
    """Features of a dozen official clips, and the results of NumPy for them."""
    features = np.stack([mfcc(sound) for sound in official[::2]])
    return features, reconstruct.delta(*authors, features, WHOLE)


def test_delta_agrees_with_the_reference_on_real_clips(
    isa: str,
    authors: tuple[Config, dict[str, Floats]],
    reconstructed: tuple[Floats, reconstruct.Batch],
) -> None:
    """A rounding difference may flip a decision and spread: compared by median and arg-max."""
    engine = Engine(*authors, isa)
    features, expected = reconstructed
    batch = engine.batch(features, Setting(WHOLE))
    assert np.median(np.abs(batch.logits - expected.logits).max(axis=1)) < 0.1
    same = batch.logits.argmax(axis=1) == expected.logits.argmax(axis=1)
    assert same.sum() >= len(features) - 1
    assert batch.macs is not None
    dense = engine.delta(features[0], Thresholds()).macs.sum()
    counts = np.abs(batch.macs.sum(axis=(1, 2)) - expected.macs.sum(axis=(1, 2))) / dense
    assert counts.mean() < 0.003


thresholds_of = st.lists(
    st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 3.0), st.just(1e30)), min_size=9, max_size=9
)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(available_isas()),
    st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 20), st.integers(1, 3)),
    st.integers(1, 150),
    thresholds_of,
    st.integers(0, 99),
)
def test_any_shape_and_any_thresholds(
    isa: str,
    sizes: tuple[int, int, int, int],
    frames: int,
    values: list[float | None],
    seed: int,
) -> None:
    """Finite, never more MACs than dense, and as the reference where all or nothing is kept."""
    heads, width, mlp, layers = sizes
    config = Config(heads * width, heads, mlp, layers, ("a", "b"), frames, features=3)
    weights = random_tensors(config, seed)
    features = np.random.default_rng(seed).normal(size=(frames, 3)).astype(np.float32)
    thresholds = Thresholds(**dict(zip(ALL_SITES, values, strict=True)))
    engine = Engine(config, weights, isa)
    run, dense = engine.delta(features, thresholds), engine.delta(features, Thresholds())
    assert np.isfinite(run.logits).all()
    assert (run.macs <= dense.macs).all()
    assert (run.nonzeros <= dense.nonzeros).all()
    np.testing.assert_allclose(dense.logits, engine.dense(features), atol=1e-6)
    if all(value in (None, 0.0, 1e30) for value in values):
        expected = reference.delta(config, weights, features.astype(np.float64), thresholds)
        np.testing.assert_allclose(run.logits, expected.logits, atol=2e-3)


def test_equal_tokens_cost_nothing(isa: str) -> None:
    weights = random_tensors(SMALL)
    weights["positions"] = np.zeros_like(weights["positions"])
    features = np.ones((SMALL.frames, SMALL.features), np.float32)
    run = Engine(SMALL, weights, isa).delta(features, ZERO)
    d = SMALL.dim
    assert list(run.nonzeros[0, :3]) == [2 * d, 2 * d, 2 * d]
    assert run.macs[0, PRODUCTS.index("mlp_in")] == 2 * d * SMALL.mlp


# ---------------------------------------------------------------- times


def test_times_tell_every_stage_apart() -> None:
    engine = Engine(KWT1, random_tensors(KWT1))
    times = engine.times(engine.features(clip("yes")), WHOLE, repeats=2)
    assert times.shape == (12, len(STAGES))
    assert (times[0, [STAGES.index(stage) for stage in (*PRODUCTS, "gelu", "norm")]] > 0).all()
    assert all(f"scan_{site}" in STAGES for site in SITES)


# ---------------------------------------------------------------- hardening


def runner(engine: Engine, **changes: object) -> WindowRunner:
    options = {"hop": 10, "reuse": 0.0, "onset": 20, "outliers": 0}
    options |= {"word_posteriors": np.full(len(engine.config.labels), 0.15, np.float32)}
    return engine.stream_runner(Setting(), **(options | changes))  # type: ignore[arg-type]


def test_logits_that_are_not_finite_are_an_error_that_names_the_model() -> None:
    """Finite weights can overflow; the answer must not be "no word"."""
    config = replace(KWT1, layers=1)
    huge = {name: np.full(shape, 1e38, np.float32) for name, shape in config.shapes().items()}
    engine = Engine(config, huge, name="huge")
    features = engine.features(clip("yes"))
    for run in (
        lambda: engine.dense(features),
        lambda: engine.delta(features, ZERO),
        lambda: engine.batch(clip("yes")[None]),
        lambda: runner(engine).push(clip("yes")),
    ):
        with pytest.raises(DeltakwtError, match="^model huge: the logits are NaN or infinite"):
            run()


# ---------------------------------------------------------------- bad input


def test_bad_input_is_refused_in_one_line() -> None:
    tensors = random_tensors(SMALL)
    engine, features = Engine(SMALL, tensors), np.zeros((20, 7), np.float32)
    broken = {**tensors, "embed.bias": np.full(24, np.nan, np.float32)}
    missing = {k: v for k, v in tensors.items() if k != "head.bias"}
    turned = {**tensors, "head.weight": tensors["head.weight"].T}
    for refused, message in [
        (lambda: Engine(SMALL, broken), "embed.bias holds NaN"),
        (lambda: Engine(SMALL, missing), "head.bias is missing"),
        (lambda: Engine(SMALL, turned), r"head.weight has shape \(3, 24\)"),
        (lambda: Engine(replace(SMALL, heads=5), tensors), "does not divide"),
        (lambda: engine.dense(features[1:]), r"shape \(19, 7\)"),
        (lambda: engine.dense(features + np.nan), "NaN"),
        (lambda: engine.delta(features, Thresholds(x=(0.1, 0.2))), "2 values.*3 layers"),
        (lambda: engine.features(np.zeros(479)), "480 samples"),
        (lambda: engine.features(np.full(500, np.inf)), "infinite"),
        (lambda: engine.features(np.zeros((2, 500))), "shape"),
        (lambda: engine.frontend.stream().push(np.zeros((2, 2))), "one channel"),
        (lambda: engine.batch(np.zeros((3, 5))), r"\(3, 5\)"),
        (lambda: engine.batch(np.stack([features, features + np.nan])), "clip 1: .*NaN"),
        (lambda: engine.features("yes"), "not an array of numbers"),
        (lambda: engine.features(np.zeros(500), "smooth"), "must be a FrontEndSetting"),
        (lambda: engine.batch(features[None], threads=-1), "threads = -1"),
        (lambda: engine.batch(features[None], threads=2**32), "threads = 4294967296"),
        (lambda: engine.batch(features[None], threads=1.5), "threads = 1.5"),
        (lambda: engine.batch(features[None], threads=None), "threads = None"),
        (lambda: engine.batch(features[None], "dense"), "must be a Setting"),
        (lambda: engine.batch([[1.0], [1.0, 2.0]]), "not an array of numbers"),
        (lambda: engine.delta(features, "0.2_0.2"), "must be Thresholds"),
        (lambda: engine.times(features, None, repeats=-1), "repeats = -1"),
        (lambda: engine.trace(features, None), "needs thresholds"),
        (lambda: FrontEnd(3), "isa 3"),  # type: ignore[arg-type]
        (lambda: Thresholds(x=1e39), r"x = 1e\+39: must be a finite number from 0 to 3.4e\+38"),
        (lambda: runner(engine, hop=-1), "hop = -1"),
        (lambda: runner(engine, reuse="much"), "incompatible function arguments"),
        (lambda: runner(engine, word_posteriors=[0.5]), "one value per label"),
    ]:
        with pytest.raises(DeltakwtError, match=message) as caught:
            refused()
        assert "\n" not in str(caught.value)
