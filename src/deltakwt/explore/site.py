"""The files of the page: its own, the engine, models and sounds.

The same files make the static page (`make web`) and the one that `deltakwt explore` serves:

    index.html, *.css, *.js    the page
    deltakwt/                  the JavaScript package with the engine
    contents.json              which models and sounds there are
    models/, sounds/           the models (`export.web`), and sounds as 16-bit WAV of 16 kHz

A model with scales is offered in fixed point, and in floats as a second file.
"""

from __future__ import annotations

import io
import json
import threading
import wave
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.audio import read_blocks
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import load
from deltakwt.export.model import Export
from deltakwt.export.web import web_model
from deltakwt.files import read_json
from deltakwt.listen.spotter import decision_of
from deltakwt.weights.folder import load_weights
from deltakwt.weights.quantize import checksum
from deltakwt.weights.registry import SHIPPED, find_scales, resolve

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".dkw": "application/octet-stream",
    ".wav": "audio/wav",
}
PACKAGE_FILES = (
    "index.js", "calls.js", "engine.js", "model.js", "resample.js", "setting.js", "stream.js",
    "worker.js", "worklet.js", "deltakwt.wasm", "deltakwt-relaxed.wasm",
)  # fmt: skip
# Accuracy and MACs over the thresholds of a model, made by benchmarks/page_curves.py.
CURVES_FILE = "curves.json"
MAX_SECONDS = 600  # of one sound: the page holds it in memory

Read = Callable[[], bytes]


def web_folder() -> Path:
    """Return the folder of the page: in the installed package, or `web` of a source tree."""
    package = Path(__file__).parent / "web"
    folder = package if package.is_dir() else Path(__file__).parents[3] / "web"
    if not (folder / "deltakwt.wasm").is_file():
        raise DeltakwtError(f"{folder}: the page's files are missing; install deltakwt again")
    return folder


def shipped_models(first: str) -> list[str]:
    """Return the models that come with deltakwt, this one first."""
    others = (path.parent.name for path in sorted(SHIPPED.glob("*/config.json")))
    return [first, *(name for name in others if name != first)]


@dataclass(frozen=True)
class Site:
    """Every file of the page by its path. Nothing else can be asked for."""

    files: dict[str, Read]

    @classmethod
    def of(
        cls,
        models: Sequence[str],
        sounds: Sequence[Path],
        *,
        is_live: bool = False,
        is_kept: bool = False,
    ) -> Site:
        """Return the page with these models (names or folders) and sound files.

        A live page follows the sound of the server. A kept page opens again without its server.
        """
        folder = web_folder()
        page = (path for path in sorted((folder / "page").iterdir()) if path.suffix in TYPES)
        files: dict[str, Read] = {path.name: path.read_bytes for path in page}
        files |= {f"deltakwt/{name}": (folder / name).read_bytes for name in PACKAGE_FILES}
        contents: dict[str, object] = {"live": is_live}
        own = list(files)
        contents["models"] = [_add_model(files, n, name) for n, name in enumerate(models)]
        contents["sounds"] = [_add_sound(files, n, str(path)) for n, path in enumerate(sounds)]
        sounds_there = [name for name in files if name.startswith("sounds/")]
        contents["offline"] = [*own, "models/0.dkw", *sounds_there] if is_kept else []
        files["contents.json"] = partial(_encoded, contents)
        return cls(files)

    def static_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the bytes of every file."""
        for name, read in self.files.items():
            yield name, read()

    def prepare(self) -> None:
        """Prepare the first model before the page asks for it; errors are reported when it does."""
        with suppress(DeltakwtError):
            self.files["models/0.dkw"]()


def _add_model(files: dict[str, Read], number: int, name: str) -> dict[str, str]:
    """Add the files of a model and return what the page shows of it."""
    path = resolve(name)
    found = {"name": _shown(name), "url": f"models/{number}.dkw"}
    if find_scales(path, load_weights(path)) is None:
        files[found["url"]] = _once(partial(_model_data, name, "float"))
        return found
    found["float"] = f"models/{number}-float.dkw"
    files[found["url"]] = _once(partial(_model_data, name, "fixed"))
    files[found["float"]] = _once(partial(_model_data, name, "float"))
    return found


def _add_sound(files: dict[str, Read], number: int, source: str) -> dict[str, str]:
    """Add a sound file and return what the page shows of it."""
    path = f"sounds/{number}.wav"
    files[path] = _once(partial(_sound_data, source))
    return {"name": Path(source).stem or source, "url": path}


def _once(read: Read) -> Read:
    """Return a function that reads when it is first called and remembers the answer."""
    known: list[bytes] = []
    lock = threading.Lock()

    def remembered() -> bytes:
        with lock:
            if not known:
                known.append(read())
            return known[0]

    return remembered


def _encoded(document: object) -> bytes:
    return json.dumps(document, allow_nan=False).encode()


def _shown(name: str) -> str:
    return Path(name).stem if Path(name).exists() else name


def _model_data(name: str, arithmetic: str) -> bytes:
    path, model = resolve(name), load(name, arithmetic=arithmetic)
    weights = load_weights(path)
    scales = find_scales(path, weights) if arithmetic == "fixed" else None
    kind = "f16" if scales is None else "int16"
    rest = (kind, model.setting, decision_of(model), scales)
    export = Export(_shown(name), weights.config, weights.tensors, *rest)
    return web_model(export, model.profiles, _curves(path, checksum(weights.tensors)))


def _curves(folder: Path, weights: str) -> dict[str, Any] | None:
    """Return what was measured over the thresholds of these weights, or None."""
    path = folder / CURVES_FILE
    document = read_json(path) if path.is_file() else {}
    return document if document.get("weights") == weights else None


def _sound_data(path: str) -> bytes:
    """Return a sound file as 16-bit WAV of 16 kHz, as every other command reads it."""
    parts, length = [], 0
    for block in read_blocks(path):
        parts.append(block)
        length += len(block)
        if length > MAX_SECONDS * SAMPLE_RATE:
            raise DeltakwtError(f"{path}: longer than {MAX_SECONDS} s; cut a part out of it")
    samples = np.clip(np.rint(np.concatenate(parts) * 32768), -32768, 32767).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(samples.tobytes())
    return out.getvalue()
