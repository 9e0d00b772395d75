"""Measurements of other commands in the card of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deltakwt.train.card_figures import update

CARD = """# kwt-0

## Profiles

None yet.

## Limits

- Words.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    group = {"accuracy": 95.125, "macs_percent": 15.0, "mhsa_percent": 12.0}
    profile = {
        "front_end": {"smooth": True, "floor": 0.0, "quantile": 0.2},
        "measured": {"groups": {"words": group, "noise": group | {"macs_percent": 7.0}}},
    }
    profiles = {"default": "accurate", "profiles": {"accurate": profile}}
    (tmp_path / "profiles.json").write_text(json.dumps(profiles))
    (tmp_path / "README.md").write_text(CARD)
    return tmp_path


def written(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


def stream(snr: float, missed: float, negatives: dict[str, float]) -> dict[str, Any]:
    """The output of `stress --json`, as far as a card shows it."""
    figures = [{"false_accepts_per_hour": value} for value in negatives.values()]
    decided = {"miss_percent": missed, "confusions_per_hour": 3.0, "negatives": figures}
    return {
        "scenario": {"snr": snr},
        "decision": {"on": 0.9, "smooth": 5, "words": {}},
        "negatives": [{"folder": name, "hours": 5.4} for name in negatives],
        "settings": [{"setting": "accurate", "decided": decided}],
    }


def test_a_card_shows_profiles_conditions_and_listening(folder: Path) -> None:
    row = {"condition": "telephone", "clips": 725, "accuracy": {"dense": 0.93, "accurate": 0.92}}
    robustness = written(folder / "r.json", {"conditions": [row]})
    quiet = written(folder / "s20.json", stream(20, 6.25, {"/data/Libri/clean": 2.51}))
    loud = written(folder / "s10.json", stream(10, 12.0, {}))
    update(folder, robustness, [quiet, loud])
    card = (folder / "README.md").read_text()
    for line in (
        "| `accurate` | smooth | 95.12% |  | 95.12% | 12.0% | 15.0% | 7.0% |",
        "| condition | clips | dense | `accurate` |",
        "| telephone | 725 | 93.0 | 92.0 |",
        "| commands missed among sounds, 20 dB / 10 dB | 6.2 / 12.0% |",
        "| confusions per hour, 20 dB / 10 dB | 3 / 3 |",
        "| false accepts per hour, Libri/clean (5.4 h) | 2.5 |",
    ):
        assert line in card, line
    titles = [line for line in card.splitlines() if line.startswith("## ")]
    assert titles == ["## Profiles", "## Under other conditions", "## Listening", "## Limits"]
    assert card.endswith("## Limits\n\n- Words.\n")


def test_a_second_update_replaces_the_sections(folder: Path) -> None:
    old = written(folder / "old.json", stream(20, 6.0, {}))
    new = written(folder / "new.json", stream(20, 5.0, {}))
    update(folder, None, [old])
    update(folder, None, [new])
    once = (folder / "README.md").read_text()
    assert "| 5.0% |" in once
    assert "| 6.0% |" not in once
    update(folder)
    assert (folder / "README.md").read_text() == once
