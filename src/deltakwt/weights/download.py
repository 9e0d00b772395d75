"""Downloads that resume and are verified before use, and archives that are unpacked safely."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from functools import cache
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any, cast

from deltakwt.core.errors import DeltakwtError, is_disk_failure
from deltakwt.files import open_regular
from deltakwt.text import one_line

Progress = Callable[[float, float | None], None]  # bytes done, bytes in all or None if unknown
FileCheck = Callable[[Path], None]  # raises DeltakwtError if the file is not the expected one

CHUNK = 1 << 18
TRIES = 4
TIMEOUT = 30.0  # seconds without a byte
MAX_REASON = 200  # characters of a server's answer that are shown
MAX_MEMBERS = 500_000  # files and folders of an archive; v0.02 has 106,000
FREE_MEMBERS = 10_000  # of an archive of any size; more need
MEMBER_BYTES = 256  # compressed bytes each, so that a small archive does not take minutes
MAX_UNPACKED = 8 << 30  # bytes of the decompressed stream; v0.02 has 3.5 GB
MAX_RATIO = 100  # decompressed to compressed; speech has less than 2
FREE_BYTES = 16 << 20  # decompressed bytes to which the ratio does not apply
MAX_MEMBER_HEADER = 1 << 20  # all headers of one member, and reading ahead


class DownloadFailed(DeltakwtError):
    """A download failed because of the network or the server."""

    exit_code = 1


def fetch(url: str, target: Path, *, limit: int, verify: FileCheck, progress: Progress) -> None:
    """Download to `target`, continuing `target.part` of an earlier attempt.

    The file gets the name `target` only after `verify` has accepted it.
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
            raise DownloadFailed(f"{url}: {error.code} {_reason(error.reason)}") from error
        except (OSError, HTTPException) as error:
            if not left or is_disk_failure(error):
                have = part.stat().st_size if part.exists() else 0
                raise DownloadFailed(
                    f"{url}: stopped after {have} bytes ({_reason(error)}); run again to continue"
                ) from error
            time.sleep(0.2 * (TRIES - left))
    try:
        verify(part)
    except DeltakwtError:
        part.unlink()  # a wrong file cannot be continued
        raise
    part.replace(target)


def _fetch_rest(url: str, part: Path, limit: int, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "deltakwt"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response: HTTPResponse = _opener().open(request, timeout=TIMEOUT)
    except ValueError as error:  # urllib does not check the address of a redirect
        raise DownloadFailed(f"{url}: leads to a bad address ({_reason(error)})") from error
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing after `have`: complete, or another file
            if (error.headers.get("Content-Range") or "").endswith(f"/{have}"):
                return
            part.unlink()
            raise ConnectionError("the server has no such range") from error
        raise
    with response:
        expected = _expected(response, have)
        if expected is None:
            have = 0  # the server sends the file from its beginning
            expected = response.length
        if expected is not None and expected > limit:
            raise DownloadFailed(f"{url}: {expected} bytes, at most {limit} are accepted")
        with part.open("ab" if have else "wb") as file:
            while chunk := response.read(CHUNK):
                have += len(chunk)
                if have > limit:
                    raise DownloadFailed(f"{url}: more than the {limit} bytes accepted")
                file.write(chunk)
                progress(have, expected)
    if expected is not None and have < expected:
        raise ConnectionError(f"{have} of {expected} bytes received")


def _expected(response: HTTPResponse, have: int) -> int | None:
    """Return the size of the whole file if the response continues at byte `have`, else None."""
    given = response.headers.get("Content-Range") or ""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", given)
    if response.status != 206 or not found or int(found[1]) != have:
        return None
    return int(found[2])


def _reason(answer: object) -> str:
    return one_line(answer)[:MAX_REASON]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to web addresses only, and never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the request that follows a redirect."""
        allowed = ("https://",) if req.type == "https" else ("https://", "http://")
        if not newurl.lower().startswith(allowed):
            raise DownloadFailed(
                f"{_reason(req.full_url)}: leads to {_reason(newurl)}, not a secure address"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Redirects)


def git_blob_id(path: Path) -> str:
    """Return git's id of the file: SHA-1 of "blob <size>", a zero byte and the content."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    return _digest(path, digest)


def sha256(path: Path) -> str:
    """Return the SHA-256 of the file."""
    return _digest(path, hashlib.sha256())


def _digest(path: Path, digest: hashlib._Hash) -> str:
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def unpack(archive: Path, folder: Path, progress: Progress) -> None:
    """Unpack a .tar.gz into the new folder `folder`, all of it or nothing.

    Only plain files and folders inside it are accepted: a link, a device, a sparse file or a path
    that leads out of the folder makes the whole archive unacceptable. What an interrupted run has
    left behind is removed first.
    """
    unfinished = folder.with_name(folder.name + ".unpacking")
    try:
        _remove(unfinished)
        unfinished.mkdir(parents=True)
        _unpack_into(unfinished, archive, progress)
        unfinished.replace(folder)
    except _UNPACK_ERRORS as error:
        reason = (str(error) or type(error).__name__)[:MAX_REASON]
        raise DeltakwtError(f"{archive}: cannot be unpacked: {reason}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


# What tarfile and gzip raise for damaged archives; RecursionError for a long chain of headers.
_UNPACK_ERRORS = (
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    RecursionError,
    OverflowError,
)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _unpack_into(folder: Path, archive: Path, progress: Progress) -> None:
    with open_regular(archive) as raw, gzip.GzipFile(fileobj=raw) as unzipped:
        size = os.fstat(raw.fileno()).st_size
        stream = _Bounded(unzipped, archive, min(MAX_UNPACKED, FREE_BYTES + MAX_RATIO * size))
        stream.allow(MAX_MEMBER_HEADER)
        most = min(MAX_MEMBERS, FREE_MEMBERS + size // MEMBER_BYTES)
        source = cast(IO[bytes], stream)
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_Header) as tar:
            for number, member in enumerate(tar):
                # tarfile would keep every member and every global header in memory.
                tar.members.clear()  # type: ignore[attr-defined]
                tar.pax_headers = {}
                if number >= most or not 0 <= member.size <= MAX_UNPACKED:
                    raise _too_large(archive)
                stream.allow(member.size + MAX_MEMBER_HEADER)
                _unpack_member(tar, member, folder, archive)
                progress(raw.tell(), size)


class _Header(tarfile.TarInfo):
    """A header whose text is checked before tarfile searches it.

    Some releases of Python need minutes for a header of very many digits (CVE-2024-6232).
    """

    def _proc_pax(self, tar: Any) -> tarfile.TarInfo:
        stream = tar.fileobj
        tar.fileobj = _WithoutLongNumbers(stream)
        try:
            return super()._proc_pax(tar)  # type: ignore[misc, no-any-return]
        finally:
            tar.fileobj = stream


class _WithoutLongNumbers:
    """A stream in which every number has at most 128 digits; a name may have 100."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.tell, self.seek = stream, stream.tell, stream.seek

    def read(self, count: int) -> bytes:
        content: bytes = self.stream.read(count)
        if b"0" * 129 in content.translate(_DIGITS_AS_ZERO):
            raise tarfile.ReadError("a header with a number of very many digits")
        return content


_DIGITS_AS_ZERO = bytes(ord("0") if chr(byte) in "0123456789" else 1 for byte in range(256))


class _Bounded:
    """A decompressed stream that ends with an error where it grows beyond what was allowed.

    The headers of a tar file are held in memory, so their size is bounded for each member; and the
    whole stream is bounded, so that a small archive cannot fill the disk.
    """

    def __init__(self, stream: gzip.GzipFile, archive: Path, limit: int) -> None:
        self.stream, self.archive = stream, archive
        self.left = limit  # bytes of the whole stream
        self.room = 0  # bytes until the next call of `allow`

    def allow(self, count: int) -> None:
        self.room = count

    def read(self, count: int) -> bytes:
        content = self.stream.read(count)
        self.left -= len(content)
        self.room -= len(content)
        if min(self.left, self.room) < 0:
            raise _too_large(self.archive)
        return content


def _too_large(archive: Path) -> DeltakwtError:
    return DeltakwtError(f"{archive}: unpacks to more than it should; nothing was unpacked")


def _unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path
) -> None:
    target = folder / member.name
    inside = target.resolve().is_relative_to(folder.resolve())
    if not inside or member.issparse() or not (member.isreg() or member.isdir()):
        raise DeltakwtError(
            f"{archive}: {member.name[:200]!r} is a link or leads out of the folder;"
            " nothing was unpacked"
        )
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # a regular file always has content
    with target.open("xb") as file:
        shutil.copyfileobj(source, file)
