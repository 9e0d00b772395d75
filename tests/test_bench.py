"""The benchmark: the same answers from every runtime, and reasons for those that cannot run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from deltakwt.bench import timing
from deltakwt.bench.breakdown import breakdown, stretched, stretched_features
from deltakwt.bench.runners import PEERS, mode_of, our_runners, probe
from deltakwt.core.config import KEYWORDS, KWT1, KWT2, Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import MissingExtra
from deltakwt.core.setting import DENSE, Setting, Thresholds
from deltakwt.weights.folder import Weights, random_tensors, save_folder
from deltakwt.weights.onnx_model import to_onnx

SMALL = Config(dim=16, heads=2, mlp=32, layers=2)
THETA = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1")
SETTING = Setting(THETA, name="s")


@pytest.fixture(scope="module")
def weights() -> Weights:
    return Weights(SMALL, random_tensors(SMALL, seed=3))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test-set folder of tones and noise."""
    root = tmp_path_factory.mktemp("set")
    rng = np.random.default_rng(0)
    for word in (*KEYWORDS, "_unknown_", "_silence_"):
        (root / word).mkdir()
        for n in range(2):
            tone = 0.1 * np.sin(np.arange(16000) * (0.01 + rng.random() / 4))
            noise = 0.01 * rng.standard_normal(16000)
            sound = noise if word == "_silence_" else tone + noise
            name = f"a{n}b0c0d0_nohash_{n}.wav"
            soundfile.write(root / word / name, sound, 16000)
    return root


def run_bench(folder: Path, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["bench", "--model", str(folder), "--data", str(data), *options]
    return subprocess.run(
        [sys.executable, "-m", "deltakwt", *command], capture_output=True, text=True
    )


def features(engine: Engine, seed: int = 1) -> np.ndarray:
    sound = 0.1 * np.random.default_rng(seed).standard_normal(16000)
    return engine.features(sound.astype(np.float32))


@pytest.mark.parametrize("config", [SMALL, KWT1, KWT2], ids=["small", "kwt-1", "kwt-2"])
def test_onnx_graph_gives_our_logits(config: Config) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    tensors = random_tensors(config, seed=5)
    engine = Engine(config, tensors)
    x = features(engine)
    session = onnxruntime.InferenceSession(to_onnx(config, tensors))
    logits = session.run(None, {"features": x[None]})[0][0]
    assert np.abs(logits - engine.dense(x)).max() < 1e-3


@pytest.mark.parametrize("peer", ["ort", "ort-int8", "torch"])
def test_a_peer_that_runs_is_found_to_run(peer: str, weights: Weights) -> None:
    pytest.importorskip("torch" if peer == "torch" else "onnxruntime")
    assert probe(peer, weights, Path("model")) is None


def test_a_peer_that_cannot_run_says_why(weights: Weights) -> None:
    assert "tflite" in str(probe("litert", weights, Path("folder")))


def test_every_exact_runner_gives_the_same_answer(weights: Weights, data: Path) -> None:
    pytest.importorskip("onnxruntime")
    engine = Engine(SMALL, weights.tensors)
    track = timing.draw_clips(data, clips=12, noise=2)
    runners = [PEERS["ort"](weights, data), *our_runners(engine, [])]
    for runner in runners:
        assert timing.agreement(runner, engine, track).all(), runner.engine


def test_clips_have_their_parts_and_a_last_clip_of_zeros(data: Path) -> None:
    track = timing.draw_clips(data, clips=20, noise=2)
    assert not track.audio[-1].any()
    words, noise, zero = (track.members(part).sum() for part in ("words", "noise", "zero"))
    assert (noise, zero) == (2, 1)
    assert track.members("all").sum() == words + noise == len(track.audio) - 1


def test_rows_have_a_ratio_to_the_baseline(weights: Weights, data: Path) -> None:
    pytest.importorskip("onnxruntime")
    engine = Engine(SMALL, weights.tensors)
    track = timing.draw_clips(data, clips=4, noise=1)
    runners = [PEERS["ort"](weights, data), *our_runners(engine, [SETTING])]
    same = [timing.agreement(runner, engine, track) for runner in runners]
    best = timing.time_runners(runners, engine, track, rounds=1)
    rows = timing.rows(runners, best, same, track)
    for row in rows:
        baseline = next(r for r in rows if r["part"] == row["part"])
        assert row["ratio_to_ort_fp32"] == pytest.approx(baseline["ms"] / row["ms"], rel=0.05)
    assert {row["mode"] for row in rows} == {"dense", "model"}


def test_breakdown_adds_up(weights: Weights) -> None:
    engine = Engine(SMALL, weights.tensors)
    clips = [features(engine, seed) for seed in range(3)]
    found = breakdown(engine, clips, THETA)
    products = sum(line["us"] for line in found["products"])
    assert products + sum(found["other_us"].values()) == pytest.approx(found["delta_us"])
    assert sum(layer["delta_us"] for layer in found["layers"]) == pytest.approx(found["delta_us"])
    assert 0 < found["macs_share"] < found["executed_share"] < 1
    by_product = {line["product"]: line for line in found["products"]}
    assert by_product["qkt"]["executed"] > by_product["qkt"]["macs"]


def test_where_a_setting_uses_deltas() -> None:
    assert mode_of(DENSE) == "dense"
    assert mode_of(SETTING) == "model"
    assert mode_of(Setting(Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05"))) == "mhsa"


def test_without_torch_one_line_says_what_to_install(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltakwt.train.net", None)
    with pytest.raises(MissingExtra, match="pip install .*torch|train"):
        PEERS["torch"](weights, Path("model"))


def test_benchmark_does_not_import_torch() -> None:
    code = "import sys, deltakwt.bench.benchmark; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_stretched_model_runs_on_as_many_tokens(weights: Weights) -> None:
    config, tensors = stretched(weights, 396)
    engine = Engine(config, tensors)
    sound = np.zeros(16000, np.float32)
    rows = stretched_features(engine, sound, 395, SETTING)
    assert np.isfinite(engine.delta(rows, THETA).logits).all()
    same, _ = stretched(weights, 99)
    assert same == SMALL


def test_command_prints_one_json_document(weights: Weights, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("matplotlib")
    save_folder(tmp_path / "m", weights)
    small = ["--clips", "4", "--noise", "1", "--rounds", "1", "--peer", "ort"]
    more = ["--breakdown", "--growth", "--out", str(tmp_path / "out"), "--json"]
    done = run_bench(tmp_path / "m", data, *small, *more)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {"machine", "model", "clips", "rows", "breakdowns", "growth"} <= document.keys()
    keys = {"engine", "mode", "input", "part", "ms", "ratio_to_ort_fp32", "agreement"}
    assert all(keys <= row.keys() for row in document["rows"])
    assert (tmp_path / "out" / "bench-m.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "out" / "bench-m.json").read_text()) == document


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--peer", "abacus"], "unknown"), (["--grow", "kwt-9"], "kwt-1, kwt-2, kwt-3")],
)
def test_nonsense_is_refused_in_one_line(
    options: list[str], message: str, weights: Weights, data: Path, tmp_path: Path
) -> None:
    save_folder(tmp_path / "m", weights)
    done = run_bench(tmp_path / "m", data, "--clips", "2", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
