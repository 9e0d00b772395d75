"""`deltakwt review`: saved events become labelled clips in the layout of Speech Commands.

A right event keeps its label, a wrong one gets the label of what was really there. The file name
decides to which split a clip of Speech Commands belongs, so names are chosen that fall into the
wanted split. Answers are kept beside the events: a review can be interrupted and continued.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import open_sound, read_part
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import NOISE_FOLDER, SPLITS, split_of
from deltakwt.files import read_json_lines, write_atomically, writing
from deltakwt.listen.saved import (
    MAX_BYTES,
    SavedEvent,
    append_line,
    is_plain_label,
    read_saved,
)

REVIEWED = "reviewed.jsonl"
LONGEST = 60 * SAMPLE_RATE  # samples of a saved event
BARS = " ▁▂▃▄▅▆▇█"
PLAYERS = (
    ["pw-play"],
    ["paplay"],
    ["aplay", "-q"],
    ["afplay"],
    ["play", "-q"],
    ["ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet"],
)


def read_answers(folder: Path) -> dict[str, str]:
    """Return {file: label} of the reviewed events. A later answer replaces an earlier one."""
    path = folder / REVIEWED
    if not path.exists():
        return {}
    for number, line in read_json_lines(path, MAX_BYTES):  # a bad file takes no memory
        if not isinstance(line.get("file"), str) or not is_plain_label(line.get("label")):
            raise DeltakwtError(f"{path}: line {number} is not an answer")
    return {str(line["file"]): str(line["label"]) for _, line in read_json_lines(path, MAX_BYTES)}


def unreviewed(folder: Path) -> list[SavedEvent]:
    """Return the events that have no answer yet."""
    answers = read_answers(folder)
    return [saved for saved in read_saved(folder) if saved.file not in answers]


def write_answer(folder: Path, file: str, label: str) -> None:
    """Append the answer about one event."""
    _refuse_links(folder, folder / REVIEWED)
    with writing(folder / REVIEWED):
        append_line(folder / REVIEWED, json.dumps({"file": file, "label": label}) + "\n")


def typed_label(text: str) -> str | None:
    """Return the label that an answer stands for, or None if it cannot be one.

    "u" is other speech and "n" is noise. Any word may be typed, the model's or a new one.
    """
    label = {"u": UNKNOWN, "n": SILENCE}.get(text, text)
    return label if len(label) > 1 and is_plain_label(label) else None


def review(
    folder: Path, ask: Callable[[SavedEvent, NDArray[np.float32], int, int], str | None]
) -> Iterator[str]:
    """Ask about every event without an answer, store each answer at once, and yield it.

    If `ask` returns None, the event stays without an answer.
    """
    waiting = unreviewed(folder)
    for number, saved in enumerate(waiting, 1):
        label = ask(saved, read_sound(folder, saved), number, len(waiting))
        if label is not None:
            write_answer(folder, saved.file, label)
            yield label


def read_sound(folder: Path, saved: SavedEvent) -> NDArray[np.float32]:
    """Return (n,): the whole saved sound of an event."""
    path = folder / saved.file
    with open_sound(path) as file:
        if file.samplerate != SAMPLE_RATE or file.channels != 1 or file.frames > LONGEST:
            raise DeltakwtError(
                f"{path}: must be 16 kHz mono of at most a minute, as listen saves it"
            )
    return read_part(path, 0, LONGEST)


def write_clips(folder: Path, out: Path, split: str) -> dict[str, int]:
    """Write all reviewed events as clips below `out`, and return how many of each label."""
    if split not in SPLITS:
        raise DeltakwtError(f"--split {split}: must be one of {', '.join(SPLITS)}")
    answers = read_answers(folder)
    counts: dict[str, int] = {}
    _refuse_links(folder, out)
    if split == "test":  # the layout of the official test sets, which hold test clips only
        for needed in (SILENCE, UNKNOWN):
            (out / needed).mkdir(parents=True, exist_ok=True)
    for saved in read_saved(folder):
        if saved.file not in answers:
            continue
        label = answers[saved.file]
        sound = read_sound(folder, saved)
        place = label
        if label == SILENCE and split != "test":
            place = NOISE_FOLDER  # silence is cut from it, and training mixes it in
        else:
            sound = _window(sound, saved)
        path = out / place / clip_name(saved.file, split)
        _refuse_links(folder, path.parent)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, _wav(sound))
        counts[label] = counts.get(label, 0) + 1
    return dict(sorted(counts.items()))


def _refuse_links(folder: Path, path: Path) -> None:
    """Refuse a link in the reviewed folder: what is written would leave the folder through it."""
    top, at = Path(os.path.abspath(folder)), Path(os.path.abspath(path))
    while top in at.parents:
        if at.is_symlink():
            raise DeltakwtError(f"{at}: is a link; remove it, or choose another --out")
        at = at.parent


def _wav(sound: NDArray[np.float32]) -> bytes:
    import soundfile

    content = io.BytesIO()
    soundfile.write(content, sound, SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return content.getvalue()


def _window(sound: NDArray[np.float32], saved: SavedEvent) -> NDArray[np.float32]:
    """Return (16000,): the best window of the event."""
    start = min(max(0, round(saved.clip * SAMPLE_RATE)), len(sound))
    clip = np.zeros(CLIP_SAMPLES, np.float32)
    part = sound[start : start + CLIP_SAMPLES]
    clip[: len(part)] = part
    return clip


def clip_name(file: str, split: str) -> str:
    """Return a name whose hash falls into the split, the same for the same event."""
    stem = Path(file).stem
    salt = 0
    while split_of(name := f"{stem}-{salt}_nohash_0.wav") != split:
        salt += 1
    return name


def sketch(sound: NDArray[np.float32], width: int) -> str:
    """Return the level over time as a line of bars that span 40 dB."""
    parts = [part for part in np.array_split(sound, width) if len(part)]
    power = np.array([np.square(part).mean() for part in parts])
    db = 10 * np.log10(power + 1e-10) - 10 * np.log10(power.max() + 1e-10)
    steps = np.clip(1 + db / 40, 0, 1) * (len(BARS) - 1)
    return "".join(BARS[round(float(step))] for step in steps)


def play(path: Path, limit: float = 10.0) -> bool:
    """Play a sound file with a player of this machine, and return whether that worked."""
    command = next((command for command in PLAYERS if shutil.which(command[0])), None)
    if command is None:
        return False
    try:
        done = subprocess.run(
            [*command, str(path.absolute())],  # a name that begins with - is no option
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
