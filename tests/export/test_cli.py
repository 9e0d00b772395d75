"""The command `deltakwt export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixed_models import small_tensors

from deltakwt.cli import build
from deltakwt.cli.running import run
from deltakwt.core.config import Config
from deltakwt.weights.folder import Weights, save_folder


def test_it_writes_the_folder_and_says_how_large_it_is(
    trained: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["export", "--model", trained, "--weights", "int16", "--out", str(out)]
    assert run(build(), [*arguments, "--profile", "dense", "--hop", "0.25", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["flash_bytes"] > 1_200_000
    assert document["ram_bytes"] < 64 * 1024
    assert "dk_rule = {25, " in (out / "src" / "profile.c").read_text()
    readme = (out / "README.md").read_text()
    assert "Setting: dense" in readme
    nucleo = (
        "| NUCLEO-H743ZI (Cortex-M7) | 2,048 KB | 1024 KB | 480 MHz | 178 M of 120 M | 0.38 s |"
    )
    assert f"{nucleo} no: time |" in readme  # dense: the instructions of every product
    assert "no: flash, time" in readme  # 16-bit weights need more than a megabyte
    for name in ("library.properties", "library.json", "zephyr/module.yml", "idf_component.yml"):
        assert (out / name).is_file()


def test_a_model_without_scales_gets_them_from_clips(
    full_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(16, 1, 16, layers=1)
    save_folder(tmp_path / "model", Weights(config, small_tensors(config), {}), card="# small\n")
    command = ["export", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    assert run(build(), command) == 2
    assert "has no scales for fixed point" in capsys.readouterr().err
    assert run(build(), [*command, "--data", str(full_set)]) == 0
    assert (tmp_path / "out" / "src" / "weights.c").is_file()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--weights", "int4"], "--weights int4: must be one of f32, f16, int8, int16"),
        (["--weights", "f32"], "--weights f32: must be one of int8, int16"),
        (["--target", "rust"], "--target rust: must be one of c, bin"),
        (["--target", "bin", "--weights", "int8"], "with --target bin give f32 or int16"),
        (["--target", "bin", "--measure", "DIR"], "--measure: runs C on a board"),
        (["--front-end", "smooth_2"], "--front-end needs --thresholds"),
        (["--hop", "0.003"], "hop = 0.003: must be 0.01 to 1 second"),
    ],
)
def test_wrong_options_give_a_one_line_error(
    arguments: list[str],
    reason: str,
    random_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["export", "--model", str(random_model), "--out", str(tmp_path / "out"), *arguments]
    assert run(build(), command) == 2
    message = capsys.readouterr().err
    assert reason in message
    assert message.count("\n") == 1
    assert not (tmp_path / "out").exists()
