"""The exceptions that are meant for users."""

import errno

# The disk is full or broken, or a quota or a limit of the file size is reached.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# A name or a value in a message may contain them.
_LINE_BREAKS = {ord(c): repr(c)[1:-1] for c in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
# PyTorch's own index has builds without CUDA. The usual build for Linux needs 2.7 GB of CUDA.
CPU_TORCH = "--extra-index-url https://download.pytorch.org/whl/cpu"


class DeltakwtError(Exception):
    """Bad input, or something that is missing.

    The message is one line that names the file or option, what is wrong, and what to do. The
    command line prints it without a traceback and exits with `exit_code`: 2 for bad input, 1 for a
    run that failed.
    """

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(message.translate(_LINE_BREAKS))


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
    except PackageNotFoundError:  # the source tree is used without an installation
        wanted = []
    names = _packages(wanted, extra)
    if not names:
        return f"pip install '.[{extra}]' in the source tree"
    where = f" {CPU_TORCH}" if any(name.startswith("torch") for name in names) else ""
    return f"pip install{where} " + " ".join(f"'{name}'" for name in names)


def _packages(wanted: list[str], extra: str) -> list[str]:
    """Return the packages of an extra, and of the extras that it includes."""
    names = []
    for name, _, marker in (line.partition(";") for line in wanted):
        if f"'{extra}'" not in marker.replace('"', "'"):
            continue
        package, _, included = name.strip().rstrip("]").partition("[")
        if package == "deltakwt":
            for each in included.split(","):
                names += _packages(wanted, each.strip())
        else:
            names.append(name.strip())
    return names


def is_disk_failure(error: BaseException | None) -> bool:
    """Return whether an error was caused by a disk that is full or broken."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
