"""A toy task: low and high tones are the words, a middling one is every other word."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile

import_module("deltakwt.train")  # before torch: it says how threads wait
pytest.importorskip("torch", reason='needs torch: pip install "deltakwt[train]"')

from deltakwt.core.config import SIZES, Config  # noqa: E402
from deltakwt.train.plan import Plan  # noqa: E402

TONES = {"low": 300.0, "high": 2400.0, "middle": 900.0}
LABELS = ("_silence_", "_unknown_", "low", "high")


def tone(hertz: float, seed: int) -> np.ndarray:
    """Half a second of a tone, somewhere in a second of faint noise."""
    rng = np.random.default_rng(seed)
    sound = 0.002 * rng.standard_normal(16_000)
    start, pitch = rng.integers(2_000, 6_000), hertz * rng.uniform(0.9, 1.1)
    sound[start : start + 8_000] += 0.3 * np.sin(2 * np.pi * pitch * np.arange(8_000) / 16_000)
    return sound.astype(np.float32)


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 speakers say each word once."""
    root = tmp_path_factory.mktemp("toy")
    for number, (word, hertz) in enumerate(TONES.items()):
        (root / word).mkdir()
        for speaker in range(60):
            name = f"speaker{speaker:03d}_nohash_0.wav"
            soundfile.write(root / word / name, tone(hertz, 1000 * number + speaker), 16_000)
    noise = 0.1 * np.random.default_rng(0).standard_normal(48_000)
    (root / "_background_noise_").mkdir()
    soundfile.write(root / "_background_noise_" / "hiss.wav", noise, 16_000)
    return root


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size small enough for tests, and one of twice its width."""
    monkeypatch.setitem(SIZES, "tiny", Config(dim=16, heads=2, mlp=32, layers=2))
    monkeypatch.setitem(SIZES, "wide", Config(dim=32, heads=4, mlp=64, layers=2))


@pytest.fixture
def toy_plan(toy_data: Path) -> Plan:
    return Plan(
        data=(str(toy_data),),
        size="tiny",
        labels=LABELS,
        epochs=4,
        batch=16,
        shard=8,
        rate=3e-3,
        ema=0.9,
    )
