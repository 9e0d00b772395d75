"""Where data comes from: SOURCE.json in a data folder, and the public Speech Commands archives.

A folder may hold a `SOURCE.json` that names its source and licence. Model cards quote it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from deltakwt.core.errors import DeltakwtError, is_disk_failure
from deltakwt.files import read_json, write_atomically, writing
from deltakwt.weights.download import DownloadFailed, Progress, fetch, sha256, unpack

FILE = "SOURCE.json"
NOT_STATED = "licence not stated"
KEYS = ("name", "licence", "url", "attribution")

# DELTAKWT_DATA_URL can name a mirror.
URL = "https://storage.googleapis.com/download.tensorflow.org/data"
MAX_ARCHIVE_BYTES = 4 << 30
LICENCE = (
    "Speech Commands by Pete Warden / Google (arXiv:1804.03209), licensed CC BY 4.0: "
    "https://creativecommons.org/licenses/by/4.0/"
)
ATTRIBUTION = "Pete Warden / Google, arXiv:1804.03209"


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


# ------------------------------------------------------------------ public archives


@dataclass(frozen=True)
class Corpus:
    """One archive. `checksum` is its SHA-256 where it is known."""

    name: str
    folder: str
    checksum: str | None = None

    @property
    def url(self) -> str:
        return f"{os.environ.get('DELTAKWT_DATA_URL') or URL}/{self.folder}.tar.gz"


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            "v0.01",
            "speech_commands_v0.01",
            "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d",
        ),
        Corpus(
            "v0.02",
            "speech_commands_v0.02",
            "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        ),
        Corpus("test-v0.01", "speech_commands_test_set_v0.01"),
        Corpus("test-v0.02", "speech_commands_test_set_v0.02"),
    )
}


def find(name: str) -> Corpus:
    """Return the corpus of this name."""
    if name not in CORPORA:
        raise DeltakwtError(f"{name}: no such data set; the data sets are {', '.join(CORPORA)}")
    return CORPORA[name]


def download(corpus: Corpus, parent: Path, progress: Progress) -> Path:
    """Return the verified archive in `parent`; an archive that is already there is kept."""

    def verify(path: Path) -> None:
        if corpus.checksum is not None and sha256(path) != corpus.checksum:
            raise DownloadFailed(f"{corpus.url}: the checksum differs; nothing was unpacked")

    archive = parent / f"{corpus.folder}.tar.gz"
    if not archive.exists():
        fetch(corpus.url, archive, limit=MAX_ARCHIVE_BYTES, verify=verify, progress=progress)
    return archive


def extract(corpus: Corpus, archive: Path, progress: Progress) -> Path:
    """Unpack beside the archive, state the source, remove the archive. Return the folder."""
    folder = archive.parent / corpus.folder
    try:
        unpack(archive, folder, progress)
    except DeltakwtError as error:
        if not is_disk_failure(error):
            archive.unlink()  # damaged
        raise
    archive.unlink()
    name = f"Speech Commands {corpus.name}"
    write_source(folder, DataSource(name, "CC BY 4.0", corpus.url, ATTRIBUTION))
    return folder
