"""The front end of training is the front end of the product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from deltakwt.core import frontend
from deltakwt.core.setting import FrontEndSetting
from deltakwt.train.features import mel_energies, mfcc

SETTINGS = [
    FrontEndSetting(),
    FrontEndSetting(smooth=True),
    FrontEndSetting(floor=2.0),
    FrontEndSetting(smooth=True, floor=3.0),
]


def clips(shared: Path) -> np.ndarray:
    files = sorted((shared / "data/speech_commands_v0.01/right").glob("*.wav"))[:4]
    spoken = [soundfile.read(file, dtype="float32")[0][:16_000] for file in files]
    padded = [np.pad(clip, (0, 16_000 - len(clip))) for clip in spoken]
    noise = np.random.default_rng(0).standard_normal((2, 16_000)) * [[0.1], [1e-4]]
    return np.stack([*padded, *noise, np.zeros(16_000)]).astype(np.float32)


@pytest.mark.parametrize("front_end", SETTINGS, ids=str)
def test_agrees_with_the_product_on_speech_noise_and_zero(
    shared: Path, front_end: FrontEndSetting
) -> None:
    sounds = clips(shared)
    count = len(sounds)
    ours = mfcc(
        mel_energies(torch.from_numpy(sounds)),
        torch.full((count,), front_end.smooth),
        torch.full((count,), front_end.floor),
    )
    theirs = np.stack([frontend.mfcc(sound, front_end) for sound in sounds])
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-3)


def test_every_clip_has_its_own_setting(shared: Path) -> None:
    sounds = clips(shared)[:4]
    smooth = torch.tensor([s.smooth for s in SETTINGS])
    floor = torch.tensor([s.floor for s in SETTINGS])
    ours = mfcc(mel_energies(torch.from_numpy(sounds)), smooth, floor).numpy()
    for row, front_end in enumerate(SETTINGS):
        np.testing.assert_allclose(ours[row], frontend.mfcc(sounds[row], front_end), atol=1e-3)
