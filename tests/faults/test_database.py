"""A PostgreSQL server that is restarted under a study. tests/tune kills workers of a study."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from faults.programs import Program, assert_one_line, run
from postgres import running_server

optuna = pytest.importorskip("optuna", reason="needs optuna")
pytest.importorskip("psycopg", reason="needs psycopg")


def test_a_server_that_is_restarted_under_a_study(
    small_model: Path, full_set: Path, tmp_path: Path
) -> None:
    with running_server() as server:
        command = ("tune", "--model", small_model, "--data", full_set, "--out", tmp_path / "out")
        command += ("--mix", "words=4,unknown=1,zero=1", "--trial-clips", "24", "--no-refine")
        command += ("--max-macs", "99", "-q", "--storage", server.url, "--trials")
        storage = server.url.replace("postgresql:", "postgresql+psycopg:")
        optuna.storages.RDBStorage(storage)  # makes the tables; two at once would collide
        program = Program(*command, "100000")

        def finished() -> int:
            try:
                study = optuna.load_study(study_name="deltakwt", storage=storage)
            except KeyError:  # not made yet
                return 0
            return len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]))

        while finished() < 3:
            assert program.process.poll() is None, program.err
            time.sleep(0.1)
        server.stop()  # all connections are closed at once
        program.end()
        assert_one_line(program, 1, "the database cannot be used", "same command again")
        server.start()
        kept = finished()
        assert kept >= 3
        again = run(*command, str(kept + 1), "--json")
        assert again.process.returncode == 0, again.err
        assert json.loads(again.out)["search"]["trials"] == kept + 1
