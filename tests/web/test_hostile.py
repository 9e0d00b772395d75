"""A model and a sound with markup in their names: the page shows it as text and runs nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from conftest import CLIPS
from web.browser import open_browser
from web.conftest import serve

from deltakwt.explore.site import Site
from deltakwt.weights.registry import resolve

SCRIPT = "document['title']=1"  # the page shows a name up to its last dot
ATTACK = f'"><img src=x onerror="{SCRIPT}"><script>{SCRIPT}<x'
SHOWN = "document.body.innerText + [...document.querySelectorAll('option')].map((o) => o.text)"


def test_markup_in_names_stays_text(trained: str, tmp_path: Path) -> None:
    folder, sound = tmp_path / f"model{ATTACK}", tmp_path / f"sound{ATTACK}.flac"
    shutil.copytree(resolve(trained), folder)
    shutil.copy(CLIPS / "yes.flac", sound)
    config = json.loads((folder / "config.json").read_text())
    config["labels"] = [f"{label}<u>" for label in config["labels"]]
    (folder / "config.json").write_text(json.dumps(config))
    profiles = json.loads((folder / "profiles.json").read_text())
    profiles["profiles"][f"profile{ATTACK}"] = next(iter(profiles["profiles"].values()))
    (folder / "profiles.json").write_text(json.dumps(profiles))
    with serve(Site.of([str(folder)], [sound])) as server, open_browser() as page:
        page.go(server.url)
        page.wait("document.getElementById('status')?.textContent.startsWith('sound')")
        text = page.evaluate(SHOWN)
        for name in ("model", "sound", "profile"):
            assert f"{name}{ATTACK}" in text
        assert "yes<u>" in text
        assert page.evaluate("document.querySelectorAll('img, u, [onerror]').length") == 0
        assert page.evaluate("document.title") != "1"
        assert not [entry for entry in page.console if "Content Security Policy" in entry]
        assert all(request.startswith(server.url) for request in page.requests)
