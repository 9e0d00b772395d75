"""Where data comes from: a folder may hold a `SOURCE.json` that names its source and licence."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.files import read_json, write_atomically, writing

FILE = "SOURCE.json"
NOT_STATED = "licence not stated"
KEYS = ("name", "licence", "url", "attribution")


@dataclass(frozen=True)
class DataSource:
    """Name, licence, address and attribution of a data set. An empty string is not stated."""

    name: str
    licence: str = NOT_STATED
    url: str = ""
    attribution: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        """Return one sentence for a model card."""
        parts = [f"{self.name}: {self.licence}", self.attribution, self.url]
        return "; ".join(part for part in parts if part)


def read_source(folder: Path) -> DataSource:
    """Return what `folder/SOURCE.json` says; without the file, the folder's name only."""
    path = folder / FILE
    if not path.is_file():
        return DataSource(folder.resolve().name)
    document = read_json(path)
    if unknown := set(document) - set(KEYS):
        raise DeltakwtError(f"{path}: unknown key {min(unknown)!r}; the keys are {', '.join(KEYS)}")
    if not all(isinstance(value, str) for value in document.values()):
        raise DeltakwtError(f"{path}: every value must be a string")
    stated = {key: value for key, value in document.items() if value}
    return DataSource(**{"name": folder.resolve().name, **stated})


def write_source(folder: Path, source: DataSource) -> Path:
    """Write `folder/SOURCE.json` and return its path."""
    path = folder / FILE
    if not folder.is_dir():
        raise DeltakwtError(f"{folder}: no such folder")
    with writing(path):
        write_atomically(path, (json.dumps(source.to_json(), indent=2) + "\n").encode())
    return path
