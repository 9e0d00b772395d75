"""Reading a file that is refused takes at most 64 MB more than an idle process.

For every reader there is a file that is as large as it may be and wrong at its end.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import soundfile
from safetensors.numpy import save_file
from test_containers import large_comment, large_tag
from tflite_writer import authors_names, write, write_shared

from deltakwt.core.config import KWT3, Config
from deltakwt.weights.folder import config_document, random_tensors

LIMIT_MB = 64

MEASURE = """
import resource, sys, time
from pathlib import Path
from deltakwt.audio import one_clip, read_blocks
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import load_manifest
from deltakwt.evaluate.review import read_answers
from deltakwt.files import read_json_lines
from deltakwt.listen.saved import read_saved
from deltakwt.weights.download import unpack
from deltakwt.weights.folder import load_weights
from deltakwt.weights.folder import load_profiles
from deltakwt.weights.importing import import_model
import onnx, safetensors, soundfile, soxr
path = Path(sys.argv[2])
readers = {
    "model": lambda: load_weights(path),
    "profiles": lambda: load_profiles(path),
    "import": lambda: import_model(path, path.parent / "imported"),
    "manifest": lambda: load_manifest(path, path.parent),
    "lines": lambda: list(read_json_lines(path, 16 << 20)),
    "events": lambda: read_saved(path),
    "answers": lambda: read_answers(path),
    "sound": lambda: [None for _ in read_blocks(path)],
    "clip": lambda: one_clip(path),
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


def model_of(size: Config, path: Path) -> Path:
    (path / "config.json").write_text(json.dumps(config_document(size, {})))
    return path / "model.safetensors"


LARGEST = Config(dim=1024, heads=1, layers=64, mlp=4096, labels=("a", "b"))
LARGE = Config(dim=512, heads=1, layers=16, mlp=2048, labels=("a", "b"))  # 200 MB


def huge_header(path: Path) -> Path:
    """A model folder whose safetensors header has 90 MB of text."""
    header = b'{"' + b"a" * (90 << 20)
    model_of(LARGEST, path).write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def many_tensors(path: Path) -> Path:
    """A header of 1 MB with as many tensors as fit."""
    entry = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = ("{" + ",".join(entry % number for number in range(17_500)) + "}").encode()
    assert len(header) <= 1 << 20
    model_of(LARGEST, path).write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def not_finite(path: Path) -> Path:
    """200 MB of weights, the last of which is infinite."""
    header, at = {}, 0
    for name, shape in LARGE.shapes().items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with model_of(LARGE, path).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)  # a sparse file: no disk space is used
        file.seek(-4, io.SEEK_END)
        file.write(struct.pack("<f", np.inf))
    return path


def too_large(path: Path) -> Path:
    with model_of(KWT3, path).open("wb") as file:
        file.truncate(1 << 30)
    return path


def largest_tflite(path: Path) -> Path:
    """A KWT-3 in a file of 32 MiB whose last weight is NaN."""
    tensors = random_tensors(KWT3)
    tensors["head.bias"][-1] = np.nan
    content = write(authors_names(KWT3, tensors))
    (path / "a.tflite").write_bytes(content + bytes((32 << 20) - len(content)))
    return path / "a.tflite"


def torch_file(pickle: bytes, values: int = 0) -> Callable[[Path], Path]:
    """A file of torch.save with that pickle, and one storage of so many zeros."""

    def make(path: Path) -> Path:
        with zipfile.ZipFile(path / "a.pt", "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("a/data.pkl", pickle)
            archive.writestr("a/data/0", bytes(4 * values))
        return path / "a.pt"

    return make


def other_safetensors(path: Path) -> Path:
    """12 million weights of no Transformer, which is as many as a file may have."""
    save_file({f"a{n}": np.zeros(1 << 20, np.float32) for n in range(12)}, path / "a.safetensors")
    return path / "a.safetensors"


def other_onnx(path: Path) -> Path:
    """23 MB of weights, and no graph."""
    values = np.zeros(1_150_000, np.float32)
    weights = [onnx.numpy_helper.from_array(values, f"a{n}") for n in range(5)]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], weights))
    (path / "a.onnx").write_bytes(model.SerializeToString())
    return path / "a.onnx"


# {"a": a tensor of 12 million values in the storage "0"}, as torch.save writes it
TENSOR = (
    b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
    b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ\x00\x00\xc0\x00tQK\x00"
    b"J\x00\x00\xc0\x00\x85K\x01\x85\x89}tRs."
)


def config_of(content: bytes) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        (path / "config.json").write_bytes(content)
        return path

    return make


def lines_of(name: str, line: str, count: int, bad: str) -> Callable[[Path], Path]:
    """Very many good lines, then a bad one."""

    def make(path: Path) -> Path:
        with (path / name).open("w") as file:
            file.writelines(line % number for number in range(count))
            file.write(bad)
        return path

    return make


WIDE = ", ".join(["0.5"] * 60)
EVENT = '{"file": "%d.wav", "label": "yes", "score": 0.9, "clip": 0.5, "more": [' + WIDE + "]}\n"
ANSWER = '{"file": "' + "a" * 3000 + '%d.wav", "label": "yes"}\n'


def clips_of(path: Path) -> Path:
    """A manifest with as many clips as a manifest may have values, and a path that leads out."""
    clip = '{"path": "yes/%d.wav", "label": "yes", "offset": 0}'
    clips = ",".join(clip % number for number in range(99_000))
    last = '{"path": "../x", "label": "yes", "offset": 0}'
    text = (
        f'{{"format": 1, "split": "test", "silence": "zero", "seed": 0, "clips": [{clips},{last}]}}'
    )
    (path / "manifest.json").write_text(text)
    return path / "manifest.json"


def sound_of(rate: int, channels: int, seconds: float) -> Callable[[Path], Path]:
    """Silence in 32-bit floats, then NaN."""

    def make(path: Path) -> Path:
        samples = np.zeros((int(rate * seconds), channels), np.float32)
        samples[-1] = np.nan
        soundfile.write(path / "a.wav", samples, rate, subtype="FLOAT")
        return path / "a.wav"

    return make


def long_header(path: Path) -> Path:
    """A WAV file that says it has 1.9 GB, and has 100 bytes of it."""
    sizes = struct.pack("<IHHIIHH", 16, 1, 2, 16_000, 64_000, 4, 16)
    data = struct.pack("<4sI", b"data", 1_900_000_000) + bytes(100)
    (path / "a.wav").write_bytes(b"RIFF\xff\xff\xff\x70WAVEfmt " + sizes + data)
    return path / "a.wav"


def cut_flac(path: Path) -> Path:
    """The first half of a FLAC file of 10 million samples."""
    samples = np.random.default_rng(0).normal(0, 0.1, (4096, 2)).astype(np.float32)
    with soundfile.SoundFile(path / "b.flac", "w", 48_000, 2) as file:
        for _ in range(1200):
            file.write(samples)
    content = (path / "b.flac").read_bytes()
    (path / "a.flac").write_bytes(content[: len(content) // 2])
    return path / "a.flac"


CASES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "tflite with shared buffers": ("model", shared_buffers),
    "tflite of zeros": ("model", zeros),
    "largest tflite": ("model", largest_tflite),
    "safetensors header": ("model", huge_header),
    "very many tensors": ("model", many_tensors),
    "weights that are not finite": ("model", not_finite),
    "more weights than the shape has": ("model", too_large),
    "config of lists": ("model", config_of(b'{"labels": [' + b"[]," * 340_000 + b"1]}")),
    "config of text": ("model", config_of(b'{"labels": ["' + b"a" * 1_000_000 + b'"]}')),
    "config of 120 MB": ("model", config_of(b"[" * (120 << 20))),
    "torch pickle of dictionaries": ("import", torch_file(b"\x80\x02" + b"}" * 399_000 + b".")),
    "torch pickle with memo": ("import", torch_file(b"\x80\x04" + b"}\x94" * 199_000 + b".")),
    "torch weights of no Transformer": ("import", torch_file(TENSOR, 12 << 20)),
    "safetensors of no Transformer": ("import", other_safetensors),
    "ONNX of no Transformer": ("import", other_onnx),
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
    "very many clips": ("manifest", clips_of),
    "events": ("events", lines_of("events.jsonl", EVENT, 50_000, "{}\n")),
    "answers": ("answers", lines_of("reviewed.jsonl", ANSWER, 40_000, "{}\n")),
    "sound with NaN": ("sound", sound_of(16_000, 1, 900)),
    "sound of 1 kHz with NaN": ("sound", sound_of(1_000, 1, 4_000)),
    "sound of 768 kHz with NaN": ("sound", sound_of(768_000, 8, 3)),
    "sound of 64 channels with NaN": ("sound", sound_of(16_000, 64, 20)),
    "long clip of 1 kHz": ("clip", sound_of(1_000, 1, 4_000)),
    "WAV that is cut short": ("sound", long_header),
    "FLAC that is cut short": ("sound", cut_flac),
    "Ogg with long comments": ("sound", large_comment),
    "MP3 with a large tag": ("sound", large_tag),
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
