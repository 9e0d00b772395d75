"""Finished runs as a model for others: measured, stored small, with its card.

    python -m deltakwt.train.ship RUN [RUN ...] --command CMD [--command CMD ...] [--control RUN] \
        --to src/deltakwt/models/kwt-1 --test TEST_SET --data V001

The weights are the last run's, with silence favoured; those before it are what it started from.
Everything in the card is measured here, on the files that are shipped.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from deltakwt.core.config import SILENCE
from deltakwt.core.model import Model, load
from deltakwt.core.setting import PLAIN, FrontEndSetting, Thresholds
from deltakwt.data.speech_commands import NOISE_FOLDER, Clip, Manifest, batches, draw, read
from deltakwt.evaluate.accuracy import Evaluation, evaluate
from deltakwt.provenance import model_name
from deltakwt.train.card import render
from deltakwt.weights.folder import Weights, load_folder, save_folder, write_atomically

STEADY = FrontEndSetting(smooth=True, floor=2.0)
SETTINGS = {
    "dense": "",
    "the paper's, attention only": "0.2_0.2_0.2_0.05_0.001_0.05",
    "the paper's, and the MLP": "0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1",
    "a search's on the authors' KWT-1": "0.4_0.16_0.29_0.1_0.0034_0.07_0.47_0.08",
    "wider": "0.6_0.3_0.3_0.2_0.005_0.1_0.6_0.1",
}
MOST_FAVOUR = 1.5
SNR_DB = (None, 20, 15, 10, 5, 0)  # None: as recorded
Facts = dict[str, Any]


def store(runs: list[Path], target: Path, tests: list[Manifest], spoken: Manifest) -> Facts:
    """Write the last run's weights to `target`, in 16 bits if the confusion stays the same.

    Silence is favoured as far as that costs no word of `spoken`, which are validation clips.
    """
    weights = load_folder(runs[-1])
    told = [_without_paths(load_folder(run).training) for run in runs]
    favour = spare(load(runs[-1]), spoken)
    bias = weights.tensors["head.bias"].copy()
    bias[weights.config.labels.index(SILENCE)] += favour
    tensors = {**weights.tensors, "head.bias": bias}
    made = Weights(weights.config, tensors, {"runs": told, "silence_bias": favour})
    (target / "profiles.json").unlink(missing_ok=True)  # found for other weights
    save_folder(target, made)
    full = [_answers(load(target), test) for test in tests]
    save_folder(target, made, half=True)
    small = [_answers(load(target), test) for test in tests]
    same = all(map(np.array_equal, small, full))
    if not same:
        save_folder(target, made)
    return {"half": same, "runs": told, "silence_bias": favour}


def spare(model: Model, spoken: Manifest) -> float:
    """How much nearer silence may come, in steps of a quarter, before a right answer is lost."""
    least = MOST_FAVOUR
    silence = model.labels.index(SILENCE)
    for part, sounds in batches(spoken, 512, 2, _unreadable):
        true = np.array([model.labels.index(clip.label) for clip in part])
        logits = model.engine.batch(sounds).logits
        right = (logits.argmax(axis=1) == true) & (true != silence)
        margins = logits.max(axis=1) - logits[:, silence]
        least = min([least, *margins[right].tolist()])
    return int(4 * least) / 4


def _without_paths(training: Facts) -> Facts:
    """A run's plan and result, clean of the machine it ran on."""
    plan = dict(training["plan"])
    plan["data"] = [Path(folder).name for folder in plan["data"]]
    plan["teacher"] = model_name(plan["teacher"]) if plan["teacher"] else ""
    return {**training, "plan": plan}


def training_log(runs: list[Path]) -> str:
    """The logs of all runs as one CSV, with the run's number before the epoch's."""
    text = ""
    for number, run in enumerate(runs, 1):
        head, *rows = (run / "log.csv").read_text(encoding="utf-8").splitlines()
        text = text or f"run,{head}\n"
        text += "".join(f"{number},{row}\n" for row in rows)
    return text


def _answers(model: Model, manifest: Manifest) -> NDArray[np.int64]:
    """(labels, labels): the confusion, dense."""
    return _run(model, manifest).confusion


def measure(model: Model, control: Model | None, test_set: Path, data: Path) -> Facts:
    """Every figure of the card; `control` learned as long, without thresholds in the loop."""
    protocols = {
        ("test", silence): draw(test_set, silence=silence) for silence in ("zero", "noise")
    } | {("val", silence): draw(data, "val", silence) for silence in ("zero", "noise")}
    dense = {key: _run(model, manifest) for key, manifest in protocols.items()}
    settings = [
        _setting(model, protocols["test", "noise"], name, text, steady)
        for name, text in SETTINGS.items()
        for steady in (PLAIN, STEADY)
    ]
    return {
        "dense": {f"{split} {silence}": run.to_json() for (split, silence), run in dense.items()},
        "settings": settings,
        "control": [
            _setting(control, protocols["test", "noise"], name, text, PLAIN)
            for name, text in SETTINGS.items()
            if control
        ],
        "noise": [_in_noise(model, test_set, data, snr) for snr in SNR_DB],
    }


def _run(
    model: Model,
    manifest: Manifest,
    thresholds: Thresholds | None = None,
    steady: FrontEndSetting = PLAIN,
) -> Evaluation:
    model.thresholds, model.steady = thresholds, steady
    return evaluate(model, manifest)


def _setting(model: Model, noisy: Manifest, name: str, text: str, steady: FrontEndSetting) -> Facts:
    """Accuracy in both protocols and MACs of words and of real noise, from two runs."""
    thresholds = Thresholds.parse(text) if text else None
    result = _run(model, noisy, thresholds, steady)
    zero = _run(model, draw(noisy.root, silence="zero"), thresholds, steady)
    macs, silence = zero.macs, result.counts_by_class["_silence_"].macs
    return {
        "name": name,
        "thresholds": text,
        "steady": str(steady),
        "zero": zero.accuracy,
        "noise": result.accuracy,
        "mhsa_percent": macs.mhsa_percent if macs else None,
        "model_percent": macs.model_percent if macs else None,
        "noise_percent": silence.model_percent if silence else None,
    }


def _in_noise(model: Model, test_set: Path, data: Path, snr_db: int | None) -> Facts:
    """Accuracy on the spoken test clips with background noise at a signal-to-noise ratio."""
    spoken = draw(test_set)
    clips = tuple(clip for clip in spoken.clips if clip.label != "_silence_")
    rng = np.random.default_rng(0)
    noises = _noises(data)
    right = {PLAIN: 0, STEADY: 0}
    for part, sounds in batches(replace(spoken, clips=clips), 512, 2, _unreadable):
        mixed = sounds if snr_db is None else _mix(sounds, noises, snr_db, rng)
        true = np.array([model.labels.index(clip.label) for clip in part])
        for steady in right:
            logits = model.engine.batch(mixed, steady=steady).logits
            right[steady] += int((logits.argmax(axis=1) == true).sum())
    return {
        "snr_db": snr_db,
        "plain": right[PLAIN] / len(clips),
        "steady": right[STEADY] / len(clips),
    }


def _noises(data: Path) -> list[NDArray[np.float32]]:
    """Ten seconds of every recorded noise."""
    manifest = Manifest(data, "test", "noise", 0, ())
    names = sorted(path.name for path in (data / NOISE_FOLDER).glob("*.wav"))
    cuts = [[Clip(f"{NOISE_FOLDER}/{n}", "", 16_000 * s) for s in range(1, 11)] for n in names]
    return [np.concatenate([read(manifest, clip) for clip in clips]) for clips in cuts]


def _unreadable(failed: tuple[str, str]) -> None:
    raise ValueError(failed)


def _mix(
    sounds: NDArray[np.float32],
    noises: list[NDArray[np.float32]],
    snr_db: float,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """(n, 16000), each with a random piece of a random noise."""
    pieces = []
    for _ in sounds:
        noise = noises[rng.integers(len(noises))]
        start = rng.integers(len(noise) - sounds.shape[1])
        pieces.append(noise[start : start + sounds.shape[1]])
    noise = np.stack(pieces)
    power = (sounds**2).mean(axis=1) / np.maximum((noise**2).mean(axis=1), 1e-12)
    gain = np.sqrt(power) * 10 ** (-snr_db / 20)
    mixed: NDArray[np.float32] = np.clip(sounds + gain[:, None] * noise, -1, 1)
    return mixed.astype(np.float32)


def ship(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, in order.")],
    to: Annotated[Path, typer.Option(help="Model folder to write.")],
    test: Annotated[Path, typer.Option(help="The official v0.02 test set.")],
    data: Annotated[Path, typer.Option(help="Speech Commands with a validation split.")],
    command: Annotated[list[str], typer.Option(help="The command of each run, for the card.")],
    control: Annotated[Path | None, typer.Option(help="A run without thresholds.")] = None,
    also: Annotated[str, typer.Option(help="What else it learned from, for the card.")] = "",
) -> None:
    """Store, measure and describe a trained model."""
    tests = [draw(test, silence=silence) for silence in ("zero", "noise")]
    stored = store(runs, to, tests, draw(data, "val")) | {"also": also}
    log = training_log(runs)
    write_atomically(to / "training.csv", log.encode())
    facts = measure(load(to), load(control) if control else None, test, data)
    card = render(to.name, command, stored, facts, log)
    write_atomically(to / "README.md", card.encode())


if __name__ == "__main__":
    typer.run(ship)
