"""`deltakwt explain`: one sound as JSON, picture, page, and drawing in the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image
from report.browser import open_page

from deltakwt.report import explain_view

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def burst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Silence, a burst, silence."""
    sound = np.zeros(16_000, np.float32)
    sound[7000:9000] = np.random.default_rng(0).normal(0, 0.2, 2000)
    path = tmp_path_factory.mktemp("sounds") / "burst.wav"
    soundfile.write(path, sound, 16_000)
    return path


@pytest.fixture(scope="module")
def explained(burst: Path, random_model: Path) -> dict[str, Any]:
    from deltakwt import load
    from deltakwt.report.build import chosen_setting
    from deltakwt.report.explain import explain

    model = load(random_model)
    return explain(model, chosen_setting(model), burst)[0]


def test_work_follows_the_sound(explained: dict[str, Any]) -> None:
    tokens = np.array(explained["token_percent"])[1:]  # one a frame
    during, before = tokens[44:54].mean(), tokens[5:40].mean()
    assert during > 3 * before
    assert tokens[0] > 90  # the first token is always whole


def test_document_agrees_with_itself(explained: dict[str, Any]) -> None:
    scores = explained["scores"]
    assert sum(s["delta"] for s in scores.values()) == pytest.approx(1, abs=1e-5)
    assert max(scores, key=lambda label: scores[label]["delta"]) == explained["label"]
    assert len(explained["macs"]["layers"]) == len(explained["token_layers"]) == 12
    by_token = np.mean(explained["token_layers"])
    assert by_token == pytest.approx(explained["macs"]["model_percent"], rel=0.01)


def test_json_and_drawing(in_process: Run, burst: Path, random_model: Path) -> None:
    done = in_process("explain", burst, "--model", random_model, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["file"] == "burst.wav"
    for columns in (60, 80, 200):
        drawn = in_process("explain", burst, "--model", random_model, COLUMNS=str(columns)).stdout
        assert max(map(len, drawn.splitlines())) <= columns
        for word in ("burst.wav", "sound", "spectrum", "work", "layer 12", "executed"):
            assert word in drawn
    (wave,) = re.findall(r"^ +sound (.*)$", drawn, re.MULTILINE)
    assert "█" in wave
    assert wave.strip("▁▂▃▄▅▆▇█ ") == ""


@pytest.mark.parametrize("ending", ["png", "svg", "html", "json"])
def test_files(deltakwt: Run, burst: Path, random_model: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"burst.{ending}"
    done = deltakwt("explain", burst, "--model", random_model, "--out", out)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*burst*")) == [out]
    if ending == "png":
        with Image.open(out) as image:
            assert image.height > 700
    if ending == "svg":
        assert "burst.wav" in out.read_text()
    if ending == "json":
        assert json.loads(out.read_text())["label"]
    if ending == "html":
        visit = open_page(out, tmp_path)
        assert visit.console == []
        assert visit.requests == []
        assert "<audio" in visit.dom
        assert "<svg" in visit.dom


def test_a_long_sound_is_explained_where_asked(
    in_process: Run, random_model: Path, tmp_path: Path
) -> None:
    sound = np.random.default_rng(1).normal(0, 0.1, 48_000).astype(np.float32)
    soundfile.write(tmp_path / "long.wav", sound, 16_000)
    done = in_process("explain", tmp_path / "long.wav", "-m", random_model, "--at", 1.5, "--json")
    found = json.loads(done.stdout)
    assert found["start"] == pytest.approx(1.5)
    assert found["seconds"] == pytest.approx(3.0)
    anywhere = json.loads(
        in_process("explain", tmp_path / "long.wav", "-m", random_model, "--json").stdout
    )
    assert 0 <= anywhere["start"] <= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.wav"], "nothing.wav: no such file"),
        (["README.md"], "not readable as sound"),
        (["burst.wav", "--out", "burst.pdf"], "must end in .png, .svg, .html, .json"),
        (["burst.wav", "--out", "no/where.png"], "there is no folder"),
        (["burst.wav", "--at", "7"], "has no second that starts there"),
        (["burst.wav", "--thresholds", "1_2"], "2 values"),
    ],
)
def test_bad_input_is_one_line(
    in_process: Run,
    burst: Path,
    random_model: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "README.md").write_text("no sound")
    known = {"burst.wav": str(burst), "README.md": str(tmp_path / "README.md")}
    given = [known.get(a, a) for a in arguments]
    done = in_process("explain", *given, "--model", random_model)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_bars_have_eighths() -> None:
    assert explain_view.bar(0, 4) == "    "
    assert explain_view.bar(100, 4) == "████"
    assert explain_view.bar(50, 4) == "██  "
    assert len(explain_view.bar(33.3, 7)) == 7
    assert explain_view.drawn(np.array([0, 0.5, 1]), 0, 1, " ▄█") == " ▄█"
