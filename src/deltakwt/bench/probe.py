"""Whether a peer runs here at all, found out in a process of its own.

A runtime that picks instructions this processor lacks dies without a word; it must not take the
race with it.
"""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.bench.runners import PEERS
from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.weights.folder import Weights

PATIENCE = 300.0  # seconds; torch compiles C++ first


def probe(peer: str, weights: Weights, path: Path) -> str | None:
    """None if the peer gives logits, else why not."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_try, args=(theirs, peer, weights, path), daemon=True)
    process.start()
    theirs.close()
    reason = _wait(ours)
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join()
    elif process.exitcode and process.exitcode < 0:
        return f"dies here: {signal.Signals(-process.exitcode).name}"
    return reason


def _wait(connection: Any) -> str | None:
    try:
        if not connection.poll(PATIENCE):
            return f"no answer in {PATIENCE:.0f} s"
        return connection.recv()  # type: ignore[no-any-return]
    except EOFError:
        return "died"


def _try(connection: Any, peer: str, weights: Weights, path: Path) -> None:
    try:
        runner = PEERS[peer](weights, path)
        shape = (weights.config.frames, weights.config.features)
        sound = np.zeros(shape if runner.input == "features" else CLIP_SAMPLES, np.float32)
        good = bool(np.isfinite(runner.run(sound)).all())
        connection.send(None if good else "gives NaN")
    except ImportError as error:
        connection.send(f"not installed ({error.name})")
    except Exception as error:
        connection.send(" ".join(str(error).split())[:200])
