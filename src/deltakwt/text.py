"""Make text from files, names and servers safe to print, and write the time of day."""

from __future__ import annotations

import re
from datetime import UTC, datetime

MASK = "***"
# scheme://user:PASSWORD@host. Like SQLAlchemy, allow / and ? in the password.
_USERINFO = re.compile(r"(\w[\w+.-]{0,40}://[^:/@]*:)(.*)@", re.DOTALL)


def _encoded(word: str) -> str:
    """Return a regular expression for a word, in which each character may be percent-encoded."""
    return "".join(f"(?:{c}|%{ord(c):02x}|%{ord(c.upper()):02x})" for c in word)


# password=..., sslpassword=..., passwd=..., pwd=..., oauth_client_secret=...
_KEY = "|".join(map(_encoded, ("pass", "pwd", "secret", "token")))
# Bounded on all sides: a driver's message is the text of a server, of any length.
_PARAMETER = re.compile(rf"((?:{_KEY})[\w%.-]{{0,40}}?\s?(?:=|%3d)\s?)([^&]*)", re.IGNORECASE)


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


def mask_passwords(text: str, url: str = "") -> str:
    """Return the text with *** for every password of a database URL in it.

    The passwords of `url` are replaced wherever they occur, for example in a driver's message.
    """
    from urllib.parse import unquote  # rarely needed, and slow to import

    secrets: list[str] = []

    def hide(found: re.Match[str]) -> str:
        secrets.append(found[2])
        # A driver may end a password at its first @ or / and take the rest for the host.
        secrets.extend(f"{part}@" for part in found[2].split("@")[1:])
        secrets.extend(part for part in re.split("[@/:?#]", found[2]) if len(part) > 2)
        return found[1] + MASK + ("@" if found.re is _USERINFO else "")

    def masked(what: str) -> str:
        return _PARAMETER.sub(hide, _USERINFO.sub(hide, what))

    masked(url)
    secrets += [secret.strip() for secret in secrets]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK).replace(unquote(secret), MASK)
    return masked(text)
