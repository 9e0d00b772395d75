"""The public Speech Commands archives: where they are, what they must hash to, their licence."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.download import DownloadFailed, Progress, fetch, sha256, unpack

# DELTAKWT_DATA_URL names a mirror of it.
URL = "https://storage.googleapis.com/download.tensorflow.org/data"
MAX_ARCHIVE_BYTES = 4 << 30
LICENCE = (
    "Speech Commands by Pete Warden / Google (arXiv:1804.03209), licensed CC BY 4.0: "
    "https://creativecommons.org/licenses/by/4.0/"
)


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
    """The corpus of that name."""
    if name not in CORPORA:
        raise DeltakwtError(f"{name}: no such data set; there are {', '.join(CORPORA)}")
    return CORPORA[name]


def download(corpus: Corpus, parent: Path, progress: Progress) -> Path:
    """The archive, verified, in `parent`; one that is there already is kept."""

    def verify(path: Path) -> None:
        if corpus.checksum is not None and sha256(path) != corpus.checksum:
            raise DownloadFailed(f"{corpus.url}: the checksum differs; nothing was unpacked")

    archive = parent / f"{corpus.folder}.tar.gz"
    if not archive.exists():
        fetch(corpus.url, archive, limit=MAX_ARCHIVE_BYTES, verify=verify, progress=progress)
    return archive


def extract(corpus: Corpus, archive: Path, progress: Progress) -> Path:
    """Unpack beside the archive, which is then removed."""
    folder = archive.parent / corpus.folder
    try:
        unpack(archive, folder, progress)
    finally:
        archive.unlink()  # unpacked, or not worth keeping
    return folder
