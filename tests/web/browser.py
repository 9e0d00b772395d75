"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--mute-audio",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--autoplay-policy=no-user-gesture-required",
)
PATIENCE = 60.0  # seconds for anything; the machine may be busy


class Page:
    """One tab: what it shows, what it logged, and every address it asked for."""

    def __init__(self, socket: ClientConnection, process: int) -> None:
        self._socket = socket
        self.process = process  # number of the browser's first process
        self._number = 0
        self.console: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log", "DOM", "Accessibility"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, given = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(part.get("value")) for part in given["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(given["exceptionDetails"])[:2000])
        elif method == "Log.entryAdded":
            self.console.append(given["entry"]["text"] + " " + given["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    def evaluate(self, code: str) -> Any:
        """Return the value of an expression, awaited."""
        found = self.command(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, code: str) -> Any:
        """Return the value of an expression as soon as it is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if value := self.evaluate(code):
                return value
            time.sleep(0.05)
        raise AssertionError(f"{code} stays false; console: {self.console}")

    def go(self, url: str) -> None:
        self.command("Page.navigate", url=url)

    def resize(self, width: int, height: int, theme: str = "light") -> None:
        """Set the size of the window and the colour scheme that the user prefers."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the whole page, or of what the window shows."""
        found = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def unnamed_controls(self) -> list[str]:
        """Return the roles of controls that a screen reader finds without a name."""
        roles = {"button", "combobox", "slider", "radio", "link", "img", "image", "textbox"}
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node["ignored"]]
        return [
            node["role"]["value"]
            for node in shown
            if node["role"]["value"] in roles and not node.get("name", {}).get("value", "").strip()
        ]

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file in a file input."""
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.command("DOM.setFileInputFiles", nodeId=node, files=[str(path)])


@contextmanager
def open_browser(*flags: str) -> Iterator[Page]:
    """Start a browser with an empty profile and yield its one page."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("needs Chromium (Debian: chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        running = subprocess.Popen(
            [program, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_address(Path(profile), running), max_size=None) as browser:
                pages = _pages(browser)
                target = next(page for page in pages if page["type"] == "page")["targetId"]
                at = browser.request.headers["Host"]  # type: ignore[union-attr]
                with connect(f"ws://{at}/devtools/page/{target}", max_size=None) as socket:
                    yield Page(socket, running.pid)
        finally:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()


def _pages(browser: ClientConnection) -> list[dict[str, Any]]:
    browser.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
    return list(json.loads(browser.recv(timeout=PATIENCE))["result"]["targetInfos"])


def _address(profile: Path, running: subprocess.Popen[bytes]) -> str:
    """Return the address of the browser's debugger, which it writes into a file."""
    file, end = profile / "DevToolsActivePort", time.monotonic() + PATIENCE
    while time.monotonic() < end and running.poll() is None:
        if file.exists() and re.match(r"\d+\n/", text := file.read_text()):
            port, path = text.split("\n")[:2]
            return f"ws://127.0.0.1:{port}{path}"
        time.sleep(0.05)
    pytest.skip("Chromium does not start on this machine")
