"""Training learns, stops and resumes exactly, in one process or two."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from deltakwt.core.config import SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import load
from deltakwt.data.recordings import Places
from deltakwt.data.sources import DataSource, write_source
from deltakwt.train import checkpoint, loop
from deltakwt.train.bank import Bank, make_bank, standardise
from deltakwt.train.examples import ShardMaker
from deltakwt.train.loop import Progress, Trainer
from deltakwt.train.negatives import HardNegatives
from deltakwt.train.net import Kwt
from deltakwt.train.plan import Plan, with_negatives
from deltakwt.train.training import NoReporter, TrainingRequest, train
from deltakwt.weights.folder import Weights, load_folder

WIDE = (32, 4, 64, 2)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def speech_plan(
    toy_plan: Plan, toy_speech: Path, toy_sounds: Path, monkeypatch: pytest.MonkeyPatch
) -> Plan:
    """A plan with running speech, sounds, rooms, and hard negatives from the first place on."""
    monkeypatch.setattr(HardNegatives, "FEWEST", 2)
    monkeypatch.setattr(loop, "SPEECH_CUTS", 100)
    folders = {"speech": (str(toy_speech),), "sounds": (str(toy_sounds),), "rooms": "noise"}
    return with_negatives(replace(toy_plan, epochs=2, **folders))


class Recorder(NoReporter):
    def __init__(self) -> None:
        self.steps: list[Progress] = []

    def step(self, now: Progress) -> None:
        self.steps.append(now)


STEP = Trainer._step


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as if Ctrl-C was pressed during that step."""

    def stepping(self: Trainer) -> tuple[float, bool]:
        self.stop = self.state.step + 1 == step
        return STEP(self)

    monkeypatch.setattr(Trainer, "_step", stepping)


def run(folder: Path, plan: Plan, **request: object) -> Weights:
    """Train to the end, with the decoded audio beside the run."""
    made = train(TrainingRequest(folder, plan, cache=folder.parent / "audio", **request))  # type: ignore[arg-type]
    assert made is not None
    return made


def same(one: Weights, other: Weights) -> bool:
    return all(np.array_equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def test_a_toy_task_is_learned_and_the_folder_is_a_model(toy_plan: Plan, tmp_path: Path) -> None:
    recorder = Recorder()
    plan = replace(toy_plan, epochs=16, masking=0.3, token_groups=((0.6, 3),), delta_from=0.8)
    plan = replace(plan, delta="0.1_0.1_0.1_0.1_0.001_0.1_0.1_0.1")
    made = train(TrainingRequest(tmp_path / "run", plan), recorder)
    assert made is not None
    assert made.training["validation"] > 0.8
    assert same(load_folder(tmp_path / "run"), made)
    assert recorder.steps[-1].step == recorder.steps[-1].steps
    assert recorder.steps[-1].seconds_left == 0
    with open(tmp_path / "run" / "log.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == [str(n) for n in range(1, 17)]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert np.float32(1e-40) * np.float32(1) > 0  # denormals are zero during training only


def test_running_speech_is_rejected_and_the_facts_are_stored(
    speech_plan: Plan, tmp_path: Path
) -> None:
    data = Path(speech_plan.speech[0])
    write_source(data, DataSource("Sweeps", "CC0"))
    made = run(tmp_path / "run", replace(speech_plan, epochs=12))
    facts = made.training
    assert facts["speech_accepts"] < 0.1
    assert facts["calibration"]["clips"] > 100
    assert 0 <= facts["calibration"]["error"] <= 1
    roles = {source["name"]: (source["role"], source["licence"]) for source in facts["sources"]}
    assert roles["Sweeps"] == ("speech", "CC0")
    assert "licence not stated" in {licence for _, licence in roles.values()}
    assert load(tmp_path / "run")(np.zeros(16_000, np.float32)).label == "_silence_"


def test_a_stopped_run_resumes_to_the_same_weights(
    speech_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With speech, so that the pool of hard negatives must survive too."""
    whole = run(tmp_path / "whole", speech_plan)
    request = TrainingRequest(tmp_path / "parts", speech_plan, cache=tmp_path / "audio")
    with monkeypatch.context() as patch:
        stop_at(5, patch)
        assert train(request) is None
        assert checkpoint.load(tmp_path / "parts")[1].hard.scores
        stop_at(9, patch)
        assert train(replace(request, plan=Plan(), resume=True)) is None
    parts = train(replace(request, plan=Plan(), resume=True))
    assert parts is not None
    assert same(whole, parts)


def test_the_seed_decides(toy_plan: Plan, tmp_path: Path) -> None:
    plan = replace(toy_plan, epochs=1)
    one, again, other = (
        run(tmp_path / name, replace(plan, seed=seed))
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    )
    assert same(one, again)
    assert not same(one, other)


TWO_PROCESSES = """
import json, sys
from pathlib import Path
from deltakwt.train import loop
from deltakwt.train.negatives import HardNegatives
from deltakwt.train.plan import Plan
from deltakwt.train.training import TrainingRequest, train
HardNegatives.FEWEST = 2
loop.SPEECH_CUTS = 100
plan, out, cache = sys.argv[1:]
train(TrainingRequest(Path(out), Plan.from_json(json.loads(plan)), threads=1, cache=Path(cache)))
"""


def test_two_processes_by_torchrun_train_the_same_model(speech_plan: Plan, tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", speech_plan)
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(script), json.dumps(speech_plan.to_json())]
    command += [str(tmp_path / "two"), str(tmp_path / "audio")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=300)
    together = load_folder(tmp_path / "two")
    for name, tensor in alone.tensors.items():
        np.testing.assert_allclose(together.tensors[name], tensor, atol=5e-4)
    pools = [checkpoint.load(tmp_path / name)[1].hard.scores for name in ("alone", "two")]
    assert pools[0].keys() == pools[1].keys()


def test_a_full_disk_keeps_the_previous_checkpoint(
    toy_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_at(3, patch)
        train(TrainingRequest(tmp_path, toy_plan))
        kept = (tmp_path / checkpoint.NAME).read_bytes()

        def full(tensors: object, path: Path, metadata: object) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(checkpoint, "save_file", full)
        stop_at(5, patch)
        with pytest.raises(DeltakwtError, match=r"No space left.*--resume"):
            train(TrainingRequest(tmp_path, Plan(), resume=True))
    assert (tmp_path / checkpoint.NAME).read_bytes() == kept
    assert not list(tmp_path.glob("*.part"))
    assert train(TrainingRequest(tmp_path, Plan(), resume=True)) is not None


def test_checkpoints_are_written_during_training(
    toy_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    written = []

    class Reader(NoReporter):
        def step(self, now: Progress) -> None:
            written.append(checkpoint.load(tmp_path)[1].step)

    train(TrainingRequest(tmp_path, replace(toy_plan, epochs=1)), Reader())
    assert written == list(range(1, len(written) + 1))


def test_a_teacher_must_have_the_labels_that_are_learned(toy_plan: Plan, tmp_path: Path) -> None:
    run(tmp_path / "teacher", toy_plan)
    plan = replace(toy_plan, teachers=(str(tmp_path / "teacher"),), epochs=1)
    run(tmp_path / "student", plan)
    wrong = replace(plan, labels=("_silence_", "_unknown_", "low"))
    with pytest.raises(DeltakwtError, match="must have the labels"):
        run(tmp_path / "wrong", wrong)


def test_continuing_a_model_keeps_its_body_and_makes_a_new_head(
    toy_plan: Plan, tmp_path: Path
) -> None:
    base = run(tmp_path / "base", replace(toy_plan, epochs=1))
    plan = replace(toy_plan, labels=("_silence_", "_unknown_", "middle"), epochs=1, rate=1e-9)
    made = run(tmp_path / "tuned", plan, start=str(tmp_path / "base"))
    assert made.config.labels == plan.labels
    np.testing.assert_allclose(
        made.tensors["blocks.1.q.weight"], base.tensors["blocks.1.q.weight"], atol=1e-5
    )


def test_a_widened_model_starts_where_the_narrow_model_ended(
    toy_plan: Plan, tmp_path: Path
) -> None:
    narrow = run(tmp_path / "narrow", replace(toy_plan, epochs=2))
    plan = replace(toy_plan, shape=WIDE, epochs=1, rate=1e-9)
    wide = run(tmp_path / "wide", plan, grow=str(tmp_path / "narrow"))
    assert wide.tensors["blocks.0.mlp_in.weight"].shape == (32, 64)
    np.testing.assert_allclose(
        wide.tensors["blocks.0.mlp_in.weight"][:16, :32],
        narrow.tensors["blocks.0.mlp_in.weight"],
        atol=1e-5,
    )
    assert np.abs(wide.tensors["blocks.0.mlp_in.weight"][16:, :32]).max() < 1e-5


def test_a_bank_of_examples_is_made_once_and_teaches_the_toy_task(
    toy_plan: Plan, tmp_path: Path
) -> None:
    run(tmp_path / "teacher", replace(toy_plan, epochs=4))
    plan = replace(toy_plan, bank=300, epochs=24, teachers=(str(tmp_path / "teacher"),))
    made = run(tmp_path / "student", plan)
    assert made.training["validation"] > 0.8
    bank = Bank(plan, tmp_path / "student", torch.device("cpu"))
    assert bank.features.shape == (300, 98, 40)
    np.testing.assert_allclose(bank.answers.sum(axis=1), 1, atol=1e-5)
    rows, labels = bank.epoch(0)
    first, again = (bank.shard(rows[:8], labels[:8], 5, 0.0) for _ in range(2))
    assert torch.equal(first.features, again.features)
    assert first.taught.all()
    weights = Kwt(plan.config()).state()
    standardise(weights, bank)
    spread = bank.features.astype(np.float32).reshape(-1, 40).std(axis=0)
    shares = np.linalg.norm(weights["embed.weight"].numpy() * spread[:, None], axis=1)
    assert shares.max() < 4 * shares.min()  # every coefficient counts
    before = (tmp_path / "student" / "bank.npz").stat().st_mtime_ns
    make_bank(plan, cast(ShardMaker, None), tmp_path / "student")
    assert (tmp_path / "student" / "bank.npz").stat().st_mtime_ns == before


def test_a_bank_holds_places_on_which_a_teacher_fires_and_never_teaches_to_fire(
    toy_plan: Plan, speech_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "teacher", replace(toy_plan, epochs=4))
    searched: list[float] = []
    update = HardNegatives.update

    def recorded(self: HardNegatives, places: Places, scores: NDArray[np.float64]) -> None:
        update(self, places, scores)
        searched.extend(scores.tolist())

    monkeypatch.setattr(HardNegatives, "update", recorded)
    plan = replace(speech_plan, bank=200, epochs=1, teachers=(str(tmp_path / "teacher"),))
    run(tmp_path / "student", plan)
    assert len(searched) == 100 + 50  # cuts of speech and of sounds
    assert sum(score > HardNegatives.FIRED for score in searched) > 10  # it never heard speech
    bank = Bank(plan, tmp_path / "student", torch.device("cpu"))
    others = [plan.labels.index(SILENCE), plan.labels.index(UNKNOWN)]
    no_word = np.isin(bank.labels, others)
    assert bank.negative.sum() > 50
    assert np.all(bank.answers[no_word][:, others].sum(axis=1) > 0.87)


def test_teachers_of_a_bank_hear_keywords_without_the_added_noise(
    toy_plan: Plan, tmp_path: Path
) -> None:
    run(tmp_path / "teacher", replace(toy_plan, epochs=12))
    drowned = replace(toy_plan.recipe, background_chance=1.0, loud_chance=1.0, snr_db=(-40, -39))
    plan = replace(
        toy_plan, bank=200, epochs=1, teachers=(str(tmp_path / "teacher"),), recipe=drowned
    )
    run(tmp_path / "student", plan)
    bank = Bank(plan, tmp_path / "student", torch.device("cpu"))
    others = [plan.labels.index(SILENCE), plan.labels.index(UNKNOWN)]
    keywords = ~np.isin(bank.labels, others)
    assert np.mean((bank.answers.argmax(axis=1) == bank.labels)[keywords]) > 0.8


def test_a_bank_that_cannot_be_read_is_reported(toy_plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "bank.npy").write_bytes(b"nonsense")
    with pytest.raises(DeltakwtError, match="bank of examples cannot be read"):
        Bank(toy_plan, tmp_path, torch.device("cpu"))


def test_hints_train_a_wide_model_and_leave_no_trace_in_it(toy_plan: Plan, tmp_path: Path) -> None:
    run(tmp_path / "narrow", toy_plan)
    plan = replace(toy_plan, shape=WIDE, epochs=2, hints=str(tmp_path / "narrow"), hint_until=0.5)
    wide = run(tmp_path / "wide", plan)
    assert set(wide.tensors) == set(plan.config().shapes())
    state = checkpoint.load(tmp_path / "wide")[1]
    assert state.weights["hints.1.weight"].shape == (32, 16)
    with pytest.raises(DeltakwtError, match="must be narrower"):
        run(tmp_path / "equal", replace(plan, shape=toy_plan.shape))


def test_errors_name_the_file_and_what_to_do(toy_plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeltakwtError, match="cannot be written"):
        train(TrainingRequest(tmp_path / "file", toy_plan))
    with pytest.raises(DeltakwtError, match="no checkpoint to resume"):
        train(TrainingRequest(tmp_path / "nothing", toy_plan, resume=True))
    run(tmp_path / "run", replace(toy_plan, epochs=1))
    with pytest.raises(DeltakwtError, match="already holds a run"):
        train(TrainingRequest(tmp_path / "run", toy_plan))
    damaged = tmp_path / "run" / checkpoint.NAME
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.raises(DeltakwtError, match="damaged checkpoint"):
        train(TrainingRequest(tmp_path / "run", toy_plan, resume=True))
    other = replace(toy_plan, shape=WIDE)
    with pytest.raises(DeltakwtError, match="another shape"):
        train(TrainingRequest(tmp_path / "other", other, start=str(tmp_path / "run")))
