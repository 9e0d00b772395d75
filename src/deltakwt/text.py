"""Text from files, names and servers, made safe to print; and the time of day as text."""

from __future__ import annotations

from datetime import UTC, datetime


def printable(text: object) -> str:
    r"""Return `text` with every control character shown as an escape, such as \x1b or \n.

    A terminal obeys control characters. A label, a file name or the answer of a server could use
    them to hide or forge output. Bytes of a file name that are not UTF-8 are shown as \xff.
    """
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def one_line(text: object) -> str:
    """Return `text` as one printable line: line breaks and tabs become single spaces."""
    return printable(" ".join(str(text).split()))


def wall_time() -> str:
    """Return the time of day in UTC as ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python holds a byte that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
