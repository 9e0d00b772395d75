"""The profiles that come with models: they exist, state what was measured, and save MACs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deltakwt.core.macs import dense_macs
from deltakwt.core.model import Model, load
from deltakwt.data.speech_commands import draw, read
from deltakwt.weights.registry import SHIPPED, import_tflite

MODELS = sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


@pytest.fixture(params=[*MODELS, "the authors' KWT-1"])
def tuned(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    if request.param in MODELS:
        return load(request.param)
    import_tflite(request.getfixturevalue("arm_kwt1"), tmp_path / "imported")
    return load(tmp_path / "imported")


def automatic(model: Model) -> tuple[str, ...]:
    """Return the names of the profiles that a tuning without goals makes, the default first."""
    assert model.profiles.default is not None
    return (model.profiles.default, "balanced", "fast")


def test_a_model_has_its_profiles_with_figures_and_commands(tuned: Model) -> None:
    assert tuned.setting == tuned.profiles[automatic(tuned)[0]].setting
    for name in automatic(tuned):
        profile = tuned.profiles[name]
        measured = profile.measured
        low, high = measured["loss_interval"]
        assert low <= measured["loss"] <= high
        if tuned.config.dim >= 64:  # on a narrower model, comparing costs as much as it saves
            assert measured["ms"] < measured["dense_ms"]
        assert measured["data"] != measured["searched"]
        assert profile.command.startswith("deltakwt tune ")
    costs = [tuned.profiles[name].measured["macs_percent"] for name in automatic(tuned)]
    assert costs == sorted(costs, reverse=True)


def test_profiles_do_on_real_clips_what_they_say(tuned: Model, shared: Path) -> None:
    manifest = draw(shared / "data" / "speech_commands_test_set_v0.02", "test", limit=60, seed=1)
    audio = np.stack([read(manifest, clip) for clip in manifest.clips])
    dense = tuned.engine.batch(audio).logits.argmax(axis=1)
    for name in automatic(tuned):
        profile = tuned.profiles[name]
        batch = tuned.engine.batch(audio, profile.setting)
        assert (batch.logits.argmax(axis=1) == dense).mean() >= 0.88
        assert batch.macs is not None
        whole = 100 * batch.macs.sum(axis=(1, 2)).mean() / dense_macs(tuned.config).sum()
        groups = {n: g["macs_percent"] for n, g in profile.measured["groups"].items()}
        expected = (10 * groups["words"] + groups["unknown"] + groups["zero"]) / 12  # as drawn
        assert whole == pytest.approx(expected, rel=0.25)
