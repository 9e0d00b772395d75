"""The page in a real browser: everything is there, nothing complains, nothing leaves."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from report.browser import Visit, open_page
from report.made import FIGURES, TABLES, Report

# Run inside the page: sizes of everything, a table sorted both ways, the theme changed, a sound
# decoded. What it finds comes back in the DOM.
PROBE = """
<script>
const found = {figures: {}, tables: {}};
for (const figure of document.querySelectorAll("figure[id]")) {
  const box = figure.querySelector("svg").getBoundingClientRect();
  found.figures[figure.id.replace("figure-", "")] = [box.width, box.height];
}
for (const table of document.querySelectorAll("table"))
  found.tables[table.id] = table.tBodies[0].rows.length;
const column = () => [...document.querySelectorAll("#accuracy tbody tr")].map(
  (row) => Number(row.cells[2].dataset.sort));
const head = document.querySelectorAll("#accuracy thead button")[2];
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
</script>
"""


def probed(report: Report, scratch: Path, width: int) -> tuple[Visit, dict[str, Any]]:
    page = scratch / "page.html"
    page.write_text(report.html.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
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
    assert found["overflow"] <= 0  # wide tables scroll inside themselves
    assert found["up"] == sorted(found["up"])
    assert found["down"] == sorted(found["up"], reverse=True)
    assert found["up"] != found["down"]
    assert found["before"] != found["after"]
    assert found["sounds"] == report.document["changes"]["playable"]
    if found["sounds"]:
        assert found["seconds"] == pytest.approx(1.0, abs=0.2)


def test_the_browser_would_have_told(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://127.0.0.1:9/pixel.png"><script>nonsense()</script>')
    visit = open_page(page, tmp_path)
    assert any("nonsense is not defined" in message for message in visit.console)
    assert visit.requests == ["http://127.0.0.1:9/pixel.png"]


def test_each_figure_states_where_it_comes_from(report: Report) -> None:
    facts = report.document["setting"]
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", report.html, re.DOTALL)
    stamped = [unescape(c) for c in captions if 'class="stamp"' in c]
    assert len(stamped) >= len(FIGURES)
    for caption in stamped:
        assert facts["model"]["name"] in caption
        assert facts["data"]["name"] in caption
        assert "thresholds: " in caption
        assert facts["machine"]["processor"] in caption
        assert facts["command"] in caption
