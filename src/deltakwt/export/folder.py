"""Write the exported folder: sources of the core, the model as constants, what builds them."""

from __future__ import annotations

import shutil
from pathlib import Path

from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.export.clips import clips_source, hear, silence_samples, word_samples
from deltakwt.export.readme import readme_source
from deltakwt.export.settings import Export, config_source, profile_source
from deltakwt.export.tables import tables_source
from deltakwt.export.weights import weights_source

# Of the core: what a microcontroller needs, all in one folder there.
CORE = (
    "include/deltakwt.h",
    "src/internal.h",
    "src/frontend.c",
    "src/stream.c",
    "src/kernels/scalar.c",
    "src/kernels/energies.inc.h",
)


def native_folder() -> Path:
    """Where the C sources lie: in the installed package, or in the source tree."""
    package = Path(__file__).parent / "native"
    folder = package if package.is_dir() else Path(__file__).parents[3] / "native"
    if not (folder / "mcu" / "src").is_dir():
        raise DeltakwtError(f"{folder}: the C sources are missing; reinstall deltakwt")
    return folder


def write_folder(export: Export, out: Path) -> None:
    """`out` must be new or empty; on failure nothing of it is left."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DeltakwtError(f"{out}: exists already and is not empty; choose another --out")
    existed = out.exists()
    try:
        _write(export, out)
    except BaseException as error:
        if not existed:
            shutil.rmtree(out, ignore_errors=True)
        if isinstance(error, OSError):
            raise DeltakwtError(f"{out}: cannot be written: {error.strerror}") from error
        raise


def _write(export: Export, out: Path) -> None:
    native = native_folder()
    shutil.copytree(native / "mcu", out, dirs_exist_ok=True)
    source = out / "src"
    for name in CORE:
        text = (native / name).read_text(encoding="utf-8")
        flat = text.replace('#include "../internal.h"', '#include "internal.h"')
        if name.endswith("internal.h"):
            flat = flat.replace(
                '#include "deltakwt.h"', '#include "config.h"\n#include "deltakwt.h"'
            )
        (source / Path(name).name).write_text(flat, encoding="utf-8")
    engine = Engine(export.config, export.stored_tensors(), "scalar")
    word, silence = (hear(export, engine, s) for s in (word_samples(), silence_samples()))
    made = {
        "README.md": readme_source(export, word, silence),
        "src/config.h": config_source(export),
        "src/profile.c": profile_source(export),
        "src/weights.c": weights_source(export.config, export.tensors, export.kind),
        "src/tables.c": tables_source(),
        "test/clips.c": clips_source(export, word),
    }
    for name, text in made.items():
        (out / name).write_text(text, encoding="utf-8")
