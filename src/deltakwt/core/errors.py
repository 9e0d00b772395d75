"""The one exception a user is meant to read."""


class DeltakwtError(Exception):
    """Bad input or a missing piece, told in one line: what, why, and what to do.

    The command line prints the message without a traceback and exits with `exit_code`:
    2 for bad input, 1 for a run that failed.
    """

    exit_code = 2


class MissingExtra(DeltakwtError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'deltakwt[{extra}]'")
