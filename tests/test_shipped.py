"""The models that come with the install: small enough, and as good as their cards say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS

from deltakwt.core.config import CLIP_SAMPLES, KEYWORDS, LABELS, SILENCE
from deltakwt.core.model import load
from deltakwt.data.speech_commands import draw
from deltakwt.evaluate.accuracy import evaluate
from deltakwt.train.card import PROFILES
from deltakwt.train.card_figures import profiles_section, with_section
from deltakwt.weights.registry import SHIPPED

MODELS = sorted(folder.name for folder in SHIPPED.iterdir() if (folder / "config.json").is_file())
MOST_BYTES = 15_000_000


def card(name: str) -> str:
    return (SHIPPED / name / "README.md").read_text()


def promised(name: str, protocol: str) -> str:
    """The accuracy in the card's first table."""
    table = card(name).split("## Accuracy")[1]
    header, row = (
        [cell.strip() for cell in line.split("|")]
        for line in table.splitlines()
        if line.startswith(("| class ", "| all "))
    )
    return row[header.index(f"v0.02 test, silence {protocol}")]


def test_together_they_are_small() -> None:
    files = [file for name in MODELS for file in (SHIPPED / name).iterdir()]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


@pytest.mark.parametrize("name", MODELS)
def test_a_card_names_its_data_commands_and_seed(name: str) -> None:
    text = card(name)
    assert "CC BY 4.0" in text
    assert "deltakwt train" in text
    assert re.search(r"--seed \d", text)
    assert not re.search(r"/(work|var|home|tmp)/", text)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_spots_the_example_words(name: str) -> None:
    model = load(name)
    missed = {word for word in KEYWORDS if model(CLIPS / f"{word}.flac").label != word}
    assert missed == set()
    assert model(CLIPS / "silence.flac").label == "_silence_"


@pytest.mark.parametrize("name", MODELS)
def test_accurate_is_what_runs_unless_something_else_is_said(name: str) -> None:
    profiles = json.loads((SHIPPED / name / "profiles.json").read_text())
    assert profiles["default"] == "accurate"
    assert {"accurate", "fast"} <= set(profiles["profiles"])


@pytest.mark.parametrize("name", MODELS)
def test_a_card_shows_the_profiles_of_its_folder(name: str) -> None:
    profiles = json.loads((SHIPPED / name / "profiles.json").read_text())
    section = profiles_section(profiles)
    assert card(name) == with_section(card(name), PROFILES, section, "")
    assert all(f"| `{profile}` |" in card(name) for profile in profiles["profiles"])


@pytest.mark.parametrize("name", MODELS)
def test_the_official_test_set_gives_the_figures_of_the_card(name: str, shared: Path) -> None:
    """With recorded noise as silence, and with digital silence, which is one clip, 408 times."""
    model = load(name)
    model.setting = "dense"
    clips = draw(shared / "data" / "speech_commands_test_set_v0.02", silence="noise")
    confusion = evaluate(model, clips).confusion
    right, silence = confusion.diagonal(), LABELS.index(SILENCE)
    is_silent = model(np.zeros(CLIP_SAMPLES, np.float32)).label == SILENCE
    zero = right.sum() - right[silence] + is_silent * confusion[silence].sum()
    for protocol, found in (("noise", right.sum()), ("zero", zero)):
        # One clip of 4,890 may fall to the other side on a processor that adds in another order.
        figure = float(promised(name, protocol).rstrip("%")) / 100
        assert found / confusion.sum() == pytest.approx(figure, abs=2.5e-4), protocol
