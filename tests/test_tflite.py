"""The reader of the authors' TFLite files: weights by name and shape, every offset checked."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tflite_writer import authors_names, write, write_graph

from deltakwt.core.config import KWT1, SIZES
from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.folder import random_tensors
from deltakwt.weights.tflite import read_graph, read_tflite


@pytest.mark.parametrize("name", SIZES)
def test_every_size_is_read_whatever_the_order(tmp_path: Path, name: str) -> None:
    tensors = random_tensors(SIZES[name])
    constants = authors_names(SIZES[name], tensors)
    random.Random(1).shuffle(constants)
    (tmp_path / "a.tflite").write_bytes(write(constants))
    config, found = read_tflite(tmp_path / "a.tflite")
    assert config == SIZES[name]
    assert list(found) == list(tensors)
    for key, tensor in tensors.items():
        np.testing.assert_array_equal(found[key], tensor)


def test_the_authors_file_agrees_with_litert(arm_kwt1: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(str(arm_kwt1))
    by_name = {t["name"]: t["index"] for t in interpreter.get_tensor_details()}
    config, tensors = read_tflite(arm_kwt1)
    assert config == KWT1
    assert sum(tensor.size for tensor in tensors.values()) == 607_308
    block = "kws_transformer/transformer_block_9"
    for name, theirs in {
        "blocks.9.q.weight": f"{block}/multi_head_self_attention_9/dense_55/Tensordot/MatMul",
        "blocks.9.mlp_out.weight": f"{block}/sequential_9/dense_60/Tensordot/MatMul",
        "blocks.9.norm2.weight": f"{block}/layer_normalization_19/gamma",
        "positions": "pos_emb",
    }.items():
        expected = interpreter.get_tensor(by_name[theirs])
        expected = expected[0] if expected.ndim == 3 else expected.T
        np.testing.assert_array_equal(tensors[name], expected)


def without(*parts: str) -> bytes:
    constants = authors_names(KWT1, random_tensors(KWT1))
    return write([(n, v) for n, v in constants if not any(part in n for part in parts)])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a TFLite"),
        (b"hello, this is text", "not a TFLite"),
        (b"\xff\xff\xff\xffTFL3", "damaged"),
        (write([]), "not a Keyword Transformer"),
        (write([("conv/weights", np.zeros((3, 3)))]), "not a Keyword Transformer"),
        (without("dense_7/"), "not a Keyword Transformer"),
        (without("dense_73/", "dense_72/"), "not a KWT-1"),
        (without("pos_emb"), "positions is missing"),
        (without("layer_normalization_3/beta"), "blocks.1.norm2.bias is missing"),
    ],
)
def test_what_is_no_kwt_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.tflite").write_bytes(content)
    with pytest.raises(DeltakwtError, match=reason) as error:
        read_tflite(tmp_path / "a.tflite")
    assert str(tmp_path / "a.tflite") in str(error.value)


def test_an_oversized_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.tflite").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(DeltakwtError, match="too large"):
        read_tflite(tmp_path / "a.tflite")


@pytest.mark.parametrize(
    "shape",
    [(65_536, 65_536, 65_536, 65_536), (2**31 - 1,) * 8, (-1, 64), (64, 0), (-64, -1)],
    ids=str,
)
def test_shapes_that_wrap_around_or_are_not_positive_are_refused(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    """In 64 bits the product of the first shape is 0, and that of the last one 64."""
    constants = authors_names(KWT1, random_tensors(KWT1))
    entries = [(name, values.shape, number) for number, (name, values) in enumerate(constants)]
    entries[0] = (entries[0][0], shape, 0)
    (tmp_path / "a.tflite").write_bytes(write_graph(entries, [values for _, values in constants]))
    with pytest.raises(DeltakwtError, match="class_token is missing or misshapen"):
        read_tflite(tmp_path / "a.tflite")


def test_weights_that_share_a_buffer_are_read(tmp_path: Path) -> None:
    tensors = random_tensors(KWT1)
    constants = authors_names(KWT1, tensors)
    data = [values for _, values in constants]
    numbers = {name: number for number, (name, _) in enumerate(constants)}
    shared = {name: number for name, number in numbers.items() if name.endswith("/gamma")}
    first = min(shared.values())
    entries = [
        (name, values.shape, first if name in shared else numbers[name])
        for name, values in constants
    ]
    (tmp_path / "a.tflite").write_bytes(write_graph(entries, data))
    _, found = read_tflite(tmp_path / "a.tflite")
    np.testing.assert_array_equal(found["blocks.7.norm1.weight"], tensors["blocks.0.norm1.weight"])


SMALL = write([(f"dense_{n}/MatMul", np.ones((2, 3))) for n in range(4)])


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_damage_gives_an_error_or_a_graph_never_a_crash(
    tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(8, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(8, len(content)))
    path = tmp_path / "a.tflite"
    path.write_bytes(bytes(content[:cut]))
    try:
        for tensor in read_graph(path):
            assert len(tensor.data) <= len(content)
    except DeltakwtError:
        pass
    with pytest.raises(DeltakwtError):
        read_tflite(path)
