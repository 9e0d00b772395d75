"""One second of sound explained: what was recomputed, what each layer cost, how it decided.

`explain` collects the numbers as one JSON document; `save` writes them as PNG, SVG, HTML or JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from deltakwt.audio import Audio, read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.frontend import dct_matrix
from deltakwt.core.macs import Macs
from deltakwt.core.model import Model, softmax
from deltakwt.core.setting import Setting
from deltakwt.files import write_atomically
from deltakwt.plotting import pyplot
from deltakwt.provenance import command, machine, model_name
from deltakwt.report import figures, html
from deltakwt.report.build import describe
from deltakwt.report.explain_view import caption, draw
from deltakwt.report.html import element, join, prose
from deltakwt.report.page import definitions
from deltakwt.report.traces import rounded, token_macs
from deltakwt.text import printable

WINDOW_HOP = 1_600  # samples from one window to the next
REPEATS = 5  # timed runs; the fastest counts
ENVELOPE = 400  # points of the drawn waveform
ENDINGS = (".png", ".svg", ".html", ".json")

Document = dict[str, Any]


def explain(
    model: Model, setting: Setting, file: Path, at: float | None = None
) -> tuple[Document, Audio]:
    """Explain one second of a file, and return that second as well.

    `at` is its start in seconds. Without it, the second with the highest score of a word is taken.
    """
    thresholds = setting.thresholds
    assert thresholds is not None
    start, sound, length = chosen_second(model, setting, file, at)
    engine = model.engine
    features = engine.features(sound, setting.front_end)
    run = engine.delta(features, thresholds)
    tokens = token_macs(model.config, engine.trace(features, thresholds))  # (layers, T)
    dense, delta = softmax(engine.dense(engine.features(sound))), softmax(run.logits)
    document = {
        "file": printable(file.name),
        "seconds": length / SAMPLE_RATE,
        "start": start / SAMPLE_RATE,
        "model": model_name(model.name),
        "setting": describe(setting),
        "label": model.labels[int(delta.argmax())],
        "score": float(delta.max()),
        "dense_label": model.labels[int(dense.argmax())],
        "dense_score": float(dense.max()),
        "scores": {
            label: {"delta": float(delta[i]), "dense": float(dense[i])}
            for i, label in enumerate(model.labels)
        },
        "macs": Macs(model.config, run.macs, run.nonzeros, engine.isa).to_json(),
        "ms": {
            "delta": fastest(lambda: engine.logits(features, thresholds)),
            "dense": fastest(lambda: engine.dense(features)),
        },
        "waveform": envelope(sound),
        "spectrum": rounded(features @ dct_matrix().T, 3),  # (frames, 80): what the MFCC describe
        "token_percent": rounded(tokens[:-1].mean(axis=0), 3),  # (T,) of a dense token's MACs
        "token_layers": rounded(tokens, 3),  # (layers, T)
        "machine": machine(engine.isa),
        "command": command(),
    }
    return document, sound


def chosen_second(
    model: Model, setting: Setting, file: Path, at: float | None
) -> tuple[int, Audio, int]:
    """Return the first sample, one second of sound, and the number of samples in the file."""
    held: list[tuple[int, Audio]] = []
    length = 0

    def counted() -> Iterator[Audio]:
        nonlocal length
        for block in read_blocks(file):
            length += len(block)
            yield block

    best, wanted = -1.0, None if at is None else round(at * SAMPLE_RATE)
    words = [i for i, label in enumerate(model.labels) if not label.startswith("_")]
    for first, clips in windows(counted()):
        if wanted is None:
            scores = softmax(model.engine.batch(clips, setting).logits)
            ranks = scores[:, words or slice(None)].max(axis=1)
            if ranks.max() > best:
                best, which = float(ranks.max()), int(ranks.argmax())
                held = [(first + which * WINDOW_HOP, clips[which])]
        else:
            nearest = round((wanted - first) / WINDOW_HOP)
            if 0 <= nearest < len(clips):
                held = [(first + nearest * WINDOW_HOP, clips[nearest])]
    if not held:
        raise DeltakwtError(f"--at {at:g}: {file} has no second that starts there")
    start, sound = held[0]
    return start, sound, length


def windows(stream: Iterable[Audio], group: int = 64) -> Iterator[tuple[int, Audio]]:
    """Yield start samples and (n, 16000) one-second windows, `group` windows at a time.

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


def envelope(sound: Audio) -> list[list[float]]:
    """Return [[least, most]] of equal stretches of the sound."""
    parts = sound[: CLIP_SAMPLES // ENVELOPE * ENVELOPE].reshape(ENVELOPE, -1)
    pairs: list[list[float]] = rounded(np.stack([parts.min(axis=1), parts.max(axis=1)], axis=1), 3)
    return pairs


def fastest(call: Callable[[], Any]) -> float:
    """Return the time of the fastest of a few calls in milliseconds."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        best = min(best, 1e3 * (time.perf_counter() - start))
    return best


# ------------------------------------------------------------------ files


def check_out(path: Path) -> None:
    """Refuse an output file that cannot be written, before the work is done."""
    if path.suffix.lower() not in ENDINGS:
        raise DeltakwtError(f"--out {path}: must end in {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise DeltakwtError(f"--out {path}: there is no folder {path.parent}")
    if path.suffix.lower() != ".json":
        pyplot()


def save(document: Document, path: Path, player: str = "") -> None:
    """Write the document by the ending of `path`. `player` is the sound as a data: address."""
    kind = path.suffix.lower()
    try:
        if kind == ".json":
            write_atomically(path, json.dumps(document, allow_nan=False).encode())
            return
        setting = document["setting"]["text"]
        with TemporaryDirectory() as folder:
            figure = figures.Figure("explain", lambda: draw(document), caption(document), setting)
            picture = figures.save(figure, Path(folder), stamp(document))
            content = (Path(folder) / f"explain{kind}").read_bytes() if kind != ".html" else b""
        write_atomically(path, content or _page(document, picture, player).encode())
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from None


def stamp(document: Document) -> str:
    """Return the small print below a figure that stands alone."""
    machine_ = document["machine"]
    return (
        f"{document['model']} · {document['file']} from {document['start']:g} s · setting:"
        f" {document['setting']['text']} · {machine_['processor']}, {machine_['kernels']} ·"
        f" {document['command']}"
    )


READ_FIGURE = (
    "From top to bottom: the sound; its spectrum as the model gets it; the work of each token,"
    " averaged over the layers; the same layer by layer, bright where much was recomputed."
    " Below: the MACs of each layer in percent of dense (the paper's count), and the scores, with"
    " those of the dense model in grey."
)


def _page(document: Document, picture: html.Html, player: str) -> str:
    machine_ = document["machine"]
    facts = (
        ("Model", document["model"]),
        ("Sound", f"{document['file']}, from {document['start']:g} s"),
        ("Setting", f"{document['setting']['name']}: {document['setting']['text']}"),
        ("Machine", f"{machine_['processor']}, {machine_['kernels']} kernels"),
        ("Command", document["command"]),
    )
    return html.document(
        "explain.html",
        title=f"{document['file']} · deltakwt explain",
        heading=document["file"],
        summary=prose(caption(document)),
        player=element("audio", controls=True, src=player) if player else "",
        picture=picture,
        caption=READ_FIGURE,
        facts=join(*definitions(facts)),
    )
