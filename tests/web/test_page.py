"""The page in a real browser: what it hears, shows and asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web.browser import Page, open_browser

from deltakwt.core.model import Model
from deltakwt.explore.server import Server
from deltakwt.listen.decision import Event

STATUS = "document.getElementById('status')?.textContent"
WORDS = "[...document.querySelectorAll('#words button')].map((b) => b.innerText)"


@pytest.fixture(scope="module")
def page(server: Server) -> Iterator[Page]:
    """The page after it has heard the example sentence, the first sound of its list."""
    with open_browser() as opened:
        opened.resize(1280, 900)
        opened.go(server.url)
        opened.wait(f"{STATUS}?.startsWith('sentence:')")
        yield opened


def shown_words(page: Page) -> list[dict[str, Any]]:
    """Return the words of the list as the user reads them."""
    found = []
    for text in page.evaluate(WORDS):
        label, start, end, score = re.match(  # type: ignore[union-attr]
            r"(\w+)\s+([\d.]+) s to ([\d.]+) s, score ([\d.]+)", text
        ).groups()
        found.append(
            {"label": label, "start": float(start), "end": float(end), "score": float(score)}
        )
    return found


def choose_example(page: Page, name: str) -> None:
    page.evaluate(
        f"""(() => {{
          const list = document.getElementById('example');
          list.value = [...list.options].find((o) => o.textContent === '{name}').value;
          list.dispatchEvent(new Event('change'));
        }})()"""
    )
    page.wait(f"{STATUS}.startsWith('{name}:')")


def test_it_hears_the_sentence_as_python_does(page: Page, sentence_events: list[Event]) -> None:
    found = shown_words(page)
    assert [word["label"] for word in found] == [event.label for event in sentence_events]
    for word, event in zip(found, sentence_events, strict=True):
        assert word["start"] == pytest.approx(event.start, abs=0.11)
        assert word["end"] == pytest.approx(event.end, abs=0.11)
        assert word["score"] == pytest.approx(event.score, abs=0.03)


def test_it_shows_the_cost(page: Page) -> None:
    share = page.evaluate("parseFloat(document.getElementById('m-macs').textContent)")
    assert 0 < share < 60
    cells = page.evaluate("[...document.querySelectorAll('#grid tbody td')].map(c => c.innerText)")
    assert len(cells) % 8 == 0
    assert all(re.fullmatch(r"[\d.]+%", cell) for cell in cells)
    label = page.evaluate("document.getElementById('timeline').getAttribute('aria-label')")
    assert "seconds of sound" in label
    colours = page.evaluate(
        """(() => {
          const canvas = document.getElementById('timeline');
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4)
            seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
          return seen.size;
        })()"""
    )
    assert colours > 100  # something was drawn


def test_the_cursor_moves_by_keys(page: Page) -> None:
    before = page.evaluate("document.getElementById('grid').innerText")
    page.evaluate("document.getElementById('timeline').focus()")
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.command("Input.dispatchKeyEvent", type="keyDown", key=key)
    page.wait(f"document.getElementById('grid').innerText !== {before!r}")


def test_the_panel_says_why_it_fired(page: Page, sentence_events: list[Event]) -> None:
    page.evaluate("document.querySelectorAll('#words button')[1].click()")
    page.wait("document.querySelector('#explain .facts')?.rows.length === 3")
    title = page.evaluate("document.getElementById('explain-title').textContent")
    assert sentence_events[1].label in title
    steps = page.evaluate("[...document.querySelectorAll('#explain li')].map(e => e.textContent)")
    assert len(steps) >= 2
    dense = page.evaluate("document.querySelector('#explain .facts').rows[2].innerText")
    assert dense.startswith("dense")
    page.wait("document.querySelectorAll('#explain .facts')[1].rows.length >= 2")
    limits = page.evaluate("document.querySelectorAll('#explain .facts')[1].innerText")
    assert "×" in limits
    page.evaluate("document.querySelector('#explain .close').click()")
    assert page.evaluate("document.getElementById('explain').hidden")


def test_a_dropped_file_is_heard(page: Page, server: Server) -> None:
    page.evaluate(
        """(async () => {
          const data = await (await fetch('sounds/1.wav')).arrayBuffer();
          const moved = new DataTransfer();
          moved.items.add(new File([data], 'dropped.wav', {type: 'audio/wav'}));
          const options = {dataTransfer: moved, bubbles: true, cancelable: true};
          document.body.dispatchEvent(new DragEvent('dragover', options));
          document.body.dispatchEvent(new DragEvent('drop', options));
        })()"""
    )
    page.wait(f"{STATUS}.startsWith('dropped.wav:')")
    assert [word["label"] for word in shown_words(page)] == ["yes"]
    assert page.evaluate("document.getElementById('drop').hidden")


def test_a_file_that_is_no_sound_is_refused(page: Page, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("this is not a sound")
    page.choose_file("#file", tmp_path / "text.wav")
    page.wait(f"{STATUS}.includes('cannot be read as sound')")


def test_sliders_and_profiles_change_the_cost(page: Page, model: Model) -> None:
    choose_example(page, "yes")
    macs = "parseFloat(document.getElementById('m-macs').textContent)"
    before = page.evaluate(macs)
    page.evaluate(
        """(() => {
          const slider = document.getElementById('slider-mlp_in');
          slider.value = 4;
          slider.dispatchEvent(new Event('input'));
        })()"""
    )
    page.wait(f"{macs} < {before - 0.1}")
    assert page.evaluate("document.getElementById('setting').value") == "custom"
    assert "not measured" in page.evaluate("document.getElementById('tradeoff-text').textContent")
    page.evaluate("document.querySelector('input[name=sites][value=\"0\"]').click()")
    page.wait(f"{macs} > 90")
    default = model.profiles.default
    page.evaluate(
        f"""(() => {{
          const list = document.getElementById('setting');
          list.value = '{default}';
          list.dispatchEvent(new Event('change'));
        }})()"""
    )
    page.wait(f"Math.abs({macs} - {before}) < 0.2")


@pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (768, "light"), (390, "dark")])
def test_it_fits_and_has_names_at_every_size(page: Page, width: int, theme: str) -> None:
    page.resize(width, 900, theme)
    page.wait(f"document.documentElement.dataset.theme === '{theme}'")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    unnamed = page.evaluate(
        """[...document.querySelectorAll('button, input, select, canvas')].filter((e) =>
          !(e.getAttribute('aria-label') || e.innerText || e.labels?.[0]?.innerText || e.hidden)
        ).map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    assert contrast(page, "--soft", "--card") >= 4.5
    assert contrast(page, "--text", "--card") >= 7
    assert contrast(page, "--on-accent", "--accent") >= 4.5


def contrast(page: Page, one: str, two: str) -> float:
    """The contrast of two colours of the style sheet, as WCAG defines it."""

    def light(name: str) -> float:
        text = page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()"
        )
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(two)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_no_error_was_logged_and_no_request_left(page: Page, server: Server) -> None:
    assert page.console == []
    assert len(page.requests) > 15
    assert all(url.startswith((server.url, "data:", "blob:")) for url in page.requests)


def test_it_hears_a_microphone(server: Server, wave: Path) -> None:
    flags = (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={wave}",
    )
    with open_browser(*flags) as page:
        page.go(server.url)
        page.wait(f"{STATUS}?.startsWith('sentence:')")
        page.evaluate("document.getElementById('listen').click()")
        page.wait(f"{STATUS}.startsWith('Listening')")
        page.wait(f"{WORDS}.length")
        assert shown_words(page)[0]["label"] == "stop"
        page.evaluate("document.getElementById('listen').click()")
        page.wait(f"{STATUS}.startsWith('Stopped')")
        assert page.console == []
