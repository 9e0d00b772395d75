"""How much of its width a model uses: a copy is recognised, a true wide model must use it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS, Run
from copies import copied
from numpy.typing import NDArray

from deltakwt.audio import read_clip
from deltakwt.core.config import KEYWORDS, KWT1, KWT3
from deltakwt.core.model import load
from deltakwt.data.speech_commands import draw, read
from deltakwt.evaluate.width import MOST_CORRELATION, NARROW, measure_width
from deltakwt.train.grow import grow
from deltakwt.weights.folder import Weights, load_weights, random_tensors, read_config, save_folder
from deltakwt.weights.registry import SHIPPED, resolve

Sounds = list[NDArray[np.float32]]


def example_sounds() -> Sounds:
    return [read_clip(CLIPS / f"{word}.flac") for word in KEYWORDS]


def test_a_model_three_times_over_is_recognised_as_a_copy(trained: str, tmp_path: Path) -> None:
    narrow = load_weights(resolve(trained))
    save_folder(tmp_path / "wide", Weights(KWT3, copied(narrow.tensors, KWT3)))
    copy = measure_width(load(tmp_path / "wide"), example_sounds())
    assert min(copy.correlation.values()) > 0.999
    assert max(copy.components.values()) <= NARROW
    assert not copy.is_independent
    one_head = measure_width(load(trained, arithmetic="float"), example_sounds())
    assert one_head.correlation == {}
    assert one_head.components == copy.components  # the same tokens, three times
    assert not one_head.is_independent


def test_a_grown_model_is_no_copy(trained: str, tmp_path: Path) -> None:
    narrow = load_weights(resolve(trained))
    save_folder(tmp_path / "grown", Weights(KWT3, grow(KWT1, narrow.tensors, KWT3)))
    found = measure_width(load(tmp_path / "grown"), example_sounds())
    assert max(found.correlation.values()) < MOST_CORRELATION
    assert found.components[8] > NARROW


def test_random_weights_have_heads_that_differ(tmp_path: Path) -> None:
    save_folder(tmp_path / "random", Weights(KWT3, random_tensors(KWT3)))
    found = measure_width(load(tmp_path / "random"), example_sounds())
    assert max(found.correlation.values()) < MOST_CORRELATION
    assert found.middle == [5, 6, 7, 8]
    assert list(found.components) == list(range(2, 12))


def shipped_as_independent() -> list[str]:
    """The shipped KWT-3 whose config.json says that no narrow model was copied into it."""
    folders = [folder for folder in SHIPPED.glob("kwt-3*") if (folder / "config.json").is_file()]
    return [f.name for f in folders if read_config(f)[1].get("independent") is True]


@pytest.mark.parametrize("name", shipped_as_independent())
def test_a_true_kwt_3_uses_its_width(name: str, shared: Path) -> None:
    manifest = draw(shared / "data" / "speech_commands_test_set_v0.02", limit=60)
    sounds = [read(manifest, clip) for clip in manifest.clips if clip.path is not None]
    found = measure_width(load(name, arithmetic="float"), sounds)
    assert max(found.correlation.values()) < MOST_CORRELATION, found.correlation
    assert min(found.components[layer] for layer in found.middle) > NARROW, found.components
    card = (SHIPPED / name / "README.md").read_text()
    assert "components" in card
    assert "deltakwt models width" in card


def test_the_command_prints_both_figures(deltakwt: Run, test_set: Path, tmp_path: Path) -> None:
    save_folder(tmp_path / "wide", Weights(KWT3, random_tensors(KWT3)))
    command = ("models", "width", tmp_path / "wide", "--data", test_set, "--clips", "8")
    done = deltakwt(*command, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["dim"] == 192
    assert [row["layer"] for row in document["layers"]] == list(range(2, 12))
    assert all(0 < row["components"] <= 192 for row in document["layers"])
    printed = deltakwt(*command)
    assert "correlation of the heads" in printed.stdout
    assert f"{document['layers'][0]['head_correlation']:.3f}" in printed.stdout
