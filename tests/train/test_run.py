"""Training learns, stops and goes on exactly, in one process or two, and loses nothing."""

from __future__ import annotations

import csv
import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deltakwt.core.errors import DeltakwtError
from deltakwt.train import checkpoint, loop
from deltakwt.train.loop import Progress, Trainer
from deltakwt.train.plan import Plan
from deltakwt.train.run import Nobody, Request, train
from deltakwt.weights.folder import Weights, load_folder


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)


class Ear(Nobody):
    def __init__(self) -> None:
        self.told: list[Progress] = []

    def step(self, now: Progress) -> None:
        self.told.append(now)


STEP = Trainer._step


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Ctrl-C was pressed during that step."""

    def stepping(self: Trainer) -> tuple[float, bool]:
        self.stop = self.state.step + 1 == step
        return STEP(self)

    monkeypatch.setattr(Trainer, "_step", stepping)


def same(one: Weights, other: Weights) -> bool:
    return all(np.array_equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def test_a_toy_task_is_learned_and_the_folder_is_a_model(toy_plan: Plan, tmp_path: Path) -> None:
    ear = Ear()
    plan = replace(toy_plan, epochs=12, masking=0.3, token_groups=((0.6, 3),), delta_from=0.8)
    plan = replace(plan, delta="0.1_0.1_0.1_0.1_0.001_0.1_0.1_0.1")
    made = train(Request(tmp_path / "run", plan), ear)
    assert made is not None
    assert made.training["validation"] > 0.8
    assert same(load_folder(tmp_path / "run"), made)
    assert ear.told[-1].step == ear.told[-1].steps
    assert ear.told[-1].seconds_left == 0
    with open(tmp_path / "run" / "log.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == [str(n) for n in range(1, 13)]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])


def test_a_stopped_run_goes_on_to_the_very_same_weights(
    toy_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(Request(tmp_path / "whole", toy_plan))
    with monkeypatch.context() as patch:
        stop_at(7, patch)
        assert train(Request(tmp_path / "parts", toy_plan)) is None
        stop_at(11, patch)
        assert train(Request(tmp_path / "parts", Plan(), resume=True)) is None
    parts = train(Request(tmp_path / "parts", Plan(), resume=True))
    assert whole is not None
    assert parts is not None
    assert same(whole, parts)


def test_the_seed_decides(toy_plan: Plan, tmp_path: Path) -> None:
    plan = replace(toy_plan, epochs=1)
    made = [
        train(Request(tmp_path / name, replace(plan, seed=seed)))
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    ]
    one, again, other = made
    assert one is not None
    assert again is not None
    assert other is not None
    assert same(one, again)
    assert not same(one, other)


TWO_PROCESSES = """
import sys
from pathlib import Path
from deltakwt.core.config import SIZES, Config
from deltakwt.train.plan import Plan
from deltakwt.train.run import Nobody, Request, train
SIZES["tiny"] = Config(dim=16, heads=2, mlp=32, layers=2)
data, out = sys.argv[1:]
plan = Plan(data=(data,), size="tiny", labels=("_silence_", "_unknown_", "low", "high"), epochs=2,
            batch=16, shard=8, rate=3e-3, ema=0.9)
train(Request(Path(out), plan, threads=1))
"""


def test_two_processes_by_torchrun_train_the_same_model(toy_plan: Plan, tmp_path: Path) -> None:
    alone = train(Request(tmp_path / "alone", replace(toy_plan, epochs=2)))
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(script), toy_plan.data[0], str(tmp_path / "two")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=120)
    together = load_folder(tmp_path / "two")
    assert alone is not None
    for name, tensor in alone.tensors.items():
        np.testing.assert_allclose(together.tensors[name], tensor, atol=2e-4)


def test_a_full_disk_keeps_the_checkpoint_before(
    toy_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_at(3, patch)
        train(Request(tmp_path, toy_plan))
        kept = (tmp_path / checkpoint.NAME).read_bytes()

        def full(tensors: object, path: Path, metadata: object) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(checkpoint, "save_file", full)
        stop_at(5, patch)
        with pytest.raises(DeltakwtError, match="No space left.*--resume"):
            train(Request(tmp_path, Plan(), resume=True))
    assert (tmp_path / checkpoint.NAME).read_bytes() == kept
    assert not list(tmp_path.glob("*.part"))
    assert train(Request(tmp_path, Plan(), resume=True)) is not None


def test_checkpoints_are_written_while_training_goes_on(
    toy_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    written = []

    class Reader(Nobody):
        def step(self, now: Progress) -> None:
            written.append(checkpoint.load(tmp_path)[1].step)

    train(Request(tmp_path, replace(toy_plan, epochs=1)), Reader())
    assert written == list(range(1, len(written) + 1))


def test_a_teacher_that_knows_the_task_is_followed(toy_plan: Plan, tmp_path: Path) -> None:
    train(Request(tmp_path / "teacher", toy_plan))
    plan = replace(toy_plan, teacher=str(tmp_path / "teacher"), epochs=1)
    assert train(Request(tmp_path / "student", plan)) is not None
    wrong = replace(plan, labels=("_silence_", "_unknown_", "low"))
    with pytest.raises(DeltakwtError, match="other words"):
        train(Request(tmp_path / "wrong", wrong))


def test_going_on_from_a_model_keeps_its_body_and_makes_a_new_head(
    toy_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = train(Request(tmp_path / "base", replace(toy_plan, epochs=1)))
    plan = replace(toy_plan, labels=("_silence_", "_unknown_", "middle"), epochs=1, rate=1e-9)
    made = train(Request(tmp_path / "tuned", plan, start=str(tmp_path / "base")))
    assert base is not None
    assert made is not None
    assert made.config.labels == plan.labels
    np.testing.assert_allclose(
        made.tensors["blocks.1.q.weight"], base.tensors["blocks.1.q.weight"], atol=1e-5
    )


def test_growing_starts_where_the_narrow_model_ended(toy_plan: Plan, tmp_path: Path) -> None:
    narrow = train(Request(tmp_path / "narrow", replace(toy_plan, epochs=2)))
    plan = replace(toy_plan, size="wide", epochs=1, rate=1e-9)
    wide = train(Request(tmp_path / "wide", plan, grow=str(tmp_path / "narrow")))
    assert narrow is not None
    assert wide is not None
    assert wide.tensors["blocks.0.mlp_in.weight"].shape == (32, 64)
    assert wide.training["validation"] == pytest.approx(narrow.training["validation"])


def test_what_is_in_the_way_is_said(toy_plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeltakwtError, match="cannot be written"):
        train(Request(tmp_path / "file", toy_plan))
    with pytest.raises(DeltakwtError, match="no checkpoint to resume"):
        train(Request(tmp_path / "nothing", toy_plan, resume=True))
    train(Request(tmp_path / "run", replace(toy_plan, epochs=1)))
    with pytest.raises(DeltakwtError, match="holds a run already"):
        train(Request(tmp_path / "run", toy_plan))
    damaged = tmp_path / "run" / checkpoint.NAME
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.raises(DeltakwtError, match="damaged checkpoint"):
        train(Request(tmp_path / "run", toy_plan, resume=True))
    with pytest.raises(DeltakwtError, match="another shape"):
        train(Request(tmp_path / "other", replace(toy_plan, size="kwt-1"), start=_tiny(tmp_path)))


def _tiny(folder: Path) -> str:
    return str(folder / "run")
