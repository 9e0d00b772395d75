"""Models by name: those that come with the package, and those of the KWT authors to download."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_weights import Scales
from deltakwt.core.model import Model
from deltakwt.core.setting import Profiles
from deltakwt.files import write_atomically, writing
from deltakwt.locks import locked
from deltakwt.weights.download import DownloadFailed, Progress, fetch, git_blob_id
from deltakwt.weights.folder import (
    SCALES_FILE,
    Weights,
    load_profiles,
    load_weights,
    save_folder,
    save_profiles,
)
from deltakwt.weights.quantize import load_scales

SHIPPED = Path(__file__).parent.parent / "models"  # of the authors' models, settings only
ARITHMETIC_NAMES = ("float", "fixed")
MAX_MODEL_BYTES = 64 << 20
# A fixed commit of the authors' repository; DELTAKWT_MODELS_URL names a mirror of it.
AUTHORS_URL = (
    "https://raw.githubusercontent.com/ARM-software/keyword-transformer/"
    "237e4097afd4f6851e0b82f0a8d65c2dfe8eae30"
)


@dataclass(frozen=True)
class Entry:
    """A model of the KWT authors that can be downloaded."""

    name: str
    path: str  # in their repository
    blob: str  # git's id of the file
    accuracy: str  # published, V2-12

    @property
    def url(self) -> str:
        return f"{os.environ.get('DELTAKWT_MODELS_URL') or AUTHORS_URL}/{self.path}"


def _entry(size: int, blob: str, accuracy: str) -> Entry:
    path = f"models_data_v2_12_labels/kwt{size}/tflite_non_stream/non_stream.tflite"
    return Entry(f"arm-kwt-{size}", path, blob, accuracy)


PULLABLE = {
    entry.name: entry
    for entry in (
        _entry(1, "233e35d8f785e6170832a81ac52e681dffcd921a", "97.51%"),
        _entry(2, "0cc4dd400a093d62dcc5eb92f1946437c9c9160e", "98.14%"),
        _entry(3, "a71b2ad0cc33b0388ef9f79836a7fde3b53e994c", "98.63%"),
    )
}

CARD = """# {name}

The pre-trained Keyword Transformer of Berg, O'Connor and Cruz, *Keyword Transformer: A
Self-Attention Model for Keyword Spotting* (2021), as published in ARM-software/keyword-transformer
under the Apache License 2.0. Imported from `{path}`,
git blob `{blob}`; the weights are unchanged. Published accuracy on the twelve-class task of Speech
Commands v0.02: {accuracy}.

Trained with digital silence as `_silence_`: recorded background noise is often taken for a word.
"""


def cache_folder() -> Path:
    """Return the folder of downloaded models: DELTAKWT_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("DELTAKWT_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "deltakwt"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "deltakwt"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltakwt"


def named_models() -> dict[str, Path]:
    """Return the folder of every model that can be loaded by name now."""
    homes = (
        cache_folder() / "models",
        SHIPPED,
    )  # a downloaded model replaces a shipped one of the same name
    return {
        folder.name: folder
        for home in homes
        for folder in _folders(home)
        if os.path.isfile(folder / "config.json")  # false if it may not be read
    }


def _folders(home: Path) -> list[Path]:
    """Return what is in a folder: nothing if it is absent or may not be read."""
    try:
        return sorted(home.iterdir())
    except OSError:
        return []


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the folder or .tflite file that a name or a path means."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise DeltakwtError(f"model {name_or_path!r}: give a name or a path")
    name = os.fspath(name_or_path)
    known = named_models()
    if name in known:
        return known[name]
    if _exists(name):
        return Path(name)
    if name in PULLABLE:
        raise DeltakwtError(
            f"{name}: not pulled yet; get it with: deltakwt models pull {shlex.quote(name)}"
        )
    names = ", ".join(dict.fromkeys((*known, *PULLABLE)))
    raise DeltakwtError(f"{name}: no such model; give a folder, a .tflite file or one of {names}")


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False


def load_model(name_or_path: str | os.PathLike[str], arithmetic: str | None = None) -> Model:
    """Return a model by name, from a model folder, or from a .tflite file.

    Without an arithmetic, a model with scales is computed in fixed point, and others in float.
    """
    path = resolve(name_or_path)
    weights = load_weights(path)
    profiles = load_profiles(path) if path.is_dir() else file_profiles(path)
    name = os.fspath(name_or_path)
    engine = _engine(path, weights, arithmetic, name)
    source = name if name in named_models() else str(path.resolve())
    return Model(weights.config, engine, profiles, name, source)


def _engine(path: Path, weights: Weights, arithmetic: str | None, name: str) -> Engine:
    """Return the engine of the wanted arithmetic."""
    is_name = arithmetic is None or isinstance(arithmetic, str)
    if not is_name or arithmetic not in (None, *ARITHMETIC_NAMES):
        raise DeltakwtError(
            f"arithmetic {arithmetic!r}: must be one of {', '.join(ARITHMETIC_NAMES)}"
        )
    scales = None if arithmetic == "float" else find_scales(path, weights)
    if scales is not None:
        return FixedEngine(weights.config, weights.tensors, scales, name=name)
    if arithmetic == "fixed":
        raise DeltakwtError(
            f"{name}: has no scales for fixed point; make them with:"
            f" deltakwt quantize {shlex.quote(name)} --data DIR"
        )
    return Engine(weights.config, weights.tensors, name=name)


def default_arithmetic(path: Path, weights: Weights) -> str:
    """Return the arithmetic in which a model is loaded unless told otherwise."""
    return "float" if find_scales(path, weights) is None else "fixed"


def find_scales(path: Path, weights: Weights) -> Scales | None:
    """Return the scales of a model folder, or those shipped for a file of the authors."""
    if path.is_dir():
        return load_scales(path, weights)
    shipped = _shipped_settings(git_blob_id(path))
    return None if shipped is None else load_scales(shipped, weights)


def pull(name: str, progress: Progress) -> Path:
    """Download a model of the authors, verify it, and return its model folder in the cache."""
    if name not in PULLABLE:
        raise DeltakwtError(f"{name}: cannot be pulled; choose one of {', '.join(PULLABLE)}")
    entry = PULLABLE[name]
    folder = cache_folder() / "models" / name
    if (folder / "config.json").is_file():
        return folder

    def verify(path: Path) -> None:
        if git_blob_id(path) != entry.blob:
            raise DownloadFailed(f"{entry.url}: is not the authors' file (its git blob id differs)")

    file = cache_folder() / "downloads" / f"{name}.tflite"
    with writing(folder):
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file.parent):
            fetch(entry.url, file, limit=MAX_MODEL_BYTES, verify=verify, progress=progress)
            facts = {"source": entry.url, "git_blob": entry.blob, "licence": "Apache-2.0"}
            weights = load_weights(file)
            card = CARD.format(**vars(entry))
            save_folder(folder, Weights(weights.config, weights.tensors, facts), card=card)
            _save_settings(folder, entry.blob)
    file.unlink()
    return folder


def _shipped_settings(blob: str) -> Path | None:
    """Return the folder of what comes with deltakwt for a file of the authors, by git blob id."""
    names = [entry.name for entry in PULLABLE.values() if entry.blob == blob]
    return SHIPPED / names[0] if names else None


def tuned_profiles(blob: str) -> Profiles:
    """Return the profiles that come with deltakwt for a file of the authors, by git blob id."""
    folder = _shipped_settings(blob)
    return Profiles() if folder is None else load_profiles(folder)


def _save_settings(folder: Path, blob: str) -> None:
    """Write the profiles and the scales that come with deltakwt for a file of the authors."""
    save_profiles(folder, tuned_profiles(blob))
    shipped = _shipped_settings(blob)
    if shipped is not None and (shipped / SCALES_FILE).is_file():
        write_atomically(folder / SCALES_FILE, (shipped / SCALES_FILE).read_bytes())


def file_profiles(file: Path) -> Profiles:
    """Return the profiles of a .tflite file that is loaded directly. None of them is default."""
    return Profiles(tuned_profiles(git_blob_id(file)).profiles)


def import_tflite(file: Path, folder: Path) -> Weights:
    """Write a .tflite file of the authors as a new model folder, and return its weights."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeltakwtError(f"{folder}: exists already; choose another --out")
    weights = load_weights(file)
    card = f"# {folder.name}\n\nImported from the KWT authors' `{file.name}` (Apache-2.0).\n"
    existed = folder.exists()
    try:
        save_folder(folder, weights, card=card)
        _save_settings(folder, git_blob_id(file))
    except OSError as error:
        if not existed:
            shutil.rmtree(folder, ignore_errors=True)
        raise DeltakwtError(f"{folder}: cannot be written: {error.strerror}") from error
    return weights
