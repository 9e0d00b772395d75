"""A model file (`export --target bin`) that is refused takes no memory and no time."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from shutil import which

import pytest

from deltakwt.core.config import Config
from deltakwt.core.setting import Setting
from deltakwt.export.binary import model_file
from deltakwt.export.model import Export
from deltakwt.listen.decision import Decision
from deltakwt.weights.folder import random_tensors

NATIVE = Path(__file__).parents[2] / "native"
SMALL = Config(dim=2, heads=1, mlp=2, layers=1, labels=("_silence_", "yes"))
NO_FILE, BAD_FILE = 7, 8  # dk_status

OPEN = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
file = ctypes.create_string_buffer(4096)
def memory():
    kinds = {}
    for line in open("/proc/self/status"):
        name, _, value = line.partition(":")
        if name in ("VmHWM", "RssAnon"):
            kinds[name] = int(value.split()[0]) / 1024
    return kinds
before = memory()
status = library.dk_model_open(sys.argv[2].encode(), file)
after = memory()
print(status, after["VmHWM"] - before["VmHWM"], after["RssAnon"] - before["RssAnon"])
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux" or not which("cc"):
        pytest.skip("needs Linux and a C compiler")
    out = tmp_path_factory.mktemp("library") / "libdeltakwt.so"
    places = ("*.c", "fixed/*.c", "kernels/*scalar.c")
    sources = [path for place in places for path in sorted((NATIVE / "src").glob(place))]
    command = ["cc", "-std=c11", "-O0", "-fPIC", "-shared", f"-I{NATIVE}/include"]
    subprocess.run([*command, *map(str, sources), "-lm", "-o", str(out)], check=True)
    return out


def opened(library: Path, path: Path) -> tuple[int, float, float]:
    """Return the status of dk_model_open, and by how many MB all and private memory grew."""
    command = [sys.executable, "-c", OPEN, str(library), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    status, resident, private = done.stdout.split()
    return int(status), float(resident), float(private)


def content() -> bytearray:
    tensors = random_tensors(SMALL)
    return bytearray(model_file(Export("a", SMALL, tensors, "f32", Setting(), Decision())))


def test_the_file_itself_is_read(library: Path, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(content())
    assert opened(library, tmp_path / "a.bin")[0] == 0


def test_a_small_model_in_a_huge_file_is_refused_at_once(library: Path, tmp_path: Path) -> None:
    """Its checksum would be over 64 GB of zeros: many minutes."""
    data, size = content(), 64 << 30
    struct.pack_into("<Q", data, 16, size)
    with (tmp_path / "a.bin").open("wb") as file:
        file.write(data)
        file.truncate(size)  # takes no room on the disk
    status, resident, _ = opened(library, tmp_path / "a.bin")
    assert status == BAD_FILE
    assert resident < 4


def test_a_large_model_with_a_bad_checksum_takes_no_private_memory(
    library: Path, tmp_path: Path
) -> None:
    """The file is mapped: the system can drop its pages at any time."""
    config = Config(dim=512, heads=1, mlp=1024, layers=10, labels=SMALL.labels)
    steps = [-(-4 * math.prod(shape) // 64) * 64 for shape in config.shapes().values()]
    data = content()
    weights = struct.unpack_from("<Q", data, 152)[0]
    struct.pack_into("<4I", data, 32, config.dim, 1, config.mlp, config.layers)
    size = weights + sum(steps)
    struct.pack_into("<Q", data, 16, size)
    assert size > 64 << 20
    with (tmp_path / "a.bin").open("wb") as file:
        file.write(data[:weights])
        file.truncate(size)
    status, _, private = opened(library, tmp_path / "a.bin")
    assert status == BAD_FILE
    assert private < 4


def test_padding_has_a_limit(library: Path, tmp_path: Path) -> None:
    for more, expected in ((64, 0), (4096, BAD_FILE)):
        data = content() + bytes(more)
        struct.pack_into("<Q", data, 16, len(data))
        struct.pack_into("<I", data, 24, zlib.crc32(data[32:]))
        (tmp_path / "a.bin").write_bytes(data)
        assert opened(library, tmp_path / "a.bin")[0] == expected


def test_a_pipe_is_no_model_file(library: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.bin")
    assert opened(library, tmp_path / "a.bin")[0] == NO_FILE
