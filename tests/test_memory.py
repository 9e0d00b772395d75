"""Reading a file that is refused takes at most 64 MB more than an idle process."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import write_shared

LIMIT_MB = 64

MEASURE = """
import resource, sys, time
from pathlib import Path
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import load_manifest
from deltakwt.files import read_json_lines
from deltakwt.weights.download import unpack
from deltakwt.weights.folder import load_weights
from deltakwt.weights.profiles import load_profiles
import safetensors
path = Path(sys.argv[2])
readers = {
    "model": lambda: load_weights(path),
    "profiles": lambda: load_profiles(path),
    "manifest": lambda: load_manifest(path, path.parent),
    "lines": lambda: list(read_json_lines(path, 16 << 20)),
    "archive": lambda: unpack(path, path.parent / "unpacked", lambda *_: None),
}
def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
idle = peak()
try:
    readers[sys.argv[1]]()
except DeltakwtError as error:
    print(peak() - idle, str(error)[-150:])
else:
    print("accepted")
"""


def shared_buffers(path: Path) -> Path:
    """8,000 tensors that share one buffer of 1 MB."""
    path = path / "a.tflite"
    names = [f"dense_{n}/MatMul" for n in range(8_000)]
    path.write_bytes(write_shared(names, np.zeros((512, 512), np.float32)))
    return path


def zeros(path: Path) -> Path:
    path = path / "a.tflite"
    with path.open("wb") as file:
        file.write(b"\x10\0\0\0TFL3")
        file.truncate(32 << 20)
    return path


def packed(path: Path, *chunks: bytes) -> Path:
    path = path / "a.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for chunk in chunks:
            file.write(chunk)
    return path


def pax_header(path: Path) -> Path:
    """An extended header that says it has 4 GB, and 256 MB of it."""
    entry = tarfile.TarInfo("header")
    entry.type, entry.size = tarfile.XHDTYPE, 4 << 30
    return packed(path, entry.tobuf(tarfile.GNU_FORMAT), *[bytes(1 << 20)] * 256)


def pax_headers(path: Path) -> Path:
    """Very many global headers with different keys, each with a small file behind it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for number in range(2_000):
            keys = {f"key{number}.{n}": "x" * 50 for n in range(50)}
            tar.fileobj.write(tarfile.TarInfo.create_pax_global_header(keys))
            tar.addfile(tarfile.TarInfo(f"{number}"))
        link = tarfile.TarInfo("link")
        link.type = tarfile.SYMTYPE
        tar.addfile(link)
    return packed(path, content.getvalue())


def long_name(path: Path) -> Path:
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    return packed(path, entry.tobuf(tarfile.GNU_FORMAT), *[b"a" * (1 << 20)] * 128)


def big_file(path: Path) -> Path:
    """A file of 256 MB that is packed into 1 MB."""
    entry = tarfile.TarInfo("zeros")
    entry.size = 256 << 20
    return packed(path, entry.tobuf(), *[bytes(1 << 20)] * 256)


def profiles_of(content: bytes) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        (path / "profiles.json").write_bytes(content)
        return path

    return make


def endless_profiles(path: Path) -> Path:
    (path / "profiles.json").symlink_to("/dev/zero")
    return path


def manifest_of(content: bytes) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        (path / "manifest.json").write_bytes(content)
        return path / "manifest.json"

    return make


def huge_header(path: Path) -> Path:
    """A model folder whose safetensors header has 90 MB of text."""
    from deltakwt.core.config import KWT3
    from deltakwt.weights.folder import config_document

    document = config_document(KWT3, {}) | {"dim": 1024, "heads": 1, "layers": 64, "mlp": 4096}
    (path / "config.json").write_text(json.dumps(document))
    header = b'{"' + b"a" * (90 << 20)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return path


CASES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "tflite with shared buffers": ("model", shared_buffers),
    "tflite of zeros": ("model", zeros),
    "safetensors header": ("model", huge_header),
    "one pax header": ("archive", pax_header),
    "many pax headers": ("archive", pax_headers),
    "long name": ("archive", long_name),
    "zeros": ("archive", big_file),
    "120 MB of brackets": ("profiles", profiles_of(b"[" * (120 << 20))),
    "1 MB of lists": ("profiles", profiles_of(b"[" + b"[]," * 340_000 + b"1]")),
    "link to /dev/zero": ("profiles", endless_profiles),
    "objects": ("manifest", manifest_of(b'{"clips": [' + b'{"":0},' * 199_000 + b"1]}")),
    "long text": ("manifest", manifest_of(b'{"clips": "' + b"a" * (15 << 20) + b'"}')),
    "wide text": ("manifest", manifest_of(b'{"clips": "' + "😀".encode() * (1 << 22) + b'"}')),
    "long line": ("lines", manifest_of(b'{"a": "' + b"a" * (15 << 20) + b'"}')),
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@pytest.mark.parametrize("case", CASES)
def test_a_refused_file_takes_little_memory(tmp_path: Path, case: str) -> None:
    reader, make = CASES[case]
    path = make(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, reader, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout != "accepted\n"
    assert float(done.stdout.split()[0]) < LIMIT_MB, done.stdout
