"""A toy task: low and high tones are the keywords, a middle one is every other word."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile

import_module("deltakwt.train")  # before torch: it sets how threads wait
pytest.importorskip("torch", reason="needs torch: sh scripts/install-torch.sh")

from deltakwt.train.augment import Recipe  # noqa: E402
from deltakwt.train.plan import Plan  # noqa: E402

TONES = {"low": 300.0, "high": 2400.0, "middle": 900.0}
TINY, WIDE = (16, 2, 32, 2), (32, 4, 64, 2)
LABELS = ("_silence_", "_unknown_", "low", "high")


def tone(hertz: float, seed: int) -> np.ndarray:
    """Return half a second of a tone at a random time in a second of faint noise."""
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


@pytest.fixture(scope="session")
def toy_speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 speakers talk for three seconds each: sweeps, which are no word."""
    root = tmp_path_factory.mktemp("speech")
    time = np.arange(48_000) / 16_000
    for speaker in range(30):
        sweep = 0.3 * np.sin(2 * np.pi * (400 + 40 * speaker) * time * (1 + 0.5 * np.sin(9 * time)))
        soundfile.write(root / f"p{speaker:03d}_001.wav", sweep, 16_000)
    return root


@pytest.fixture(scope="session")
def toy_sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty recordings of crackle."""
    root = tmp_path_factory.mktemp("sounds")
    rng = np.random.default_rng(5)
    for number in range(40):
        crackle = 0.5 * rng.standard_normal(40_000) * (rng.random(40_000) > 0.99)
        soundfile.write(root / f"crackle{number}.wav", crackle, 16_000)
    return root


@pytest.fixture
def toy_plan(toy_data: Path) -> Plan:
    """Half a minute of a tiny model at most; a telephone band would remove the tones."""
    return Plan(
        data=(str(toy_data),),
        shape=TINY,
        labels=LABELS,
        epochs=4,
        batch=16,
        shard=8,
        rate=3e-3,
        ema=0.9,
        recipe=Recipe(band_chance=0.0, background_chance=0.3),
    )
