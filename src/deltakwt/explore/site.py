"""The files of the page: its own, the engine, models and sounds.

The same files make the static page (`make web`) and the one that `deltakwt explore` serves:

    index.html, *.css, *.js    the page
    deltakwt/                  the JavaScript package with the engine
    contents.json              which models and sounds there are
    models/, sounds/           the models (`export.web`), and sounds as 16-bit WAV of 16 kHz
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from deltakwt.audio import read_blocks
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import load
from deltakwt.export.model import Export
from deltakwt.export.web import web_model
from deltakwt.listen.spotter import decision_of
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

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
    "index.js", "engine.js", "model.js", "resample.js", "setting.js", "stream.js",
    "worker.js", "worklet.js", "deltakwt.wasm", "deltakwt-relaxed.wasm",
)  # fmt: skip
MAX_SECONDS = 600  # of one sound: the page holds it in memory

Read = Callable[[], bytes]


def web_folder() -> Path:
    """Return the folder of the page: in the installed package, or `web` of a source tree."""
    package = Path(__file__).parent / "web"
    folder = package if package.is_dir() else Path(__file__).parents[3] / "web"
    if not (folder / "deltakwt.wasm").is_file():
        raise DeltakwtError(f"{folder}: the page's files are missing; install deltakwt again")
    return folder


@dataclass(frozen=True)
class Site:
    """Every file of the page by its path. Nothing else can be asked for."""

    files: dict[str, Read]

    @classmethod
    def of(cls, models: Sequence[str], sounds: Sequence[Path], *, is_live: bool = False) -> Site:
        """Return the page with these models (names or folders) and sound files."""
        folder = web_folder()
        page = (path for path in sorted((folder / "page").iterdir()) if path.suffix in TYPES)
        files: dict[str, Read] = {path.name: path.read_bytes for path in page}
        files |= {f"deltakwt/{name}": (folder / name).read_bytes for name in PACKAGE_FILES}
        contents: dict[str, object] = {"live": is_live, "models": [], "sounds": []}
        contents["models"] = _add(files, "models", ".dkw", models, _model_data)
        contents["sounds"] = _add(files, "sounds", ".wav", [str(s) for s in sounds], _sound_data)
        files["contents.json"] = partial(_encoded, contents)
        return cls(files)

    def static_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the bytes of every file."""
        for name, read in self.files.items():
            yield name, read()


def _add(
    files: dict[str, Read],
    folder: str,
    suffix: str,
    sources: Sequence[str],
    read: Callable[[str], bytes],
) -> list[dict[str, str]]:
    """Add files with the numbers 0, 1, ... and return what the page shows of them."""
    found = []
    for number, source in enumerate(sources):
        path = f"{folder}/{number}{suffix}"
        files[path] = _once(partial(read, source))
        found.append({"name": Path(source).stem or source, "url": path})
    return found


def _once(read: Read) -> Read:
    """Return a function that reads when it is first called and remembers the answer."""
    known: list[bytes] = []

    def remembered() -> bytes:
        if not known:
            known.append(read())
        return known[0]

    return remembered


def _encoded(document: object) -> bytes:
    return json.dumps(document, allow_nan=False).encode()


def _model_data(name: str) -> bytes:
    model, weights = load(name), load_weights(resolve(name))
    known = Path(name).stem if Path(name).exists() else name
    decision = decision_of(model)
    export = Export(known, weights.config, weights.tensors, "f16", model.setting, decision)
    return web_model(export, model.profiles)


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
