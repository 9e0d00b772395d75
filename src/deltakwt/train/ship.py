"""Turn finished runs into a model for others: calibrated, stored small, measured, with a card.

    python -m deltakwt.train.ship RUN [RUN ...] --command CMD [--command CMD ...] [--control RUN] \
        --to src/deltakwt/models/kwt-1 --test TEST_SET --data V001 [--speech DIR] [--source DIR]

The weights are those of the last run; the runs before it are what it started from. Every figure in
the card is measured here, on the files that are shipped.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, SILENCE, UNKNOWN
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model, load
from deltakwt.core.setting import (
    DENSE,
    PAPER_THRESHOLDS,
    PLAIN,
    WHOLE_THRESHOLDS,
    FrontEndSetting,
    Setting,
    Thresholds,
)
from deltakwt.data.cache import open_recordings
from deltakwt.data.calibration import calibration_sounds
from deltakwt.data.recordings import split_speech
from deltakwt.data.sources import read_source
from deltakwt.data.speech_commands import NOISE_FOLDER, Clip, Manifest, batches, draw, read
from deltakwt.evaluate.accuracy import Evaluation, evaluate
from deltakwt.evaluate.width import measure_width
from deltakwt.files import write_atomically
from deltakwt.provenance import model_name
from deltakwt.train.calibrate import calibrate
from deltakwt.train.card import render
from deltakwt.weights.folder import Weights, load_folder, save_folder
from deltakwt.weights.quantize import quantize_folder
from deltakwt.weights.registry import cache_folder

SMOOTHED = FrontEndSetting(smooth=True, floor=2.0)
THRESHOLDS: dict[str, Thresholds | None] = {
    "dense": None,
    "the paper's, attention only": PAPER_THRESHOLDS,
    "the paper's, and the MLP": WHOLE_THRESHOLDS,
    "found by search on the authors' KWT-1": Thresholds.parse(
        "0.4_0.16_0.29_0.1_0.0034_0.07_0.47_0.08"
    ),
    "higher": Thresholds.parse("0.6_0.3_0.3_0.2_0.005_0.1_0.6_0.1"),
}
SETTINGS = tuple(
    Setting(thresholds, front_end, name)
    for name, thresholds in THRESHOLDS.items()
    for front_end in (PLAIN, SMOOTHED)
)
MOST_BIAS = 1.5  # of silence
BIASES = [-n / 4 for n in range(11)]  # of unknown words
SPEECH_CUTS = 3000
WIDTH_CLIPS = 60
SNR_DB = (None, 20, 15, 10, 5, 0)  # None: as recorded
Facts = dict[str, Any]


def store(
    runs: list[Path],
    target: Path,
    tests: list[Manifest],
    validation: Manifest,
    speech: Path | None = None,
) -> Facts:
    """Write the last run's weights to `target`, as float16 if the test confusions stay the same.

    A run that is not calibrated yet is calibrated on the validation clips and on the validation
    speakers of `speech`. Then the logit of unknown words is lowered as is best for the validation
    clips, and that of silence is raised as far as this costs no validation word.
    """
    weights = load_folder(runs[-1])
    facts = [_without_paths(load_folder(run).training) for run in runs]
    calibration = weights.training.get("calibration")
    tensors = dict(weights.tensors)
    if calibration is None:
        calibration = _calibrate(weights, validation, speech)
        for name in ("head.weight", "head.bias"):
            tensors[name] = tensors[name] / np.float32(calibration["temperature"])
    labels = weights.config.labels
    logits, true = _validation_logits(Engine(weights.config, tensors), validation, labels)
    lowered = unknown_bias(logits, true, labels)
    logits[:, labels.index(UNKNOWN)] += lowered
    raised = spare_bias(logits, true, labels)
    tensors["head.bias"] = tensors["head.bias"].copy()
    tensors["head.bias"][labels.index(UNKNOWN)] += lowered
    tensors["head.bias"][labels.index(SILENCE)] += raised
    training = {
        "runs": facts,
        "silence_bias": raised,
        "unknown_bias": lowered,
        "calibration": calibration,
    }
    if weights.config.heads > 1:
        width = _width(Weights(weights.config, tensors), tests[0].root)
        training |= {"width": width, "independent": width["independent"]}
    made = Weights(weights.config, tensors, training)
    (target / "profiles.json").unlink(missing_ok=True)  # found for other weights
    save_folder(target, made)
    full = [_run(load(target), test, DENSE).confusion for test in tests]
    save_folder(target, made, half=True)
    small = [_run(load(target), test, DENSE).confusion for test in tests]
    same = all(map(np.array_equal, small, full))
    if not same:
        save_folder(target, made)
    return {"half": same, **training}


def _calibrate(weights: Weights, validation: Manifest, speech: Path | None) -> Facts:
    engine, labels = Engine(weights.config, weights.tensors), weights.config.labels
    logits, true = [], []
    for clips, sounds in batches(validation, 512, 2, _unreadable):
        logits.append(engine.batch(sounds).logits)
        true += [labels.index(clip.label) for clip in clips]
    if speech is not None:
        held = split_speech(open_recordings(speech, cache_folder() / "audio"))[1]
        places = np.random.default_rng(0).integers(0, held.samples, SPEECH_CUTS)
        for part in np.array_split(places, SPEECH_CUTS // 500):
            cuts = np.stack([held.cut(int(place), CLIP_SAMPLES) for place in part])
            logits.append(engine.batch(cuts.astype(np.float32) / 32768).logits)
            true += [labels.index(UNKNOWN)] * len(part)
    fitted = calibrate(torch.from_numpy(np.concatenate(logits)), torch.tensor(true))
    return fitted.to_json()


def _width(weights: Weights, test_set: Path) -> Facts:
    """Return how much of its width the model uses, as `deltakwt models width` measures it."""
    model = Model(weights.config, Engine(weights.config, weights.tensors))
    manifest = draw(test_set, limit=WIDTH_CLIPS, labels=weights.config.labels)
    sounds = [read(manifest, clip) for clip in manifest.clips if clip.path is not None]
    return measure_width(model, sounds).to_json()


def _validation_logits(
    engine: Engine, validation: Manifest, labels: tuple[str, ...]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return dense logits (n, labels) of the validation clips, and their labels (n,)."""
    logits, true = [], []
    for part, sounds in batches(validation, 512, 2, _unreadable):
        logits.append(engine.batch(sounds).logits)
        true += [labels.index(clip.label) for clip in part]
    return np.concatenate(logits), np.array(true)


def unknown_bias(
    logits: NDArray[np.float32], true: NDArray[np.int64], labels: tuple[str, ...]
) -> float:
    """Return what to add to the logit of unknown words for the most right answers.

    A model that learned to reject speech is shown far more unknown words than a user says. The
    result is a multiple of a quarter, from -2.5 to 0; of equally good ones the middle.
    """
    unknown = np.eye(len(labels), dtype=np.float32)[labels.index(UNKNOWN)]
    right = [int(((logits + b * unknown).argmax(axis=1) == true).sum()) for b in BIASES]
    best = np.flatnonzero(np.array(right) == max(right))
    return BIASES[int(best[len(best) // 2])]


def spare_bias(
    logits: NDArray[np.float32], true: NDArray[np.int64], labels: tuple[str, ...]
) -> float:
    """Return how much can be added to the logit of silence before a right answer is lost.

    The result is a multiple of a quarter, at most 1.5.
    """
    silence = labels.index(SILENCE)
    right = (logits.argmax(axis=1) == true) & (true != silence)
    margins = (logits.max(axis=1) - logits[:, silence])[right]
    return int(4 * min([MOST_BIAS, *margins.tolist()])) / 4


def _without_paths(training: Facts) -> Facts:
    """Return a run's plan and result without the paths of the machine it ran on."""
    if "plan" not in training:
        return training
    plan = dict(training["plan"])
    for key in ("data", "speech", "sounds"):
        plan[key] = [Path(folder).name for folder in plan.get(key, ())]
    plan["rooms"] = Path(plan.get("rooms", "")).name
    plan["teachers"] = [model_name(name) for name in plan.get("teachers", ())]
    plan["hints"] = model_name(plan["hints"]) if plan.get("hints") else ""
    return {**training, "plan": plan}


def training_log(runs: list[Path]) -> str:
    """Return the logs of all runs as one CSV, with the number of the run in the first column."""
    text = ""
    for number, run in enumerate(runs, 1):
        if (run / "log.csv").is_file():
            head, *rows = (run / "log.csv").read_text(encoding="utf-8").splitlines()
            text = text or f"run,{head}\n"
            text += "".join(f"{number},{row}\n" for row in rows)
    return text


def measure(model: Model, control: Model | None, test_set: Path, data: Path) -> Facts:
    """Return every figure of the card. `control` was trained without thresholds in the loop."""
    protocols = {
        ("test", silence): draw(test_set, silence=silence) for silence in ("zero", "noise")
    } | {("val", silence): draw(data, "val", silence) for silence in ("zero", "noise")}
    dense = {key: _run(model, manifest, DENSE) for key, manifest in protocols.items()}
    noisy = protocols["test", "noise"]
    plain = [setting for setting in SETTINGS if setting.front_end == PLAIN]
    return {
        "dense": {f"{split} {silence}": run.to_json() for (split, silence), run in dense.items()},
        "settings": [_with_setting(model, noisy, setting) for setting in SETTINGS],
        "control": [_with_setting(control, noisy, setting) for setting in plain if control],
        "noise": [_in_noise(model, test_set, data, snr) for snr in SNR_DB],
    }


def _run(model: Model, manifest: Manifest, setting: Setting) -> Evaluation:
    model.setting = setting
    return evaluate(model, manifest)


def _with_setting(model: Model, noisy: Manifest, setting: Setting) -> Facts:
    """Return the accuracy in both protocols and the MACs of words and of recorded noise."""
    result = _run(model, noisy, setting)
    zero = _run(model, draw(noisy.root, silence="zero"), setting)
    macs, silence = zero.macs, result.counts_by_class[SILENCE].macs
    return {
        "name": setting.name,
        "thresholds": str(setting.thresholds or ""),
        "front_end": str(setting.front_end),
        "zero": zero.accuracy,
        "noise": result.accuracy,
        "mhsa_percent": macs.mhsa_percent if macs else None,
        "model_percent": macs.model_percent if macs else None,
        "noise_percent": silence.model_percent if silence else None,
    }


def _in_noise(model: Model, test_set: Path, data: Path, snr_db: int | None) -> Facts:
    """Return the accuracy on spoken test clips with background noise, dense, two front ends."""
    spoken = draw(test_set)
    clips = tuple(clip for clip in spoken.clips if clip.label != SILENCE)
    rng = np.random.default_rng(0)
    noises = _noises(data)
    right = {PLAIN: 0, SMOOTHED: 0}
    for part, sounds in batches(replace(spoken, clips=clips), 512, 2, _unreadable):
        mixed = sounds if snr_db is None else _mix(sounds, noises, snr_db, rng)
        true = np.array([model.labels.index(clip.label) for clip in part])
        for front_end in right:
            logits = model.engine.batch(mixed, Setting(front_end=front_end)).logits
            right[front_end] += int((logits.argmax(axis=1) == true).sum())
    return {
        "snr_db": snr_db,
        "plain": right[PLAIN] / len(clips),
        "smoothed": right[SMOOTHED] / len(clips),
    }


def _noises(data: Path) -> list[NDArray[np.float32]]:
    """Return ten seconds of every recorded noise."""
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
    """Return clips (n, 16000), each with a random piece of a random noise."""
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
    to: Annotated[Path, typer.Option(help="Write the model to this folder.")],
    test: Annotated[Path, typer.Option(help="The official v0.02 test set.")],
    data: Annotated[Path, typer.Option(help="Speech Commands with a validation split.")],
    command: Annotated[list[str], typer.Option(help="The command of each run, for the card.")],
    control: Annotated[
        Path | None, typer.Option(help="A run without thresholds, to compare with.")
    ] = None,
    speech: Annotated[
        Path | None, typer.Option(help="Running speech, to calibrate a run that is not yet.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(help="A data folder to name in the card, beside those of the runs."),
    ] = None,
) -> None:
    """Store, measure and describe a trained model."""
    to = to.absolute()  # a relative path such as "kwt-1" would be taken for the name of a model
    tests = [draw(test, silence=silence) for silence in ("zero", "noise")]
    stored = store(runs, to, tests, draw(data, "val"), speech)
    stored["sources"] = [read_source(folder).to_json() for folder in source or []]
    try:
        quantize_folder(to, calibration_sounds(data))
    except DeltakwtError as error:
        typer.echo(f"{to}: no scales for fixed point: {error}", err=True)
    log = training_log(runs)
    write_atomically(to / "training.csv", log.encode())
    facts = measure(load(to), load(control) if control else None, test, data)
    card = render(to.name, command, stored, facts, log)
    write_atomically(to / "README.md", card.encode())


if __name__ == "__main__":
    typer.run(ship)
