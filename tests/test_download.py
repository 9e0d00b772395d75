"""Downloads resume and are verified before they get their name; archives are unpacked safely."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from webserver import Site

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights import download
from deltakwt.weights.download import DownloadFailed, fetch, git_blob_id, unpack

CONTENT = bytes(range(256)) * 4_000  # 1 MB


def get(site: Site, target: Path, limit: int = 1 << 22) -> list[tuple[float, float | None]]:
    seen: list[tuple[float, float | None]] = []

    def verify(path: Path) -> None:
        if path.read_bytes() != CONTENT:
            raise DownloadFailed(f"{path}: other content")

    fetch(
        f"{site.url}/file",
        target,
        limit=limit,
        verify=verify,
        progress=lambda done, total: seen.append((done, total)),
    )
    return seen


def test_a_download_with_progress(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = CONTENT
    seen = get(site, tmp_path / "new" / "file")
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert not (tmp_path / "new" / "file.part").exists()


def test_a_dropped_line_is_continued(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = CONTENT
    site.cut_after = 300_000
    get(site, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [wanted for _, wanted in site.requests] == [None, "bytes=300000-"]


def test_an_earlier_part_is_continued(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = CONTENT
    (tmp_path / "file.part").write_bytes(CONTENT[:123_456])
    get(site, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert site.requests == [("/file", "bytes=123456-")]


def test_a_complete_part_is_only_verified(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = CONTENT
    (tmp_path / "file.part").write_bytes(CONTENT)
    get(site, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = CONTENT
    (tmp_path / "file.part").write_bytes(CONTENT * 2)
    get(site, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_cannot_continue_starts_over(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = CONTENT
    site.ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    get(site, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_wrong_content_never_gets_the_name(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = CONTENT[::-1]
    with pytest.raises(DownloadFailed, match="other content"):
        get(site, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_failures_say_what_happened(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DownloadFailed, match="404"):
        get(site, tmp_path / "file")
    site.files["/file"] = CONTENT
    with pytest.raises(DownloadFailed, match="at most 1000 are accepted"):
        get(site, tmp_path / "file", limit=1000)
    monkeypatch.setattr(download, "TRIES", 1)
    site.cut_after = 5000
    with pytest.raises(DownloadFailed, match="stopped after 5000 bytes.*run again"):
        get(site, tmp_path / "file")
    assert (tmp_path / "file.part").stat().st_size == 5000
    nobody = Site(url="http://127.0.0.1:9")
    with pytest.raises(DownloadFailed, match="run again"):
        get(nobody, tmp_path / "file")
    with pytest.raises(DeltakwtError, match="only http"):
        get(Site(url="file:///etc/passwd?"), tmp_path / "file")


def test_the_git_blob_id_is_gits(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello\n")  # printf 'hello\n' | git hash-object --stdin
    assert git_blob_id(tmp_path / "a") == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert download.sha256(tmp_path / "a") == hashlib.sha256(b"hello\n").hexdigest()


def archive(path: Path, *members: tuple[str, bytes | None, bytes]) -> Path:
    """Name, content (None for a folder), type of each member."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content, kind in members:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.size = len(content or b"")
            entry.linkname = "/etc/passwd"
            tar.addfile(entry, io.BytesIO(content or b""))
    return path


def test_unpack(tmp_path: Path) -> None:
    file = archive(
        tmp_path / "a.tar.gz",
        ("./", None, tarfile.DIRTYPE),
        ("./yes/a.wav", b"sound", tarfile.REGTYPE),
        ("LICENSE", b"CC BY", tarfile.REGTYPE),
    )
    seen: list[float] = []
    unpack(file, tmp_path / "data", lambda done, _: seen.append(done))
    assert (tmp_path / "data" / "yes" / "a.wav").read_bytes() == b"sound"
    assert (tmp_path / "data" / "LICENSE").read_bytes() == b"CC BY"
    assert seen


@pytest.mark.parametrize(
    "bad",
    [
        ("../evil", b"x", tarfile.REGTYPE),
        ("/tmp/evil-deltakwt", b"x", tarfile.REGTYPE),
        ("yes/../../evil", b"x", tarfile.REGTYPE),
        ("link", None, tarfile.SYMTYPE),
        ("link", None, tarfile.LNKTYPE),
        ("fifo", None, tarfile.FIFOTYPE),
        ("device", None, tarfile.CHRTYPE),
    ],
)
def test_an_archive_that_reaches_out_is_refused_whole(
    tmp_path: Path, bad: tuple[str, bytes | None, bytes]
) -> None:
    file = archive(tmp_path / "a.tar.gz", ("good", b"x", tarfile.REGTYPE), bad)
    with pytest.raises(DeltakwtError, match="leads out"):
        unpack(file, tmp_path / "deep" / "data", lambda *_: None)
    assert not (tmp_path / "deep" / "data").exists()
    assert not (tmp_path / "evil").exists()
    assert not Path("/tmp/evil-deltakwt").exists()


def test_a_truncated_or_swollen_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = archive(tmp_path / "a.tar.gz", ("good", CONTENT, tarfile.REGTYPE))
    whole = file.read_bytes()
    monkeypatch.setattr(download, "MAX_UNPACKED", 1000)
    with pytest.raises(DeltakwtError, match="more than it should"):
        unpack(file, tmp_path / "data", lambda *_: None)
    file.write_bytes(whole[: len(whole) // 2])
    monkeypatch.undo()
    with pytest.raises(DeltakwtError, match="cannot be unpacked"):
        unpack(file, tmp_path / "data", lambda *_: None)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_small_archive_of_very_many_members_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member takes time, however few bytes it has."""
    members = [(f"{number}", None, tarfile.DIRTYPE) for number in range(100)]
    file = archive(tmp_path / "a.tar.gz", *members)
    monkeypatch.setattr(download, "FREE_MEMBERS", 10)
    with pytest.raises(DeltakwtError, match="more than it should"):
        unpack(file, tmp_path / "data", lambda *_: None)
    assert file.stat().st_size < 20 * download.MEMBER_BYTES


def test_a_header_of_very_many_digits_is_refused_at_once(tmp_path: Path) -> None:
    """Some releases of Python search it for minutes (CVE-2024-6232)."""
    entry = tarfile.TarInfo("a")
    entry.pax_headers = {"size": "9" * 100_000}
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(entry)
    with pytest.raises(DeltakwtError, match="a number of very many digits"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "data", lambda *_: None)


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    """It would write a gigabyte of zeros from nothing."""
    header = (
        "GNU.sparse.major=1 GNU.sparse.minor=0 GNU.sparse.name=big GNU.sparse.realsize=1073741824"
    )
    entry = tarfile.TarInfo("big")
    entry.size = 512
    entry.pax_headers = dict(pair.split("=") for pair in header.split())
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(entry, io.BytesIO(b"0\n" + bytes(510)))
    with pytest.raises(DeltakwtError, match="leads out"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "data", lambda *_: None)


@pytest.mark.parametrize("name", ["a" * 5000, "nested/" * 2000])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    file = archive(tmp_path / "a.tar.gz", (name, b"x", tarfile.REGTYPE), ("a", b"", b"0"))
    with pytest.raises(DeltakwtError, match="cannot be unpacked") as caught:
        unpack(file, tmp_path / "data", lambda *_: None)
    assert len(str(caught.value)) < 1000
    assert not (tmp_path / "data.unpacking").exists()


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar.gz")
    with pytest.raises(DeltakwtError, match="not a regular file"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "data", lambda *_: None)


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    file = archive(tmp_path / "a.tar.gz", ("good", b"x", tarfile.REGTYPE))
    (tmp_path / "data.unpacking" / "old").mkdir(parents=True)
    unpack(file, tmp_path / "data", lambda *_: None)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["good"]
    assert not (tmp_path / "data.unpacking").exists()


def test_sigterm_leaves_nothing_half_unpacked(tmp_path: Path) -> None:
    file = archive(tmp_path / "a.tar.gz", *[(f"{n}", b"x", tarfile.REGTYPE) for n in range(100)])
    code = (
        "import sys, time; from pathlib import Path\n"
        "from deltakwt.cli.running import stop_on_signals\n"
        "from deltakwt.weights.download import unpack\n"
        "stop_on_signals()\n"
        "unpack(Path(sys.argv[1]), Path(sys.argv[2]), lambda *_: time.sleep(0.1))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(file), str(tmp_path / "data")])
    end = time.monotonic() + 60
    while not (tmp_path / "data.unpacking" / "3").exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
