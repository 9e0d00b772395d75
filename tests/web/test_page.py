"""The page in a real browser: what it receives, shows and asks for."""

from __future__ import annotations

import json
import posixpath
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from conftest import CLIPS
from web.browser import Page, open_browser
from web.conftest import serve

from deltakwt.core.model import Model
from deltakwt.explore.server import Server
from deltakwt.explore.site import Site
from deltakwt.listen.decision import Event

STATUS = "document.getElementById('status')?.textContent"
CHECKS = (Path(__file__).parent / "checks.js").read_text()
WORDS = "[...document.querySelectorAll('#words button')].map((b) => b.innerText)"


@pytest.fixture(scope="module")
def page(server: Server) -> Iterator[Page]:
    """The page after it has processed the example sentence, the first sound of its list."""
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
    """In fixed point the bits are the same."""
    assert page.evaluate("document.getElementById('arithmetic').value") == "fixed"
    found = shown_words(page)
    assert [word["label"] for word in found] == [event.label for event in sentence_events]
    for word, event in zip(found, sentence_events, strict=True):
        assert word["start"] == pytest.approx(event.start, abs=0.0051)
        assert word["end"] == pytest.approx(event.end, abs=0.0051)
        assert word["score"] == pytest.approx(event.score, abs=0.0006)


def test_its_logits_have_the_bits_of_python(page: Page, server: Server, model: Model) -> None:
    """In Chromium, whose engine has relaxed instructions, with and without deltas."""
    for setting in (None, "dense"):
        found = page.evaluate(
            f"""(async () => {{
              const {{ load }} = await import('./deltakwt/index.js');
              const {{ readWav }} = await import('./sound.js');
              const spotter = await load('models/0.dkw');
              const sound = readWav(await (await fetch('sounds/1.wav')).arrayBuffer());
              const setting = {json.dumps(setting)} ?? spotter.setting;
              return [...(await spotter.explain(sound.slice(0, 16000), {{ setting }})).logits];
            }})()"""
        )
        logits = model(CLIPS / "yes.flac", setting=setting).logits
        np.testing.assert_array_equal(np.array(found, np.float32), logits)


def test_floats_can_be_chosen(page: Page, sentence_events: list[Event]) -> None:
    def choose(value: str) -> list[dict[str, Any]]:
        page.evaluate(
            f"""(() => {{
              document.getElementById('status').textContent = '';
              const list = document.getElementById('arithmetic');
              list.value = '{value}';
              list.dispatchEvent(new Event('change'));
            }})()"""
        )
        page.wait(f"{STATUS}.startsWith('sentence:')")
        return shown_words(page)

    found = choose("float")
    assert [word["label"] for word in found] == [event.label for event in sentence_events]
    assert found != choose("fixed")  # the scores differ


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
    assert page.evaluate("document.getElementById('grid').innerText") != before


def test_a_window_that_was_not_computed_shows_the_one_before(page: Page) -> None:
    """The end of the sentence is silence: no word can depend on most of its windows."""
    hint = "document.getElementById('grid-hint').textContent"
    assert "not computed" not in page.evaluate(hint)
    page.evaluate("document.getElementById('timeline').focus()")
    for key in ("End", *["ArrowLeft"] * 5):
        page.command("Input.dispatchKeyEvent", type="keyDown", key=key)
        if "not computed" in page.evaluate(hint):
            break
    assert "not computed" in page.evaluate(hint)
    cells = page.evaluate("[...document.querySelectorAll('#grid tbody td')].map(c => c.innerText)")
    assert any(float(cell.rstrip("%")) > 5 for cell in cells)
    page.command("Input.dispatchKeyEvent", type="keyDown", key="Home")
    page.wait(f"!{hint}.includes('not computed')")


def test_the_panel_says_why_it_fired(page: Page, sentence_events: list[Event]) -> None:
    page.evaluate("document.querySelectorAll('#words button')[1].click()")
    page.wait("document.querySelector('#explain .facts')?.rows.length === 3")
    title = page.evaluate("document.getElementById('explain-title').textContent")
    assert sentence_events[1].label in title
    steps = page.evaluate("[...document.querySelectorAll('#explain li')].map(e => e.textContent)")
    assert len(steps) >= 2
    dense = page.evaluate("document.querySelector('#explain .facts').rows[2].innerText")
    assert dense.startswith("dense")
    page.wait("document.querySelectorAll('#explain .facts')[1].rows.length >= 3")
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
    assert page.evaluate("document.getElementById('example').value") == ""


def test_a_file_that_is_no_sound_is_refused(page: Page, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("this is not a sound")
    page.choose_file("#file", tmp_path / "text.wav")
    page.wait(f"{STATUS}.includes('cannot be read as sound')")
    assert "text.wav" in page.evaluate(STATUS)


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
    assert page.unnamed_controls() == []
    assert page.evaluate(CHECKS) == []


def test_the_model_is_asked_for_once_and_before_the_worker_starts(server: Server) -> None:
    with open_browser() as page:
        page.go(server.url)
        page.wait(f"{STATUS}?.startsWith('sentence:')")
        names = [url.removeprefix(server.url) for url in page.requests]
        assert names.count("models/0.dkw") == 1
        assert names.index("models/0.dkw") < names.index("main.js")
        page.wait("performance.getEntriesByName('word').length")


def test_every_module_is_loaded_at_once(server: Server) -> None:
    """A module that is not preloaded is found only after the one that imports it has arrived."""
    named = set(re.findall(r'modulepreload" href="([^"]+)"', text(server, "index.html")))
    needed: set[str] = set()
    waiting = ["main.js"]
    while waiting:
        module = waiting.pop()
        for found in re.findall(r'from "(\./[^"]+)"', text(server, module)):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(module), found))
            if path not in needed:
                needed.add(path)
                waiting.append(path)
    assert named == needed


def text(server: Server, name: str) -> str:
    return server.site.files[name]().decode()


def test_no_error_was_logged_and_no_request_left(page: Page, server: Server) -> None:
    assert page.console == []
    assert len(page.requests) > 15
    assert all(url.startswith((server.url, "data:", "blob:")) for url in page.requests)


def test_a_page_on_a_web_server_opens_without_it(trained: str, tmp_path: Path) -> None:
    """After the first visit. Any server of files will do."""
    site = Site.of([trained], [CLIPS / "yes.flac"], is_kept=True)
    for name, data in site.static_files():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    handler = partial(QuietHandler, directory=str(tmp_path))
    with open_browser() as page:
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/"
            page.go(url)
            page.wait(f"{STATUS}?.startsWith('yes:')")
            page.wait("navigator.serviceWorker.ready.then(() => true)")
            server.shutdown()
        page.evaluate("document.getElementById('status').textContent = ''")
        page.go(url)
        page.wait(f"{STATUS}?.startsWith('yes:')")
        assert [word["label"] for word in shown_words(page)] == ["yes"]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


def test_one_slider_moves_along_the_measured_curve(page: Page, server: Server) -> None:
    """With curves, the accuracy of all thresholds times a factor is known."""
    choose_example(page, "yes")
    page.evaluate(
        """(async () => {
          const { Thresholds } = await import('./thresholds.js');
          const [canvas, text, root] = ['canvas', 'p', 'div'].map((n) => document.createElement(n));
          const radios = ['0', '6', '8'].map((value) =>
            Object.assign(document.createElement('input'), { type: 'radio', name: 'test', value }));
          document.body.append(canvas, text, root);
          const at = (factor, accuracy, macs_percent) => ({ factor, accuracy, macs_percent });
          const curve = [at(0.5, 96, 40), at(1, 95, 20), at(2, 90, 10)];
          const about = { setting: 'a', thresholds: { x: 1, q: 2 }, front_end: {}, profiles: {},
            curves: { clips: 9, base: 'a', factors: [0.5, 1, 2], curves: { 6: curve, 8: curve },
              settings: { dense: { accuracy: 97, macs_percent: 100 } } } };
          const onChange = (setting) => (window.moved = setting);
          const made = new Thresholds(root, { canvas, text, radios, onChange });
          made.setup(about, { name: 'a', thresholds: about.thresholds, front_end: {} });
          const all = root.querySelector('input');
          all.value = 1.5;
          all.dispatchEvent(new Event('input'));
          window.made = { text, nodes: [canvas, text, root] };
        })()"""
    )
    page.wait("window.made.text.textContent.includes('92.50% right with 15.0% of the MACs')")
    assert page.evaluate("window.moved.thresholds") == {"x": 1.5, "q": 3}
    page.evaluate("window.made.nodes.forEach((node) => node.remove())")


def test_it_follows_live_sound(trained: str, sentence_events: list[Event]) -> None:
    """The page of `explore --live` shows the words of the sound that the server sends."""

    class Sentence:
        def follow(self) -> Iterator[bytes]:
            data = soundfile.read(CLIPS / "sentence.flac", dtype="int16")[0].tobytes()
            yield from (
                data[at : at + 3201] for at in range(0, len(data), 3201)
            )  # halves of samples

    with serve(Site.of([trained], [], is_live=True), Sentence()) as server, open_browser() as page:
        page.go(server.url)
        page.wait(f"{STATUS} === 'The sound has ended.'")
        found = [word["label"] for word in shown_words(page)]
        assert found == [event.label for event in sentence_events]
        assert not page.evaluate("document.getElementById('play').disabled")
        assert page.console == []


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
