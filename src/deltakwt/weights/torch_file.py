"""Reader of the files that `torch.save` writes, without torch and without running a pickle.

Such a file is a zip archive: `data.pkl` describes the objects, `data/0`, `data/1`, ... hold the
numbers. Python's pickle can call any function that a file names. This reader calls none: it
follows a fixed list of opcodes, knows the functions that rebuild a tensor and an ordered dictionary
by name, and keeps everything else as an opaque value. Archive, pickle and tensors are bounded
before memory is taken; numbers are read from the archive only for tensors that are asked for.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.errors import DeltakwtError
from deltakwt.files import open_regular
from deltakwt.weights.torch_pickle import KINDS, MAX_VALUES, LazyTensor, Malformed, PickleReader

MAX_FILE_BYTES = 512 << 20  # KWT-3 with the two states of Adam has 64 MB
MAX_DIRECTORY_BYTES = 4 << 20  # of the zip archive
MAX_PICKLE_BYTES = 8 << 20
MAX_TENSORS = 20_000
MAX_DEPTH = 16  # of dictionaries in dictionaries

MAX_REASON = 200  # characters
# What zipfile and the pickle reader raise for values that do not fit together.
_DAMAGED = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, OSError),
    struct.error,
)


def read_torch(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return every tensor of floats of the largest dictionary of tensors in a torch file."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_FILE_BYTES:
            raise DeltakwtError(f"{path}: too large: {size} bytes, at most {MAX_FILE_BYTES}")
        try:
            return _read(path, file, size)
        except (Malformed, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
            reason = str(error)[:MAX_REASON]  # zipfile quotes what it read
            raise DeltakwtError(f"{path}: not a file of torch.save: {reason}") from error
        except _DAMAGED as error:
            raise DeltakwtError(f"{path}: damaged: {type(error).__name__}") from error


def _read(path: Path, file: BinaryIO, size: int) -> dict[str, NDArray[np.float32]]:
    if file.read(2) != b"PK":
        raise Malformed("torch has written zip archives since 1.6; save it again with that")
    _check_directory(file, size)
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise Malformed("the archive has no data.pkl")
        root = names[0].removesuffix("data.pkl")
        order = _stored(archive, root + "byteorder", 16) if _has(archive, root) else b"little"
        if order != b"little":
            raise Malformed("numbers of the other byte order; save it on a usual machine")
        document = PickleReader(root).run(_stored(archive, names[0], MAX_PICKLE_BYTES))
        found = _largest(document)
        if not found:
            raise DeltakwtError(f"{path}: holds no dictionary of tensors; save model.state_dict()")
        return _all_values(archive, found)


def _has(archive: zipfile.ZipFile, root: str) -> bool:
    return root + "byteorder" in archive.NameToInfo


def _check_directory(file: BinaryIO, size: int) -> None:
    """Bound the directory of the archive, which zipfile reads as a whole.

    The record at the end gives its size; archives with 64-bit fields give it a second time.
    """
    tail = min(size, (1 << 16) + 22 + 20 + 56)
    file.seek(size - tail)
    end = file.read(tail)
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(end):
        raise Malformed("the zip archive has no end")
    sizes = [int(struct.unpack_from("<I", end, at + 12)[0])]
    if end[max(at - 20, 0) : at].startswith(b"PK\x06\x07"):
        if at < 76 or end[at - 76 : at - 72] != b"PK\x06\x06":
            raise Malformed("the end of the zip archive is not one that torch writes")
        sizes = [int(struct.unpack_from("<Q", end, at - 76 + 40)[0])]
    if max(sizes) > MAX_DIRECTORY_BYTES:
        raise Malformed(f"a zip directory of {max(sizes)} bytes, at most {MAX_DIRECTORY_BYTES}")
    file.seek(0)


def _stored(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return a member of the archive. torch does not compress, so its size is known."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise Malformed(f"{name[:80]!r} is missing") from None
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise Malformed("its members are compressed or encrypted")
    if info.file_size > limit or info.compress_size != info.file_size:
        raise Malformed(f"{name[:80]!r} has {info.file_size} bytes, at most {limit} are read")
    return archive.read(info)


def _largest(document: Any) -> dict[str, LazyTensor]:
    """Return the tensors of the dictionary with the most tensors, such as "state_dict".

    A tensor in a dictionary in that dictionary gets both names, joined by a dot.
    """
    best: dict[str, LazyTensor] = {}
    pending: list[tuple[Any, int]] = [(document, 0)]
    seen: set[int] = set()
    while pending:
        node, depth = pending.pop()
        if not isinstance(node, dict) or id(node) in seen or depth > MAX_DEPTH:
            continue
        seen.add(id(node))
        # The states of an optimiser have numbers as keys: they are not weights.
        tensors = {
            key: value
            for key, value in node.items()
            if isinstance(key, str) and isinstance(value, LazyTensor)
        }
        if len(tensors) > MAX_TENSORS:
            raise Malformed(f"more than {MAX_TENSORS} tensors")
        if len(tensors) > len(best):
            best = tensors
        pending += [(value, depth + 1) for value in reversed(node.values())]
    return best


def _all_values(
    archive: zipfile.ZipFile, tensors: dict[str, LazyTensor]
) -> dict[str, NDArray[np.float32]]:
    """Return the numbers of all tensors. Several tensors may be parts of one storage."""
    left = MAX_VALUES
    for tensor in tensors.values():
        # Bytes to read and values to keep: views of one storage repeat both.
        left -= max(math.prod(tensor.shape), tensor.storage.count)
        if left < 0:
            raise Malformed(f"tensors of more than {MAX_VALUES} values")
    return {name: _values(archive, tensor) for name, tensor in tensors.items()}


def _values(archive: zipfile.ZipFile, tensor: LazyTensor) -> NDArray[np.float32]:
    """Return the numbers of a tensor as float32."""
    if not math.prod(tensor.shape):
        return np.zeros(tensor.shape, np.float32)
    storage = tensor.storage
    kind = KINDS[storage.kind]
    raw = _stored(archive, storage.member, 8 * storage.count)
    flat: NDArray[Any]
    if kind == "bfloat16":  # the upper half of a float32
        flat = (np.frombuffer(raw, "<u2", storage.count).astype(np.uint32) << 16).view(np.float32)
    else:
        flat = np.frombuffer(raw, kind, storage.count)
    strides = tuple(flat.itemsize * stride for stride in tensor.strides)
    view = np.lib.stride_tricks.as_strided(
        flat[tensor.offset :], tensor.shape, strides, writeable=False
    )
    with np.errstate(over="ignore"):  # infinity is refused later, with the name of the tensor
        return np.ascontiguousarray(view, dtype=np.float32)
