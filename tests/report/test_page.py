"""The page in a real browser: everything is there, without errors and without network requests."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from report.browser import Visit, open_page
from report.made import FIGURES, TABLES, Report

from deltakwt.report.html import digest

# Run inside the page: sizes of everything, a table sorted both ways, the theme changed, a sound
# decoded. What it finds comes back in the DOM.
PROBE = """
const found = {figures: {}, tables: {}, cut: []};
for (const figure of document.querySelectorAll("figure[id]")) {
  const box = figure.querySelector("svg").getBoundingClientRect();
  found.figures[figure.id.replace("figure-", "")] = [box.width, box.height];
  for (const text of figure.querySelectorAll("svg text")) {
    const at = text.getBoundingClientRect();
    if (at.left < box.left - 1 || at.right > box.right + 1) found.cut.push(text.textContent);
  }
}
for (const table of document.querySelectorAll("table"))
  found.tables[table.id] = table.tBodies[0].rows.length;
const column = () => [...document.querySelectorAll("#accuracy tbody tr")].map(
  (row) => Number(row.cells[4].dataset.sort));
const head = document.querySelectorAll("#accuracy thead button")[4];
head.click();
found.up = column();
head.click();
found.down = column();
const paper = () => getComputedStyle(document.body).backgroundColor;
found.before = paper();
document.getElementById("theme").click();
found.after = paper();
found.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const tell = () => {
  const box = document.createElement("pre");
  box.id = "probe";
  box.textContent = JSON.stringify(found);
  document.body.append(box);
};
const sound = document.querySelector("audio");
found.sounds = document.querySelectorAll("audio").length;
if (sound) {
  sound.addEventListener("loadedmetadata", () => { found.seconds = sound.duration; tell(); });
  sound.addEventListener("error", () => { found.seconds = 0; tell(); });
  sound.load();
  sound.preload = "auto";
} else tell();
"""


def with_script(page: str, script: str) -> str:
    """Return the page with one more script, and with its hash in the content security policy."""
    allowed = page.replace("script-src &#x27;", f"script-src &#x27;{digest(script)}&#x27; &#x27;")
    return allowed.replace("</body>", f"<script>{script}</script></body>")


def probed(report: Report, scratch: Path, width: int) -> tuple[Visit, dict[str, Any]]:
    page = scratch / "page.html"
    page.write_text(with_script(report.html, PROBE), encoding="utf-8")
    visit = open_page(page, scratch, width)
    found = re.search(r'<pre id="probe">(.*?)</pre>', visit.dom, re.DOTALL)
    assert found is not None, visit.console
    return visit, json.loads(unescape(found[1]))


@pytest.mark.parametrize("width", [1200, 390], ids=["desk", "phone"])
def test_page_in_a_browser(report: Report, tmp_path: Path, width: int) -> None:
    visit, found = probed(report, tmp_path, width)
    assert visit.console == []
    assert visit.requests == []
    assert set(found["figures"]) == set(FIGURES)
    assert all(w > 200 and h > 60 for w, h in found["figures"].values()), found["figures"]
    assert set(found["tables"]) == set(TABLES)
    assert all(found["tables"][name] >= rows for name, rows in TABLES.items()), found["tables"]
    assert found["cut"] == []  # no text of a figure leaves its picture
    assert found["overflow"] <= 0  # wide tables scroll inside themselves
    assert found["up"] == sorted(found["up"])
    assert found["down"] == sorted(found["up"], reverse=True)
    assert found["up"] != found["down"]
    assert found["before"] != found["after"]
    assert found["sounds"] == report.document["changes"]["playable"]
    if found["sounds"]:
        assert found["seconds"] == pytest.approx(1.0, abs=0.2)


def test_the_browser_reports_errors(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://127.0.0.1:9/pixel.png"><script>nonsense()</script>')
    visit = open_page(page, tmp_path)
    assert any("nonsense is not defined" in message for message in visit.console)
    assert visit.requests == ["http://127.0.0.1:9/pixel.png"]


def test_page_and_figures_state_where_they_come_from(report: Report) -> None:
    facts = report.document["facts"]
    text = unescape(report.html)
    for wanted in (facts["command"], facts["data"]["name"], facts["machine"]["processor"]):
        assert text.count(wanted) >= 1
    stated = f"{facts['command']} (deltakwt {facts['version']})"
    assert text.count(stated) == 1  # once, not under every figure
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", report.html, re.DOTALL)
    assert sum("Setting: " in caption for caption in captions) >= len(FIGURES)


def test_policy_names_the_only_script_and_style(report: Report) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', report.html)
    rules = dict(part.strip().split(" ", 1) for part in unescape(policy).split(";"))
    scripts = re.findall(r"<script>(.*?)</script>", report.html, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", report.html, re.DOTALL)
    assert rules["script-src"] == f"'{digest(*scripts)}'"
    assert rules["style-src-elem"] == f"'{digest(*styles)}'"
    assert rules["default-src"] == "'none'"
    assert "unsafe-inline" not in rules["script-src"] + rules["style-src-elem"]
