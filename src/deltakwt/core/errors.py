"""The exceptions that are meant for users."""

import errno

# A disk that is full or broken, a quota, a limit of the size of files.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# The index of PyTorch's builds without CUDA. Elsewhere a Linux torch brings CUDA, 2.7 GB.
CPU_TORCH = "--extra-index-url https://download.pytorch.org/whl/cpu"


class DeltakwtError(Exception):
    """Bad input, or something that is missing.

    The message is one line that names the file or option, what is wrong, and what to do. The
    command line prints it without a traceback and exits with `exit_code`: 2 for bad input, 1 for a
    run that failed.
    """

    exit_code = 2


class DiskFailed(DeltakwtError):
    """A file could not be written because the disk is full or broken."""

    exit_code = 1


class MissingExtra(DeltakwtError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: {install_line(extra)}")


def install_line(extra: str) -> str:
    """Return the command that installs what an extra needs.

    It names the packages themselves: deltakwt is on no package index yet.
    """
    from importlib.metadata import PackageNotFoundError, requires  # slow, and seldom needed

    try:
        wanted = requires("deltakwt") or []
    except PackageNotFoundError:  # a source tree that was not installed
        wanted = []
    pairs = [line.partition(";") for line in wanted]
    names = [name.strip() for name, _, marker in pairs if f"'{extra}'" in marker.replace('"', "'")]
    if not names:
        return f"pip install '.[{extra}]' in the source tree"
    where = f" {CPU_TORCH}" if any(name.startswith("torch") for name in names) else ""
    return f"pip install{where} " + " ".join(f"'{name}'" for name in names)


def is_disk_failure(error: BaseException | None) -> bool:
    """Return whether an error was caused by a disk that is full or broken."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
