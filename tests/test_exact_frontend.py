"""The front end gives the same bits in NumPy and in every instruction set."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, PROJECT

from deltakwt.core import exact_frontend, frontend
from deltakwt.core.native import FrontEnd, available_isas
from deltakwt.core.setting import PLAIN, FrontEndSetting

STABLE = FrontEndSetting(smooth=True, floor=2.0)


def sounds() -> dict[str, np.ndarray]:
    """Real clips, silence, one sample, noise from inaudible to far too loud, and a sine."""
    dice = np.random.default_rng(5)
    time = np.arange(16000) / 16000
    made = {path.stem: soundfile.read(path, dtype="float32")[0] for path in CLIPS.glob("*.flac")}
    made = {name: np.resize(sound, 16000) for name, sound in made.items()}
    made["zero"] = np.zeros(16000)
    made["impulse"] = np.eye(1, 16000, 8000)[0] / 32768
    made["sine"] = np.sin(2 * np.pi * 1000 * time)
    for level in (1e-6, 1e-3, 1.0, 1e6):
        made[f"noise {level}"] = dice.normal(size=16000) * level
    return {name: sound.astype(np.float32) for name, sound in made.items()}


@pytest.mark.parametrize("front_end", [PLAIN, STABLE], ids=["plain", "stable"])
def test_every_instruction_set_has_the_bits_of_the_definition(front_end: FrontEndSetting) -> None:
    engines = [FrontEnd(isa) for isa in available_isas()]
    for name, sound in sounds().items():
        expected = exact_frontend.mfcc(sound, front_end)
        assert np.abs(expected).max() > 0
        for engine in engines:
            got = engine.features(sound, front_end)
            np.testing.assert_array_equal(
                got.view(np.int32), expected.view(np.int32), err_msg=f"{engine.isa} {name}"
            )


def test_streams_have_the_same_bits_in_every_instruction_set() -> None:
    sound = np.concatenate(list(sounds().values()))[: 4 * 16000]
    rows = []
    for isa in available_isas():
        stream = FrontEnd(isa).stream(STABLE)
        rows.append(np.concatenate([stream.push(part) for part in np.array_split(sound, 37)]))
    assert all(np.array_equal(rows[0], other) for other in rows[1:])


def test_the_definition_is_close_to_double_precision() -> None:
    sound = soundfile.read(CLIPS / "yes.flac", dtype="float32")[0][:16000]
    difference = exact_frontend.mfcc(sound) - frontend.mfcc(sound)
    assert np.abs(difference).max() < 2e-3


def test_the_authors_clips_have_the_same_bits(shared: Path) -> None:
    engines = [FrontEnd(isa) for isa in available_isas()]
    folder = shared / "data" / "speech_commands_test_set_v0.02"
    for path in sorted(folder.glob("*/*.wav"))[::250]:
        sound = np.resize(soundfile.read(path, dtype="float32")[0], 16000)
        expected = exact_frontend.mfcc(sound)
        for engine in engines:
            np.testing.assert_array_equal(engine.features(sound), expected)


def test_another_processor_has_the_same_bits(tmp_path: Path) -> None:
    """The front end for aarch64, scalar and NEON, under qemu."""
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool} (see tests/apt-packages.txt)")
    native, program = PROJECT / "native", tmp_path / "print_features"
    names = ("cpu.c", "frontend.c", "tables.c", "kernels/scalar.c", "kernels/neon.c")
    flags = ["-std=c11", "-O2", "-static", "-ffp-contract=off", "-DDK_HAVE_NEON"]
    sources = [PROJECT / "tests/native/print_features.c", *(native / "src" / n for n in names)]
    include = f"-I{native / 'include'}"
    subprocess.run(
        ["aarch64-linux-gnu-gcc", *flags, include, *sources, "-lm", "-o", program], check=True
    )
    sound = sounds()["sentence"]
    (tmp_path / "sound.raw").write_bytes(sound.tobytes())
    done = subprocess.run(
        ["qemu-aarch64", program, tmp_path / "sound.raw"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["scalar", "scalar", "neon", "neon"]
    quantile = FrontEndSetting(smooth=True, floor=2.0, quantile=0.1)
    for line, front_end in zip(lines, [PLAIN, quantile] * 2, strict=True):
        expected = exact_frontend.mfcc(sound, front_end).view(np.uint32).ravel()
        assert [int(bits, 16) for bits in line[1:]] == expected.tolist()
