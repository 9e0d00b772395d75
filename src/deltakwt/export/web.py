r"""Write a web model: one compressed file with everything that the browser needs to run a model.

A web model is a gzip stream of

    8 bytes    "DKWTWEB\2"
    uint32     size of the document
    uint32     offset of the weights in the model file
    document   JSON: name, arithmetic, labels, profiles with what was measured, decision rule
    head       the model file (`export.binary`) up to its weights
    weights    16 bits each, first all high bytes and then all low bytes

All numbers are little-endian. The weights of a model in fixed point are the integers of the model
file. Float weights are in half precision; they are rounded before the model file is made, so that
the reader gets exactly its bytes back by widening them. The checksum of the model file covers the
whole path. High bytes hold sign and size and compress well, but not between low bytes.
"""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.setting import Profiles
from deltakwt.export.binary import integer_parts, model_file
from deltakwt.export.model import Export, half, write_file

MAGIC = b"DKWTWEB\2"
HEAD = struct.Struct("<8sII")
WEIGHTS_OFFSET = 152  # of the model file's header: where its last field lies
Document = dict[str, Any]
MEASURED = ("accuracy", "dense_accuracy", "macs_percent", "mhsa_percent", "clips", "data")


def write_web_model(
    export: Export, profiles: Profiles, path: Path, curves: Document | None = None
) -> int:
    """Write the web model of an export and return its size in bytes."""
    return write_file(path, web_model(export, profiles, curves), "web")


def web_model(export: Export, profiles: Profiles, curves: Document | None = None) -> bytes:
    """Return the bytes of the web model of an export, with what was measured of its model."""
    head, weights = _parts(export)
    planes = weights.view(np.uint8).reshape(-1, 2)
    document = json.dumps(_document(export, profiles, curves), allow_nan=False).encode()
    body = (
        HEAD.pack(MAGIC, len(document), len(head))
        + document
        + head
        + planes[:, 1].tobytes()
        + planes[:, 0].tobytes()
    )
    return gzip.compress(body, 9, mtime=0)


def _parts(export: Export) -> tuple[bytes, NDArray[np.generic]]:
    """Return the model file up to its weights, and the weights in 16 bits."""
    if export.scales is not None:
        flat = model_file(export)
        size = len(integer_parts(export.config, export.tensors, export.scales)[1])
        return flat[:-size], np.frombuffer(flat, "<i2", offset=len(flat) - size)
    rounded = {name: half(tensor).astype(np.float32) for name, tensor in export.tensors.items()}
    flat = model_file(replace(export, tensors=rounded))
    (start,) = struct.unpack_from("<Q", flat, WEIGHTS_OFFSET)
    return flat[:start], np.frombuffer(flat, "<f4", offset=start).astype("<f2")


def _document(export: Export, profiles: Profiles, curves: Document | None) -> Document:
    """Return what the page shows: names, settings, and what was measured for them."""
    setting = export.setting
    return {
        "name": export.name,
        "arithmetic": "float" if export.scales is None else "fixed",
        "labels": list(export.config.labels),
        "setting": str(setting),
        **setting.to_json(),
        "decision": export.decision.to_json(),
        "profiles": {
            name: {
                **profile.setting.to_json(),
                "measured": {
                    key: profile.measured[key] for key in MEASURED if key in profile.measured
                },
            }
            for name, profile in profiles.profiles.items()
        },
        **({"curves": curves} if curves else {}),
    }
