"""Downloads that resume, are verified before they are used, and unpack nowhere but at home."""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from deltakwt.core.errors import DeltakwtError

Progress = Callable[[float, float | None], None]  # bytes done, bytes in all where known
Verify = Callable[[Path], None]  # raises where the file is not what it should be

CHUNK = 1 << 18
TRIES = 4
TIMEOUT = 30.0  # seconds without a byte
MAX_MEMBERS = 500_000
MAX_UNPACKED = 16 << 30


class DownloadFailed(DeltakwtError):
    """The network or the server, not the user, is at fault."""

    exit_code = 1


def fetch(url: str, target: Path, *, limit: int, verify: Verify, progress: Progress) -> None:
    """Download to `target`. What is there of an earlier try, `target.part`, is continued.

    Nothing appears under the name `target` before `verify` has passed.
    """
    if not url.startswith(("http://", "https://")):
        raise DeltakwtError(f"{url}: only http and https addresses can be downloaded")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"{target.parent}: cannot be made: {error.strerror}") from error
    part = target.with_name(target.name + ".part")
    for left in reversed(range(TRIES)):
        try:
            _fetch_rest(url, part, limit, progress)
            break
        except urllib.error.HTTPError as error:
            raise DownloadFailed(f"{url}: {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            if not left:
                have = part.stat().st_size if part.exists() else 0
                raise DownloadFailed(
                    f"{url}: broke off after {have} bytes ({error}); run again to continue"
                ) from error
            time.sleep(0.2 * (TRIES - left))
    try:
        verify(part)
    except DeltakwtError:
        part.unlink()  # continuing a wrong file would never make it right
        raise
    part.replace(target)


def _fetch_rest(url: str, part: Path, limit: int, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "deltakwt"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing after `have`: complete, or of another file
            if (error.headers.get("Content-Range") or "").endswith(f"/{have}"):
                return
            part.unlink()
            raise ConnectionError("the server has no such range") from error
        raise
    with response:
        expected = _expected(response, have)
        if expected is None:
            have = 0  # the server starts over, so do we
            expected = response.length
        if expected is not None and expected > limit:
            raise DownloadFailed(f"{url}: {expected} bytes, at most {limit} were expected")
        with part.open("ab" if have else "wb") as file:
            while chunk := response.read(CHUNK):
                have += len(chunk)
                if have > limit:
                    raise DownloadFailed(f"{url}: more than the {limit} bytes expected")
                file.write(chunk)
                progress(have, expected)
    if expected is not None and have < expected:
        raise ConnectionError(f"{have} of {expected} bytes came")


def _expected(response: HTTPResponse, have: int) -> int | None:
    """Size of the whole file where the response continues at byte `have`, else None."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range") or "")
    if response.status != 206 or not found or int(found[1]) != have:
        return None
    return int(found[2])


def git_blob_id(path: Path) -> str:
    """The id git gives the file: SHA-1 over "blob <size>", a zero byte and the content."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    return _digest(path, digest)


def sha256(path: Path) -> str:
    """The file's SHA-256."""
    return _digest(path, hashlib.sha256())


def _digest(path: Path, digest: hashlib._Hash) -> str:
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def unpack(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a .tar.gz into the new folder `folder`, all of it or nothing.

    Only plain files and folders inside it are taken: a link, a device or a path that leads
    out makes the archive unacceptable.
    """
    unfinished = folder.with_name(folder.name + ".unpacking")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|gz") as tar:
            room, size = MAX_UNPACKED, archive.stat().st_size
            for number, member in enumerate(tar):
                room -= member.size
                if number >= MAX_MEMBERS or room < 0:
                    raise DeltakwtError(f"{archive}: unpacks to more than it should")
                _unpack_member(tar, member, unfinished, archive)
                progress(raw.tell(), size)
        unfinished.replace(folder)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DeltakwtError(f"{archive}: cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path
) -> None:
    target = folder / member.name
    inside = target.resolve().is_relative_to(folder.resolve())
    if not inside or not (member.isreg() or member.isdir()):
        raise DeltakwtError(
            f"{archive}: {member.name!r} is a link or leads out of the folder; nothing was unpacked"
        )
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # a regular file always has content
    with target.open("xb") as file:
        shutil.copyfileobj(source, file)
