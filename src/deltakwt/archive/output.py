"""The result of a search: Parquet or JSON lines, by the suffix of its name."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltakwt.archive.shard import COLUMNS, Document
from deltakwt.core.errors import DeltakwtError, MissingExtra

SUFFIXES = (".parquet", ".jsonl")
GROUP_ROWS = 1 << 16  # rows of a row group; so many are in memory
NUMBERS = {"score": "float32", "start": "float64", "end": "float64", "time": "float64"}
NUMBERS["seconds"] = "float64"


def check_output(out: Path) -> None:
    """Refuse a result that cannot be written, before any work is done."""
    if out.suffix not in SUFFIXES:
        raise DeltakwtError(f"--out {out}: must end in {' or '.join(SUFFIXES)}")
    if out.exists():
        raise DeltakwtError(f"--out {out}: exists already; remove it or choose another name")
    if out.suffix == ".parquet":
        _pyarrow()


def write_output(out: Path, rows: Iterable[Document]) -> None:
    """Write all rows. The file gets its name when it is complete."""
    with _unfinished(out) as path:
        if out.suffix == ".parquet":
            _write_parquet(path, rows)
        else:
            with path.open("w", encoding="ascii") as file:
                for row in rows:
                    file.write(json.dumps(row) + "\n")


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    os.close(descriptor)
    try:
        yield Path(name)
        Path(name).chmod(0o644)
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("a .parquet file", "archive") from None
    return pyarrow


def _write_parquet(path: Path, rows: Iterable[Document]) -> None:
    pyarrow = _pyarrow()
    kinds = {name: getattr(pyarrow, NUMBERS.get(name, "string"))() for name in COLUMNS}
    schema = pyarrow.schema(list(kinds.items()))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(rows):
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))


def _groups(rows: Iterable[Document]) -> Iterator[list[Document]]:
    held: list[Document] = []
    for row in rows:
        held.append(row)
        if len(held) == GROUP_ROWS:
            yield held
            held = []
    if held:
        yield held
