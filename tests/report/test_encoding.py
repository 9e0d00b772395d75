"""Encoded tensors come back exactly, and take the bytes that are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt import load
from deltakwt.audio import read_clip
from deltakwt.core.config import SIZES
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import ALL_SITES, Thresholds
from deltakwt.evaluate import counts
from deltakwt.report.sections.storage import (
    FORMATS,
    HEADER,
    decode,
    encode,
    encoded_bytes,
    state_bytes,
)
from deltakwt.weights.folder import random_tensors

CLIPS = Path(__file__).parent.parent.parent / "examples" / "clips"
SETTING = Thresholds.parse("0.4_0.16_0.29_0.1_0.0034_0.07_0.47_0.08_0.3")


def tensor(seed: int, rows: int, width: int, density: float) -> tuple[np.ndarray, np.ndarray]:
    """Return references and where they changed, as a trace has them."""
    rng = np.random.default_rng(seed)
    kept = rng.random((rows, width)) < density
    kept[:2] = True
    values = rng.standard_normal((rows, width)).astype(np.float32)
    references = values.copy()
    for t in range(2, rows):
        references[t] = np.where(kept[t], values[t], references[t - 1])
    return references, kept


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    st.sampled_from(list(FORMATS)),
)
def test_decoding_gives_back_what_was_encoded(
    seed: int, rows: int, width: int, lists: int, density: float, form: str
) -> None:
    references, kept = tensor(seed, rows, width * lists, density)
    data = encode(references, kept, form, lists)
    np.testing.assert_array_equal(decode(data), references)
    counted = counts.packed_bytes(rows, width * lists, int(kept.sum()), form, lists)
    assert len(data) - HEADER.size == counted


@pytest.mark.parametrize("width", [255, 256, 300])
def test_positions_wider_than_a_byte(width: int) -> None:
    references, kept = tensor(0, 5, width, 0.5)
    np.testing.assert_array_equal(decode(encode(references, kept, "index")), references)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    small = data[:4] + b"\x08\x00\x00\x00" + data[4:] if len(data) > 8 else data  # a width of 8
    try:
        decoded = decode(small)
    except DeltakwtError:
        return
    assert decoded.ndim == 2


@pytest.mark.parametrize("size", ["kwt-1", "kwt-2", "kwt-3"])
def test_all_tensors_of_a_clip(size: str) -> None:
    config = SIZES[size]
    engine = Engine(config, random_tensors(config, seed=2))
    features = engine.features(read_clip(CLIPS / "yes.flac"))
    written = encoded_bytes(config, engine.trace(features, SETTING))
    counted = counts.stored_bytes(config, engine.delta(features, SETTING).nonzeros)["sites"]
    for site in ALL_SITES:
        assert written[site] == {form: counted[site][form] for form in FORMATS}


def test_a_word_of_the_authors_model_is_stored_in_less(arm_kwt1: Path) -> None:
    model = load(arm_kwt1, arithmetic="float")
    trace = model.engine.trace(model.engine.features(read_clip(CLIPS / "yes.flac")), SETTING)
    written = encoded_bytes(model.config, trace)
    total = {form: sum(site[form] for site in written.values()) for form in FORMATS}
    assert total["bitmap"] < 0.4 * total["dense"]
    assert total["index"] < 0.4 * total["dense"]


@pytest.mark.parametrize("size", SIZES)
def test_the_state_is_a_row_per_site_of_the_cores_layout(size: str) -> None:
    """One reference and one running result for each site, as the paper says, plus cache lines."""
    config = SIZES[size]
    d, m, h, T = config.dim, config.mlp, config.heads, config.tokens
    rows = {  # values of the reference and of the running result
        **{"x": (d, 3 * d), "q": (d, h * T), "k": (0, 0), "scores": (h * T, 0)},
        **{"softmax": (h * T, d), "heads": (d, d), "mlp_in": (d, m), "mlp_hidden": (m, d)},
        "v": (0, 0),
    }
    state = state_bytes(config)
    for site, (reference, running) in rows.items():
        found = state["sites"][site]
        for kind, values in (("reference", reference), ("running", running)):
            assert 4 * values <= found[kind] <= 4 * values + (128 * h if values else 0), site
    assert state["state"] == sum(s["reference"] + s["running"] for s in state["sites"].values())
    assert state["state"] < 0.05 * state["total"]["dense"]
