"""Make docs/web.png: the page in headless Chromium after it has processed the example sentence.

python benchmarks/page_picture.py [--theme dark] [--out docs/web.png]

The page shows the time of a window on this machine, so take the picture while it is idle.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

from deltakwt.explore.server import Server
from deltakwt.explore.site import Site

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests"))
from web.browser import open_browser  # noqa: E402

WINDOW = 45  # the window that the cursor points to: the word "stop"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--out", type=Path, default=PROJECT / "docs" / "web.png")
    parser.add_argument("--model", default="kwt-1")
    given = parser.parse_args()
    sentence = PROJECT / "examples" / "clips" / "sentence.flac"
    server = Server(Site.of([given.model], [sentence]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open_browser("--hide-scrollbars") as page:
        page.resize(1200, 1190, given.theme)
        page.go(server.url)
        page.wait("document.getElementById('status')?.textContent.startsWith('sentence:')")
        page.evaluate("document.getElementById('timeline').focus()")
        for key in ["Home", *["ArrowRight"] * WINDOW]:
            page.command("Input.dispatchKeyEvent", type="keyDown", key=key)
        page.evaluate("document.activeElement.blur()")
        time.sleep(0.5)  # the picture is drawn at the next frame
        page.screenshot(given.out, whole=False)
    print(f"{given.out}: {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
