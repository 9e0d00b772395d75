"""The algorithm on real clips: the authors' model in LiteRT, the reference and the native core."""

from math import sqrt

import numpy as np
import pytest
import reconstruct
import soundfile

from deltakwt.core import reference
from deltakwt.core.config import LABELS
from deltakwt.core.engine import Engine
from deltakwt.core.frontend import PLAIN, FrontEndSetting, FrontEndStream, mel_energies, mfcc
from deltakwt.core.macs import Macs
from deltakwt.core.reference import block_weights, embed, gelu, head_columns, layer_norm, softmax
from deltakwt.core.setting import ALL_SITES, Setting, Thresholds
from deltakwt.weights.tflite import read_tflite

PAPER = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05")
WHOLE = Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1")
EVERY_SITE = Thresholds.parse("0.3_0.3_0.3_0.1_0.002_0.1_0.3_0.1_0.2")
ZERO = Thresholds.parse("0_0_0_0_0_0_0_0")
SMOOTH_FLOOR = FrontEndSetting(smooth=True, floor=2.0)


@pytest.fixture(scope="session")
def kwt1(arm_kwt1):
    return read_tflite(arm_kwt1)


@pytest.fixture(scope="session")
def engine(kwt1):
    return Engine(*kwt1)


@pytest.fixture(scope="session")
def clips(shared):
    """(108, 16000): nine real clips per class, real background noise as silence."""
    root = shared / "data" / "speech_commands_test_set_v0.02"
    paths = [path for label in LABELS for path in sorted((root / label).glob("*.wav"))[:9]]
    audio = np.zeros((len(paths), 16_000), np.float32)
    for row, path in zip(audio, paths, strict=True):
        samples = soundfile.read(path, dtype="float32")[0][:16_000]
        row[: len(samples)] = samples
    return audio


@pytest.fixture(scope="session")
def features(clips):
    return np.stack([mfcc(clip) for clip in clips])


def test_the_dense_forward_gives_the_logits_of_the_authors_model(arm_kwt1, kwt1, clips, features):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(str(arm_kwt1))
    interpreter.allocate_tensors()
    source, sink = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    for clip, rows in zip(clips[::4], features[::4], strict=True):
        interpreter.set_tensor(source["index"], clip.reshape(source["shape"]))
        interpreter.invoke()
        golden = interpreter.get_tensor(sink["index"])[0]
        np.testing.assert_allclose(reference.dense(*kwt1, rows), golden, atol=1e-4)


@pytest.mark.parametrize("thresholds", [PAPER, EVERY_SITE])
def test_recurrences_equal_reconstruction_on_real_clips_in_64_bits(kwt1, features, thresholds):
    clip = features[30].astype(np.float64)
    run = reference.delta(*kwt1, clip, thresholds)
    batch = reconstruct.delta(*kwt1, clip[None], thresholds)
    np.testing.assert_allclose(batch.logits[0], run.logits, atol=1e-9)
    np.testing.assert_array_equal(batch.macs[0], run.macs)
    np.testing.assert_array_equal(batch.nonzeros[0], run.nonzeros)


def test_thresholds_of_zero_are_dense(kwt1, engine, features):
    some = features[::6]
    dense = np.stack([reference.dense(*kwt1, clip) for clip in some])
    for logits in (
        reconstruct.delta(*kwt1, some, ZERO).logits,
        engine.batch(some, Setting(ZERO)).logits,
        reference.delta(*kwt1, some[0], ZERO).logits[None],
    ):
        np.testing.assert_allclose(logits, dense[: len(logits)], atol=1e-4)
        np.testing.assert_array_equal(logits.argmax(axis=1), dense[: len(logits)].argmax(axis=1))


@pytest.mark.parametrize("thresholds", [PAPER, WHOLE])
def test_native_and_reference_agree_in_words_and_counts(kwt1, engine, features, thresholds):
    """Rounding may flip a threshold decision and the flip spreads, so not to the last digit."""
    config = kwt1[0]
    ours = reconstruct.delta(*kwt1, features, thresholds)
    native = engine.batch(features, Setting(thresholds))
    assert (native.logits.argmax(axis=1) == ours.logits.argmax(axis=1)).mean() >= 0.99
    assert np.median(np.abs(native.logits - ours.logits)) < 1e-3
    for counted, expected in zip(native.macs, ours.macs, strict=True):
        there, here = Macs(config, counted), Macs(config, expected)
        assert there.mhsa_percent == pytest.approx(here.mhsa_percent, abs=0.5)
        assert there.model_percent == pytest.approx(here.model_percent, abs=0.5)
    mean, expected = Macs(config, native.macs.mean(axis=0)), Macs(config, ours.macs.mean(axis=0))
    assert mean.mhsa_percent == pytest.approx(expected.mhsa_percent, abs=0.05)
    assert mean.model_percent == pytest.approx(expected.model_percent, abs=0.05)
    assert (native.nonzeros <= ours.nonzeros * 1.2 + 50).all()


@pytest.mark.parametrize("number", [0, 30])  # noise and a word
def test_each_native_stage_follows_from_its_input(kwt1, engine, features, number):
    """Every stage is checked with the output of the native stage before it as input."""
    config, weights = kwt1
    trace = engine.trace(features[number], EVERY_SITE)
    theta = dict(zip(ALL_SITES, EVERY_SITE.array(1)[0], strict=True))
    x = embed(config, weights, features[number])
    for layer in range(config.layers):
        w, queries = block_weights(weights, layer), 1 if layer == config.layers - 1 else len(x)

        def site(name, values, layer=layer):
            seen = trace[name][layer, : len(values)]
            check_encoding(values, seen, trace[f"{name}.mask"][layer, : len(values)], theta[name])
            return seen

        seen = site("x", x)
        q, k = site("q", seen[:queries] @ w["q.weight"]), site("k", seen @ w["k.weight"])
        v = site("v", seen @ w["v.weight"])
        scores = [q[:, h] @ k[:, h].T / sqrt(config.head_dim) for h in head_columns(config)]
        scores = np.split(site("scores", np.hstack(scores)), config.heads, axis=1)
        shares = site("softmax", np.hstack([softmax(head) for head in scores]))
        shares = np.split(shares, config.heads, axis=1)
        heads = [p @ v[:, h] for p, h in zip(shares, head_columns(config), strict=True)]
        mhsa = site("heads", np.hstack(heads)) @ w["proj.weight"] + w["proj.bias"]
        x = layer_norm(mhsa + x[:queries], w["norm1.weight"], w["norm1.bias"])
        hidden = gelu(site("mlp_in", x) @ w["mlp_in.weight"] + w["mlp_in.bias"])
        mlp = site("mlp_hidden", hidden) @ w["mlp_out.weight"] + w["mlp_out.bias"]
        x = layer_norm(mlp + x, w["norm2.weight"], w["norm2.bias"])
        np.testing.assert_allclose(trace["output"][layer][:queries], x, atol=1e-4)
        x = trace["output"][layer][:queries]


def check_encoding(values, seen, kept, theta, within=3e-5):
    """`seen` is `values` where kept, else the row before; and kept is what exceeds theta."""
    np.testing.assert_allclose(seen[:2], values[:2], atol=within)
    change = np.abs(values[2:] - seen[1:-1])
    assert (change[kept[2:]] > theta - within).all()
    assert (change[~kept[2:]] <= theta + within).all()
    np.testing.assert_allclose(seen[2:][kept[2:]], values[2:][kept[2:]], atol=within)
    np.testing.assert_array_equal(seen[2:][~kept[2:]], seen[1:-1][~kept[2:]])


def test_smoothing_and_floor_make_a_real_room_cheap(kwt1, engine, clips):
    noise = clips[:9]  # the official test set's silence: real background noise

    def percent(front_end):
        counts = engine.batch(noise, Setting(WHOLE, front_end)).macs.mean(axis=0)
        return Macs(kwt1[0], counts).model_percent

    assert percent(SMOOTH_FLOOR) < 10 < percent(PLAIN)


def test_the_causal_front_end_spots_the_same_words(kwt1, engine, clips):
    """Five seconds of background before each word; the last second's features are classified."""
    rng = np.random.default_rng(0)
    same = 0
    words = clips[18::4]
    for word in words:
        room = rng.normal(0, 1e-3, 6 * 16_000).astype(np.float32)
        room[-16_000:] += word
        streamed = FrontEndStream(FrontEndSetting(floor=2.0)).push(mel_energies(room))[-98:]
        same += engine.dense(streamed).argmax() == engine.dense(mfcc(word)).argmax()
    assert same >= 0.9 * len(words)
