"""Write an exported folder: sources of the core, the model as constants, and build files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import read_clip
from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.errors import DeltakwtError, DiskFailed
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.setting import Thresholds
from deltakwt.export.model import Export
from deltakwt.export.readme import readme_source
from deltakwt.export.sources import (
    clips_source,
    config_source,
    profile_source,
    tables_source,
    weights_source,
)
from deltakwt.locks import locked

LOCAL_INCLUDE = re.compile(r'#include "(?:[\w.]+/)+([\w.]+)"')
WORD = Path(__file__).parent / "right.flac"  # "right", spoken by espeak-ng

# The files of the core that a microcontroller needs. The export puts them into one folder.
CORE = (
    "include/deltakwt.h",
    "include/deltakwt_decision.h",
    "include/deltakwt_fixed.h",
    "src/internal.h",
    "src/frontend.c",
    "src/stream.c",
    "src/fixed_features.c",
    "src/fixed/fixed_arithmetic.h",
    "src/decider.h",
    "src/decider.c",
    "src/window.h",
    "src/window.c",
    "src/kernels/scalar.c",
    "src/kernels/energies.inc.h",
)


def native_folder() -> Path:
    """Return the folder of the C sources, in the installed package or in the source tree."""
    package = Path(__file__).parent / "native"
    folder = package if package.is_dir() else Path(__file__).parents[3] / "native"
    if not (folder / "mcu" / "src").is_dir():
        raise DeltakwtError(f"{folder}: the C sources are missing; reinstall deltakwt")
    return folder


def word_samples() -> NDArray[np.int16]:
    """Return the word of the self-test, (16000,) samples."""
    return int16_samples(read_clip(WORD))


def int16_samples(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return sound in [-1, 1] as 16-bit samples."""
    return np.rint(sound * 32768).clip(-32768, 32767).astype(np.int16)


def run_clip(
    export: Export, engine: FixedEngine, samples: NDArray[np.int16], thresholds: Thresholds
) -> tuple[NDArray[np.int32], int]:
    """Return the integer logits of one clip, with the front end of the export, and its MACs."""
    features = engine.features(samples.astype(np.float32) / 32768, export.setting.front_end)
    found = engine.integers(engine.quantized(features)[None], thresholds, 1, counted=True)
    return found[0][0], int(found[1].sum())


def write_folder(export: Export, out: Path) -> None:
    """Write the export into `out`, which must be new or empty. After a failure, remove it again."""
    export.check_board()
    existed = out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise DeltakwtError(f"{out}: is a file; choose another --out") from None
    except OSError as error:
        raise DeltakwtError(f"{out}: cannot be made: {error.strerror}") from error
    with locked(out):
        if any(out.iterdir()):
            raise DeltakwtError(f"{out}: exists already and is not empty; choose another --out")
        try:
            _write(export, out)
        except BaseException as error:
            _remove(out, keep_folder=existed)
            if isinstance(error, OSError | shutil.Error):
                raise _unwritable(out, error) from error
            raise


def _remove(out: Path, keep_folder: bool) -> None:
    """Remove what was written of an export that failed."""
    for entry in out.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if not keep_folder:
        out.rmdir()


def _unwritable(out: Path, error: OSError) -> DeltakwtError:
    if isinstance(error, shutil.Error):  # copytree's list of (from, to, "[Errno 28] Reason: ...")
        _, to, reason = error.args[0][0]
        short = re.sub(r"\[Errno \d+\] ([^:]*).*", r"\1", str(reason))
        return DiskFailed(f"{to}: cannot be written: {short}")
    return DeltakwtError(f"{out}: cannot be written: {error.strerror}")


def _write(export: Export, out: Path) -> None:
    _copy_sources(out)
    engine = export.engine("scalar")
    thresholds = export.setting.thresholds or Thresholds()  # without: all sites are dense
    word, silence = word_samples(), np.zeros(CLIP_SAMPLES, np.int16)
    dense, dense_macs = run_clip(export, engine, word, Thresholds())
    delta, word_macs = run_clip(export, engine, word, thresholds)
    macs = {
        'the word of the self-test, "right"': word_macs,
        "digital silence": run_clip(export, engine, silence, thresholds)[1],
    }
    made = {
        "README.md": readme_source(export, dense_macs, macs),
        "src/config.h": config_source(export),
        "src/profile.c": profile_source(export),
        "src/weights.c": weights_source(export),
        "src/tables.c": tables_source(export.config.hop_samples),
        "test/clips.c": clips_source(word, dense, delta),
    }
    for name, text in made.items():
        (out / name).write_text(text, encoding="utf-8")


def _copy_sources(out: Path) -> None:
    native = native_folder()
    shutil.copytree(native / "mcu", out, dirs_exist_ok=True)
    for name in CORE:
        text = (native / name).read_text(encoding="utf-8")
        flat = LOCAL_INCLUDE.sub(r'#include "\1"', text)  # one folder for all
        if name.endswith("internal.h"):
            flat = flat.replace(
                '#include "deltakwt.h"', '#include "config.h"\n#include "deltakwt.h"'
            )
        (out / "src" / Path(name).name).write_text(flat, encoding="utf-8")
