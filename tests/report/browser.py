"""A page in headless Chromium: its DOM, its console, and every address it asked for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
)


@dataclass(frozen=True)
class Visit:
    """What a page did when it was opened."""

    dom: str
    console: list[str]  # every message of the page
    requests: list[str]  # addresses it asked for, other than data:


def open_page(page: Path, scratch: Path, width: int = 1200) -> Visit:
    """Load `page`; `scratch` becomes the browser's empty profile."""
    browser = next((found for name in NAMES if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("needs Chromium (Debian: chromium)")
    log = scratch / "net.json"
    done = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={scratch / 'profile'}", f"--log-net-log={log}",
         f"--window-size={width},900", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    console = re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
    return Visit(done.stdout, console, _requests(log))


def _requests(log: Path) -> list[str]:
    """From the browser's net log; what the browser asks for by itself has no origin there."""
    text = log.read_text()
    try:
        events = json.loads(text)["events"]
    except ValueError:  # a browser that was quick to leave did not close its log
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    started = [event.get("params", {}) for event in events]
    return sorted(
        {p["url"] for p in started if p.get("initiator", "not an origin") != "not an origin"}
    )
