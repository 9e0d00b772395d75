"""The exported model on emulated boards: the same bits as on this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import CLIPS

from deltakwt.audio import read_clip
from deltakwt.export.boards import BoardReport, make, missing_tools, run_board
from deltakwt.export.folder import int16_samples
from deltakwt.export.model import Export
from deltakwt.export.readme import EMULATED, OTHER_BYTES, STACK_BYTES, ram_bytes

WORD = "stop"  # one clip more, by semihosting, on the board that is measured


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / WORD
    int16_samples(read_clip(CLIPS / f"{WORD}.flac")).tofile(path)
    return path


@pytest.fixture(scope="module")
def here(int8_folder: Path, raw: Path) -> BoardReport:
    if missing := missing_tools("host"):
        pytest.skip(missing)
    return run_board(int8_folder, "host", [raw])


@pytest.fixture(scope="module")
def on_board(int8_folder: Path, raw: Path) -> Callable[[str], BoardReport]:
    """Run a board once for all tests."""

    @cache
    def run(board: str) -> BoardReport:
        return run_board(int8_folder, board, [raw] if board == "cortex-m7" else [])

    return run


@pytest.mark.parametrize("board", EMULATED)
def test_a_board_computes_the_bits_of_this_machine(
    board: str, on_board: Callable[[str], BoardReport], here: BoardReport
) -> None:
    if missing := missing_tools(board):
        pytest.skip(missing)
    report = on_board(board)
    assert report.board == board
    assert report.passed
    known = {clip.name: clip for clip in here.clips}
    for clip in report.clips:
        assert np.array_equal(clip.dense_logits, known[clip.name].dense_logits)
        assert np.array_equal(clip.delta_logits, known[clip.name].delta_logits)
        assert clip.macs == known[clip.name].macs
    assert report.events == here.events
    assert report.stack < STACK_BYTES
    silence = next(clip for clip in report.clips if clip.name == "silence")
    assert silence.delta * 10 < silence.dense


def test_flash_and_ram_of_the_library_alone(int8_folder: Path) -> None:
    if missing := missing_tools("cortex-m7"):
        pytest.skip(missing)
    sizes = dict(line.split() for line in make(int8_folder, "size-cortex-m7").splitlines())
    assert int(sizes["flash"]) < 680 * 1024
    # The library's own memory, the linker script's stack, and what the C library keeps.
    assert int(sizes["ram"]) < (51 + 8 + 1) * 1024


def test_ram_is_as_planned(int8: Export, on_board: Callable[[str], BoardReport]) -> None:
    if missing := missing_tools("cortex-m7"):
        pytest.skip(missing)
    assert abs(on_board("cortex-m7").ram - ram_bytes(int8) - OTHER_BYTES) < 300


def test_it_compiles_for_a_cortex_m0(int8_folder: Path, tmp_path: Path) -> None:
    """No emulated board has the memory: the engine is compiled only."""
    if missing := missing_tools("cortex-m7"):
        pytest.skip(missing)
    command = ["arm-none-eabi-gcc", "-mthumb", "-mcpu=cortex-m0plus", "-std=c11", "-O2", "-Werror"]
    for source in ("engine.c", "spotter.c", "clip.c"):
        path = int8_folder / "src" / source
        done = subprocess.run([*command, "-c", path, "-o", tmp_path / "object"], check=False)
        assert done.returncode == 0, source
