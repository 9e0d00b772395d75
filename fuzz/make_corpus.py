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

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from tflite_writer import write  # noqa: E402

from deltakwt.core.config import Config  # noqa: E402
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
    }


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
    line = {"file": "a.wav", "label": "yes", "score": 0.9, "clip": 0.5, "start": 1.0, "end": 1.5}
    return _json(line) + b"\n" + _json({"file": "a.wav", "label": "no"}) + b"\n"


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
