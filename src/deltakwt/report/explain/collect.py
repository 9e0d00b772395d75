"""The numbers of one explained sound, as one JSON document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import Audio, read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.frontend import dct_matrix
from deltakwt.core.macs import Macs
from deltakwt.core.model import Model
from deltakwt.provenance import command, machine, model_name
from deltakwt.report.run import Setting
from deltakwt.report.setting import threshold_text
from deltakwt.report.traces import rounded, token_macs

WINDOW_HOP = 1_600  # samples from window to window
REPEATS = 5  # timed runs; the fastest counts
ENVELOPE = 400  # points of the drawn waveform

Document = dict[str, Any]


def explain(
    model: Model, setting: Setting, file: Path, at: float | None = None
) -> tuple[Document, Audio]:
    """Explain the second of `file` that starts `at` seconds, or the one with the surest word.

    The second itself comes along.
    """
    start, sound, length = chosen_second(model, setting, file, at)
    engine = model.engine
    features = engine.features(sound, setting.front_end)
    run = engine.delta(features, setting.thresholds)
    trace = engine.trace(features, setting.thresholds)
    tokens = token_macs(model.config, trace)  # (layers, T)
    dense = scores(engine.dense(engine.features(sound)))
    delta = scores(run.logits)
    macs = Macs(model.config, run.macs)
    document = {
        "file": file.name,
        "seconds": length / SAMPLE_RATE,
        "start": start / SAMPLE_RATE,
        "model": model_name(model.name),
        "thresholds": {
            "name": setting.name,
            "text": threshold_text(str(setting.thresholds)),
            "values": setting.thresholds.to_json(),
            "steady": setting.front_end.to_json(),
        },
        "label": model.labels[int(delta.argmax())],
        "score": float(delta.max()),
        "dense_label": model.labels[int(dense.argmax())],
        "dense_score": float(dense.max()),
        "scores": {
            label: {"delta": float(delta[i]), "dense": float(dense[i])}
            for i, label in enumerate(model.labels)
        },
        "macs": macs.to_json(),
        "ms": {
            "delta": fastest(lambda: engine.logits(features, setting.thresholds)),
            "dense": fastest(lambda: engine.dense(features)),
        },
        "waveform": envelope(sound),
        "spectrum": rounded(features @ dct_matrix().T, 3),  # (frames, 80): what the MFCC describe
        "token_percent": rounded(tokens[:-1].mean(axis=0), 3),  # (T,) of a dense token's MACs
        "strip": rounded(tokens, 3),  # (layers, T)
        "machine": machine(engine.isa),
        "command": command(),
    }
    return document, sound


def chosen_second(
    model: Model, setting: Setting, file: Path, at: float | None
) -> tuple[int, Audio, int]:
    """First sample, one second of sound, and the number of samples in the file."""
    held: list[tuple[int, Audio]] = []
    length = 0

    def counted() -> Any:
        nonlocal length
        for block in read_blocks(file):
            length += len(block)
            yield block

    best, wanted = -1.0, None if at is None else round(at * SAMPLE_RATE)
    for first, clips in windows(counted()):
        if wanted is None:
            found = model.engine.batch(clips, setting.thresholds, setting.front_end)
            sure = scores(found.logits)
            words = [i for i, label in enumerate(model.labels) if not label.startswith("_")]
            ranks = sure[:, words].max(axis=1)
            if ranks.max() > best:
                best, which = float(ranks.max()), int(ranks.argmax())
                held = [(first + which * WINDOW_HOP, clips[which])]
        else:
            nearest = round((wanted - first) / WINDOW_HOP)
            if 0 <= nearest < len(clips):
                held = [(first + nearest * WINDOW_HOP, clips[nearest])]
    if not held:
        raise DeltakwtError(f"--at {at:g}: {file} has no second starting there")
    start, sound = held[0]
    return start, sound, length


def windows(stream: Iterable[Audio], group: int = 64) -> Iterator[tuple[int, Audio]]:
    """Start sample and (n, 16000) overlapping one-second windows, `group` of them at a time.

    Up to one second gives one zero-padded window; more gives one every 100 ms, the last one
    zero-padded at the end.
    """
    reach = CLIP_SAMPLES + (group - 1) * WINDOW_HOP
    start, held = 0, np.zeros(0, np.float32)
    for block in stream:
        held = np.concatenate((held, block))
        while len(held) > reach:  # more follows, so that the last window is cut below
            yield start, _cut(held, group)
            start += group * WINDOW_HOP
            held = held[group * WINDOW_HOP :]
    count = 1 + max(0, -(-(len(held) - CLIP_SAMPLES) // WINDOW_HOP))
    padded = np.zeros(CLIP_SAMPLES + (count - 1) * WINDOW_HOP, np.float32)
    padded[: len(held)] = held
    yield start, _cut(padded, count)


def _cut(samples: Audio, count: int) -> Audio:
    view = np.lib.stride_tricks.sliding_window_view(samples, CLIP_SAMPLES)
    return np.ascontiguousarray(view[: count * WINDOW_HOP : WINDOW_HOP])  # (count, 16000)


def scores(logits: NDArray[np.float32]) -> NDArray[Any]:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def envelope(sound: Audio) -> list[list[float]]:
    """[[least, most]] of equal stretches."""
    parts = sound[: CLIP_SAMPLES // ENVELOPE * ENVELOPE].reshape(ENVELOPE, -1)
    pairs: list[list[float]] = rounded(np.stack([parts.min(axis=1), parts.max(axis=1)], axis=1), 3)
    return pairs


def fastest(call: Callable[[], Any]) -> float:
    """Milliseconds."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        best = min(best, 1e3 * (time.perf_counter() - start))
    return best
