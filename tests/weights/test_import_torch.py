"""Import of PyTorch checkpoints and safetensors files: what fits, what is refused, what is safe."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weights.torch_models import (
    DEPTH,
    DIM,
    HEADS,
    Encoder,
    Lists,
    assert_same_logits,
    features,
    randomised,
)

import deltakwt
from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.importing import import_model
from deltakwt.weights.mapping import DoesNotFit
from deltakwt.weights.torch_file import read_torch

torch = pytest.importorskip("torch", reason="needs torch: pip install 'deltakwt[train]'")
nn: Any = torch.nn


SAVED: dict[str, Callable[[Any, Path], None]] = {
    "state.pt": lambda net, path: torch.save(net.state_dict(), path),
    "epoch.ckpt": lambda net, path: torch.save(
        {
            "epoch": 3,
            "config": {"betas": (0.9, 0.999), "words": ["yes", "no"], "seed": 2**40},
            "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []},
            "state_dict": {f"module.{name}": t for name, t in net.state_dict().items()},
        },
        path,
    ),
    "double.pth": lambda net, path: torch.save(
        {name: t.double() for name, t in net.state_dict().items()}, path
    ),
    "parameters.bin": lambda net, path: torch.save(dict(net.named_parameters()), path),
}


@pytest.mark.parametrize("file", SAVED)
@pytest.mark.parametrize("make", [Lists, Encoder])
def test_a_checkpoint_gives_the_logits_of_torch(make: Any, file: str, tmp_path: Path) -> None:
    net = randomised(make())
    SAVED[file](net, tmp_path / file)
    found = import_model(tmp_path / file, tmp_path / "model", heads=HEADS)
    assert found.weights.config.layers == DEPTH
    assert all("not used" not in row.role for row in found.rows)
    assert_same_logits(net, tmp_path / "model")


def test_a_safetensors_file_and_a_check_of_its_logits(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    net = randomised(Encoder())
    state = {name: tensor.contiguous().clone() for name, tensor in net.state_dict().items()}
    save_file(state, tmp_path / "kwt.safetensors")
    with torch.no_grad():
        checked = {"features": features(), "logits": net(features())}
    torch.save(checked, tmp_path / "check.pt")
    options = {"heads": HEADS, "check": tmp_path / "check.pt"}
    found = import_model(tmp_path / "kwt.safetensors", tmp_path / "model", **options)
    assert found.difference is not None
    assert found.difference < 1e-3
    assert_same_logits(net, tmp_path / "model")
    with pytest.raises(DeltakwtError, match="logits differ by up to"):
        import_model(tmp_path / "kwt.safetensors", tmp_path / "n", heads=1, check=options["check"])
    assert not (tmp_path / "n").exists()


def test_a_safetensors_file_of_half_the_bits_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    state = {n: t.bfloat16().clone() for n, t in randomised(Encoder()).state_dict().items()}
    save_file(state, tmp_path / "kwt.safetensors")
    with pytest.raises(DeltakwtError, match="is BF16; save it as float32"):
        import_model(tmp_path / "kwt.safetensors", tmp_path / "model")


def test_one_head_of_the_full_width_has_no_projection(tmp_path: Path) -> None:
    net = randomised(Lists(heads=1))
    torch.save(net.state_dict(), tmp_path / "kwt.pt")
    found = import_model(tmp_path / "kwt.pt", tmp_path / "model")
    assert any("identity matrix" in text for text in found.notes)
    assert_same_logits(net, tmp_path / "model")


def test_other_labels_must_be_named(tmp_path: Path) -> None:
    torch.save(randomised(Encoder(label_count=3)).state_dict(), tmp_path / "kwt.pt")
    with pytest.raises(DoesNotFit, match="3 labels: name them"):
        import_model(tmp_path / "kwt.pt", tmp_path / "model")
    import_model(tmp_path / "kwt.pt", tmp_path / "model", labels=("a", "b", "c"))
    assert deltakwt.load(tmp_path / "model").labels == ("a", "b", "c")


def queries_with_bias(net: Any) -> dict[str, Any]:
    state = net.state_dict()
    state["encoders.0.layers.1.self_attn.in_proj_bias"][:DIM] = 0.1
    return state


def wrapped_norms() -> dict[str, Any]:
    """The names of Torch-KWT: `layers.0.0.norm` and `layers.0.0.fn.to_qkv`."""
    state = {}
    for name, tensor in Lists(head_norm=True).state_dict().items():
        for theirs, ours in (
            ("0.norm", "norm1"),
            ("1.norm", "norm2"),
            ("0.fn", "attn"),
            ("1.fn", "ff"),
        ):
            parts = name.split(".")
            if parts[:2] == ["transformer", ours]:
                name = ".".join(["transformer.layers", parts[2], theirs, *parts[3:]])
        state[name] = tensor
    return state


UNFIT: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "a norm before the head": (
        lambda: Lists(head_norm=True).state_dict(),
        "mlp_head.0.weight (32,) looks like a LayerNorm before the head",
    ),
    "norms around f alone": (
        wrapped_norms,
        "layers.0.0.norm.weight: this norm wraps f alone, as in vit-pytorch",
    ),
    "a bias of the queries": (
        lambda: queries_with_bias(Encoder()),
        "the queries have a bias (up to 0.1)",
    ),
    "other frames": (
        lambda: (
            Encoder().state_dict() | {"input_embeddings.0.pos_encoding": torch.zeros(1, 51, DIM)}
        ),
        "no position embedding (99, width)",
    ),
    "no blocks": (lambda: nn.Linear(3, 4).state_dict(), "no numbered blocks"),
    "an extra tensor": (
        lambda: Encoder().state_dict() | {"second.bias": torch.zeros(7)},
        "second.bias (7,) and 0 others do not belong",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_is_refused_with_a_table(case: str, tmp_path: Path) -> None:
    make, message = UNFIT[case]
    torch.save(make(), tmp_path / "kwt.pt")
    with pytest.raises(DoesNotFit) as caught:
        import_model(tmp_path / "kwt.pt", tmp_path / "model")
    assert message in str(caught.value)
    assert {row.name for row in caught.value.rows} == set(make())
    assert not (tmp_path / "model").exists()


def test_the_command_prints_the_table(deltakwt: Any, tmp_path: Path) -> None:
    torch.save(Lists(head_norm=True).state_dict(), tmp_path / "kwt.pt")
    done = deltakwt("models", "import", tmp_path / "kwt.pt", "--out", tmp_path / "model")
    assert done.returncode == 2
    assert "transformer.attn.0.to_qkv.weight" in done.stderr
    assert "blocks.0.qkv.weight" in done.stderr
    assert "LayerNorm before the head" in done.stderr.splitlines()[-1]
    torch.save(randomised(Lists()).state_dict(), tmp_path / "kwt.pt")
    (tmp_path / "labels.txt").write_text("\n".join("abcdefghijkl"))
    options = ("--labels", tmp_path / "labels.txt", "--heads", HEADS, "--table")
    done = deltakwt("models", "import", tmp_path / "kwt.pt", "--out", tmp_path / "model", *options)
    assert done.returncode == 0, done.stderr
    assert "blocks.2.mlp_out.weight" in done.stdout
    assert "assumed: blocks compute LN(x + f(x))" in done.stderr


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    state = {"a": torch.zeros(2), "evil": Malicious()}
    torch.save(state, tmp_path / "kwt.pt")
    assert set(read_torch(tmp_path / "kwt.pt")) == {"a"}
    assert not (tmp_path / "executed").exists()


def archive(
    path: Path, content: bytes, compression: int = zipfile.ZIP_STORED, **data: bytes
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as made:
        made.writestr("kwt/data.pkl", content)
        for name, value in data.items():
            made.writestr(f"kwt/data/{name[1:]}", value)
    return path


def tensor_pickle(
    *, count: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> bytes:
    """Return a pickle of {"a": tensor} as torch writes it."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", count) if value == "here" else None

    class Tensor:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, ("here", offset, shape, strides, False, None)

    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump({"a": Tensor()})
    return buffer.getvalue()


WRONG = {
    "beyond its storage": {"count": 6, "offset": 1, "shape": (2, 3), "strides": (3, 1)},
    "more than": {"count": 6, "offset": 0, "shape": (1 << 20, 1 << 20), "strides": (0, 0)},
    "not a number": {"count": 6, "offset": 0, "shape": (2, -3), "strides": (3, 1)},
    "do not fit its shape": {"count": 6, "offset": 0, "shape": (2, 3), "strides": (1,)},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_tensor_outside_its_storage_is_refused(message: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "kwt.pt", tensor_pickle(**WRONG[message]), _0=bytes(24))
    with pytest.raises(DeltakwtError, match=message):
        read_torch(path)


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    good = tensor_pickle(count=6, offset=0, shape=(2, 3), strides=(3, 1))
    path = archive(tmp_path / "kwt.pt", good, _0=np.arange(6, dtype="<f4").tobytes())
    assert read_torch(path)["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    for content in (good[:-5], b"", b"garbage", pickle.dumps({"a": [1]}), pickle.dumps([]) * 3):
        with pytest.raises(DeltakwtError):
            read_torch(archive(path, content, _0=bytes(24)))
    with pytest.raises(DeltakwtError, match="compressed"):
        read_torch(archive(path, good, zipfile.ZIP_DEFLATED, _0=bytes(24)))
    with pytest.raises(DeltakwtError, match="damaged|shorter"):
        read_torch(archive(path, good, _0=bytes(20)))
    with pytest.raises(DeltakwtError, match="is missing"):
        read_torch(archive(path, good))
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DeltakwtError, match="since 1.6"):
        read_torch(path)
    whole = archive(path, good, _0=bytes(24)).read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(DeltakwtError):
            read_torch(path)
