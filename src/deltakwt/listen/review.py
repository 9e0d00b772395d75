"""Saved events become labelled clips: right ones keep their word, wrong ones get what was there.

The result has the layout of Speech Commands. Which split a clip belongs to is decided by its file
name there, so names are chosen to fall into the split that is asked for. Answers are kept beside
the events: a review can be interrupted and goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import NOISE_FOLDER, SPLITS, split_of
from deltakwt.listen.album import Saved, read_album

REVIEWED = "reviewed.jsonl"
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Answer:
    """What a saved event really was."""

    file: str
    label: str


def read_answers(folder: Path) -> dict[str, str]:
    """File -> label of the events that were reviewed; a later answer replaces an earlier one."""
    path = folder / REVIEWED
    if not path.exists():
        return {}
    answers = {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            answers[str(line["file"])] = str(line["label"])
        except (ValueError, KeyError, TypeError):
            raise DeltakwtError(f"{path}: line {number} is not an answer") from None
    return answers


def unreviewed(folder: Path) -> list[Saved]:
    """Events that nobody has answered for."""
    answers = read_answers(folder)
    return [saved for saved in read_album(folder) if saved.file not in answers]


def write_answer(folder: Path, answer: Answer) -> None:
    with (folder / REVIEWED).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"file": answer.file, "label": answer.label}) + "\n")


def check_label(text: str, labels: Sequence[str]) -> str | None:
    """An answer as typed -> a folder name, or None if it cannot be one.

    "u" is other speech and "n" noise; any word may be typed, the model's or a new one.
    """
    short = {"u": UNKNOWN, "n": SILENCE}
    label = short.get(text, text)
    plain = label in labels or label in short.values() or label.replace("-", "").isalnum()
    return label if plain and len(label) <= 64 else None


def walk(
    folder: Path, ask: Callable[[Saved, NDArray[np.float32], int, int], str | None]
) -> Iterator[Answer]:
    """Ask about every open event and keep each answer at once; None from `ask` leaves it open."""
    waiting = unreviewed(folder)
    for number, saved in enumerate(waiting, 1):
        label = ask(saved, read_sound(folder, saved), number, len(waiting))
        if label is not None:
            answer = Answer(saved.file, label)
            write_answer(folder, answer)
            yield answer


def read_sound(folder: Path, saved: Saved) -> NDArray[np.float32]:
    """(n,): the whole saved sound."""
    import soundfile

    try:
        sound, rate = soundfile.read(str(folder / saved.file), dtype="float32")
    except (OSError, soundfile.LibsndfileError) as error:
        raise DeltakwtError(f"{folder / saved.file}: not readable as sound") from error
    if rate != SAMPLE_RATE or sound.ndim != 1:
        raise DeltakwtError(f"{folder / saved.file}: must be 16 kHz mono, as listen saves it")
    return np.asarray(sound)


def write_clips(folder: Path, out: Path, split: str) -> dict[str, int]:
    """All answered events as clips below `out`; how many of each label."""
    import soundfile

    if split not in SPLITS:
        raise DeltakwtError(f"--split {split}: must be one of {', '.join(SPLITS)}")
    answers = read_answers(folder)
    counts: dict[str, int] = {}
    if split == "test":  # the layout of the official test sets, in which every clip is a test
        for needed in (SILENCE, UNKNOWN):
            (out / needed).mkdir(parents=True, exist_ok=True)
    for saved in read_album(folder):
        if saved.file not in answers:
            continue
        label = answers[saved.file]
        sound = read_sound(folder, saved)
        place = label
        if label == SILENCE and split != "test":
            place = NOISE_FOLDER  # from which silence is cut, and which training mixes in
        else:
            sound = _window(sound, saved)
        home = out / place
        home.mkdir(parents=True, exist_ok=True)
        soundfile.write(str(home / clip_name(saved.file, split)), sound, SAMPLE_RATE, "PCM_16")
        counts[label] = counts.get(label, 0) + 1
    return dict(sorted(counts.items()))


def _window(sound: NDArray[np.float32], saved: Saved) -> NDArray[np.float32]:
    """(16000,): the second in which the word was heard."""
    start = min(max(0, round(saved.clip * SAMPLE_RATE)), len(sound))
    clip = np.zeros(CLIP_SAMPLES, np.float32)
    part = sound[start : start + CLIP_SAMPLES]
    clip[: len(part)] = part
    return clip


def clip_name(file: str, split: str) -> str:
    """A name whose hash falls into the split; the same event always gets the same name."""
    stem = Path(file).stem
    salt = 0
    while split_of(name := f"{stem}-{salt}_nohash_0.wav") != split:
        salt += 1
    return name


def sketch(sound: NDArray[np.float32], width: int) -> str:
    """Loudness over time as a line of blocks, 60 dB high."""
    parts = [part for part in np.array_split(sound, width) if len(part)]
    power = np.array([np.square(part).mean() for part in parts])
    db = 10 * np.log10(power + 1e-10) - 10 * np.log10(power.max() + 1e-10)
    steps = np.clip(1 + db / 40, 0, 1) * (len(BARS) - 1)
    return "".join(BARS[round(float(step))] for step in steps)
