"""Model folders: what is written is read back; what does not fit is refused, by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from deltakwt.core.config import KWT1, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.folder import Weights, load_weights, random_tensors, save_folder

SMALL = Config(dim=8, heads=2, mlp=16, layers=2, labels=("_silence_", "yes"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    weights = Weights(SMALL, random_tensors(SMALL), {"epochs": 3})
    save_folder(path, weights, card="# a model\n")
    return path


def test_round_trip(folder: Path) -> None:
    weights = load_weights(folder)
    assert weights.config == SMALL
    assert weights.training == {"epochs": 3}
    for name, tensor in random_tensors(SMALL).items():
        np.testing.assert_array_equal(weights.tensors[name], tensor)
        assert weights.tensors[name].dtype == np.float32
    assert (folder / "README.md").read_text() == "# a model\n"
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_half_precision_is_half_the_size_and_read_as_float32(tmp_path: Path) -> None:
    tensors = random_tensors(KWT1)
    save_folder(tmp_path, Weights(KWT1, tensors), half=True)
    assert (tmp_path / "model.safetensors").stat().st_size < 2.2 * 607_308
    found = load_weights(tmp_path).tensors
    for name, tensor in tensors.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], tensor, rtol=1e-3, atol=1e-6)


def test_weights_too_large_for_half_precision_are_not_written(tmp_path: Path) -> None:
    tensors = random_tensors(SMALL)
    tensors["positions"] = tensors["positions"] + np.float32(1e6)
    with pytest.raises(DeltakwtError, match="infinity"), np.errstate(over="ignore"):
        save_folder(tmp_path / "half", Weights(SMALL, tensors), half=True)
    assert not (tmp_path / "half").exists()


def config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        document = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(document | changes))

    return change


def tensors(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        found = load_file(path)
        for name, value in changes.items():
            name = name.replace("__", ".")
            if value is None:
                del found[name]
            else:
                found[name] = value
        save_file(found, path)

    return change


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def grow(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1 << 32)


HUGE_HEADER = (1 << 62).to_bytes(8, "little") + b"{}"
BAD = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no such file"),
    "no json": (write("config.json", b"{"), "not valid JSON"),
    "no text": (write("config.json", b"\xff\xfe\xfd"), "not valid JSON"),
    "deep json": (write("config.json", b"[" * 100_000), "not valid JSON"),
    "no object": (write("config.json", b"[]"), "must hold a JSON object"),
    "huge config": (write("config.json", b" " * (2 << 20)), "too large"),
    "other version": (config(format=2), "format 2 is not known"),
    "no version": (config(format=None), "format None is not known"),
    "huge dim": (config(dim=1 << 40), "dim must be"),
    "zero layers": (config(layers=0), "layers must be"),
    "text size": (config(mlp="256"), "mlp must be"),
    "heads": (config(heads=3), "heads must divide"),
    "labels": (config(labels=["yes", "yes"]), "labels must be"),
    "no labels": (config(labels=None), "labels must be"),
    "frames": (config(frames=49), "frames must be 98"),
    "front end": (config(front_end={"sample_rate": 8000}), "front_end differs"),
    "training": (config(training=[]), "training must be"),
    "truncated": (cut, "damaged"),
    "oversized": (grow, "at most"),
    "huge header": (write("model.safetensors", HUGE_HEADER), "damaged"),
    "no safetensors": (write("model.safetensors", b"PK\3\4" * 100), "damaged"),
    "empty": (write("model.safetensors", b""), "damaged"),
    "other shape": (config(mlp=32), "tensor blocks.0.mlp_in.weight is F32 \\[8, 16\\]"),
    "missing": (tensors(class_token=None), "class_token is missing"),
    "extra": (tensors(more=np.zeros(1, np.float32)), "tensor more"),
    "double": (tensors(class_token=np.zeros(8)), "class_token is F64"),
    "nan": (tensors(class_token=np.full(8, np.nan, np.float32)), "NaN"),
    "profiles": (write("profiles.json", b"nonsense"), "profiles"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_folders_are_refused_with_the_reason(folder: Path, kind: str) -> None:
    from deltakwt.core.model import load

    change, reason = BAD[kind]
    change(folder)
    with pytest.raises(DeltakwtError, match=reason) as error:
        load(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_not_a_model_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(DeltakwtError, match="a model is a folder or a .tflite"):
        load_weights(tmp_path / "a.txt")
    with pytest.raises(DeltakwtError, match="no such model"):
        load_weights(tmp_path / "b")


def test_a_failed_save_leaves_the_old_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save_folder(folder, Weights(SMALL, random_tensors(SMALL, seed=5)))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_copy_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert load_weights(tmp_path / "copy").config == SMALL
