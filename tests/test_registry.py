"""Models by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from webserver import Site

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights import registry
from deltakwt.weights.registry import cache_folder, import_tflite, named_models, pull, resolve


def test_names_and_paths(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert resolve(random_model) == random_model
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "shipped")
    shutil.copytree(random_model, tmp_path / "shipped" / "ours")
    shutil.copytree(random_model, cache_folder() / "models" / "pulled")
    (cache_folder() / "models" / "half").mkdir()
    assert set(named_models()) == {"ours", "pulled"}
    monkeypatch.chdir(random_model.parent)
    assert resolve("ours") == tmp_path / "shipped" / "ours"
    assert resolve("random") == Path("random")
    with pytest.raises(DeltakwtError, match="no such model.*ours"):
        resolve("theirs")
    with pytest.raises(DeltakwtError, match="no such model"):
        resolve("../shipped")


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DELTAKWT_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "deltakwt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "deltakwt"


def test_a_pulled_model_is_not_pulled_again(
    site: Site, arm_kwt1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAKWT_MODELS_URL", site.url)
    entry = registry.PULLABLE["arm-kwt-1"]
    site.files[f"/{entry.path}"] = arm_kwt1.read_bytes()
    first = pull("arm-kwt-1", lambda *_: None)
    assert pull("arm-kwt-1", lambda *_: None) == first
    assert len(site.requests) == 1
    card = (first / "README.md").read_text()
    assert entry.blob in card
    assert "Apache License 2.0" in card


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.tflite").write_bytes(b"hello")
    with pytest.raises(DeltakwtError, match="not a TFLite"):
        import_tflite(tmp_path / "a.tflite", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(DeltakwtError, match="exists already"):
        import_tflite(tmp_path / "a.tflite", tmp_path / "file")


def test_a_cache_that_cannot_be_read_hides_no_shipped_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAKWT_CACHE", str(tmp_path))
    (tmp_path / "models").write_text("not a folder")
    assert resolve("kwt-1").name == "kwt-1"
