"""Names with markup in them: profile, model folder, labels, title, file. Nothing of it is run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from report.browser import open_page

from deltakwt.bench import figure as bench
from deltakwt.core.config import KWT1
from deltakwt.core.engine import Engine
from deltakwt.core.model import Model
from deltakwt.core.setting import Profile, Profiles
from deltakwt.evaluate.stress import draw_curve
from deltakwt.report import figures, html
from deltakwt.report.build import ReportRequest, chosen_setting, write
from deltakwt.report.explain import explain, save
from deltakwt.report.study import PAPER
from deltakwt.tune.plots import plot_sensitivity
from deltakwt.weights.folder import random_tensors

ATTACK = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'<\u2044script>"
)
FOLDER = "x\"'><svg onload=document.title='owned'>"  # a folder name cannot contain a slash
LABEL = "<b onmouseover=alert(1)>$x"


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += attrs


@pytest.fixture(scope="module")
def hostile_model() -> Model:
    """A model with markup in its folder's name, in a profile's name and in a label."""
    config = replace(KWT1, layers=2, labels=(*KWT1.labels[:-1], LABEL))
    profile = Profile(ATTACK, replace(PAPER, name=ATTACK))
    profiles = Profiles({ATTACK: profile}, ATTACK)
    engine = Engine(config, random_tensors(config))
    return Model(config, engine, profiles, f"models/{FOLDER}")


@pytest.fixture(scope="module")
def hostile_page(hostile_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("out")
    rng = np.random.default_rng(0)
    for label in hostile_model.labels:
        (data / label).mkdir()
        sound = 0.1 * rng.standard_normal(16_000)
        soundfile.write(data / label / "a0b1c2d3_nohash_0.wav", sound, 16_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "DPI", 40)  # the page holds the SVGs, not these pictures
        write(hostile_model, ReportRequest(data, out, threads=1))
    return out / "report.html"


def assert_harmless(page: str) -> None:
    found = Tags(page)
    assert found.tags.count("script") == 1
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "img" not in found.tags
    assert ATTACK not in page
    assert FOLDER not in page


def test_report_contains_no_markup_of_others(hostile_page: Path) -> None:
    page = hostile_page.read_text(encoding="utf-8")
    assert_harmless(page)
    assert html.escape(ATTACK) in page
    assert html.escape(FOLDER) in page
    for figure in hostile_page.parent.glob("*.svg"):
        assert "<script" not in figure.read_text(encoding="utf-8")


def test_report_in_a_browser_stays_itself(hostile_page: Path, tmp_path: Path) -> None:
    visit = open_page(hostile_page, tmp_path)
    assert visit.console == []
    assert visit.requests == []
    (title,) = re.findall("<title>(.*?)</title>", visit.dom)
    assert title.endswith("deltakwt report")


def test_policy_stops_a_script_that_got_in(hostile_page: Path, tmp_path: Path) -> None:
    """The second line of defence: the browser itself refuses what the policy does not name."""
    page = tmp_path / "injected.html"
    injected = "<script>document.title = 'owned'</script><b onclick='x()'>b</b></main>"
    page.write_text(hostile_page.read_text(encoding="utf-8").replace("</main>", injected))
    visit = open_page(page, tmp_path)
    assert "<title>owned" not in visit.dom
    assert any("Content Security Policy" in message for message in visit.console)


def test_explained_sound_with_a_hostile_name(hostile_model: Model, tmp_path: Path) -> None:
    sound = tmp_path / "<script>alert(1)<-script>.wav"
    soundfile.write(sound, 0.1 * np.random.default_rng(1).standard_normal(16_000), 16_000)
    document, _ = explain(hostile_model, chosen_setting(hostile_model), sound)
    save(document, tmp_path / "explained.html")
    page = (tmp_path / "explained.html").read_text(encoding="utf-8")
    assert_harmless(page)
    assert "<script>alert" not in page
    save(document, tmp_path / "explained.svg")
    assert "<script" not in (tmp_path / "explained.svg").read_text(encoding="utf-8")
    visit = open_page(tmp_path / "explained.html", tmp_path)
    assert visit.console == []


def test_everything_is_escaped_by_default() -> None:
    assert html.element("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>'
    assert html.element("p", html.element("b", "&")) == "<p><b>&amp;</b></p>"
    assert html.element("audio", controls=True, src=None) == "<audio controls></audio>"
    assert html.prose("**<i>** `<u>`\n\ntwo") == (
        "<p><b>&lt;i&gt;</b> <code>&lt;u&gt;</code></p>\n<p>two</p>"
    )
    assert html.escape("a\x1b[31m\udce4\u202e") == "a\ufffd[31m\ufffd\ufffd"
    assert html.join("<", html.Html("<br>")) == "&lt;<br>"


FORMULA = r"$\x$"  # matplotlib would read it as a formula, which is wrong


def draw_a_curve(path: Path) -> None:
    one = {"setting": FORMULA, "curve": [{"false_accepts_per_hour": 1, "miss_percent": 5}] * 2}
    scenario = {"snr": 10.0}
    document = {"model": FORMULA, "scenario": scenario, "negatives": [], "settings": [one]}
    draw_curve(document, str(path))


def draw_a_tuning(path: Path) -> None:
    slopes: Any = SimpleNamespace(loss=np.eye(2, 8), saving=np.eye(2, 8), noise=0.1)
    plot_sensitivity(path, slopes, FORMULA)


def draw_a_benchmark(path: Path) -> None:
    row = {"part": "words", "input": "features", "ms": 1.0, "engine": "deltakwt", "mode": "delta"}
    bench.draw(
        {
            "model": FORMULA,
            "data": FORMULA,
            "clips": {"all": 1},
            "machine": {"processor": "", "kernels": ""},
            "command": FORMULA,
            "rows": [row | {"setting": FORMULA, "ratio_to_ort_fp32": None}],
        },
        path,
    )


@pytest.mark.parametrize("draw", [draw_a_curve, draw_a_tuning, draw_a_benchmark])
def test_no_name_is_read_as_a_formula(draw: Callable[[Path], None], tmp_path: Path) -> None:
    draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
