"""The exceptions that are meant for users."""


class DeltakwtError(Exception):
    """Bad input, or something that is missing.

    The message is one line that names the file or option, what is wrong, and what to do. The
    command line prints it without a traceback and exits with `exit_code`: 2 for bad input, 1 for a
    run that failed.
    """

    exit_code = 2


class MissingExtra(DeltakwtError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'deltakwt[{extra}]'")
