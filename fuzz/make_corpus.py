"""Write the seeds of fuzz/corpus: small good files, from which the fuzzers start.

    PYTHONPATH=src:tests python fuzz/make_corpus.py

Inputs that were findings are added to the same folders by hand and are kept.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import soundfile

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

import libfuzzer  # noqa: E402
from tflite_writer import write  # noqa: E402

from deltakwt.core.config import Config  # noqa: E402
from deltakwt.core.setting import FrontEndSetting, Setting, Thresholds  # noqa: E402
from deltakwt.export.binary import model_file  # noqa: E402
from deltakwt.export.model import Export  # noqa: E402
from deltakwt.listen.decision import Decision  # noqa: E402
from deltakwt.weights.folder import Weights, random_tensors, save_folder  # noqa: E402

SMALL = Config(dim=2, heads=1, mlp=2, layers=1, labels=("_silence_", "yes"))
PAPER = "0.2_0.2_0.2_0.05_0.001_0.05"


def seeds() -> dict[str, dict[str, bytes]]:
    """Return the seeds of every target by file name."""
    with tempfile.TemporaryDirectory() as folder:
        save_folder(Path(folder), Weights(SMALL, random_tensors(SMALL), {"epochs": 1}))
        config = (Path(folder) / "config.json").read_bytes()
        weights = (Path(folder) / "model.safetensors").read_bytes()
    return {
        "tflite": {"small": _tflite(), "empty": write([]), "mark": b"\x10\0\0\0TFL3"},
        "config": {"small": config, "short": b'{"format": 1, "dim": 2}'},
        "safetensors": {"small": weights, "empty": b"\2\0\0\0\0\0\0\0{}"},
        "profiles": {"two": _profiles(), "none": b'{"format": 1, "profiles": {}}'},
        "manifest": {"two": _manifest()},
        "events": {"two": _events()},
        "thresholds": {
            "six": PAPER.encode(),
            "nine": (PAPER + "_0.3_-_0.1").encode(),
            "layers": (b"1,2,3,4,5,6,7,8,9,10,11,12_-_0_0_0_0"),
            "front_end": b"smooth_2_0.2",
        },
        "decision": {
            "default": _json(Decision().to_json()),
            "words": _json(asdict(Decision(words={"yes": 0.5}))),
        },
        "archive": {"two": _tar(tarfile.GNU_FORMAT), "pax": _tar(tarfile.PAX_FORMAT)},
        "http": _answers(),
        "server": _requests(),
        **_native(),
    }


NEXT = b"\n--next--\n"


def _answers() -> dict[str, bytes]:
    part = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nmod"
    rest = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 3-6/7\r\nContent-Length: 4\r\n\r\nel 1"
    moved = b"HTTP/1.1 302 Found\r\nLocation: https://b.example/c\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nmodel\r\n0\r\n\r\n"
    return {
        "two": part + NEXT + rest,
        "moved": moved + NEXT + chunked,
        "absent": b"HTTP/1.1 404 Not Found\r\n\r\n",
        "range": part + NEXT + b"HTTP/1.1 416 No\r\nContent-Range: bytes */3\r\n\r\n",
        # findings
        "many_digits": b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-0/%s\r\n\r\n" % (b"9" * 5000),
        "bad_address": b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
        "wide_address": b"HTTP/1.1 302 Found\r\nLocation: http://a\xff/\r\n\r\n",
        "circle": NEXT.join([moved] * 12),
        "long_reason": b"HTTP/1.1 404 " + b"a" * 5000 + b"\r\n\r\n",
    }


def _requests() -> dict[str, bytes]:
    return {
        "health": b"GET /healthz\n\n",
        "words": b"GET /v1/words\norigin: http://a.example\n\n",
        "spot": b"POST /v1/spot\n\n" + _wav(8000, "WAV"),
        "listen": b"LISTEN /v1/listen?rate=8000&format=s16\n\n" + bytes(64) + NEXT + b"Tend",
        "many_digits": b"POST /v1/spot\ncontent-length: " + b"9" * 5000 + b"\n\n",  # a finding
    }


def _native() -> dict[str, dict[str, bytes]]:
    """Return the seeds of the targets in C, which read their input as numbers."""
    dice = np.random.default_rng(0)
    setting = Setting(Thresholds.parse(PAPER), FrontEndSetting(smooth=True, floor=2.0), "a")
    tensors = random_tensors(SMALL)
    small = Export("small", SMALL, tensors, "f32", setting, Decision())
    dense = Export("dense", SMALL, tensors, "f32", Setting(), Decision())
    one = Config(1, 1, 1, 1, labels=("a", "b"), frames=1, features=1)
    tiny = Export("", one, random_tensors(one), "f32", Setting(), Decision())
    files = {"small": small, "dense": dense, "tiny": tiny}
    files["integers"] = libfuzzer.small_export("int16")
    found = {"model_file": {name: model_file(export) for name, export in files.items()}}
    for name in ("decider", "exported", "fixed", "interface", "spotter", "stream"):
        found[name] = {f"noise{n}": dice.bytes(40 * (n + 1)) for n in range(3)}
    found["runner"] = {f"noise{n}": dice.bytes(100 * (n + 1)) for n in range(4)}
    found["wav"] = {"pcm": _wav(16000, "WAV"), "other": _wav(8000, "WAV")}
    found["wav"]["extensible"] = _wav(16000, "WAVEX")
    return found


def _wav(rate: int, kind: str) -> bytes:
    sound = io.BytesIO()
    soundfile.write(sound, np.zeros(rate // 100), rate, format=kind, subtype="PCM_16")
    return sound.getvalue()


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _tflite() -> bytes:
    return write(
        [(f"dense_{n}/MatMul", np.ones((2, 3))) for n in range(3)]
        + [
            ("dense_1/bias", np.ones(2)),
            ("a;layer_normalization_1/gamma", np.ones(2)),
            ("pos_emb", np.ones((1, 2, 2))),
        ]
    )


def _profiles() -> bytes:
    front_end = {"smooth": True, "floor": 2.0, "quantile": 0.2}
    one = {"thresholds": {"x": 0.2, "v": [0.1] * 3}, "front_end": front_end}
    two = {"thresholds": None, "measured": {"accuracy": 97.0}, "command": "deltakwt tune"}
    return _json({"format": 1, "default": "a", "profiles": {"a": one, "b": two}})


def _manifest() -> bytes:
    clips = [
        {"path": "yes/a.wav", "label": "yes", "offset": 0},
        {"path": None, "label": "_silence_", "offset": 0},
    ]
    return _json({"format": 1, "split": "test", "silence": "zero", "seed": 0, "clips": clips})


def _events() -> bytes:
    one = {"file": "a.wav", "label": "yes", "score": 0.9, "clip": 0.5, "start": 1.0, "end": 1.5}
    two = {"file": "b.wav", "label": "no", "score": 0.7, "clip": 0.5, "start": 3.0, "end": 3.5}
    return _json(one) + b"\n" + _json(two) + b"\n"


def _tar(kind: int) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=kind) as tar:
        folder = tarfile.TarInfo("yes")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        file = tarfile.TarInfo("yes/" + "ä" * 60 + ".wav")
        file.size = 5
        tar.addfile(file, io.BytesIO(b"sound"))
    return content.getvalue()


def main() -> None:
    """Write all seeds."""
    for target, files in seeds().items():
        (HERE / "corpus" / target).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (HERE / "corpus" / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
