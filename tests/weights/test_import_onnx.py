"""Import of ONNX exports: of torch and of this package; what is another network is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltakwt
from deltakwt.core.config import STRIDES, Config, frames_of
from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.folder import random_tensors
from deltakwt.weights.importing import import_model
from deltakwt.weights.onnx_model import to_onnx

onnx: Any = pytest.importorskip("onnx", reason="needs onnx: pip install 'deltakwt[onnx]'")

SMALL = Config(dim=32, heads=2, mlp=48, layers=3)


@pytest.mark.parametrize("stride", STRIDES.values())
def test_our_own_graph_comes_back_unchanged(stride: int, tmp_path: Path) -> None:
    config = replace(SMALL, frames=frames_of(stride), stride=stride)
    tensors = random_tensors(config, seed=3)
    (tmp_path / "kwt.onnx").write_bytes(to_onnx(config, tensors))
    found = import_model(tmp_path / "kwt.onnx", tmp_path / "model").weights
    assert found.config == config
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found.tensors[name], tensor, err_msg=name)


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("kind", ["Lists", "Encoder"])
def test_an_export_of_torch_gives_its_logits(kind: str, opset: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'deltakwt[train]'")
    from weights import torch_models

    net = torch_models.randomised(getattr(torch_models, kind)())
    sample, path = torch_models.features()[:1], tmp_path / "kwt.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (sample,), str(path), opset_version=opset, dynamo=False)
    found = import_model(path, tmp_path / "model")
    assert found.difference is not None
    assert found.difference < 1e-3
    torch_models.assert_same_logits(net, tmp_path / "model")


def changed(change: Any) -> bytes:
    model = onnx.load_model_from_string(to_onnx(SMALL, random_tensors(SMALL, seed=3)))
    change(model)
    return bytes(model.SerializeToString())


def relu(model: Any) -> None:
    for node in model.graph.node:
        if node.op_type == "Gelu":
            node.op_type = "Tanh"
            del node.attribute[:]


def norm_elsewhere(model: Any) -> None:
    """Let the second sum of each block take the input of the first norm, not its result."""
    for node in model.graph.node:
        if node.op_type == "Add" and node.output[0].endswith("norm2.in"):
            node.input[0] = node.input[0].replace(".out", ".in")


def outside(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


def loop(model: Any) -> None:
    model.graph.node[3].op_type = "Loop"


def huge(model: Any) -> None:
    made = onnx.helper.make_node("ConstantOfShape", ["size"], ["big"])
    size = onnx.numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "size")
    model.graph.node.insert(0, made)
    model.graph.initializer.append(size)


def four_clips(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4


REFUSED = {
    "another activation": (lambda: changed(relu), "gives other logits than a KWT"),
    "another place of the norms": (lambda: changed(norm_elsewhere), "gives other logits"),
    "weights outside": (lambda: changed(outside), "its weights are in another file"),
    "a loop": (lambda: changed(loop), "operator Loop"),
    "a huge constant": (lambda: changed(huge), "a result of more than"),
    "a fixed batch": (lambda: changed(four_clips), "it takes 4 clips at once; export it with one"),
    "garbage": (lambda: b"garbage" * 9, "not an ONNX file"),
    "nothing": (lambda: b"", "0 inputs"),
    "sound instead of features": (
        lambda: to_onnx(SMALL, random_tensors(SMALL), sound=True),
        "its input has the shape [1, 16000], expected 98 frames of 40 features",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    (tmp_path / "kwt.onnx").write_bytes(make())
    with pytest.raises(DeltakwtError) as caught:
        import_model(tmp_path / "kwt.onnx", tmp_path / "model")
    assert message in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_the_folder_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "kwt.onnx").write_bytes(to_onnx(SMALL, random_tensors(SMALL, seed=3)))
    import_model(tmp_path / "kwt.onnx", tmp_path / "model")
    assert deltakwt.load(tmp_path / "model")(np.zeros(16_000)).label in SMALL.labels
