"""The health check of the container: exit code 0 if its program works.

The command line of the first process tells what is checked: an HTTP server must answer /healthz, a
Wyoming server must accept connections. Any other command is healthy while it runs.
"""

from __future__ import annotations

import socket
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

PORTS = {"http": 10480, "wyoming": 10400}


def served(arguments: list[str]) -> tuple[str, int] | None:
    """Return the protocol and the port that a command line serves, or None."""
    if "serve" not in arguments[:-1]:
        return None
    protocol = arguments[arguments.index("serve") + 1]
    uri = ""
    for here, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if here == "--uri":
            uri = following
        elif here.startswith("--uri="):
            uri = here[6:]
    return protocol, urlsplit(uri).port or PORTS.get(protocol, 0)


def main() -> int:
    """Ask the server."""
    found = served(Path("/proc/1/cmdline").read_text().split("\0"))
    if found is None:
        return 0
    protocol, port = found
    try:
        if protocol == "http":
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                return 0 if answer.status == 200 else 1
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError as error:
        print(f"port {port}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
