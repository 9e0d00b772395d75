"""Bytes of delta-encoded tensors: the formulas against tensors that are really packed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.core.config import KWT1, KWT3, Config
from deltakwt.core.reference import encode
from deltakwt.core.setting import ALL_SITES
from deltakwt.evaluate.counts import FORMS, packed_bytes, row_overhead, shapes, stored_bytes


def pack(encoded, form):
    """The two forms as the module describes them, byte by byte."""
    parts = [encoded.delta[:2].astype("<f4").tobytes()]
    index = f"<u{row_overhead(encoded.kept.shape[1], 'index')[1]}"
    for delta, kept in zip(encoded.delta[2:], encoded.kept[2:], strict=True):
        places = np.flatnonzero(kept)
        if form == "bitmap":
            parts.append(np.packbits(kept).tobytes())
        else:
            parts += [np.array(len(places), index).tobytes(), places.astype(index).tobytes()]
        parts.append(delta[places].astype("<f4").tobytes())
    return b"".join(parts)


def unpack(data, rows, width, form):
    """The references again, from the bytes alone."""
    reference = np.zeros((rows, width), np.float32)
    index = f"<u{row_overhead(width, 'index')[1]}"
    at = 0

    def take(count, kind):
        nonlocal at
        taken = np.frombuffer(data, kind, count, at)
        at += taken.nbytes
        return taken

    for t in range(rows):
        if t < 2:
            reference[t] = take(width, "<f4")
            continue
        if form == "bitmap":
            bits = take((width + 7) // 8, np.uint8)
            places = np.flatnonzero(np.unpackbits(bits, count=width))
        else:
            places = take(int(take(1, index)[0]), index)
        reference[t] = reference[t - 1]
        reference[t, places] += take(len(places), "<f4")
    assert at == len(data)
    return reference


@pytest.mark.parametrize("form", ["bitmap", "index"])
@given(rows=st.integers(3, 12), width=st.sampled_from([1, 8, 9, 99, 255, 256, 768]), data=st.data())
def test_a_packed_tensor_has_the_size_of_the_formula_and_unpacks(form, rows, width, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = rng.normal(size=(rows, width)).astype(np.float32)
    x[2, 0] = x[1, 0]  # one value at least is skipped
    encoded = encode(x, data.draw(st.floats(0, 3)))
    packed = pack(encoded, form)
    assert len(packed) == packed_bytes(rows, width, int(encoded.kept.sum()), form)
    np.testing.assert_allclose(unpack(packed, rows, width, form), encoded.reference, atol=1e-5)


@pytest.mark.parametrize("config", [KWT1, KWT3, Config(dim=4, heads=2, mlp=6, layers=2, frames=3)])
def test_nothing_skipped_is_stored_plain_and_everything_skipped_is_small(config):
    layers = [shapes(config, last=i == config.layers - 1) for i in range(config.layers)]
    full = np.array([[np.prod(layer[site]) for site in ALL_SITES] for layer in layers])
    dense = stored_bytes(config, full)
    assert dense["total"]["dense"] == dense["total"]["bitmap"] == dense["total"]["index"]
    assert dense["total"]["dense"] == 4 * full.sum()

    least = np.array([[min(2, t[s][0]) * t[s][1] for s in ALL_SITES] for t in layers])
    sparse = stored_bytes(config, least)
    assert sparse["total"]["dense"] == dense["total"]["dense"]
    assert sparse["total"]["index"] < dense["total"]["dense"]
    for form in FORMS:
        assert sum(sparse["sites"][s][form] for s in ALL_SITES) == sparse["total"][form]
        assert sparse["peak"][form] <= dense["peak"][form]


def test_the_heads_of_a_row_have_a_list_each():
    rows, T, heads = 5, 99, 3
    joined = packed_bytes(rows, heads * T, 2 * heads * T + 7, "index", segments=heads)
    assert joined == 2 * heads * T * 4 + (rows - 2) * heads * 1 + 7 * (1 + 4)
