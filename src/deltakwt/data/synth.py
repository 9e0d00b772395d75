"""Synthetic training speech: espeak-ng says the words in many voices, speeds and pitches."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.cache import Progress, loudest_second, read_start
from deltakwt.data.sources import DataSource, write_source
from deltakwt.workers import in_threads

ACCENTS = (
    *("en-us", "en-gb", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd"),
    *("en-029", "en-us-nyc"),
)
SPEAKERS = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "f1", "f2", "f3", "f4", "f5", "croak")
QUIET = 0.01  # of the peak: quieter sound at both ends is not part of the word
TAKES = 3  # recordings of a word per voice, at different speeds and pitches
# Words for the `_unknown_` class: everyday words, short and long, with many sounds.
OTHER_WORDS = """
    about again all and apple are away baby back ball bed before better big bird black blue book
    box boy bring brother but call can car cat chair change city close coffee cold come computer
    could cut day dinner do dog door down drink drive early earth eat eight even every eye face
    fall family far fast father feel find fire first five flower fly follow food for four friend
    from full game garden get girl give go good great green hand happy hard have hear heart hello
    help her here high home house how idea in is jump just keep kitchen know large last late laugh
    learn leave left letter life like little long look love machine make many maybe me milk minute
    money month morning mother mountain move much name never new next night nine no now number of
    off often old on one only open orange order other out over paper people phone picture place
    play please question quick quiet rain read ready red remember right river robin room run same
    school sea second see seven she ship show sing sister sit six sleep slow small snow some song
    soon speak start stop story street summer sun table take talk tell ten thank that the there
    thing think three time today together tomorrow tree try turn two uncle under until up very
    voice wait walk wall want warm watch water way week well what when where white who why window
    winter with woman wonder word work world write year yellow yes yesterday you young zero
    """.split()  # noqa: SIM905 (200 quoted words would be harder to read)

SOURCE = DataSource(
    "Synthetic speech",
    "made for this model by espeak-ng, a GPL-3.0 program",
    "https://github.com/espeak-ng/espeak-ng",
)


@dataclass(frozen=True)
class Take:
    """One recording of a word."""

    text: str
    voice: str
    number: int  # counts the takes of this voice

    @property
    def name(self) -> str:
        """Return the file name. A voice is a speaker, so that all its takes fall into one split."""
        return f"{self.voice.replace('+', '-')}_nohash_{self.number}.wav"

    def command(self, program: str, path: Path) -> list[str]:
        """Return the espeak-ng command. Speed and pitch are a hash of the take: always the same."""
        digest = hashlib.sha256(f"{self.text}|{self.voice}|{self.number}".encode()).digest()
        speed, pitch = 125 + digest[0] * 95 // 255, digest[1] * 99 // 255
        options = ("-v", self.voice, "-s", f"{speed}", "-p", f"{pitch}", "-w", str(path))
        return [program, *options, "--", self.text]


def speak(
    words: Sequence[str],
    folder: Path,
    progress: Progress = lambda done, total: None,
    takes: int = TAKES,
    others: int = 1000,
) -> None:
    """Fill `folder` with word folders: the wanted words in every voice, `others` other clips.

    Existing files are kept, so that a stopped run continues.
    """
    program = shutil.which("espeak-ng")
    if program is None:
        raise DeltakwtError("--synth needs espeak-ng; install it (apt install espeak-ng)")
    wanted = [
        (folder / word, Take(word, voice, number))
        for word in words
        for voice in voices(program)
        for number in range(takes)
    ]
    jobs = wanted + list(_other_words(words, folder, voices(program), others))
    with closing(in_threads(lambda job: _say(program, *job), jobs, 4, ahead=16)) as said:
        for done, _ in enumerate(said, 1):
            progress(done, len(jobs))
    write_source(folder, SOURCE)


def voices(program: str) -> list[str]:
    """Return all voices: every accent that this espeak-ng has, with every speaker."""
    listed = _run([program, "--voices=en"]).split()
    return [f"{accent}+{speaker}" for accent in ACCENTS if accent in listed for speaker in SPEAKERS]


def _other_words(
    words: Sequence[str], folder: Path, voices: list[str], count: int
) -> Iterator[tuple[Path, Take]]:
    """Yield `count` recordings of words that are not wanted, and of parts of wanted phrases."""
    taken = {part.lower() for word in words for part in word.split()}
    rng = np.random.default_rng(0)
    allowed = [word for word in OTHER_WORDS if word not in taken]
    parts = sorted({part for word in words if " " in word for part in word.split()})
    for number in range(count):
        # A part of a phrase is not the phrase: "robot" alone must not trigger "hey robot".
        one_part = parts and number % 5 == 0
        word = str(rng.choice(parts if one_part else allowed))
        if word not in words:
            yield folder / word, Take(word, str(rng.choice(voices)), number)


def _say(program: str, folder: Path, take: Take) -> None:
    path = folder / take.name
    if path.exists():
        return
    part = path.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _run(take.command(program, part))
        clip = centred(read_start(part))
        soundfile.write(part, clip, SAMPLE_RATE, format="WAV", subtype="PCM_16")
        part.rename(path)
    except (OSError, soundfile.SoundFileError) as error:
        raise DeltakwtError(f"{path}: cannot be written: {error}") from error


def centred(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (16000,): the spoken part in the middle; its loudest second if it is longer."""
    loud = np.flatnonzero(np.abs(sound) > QUIET * np.abs(sound).max())
    spoken = sound[loud[0] : loud[-1] + 1] if len(loud) else sound[:0]
    room = max(0, CLIP_SAMPLES - len(spoken))
    return loudest_second(np.pad(spoken, (room // 2, room - room // 2)))


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode:
        raise DeltakwtError(f"espeak-ng failed: {result.stderr.strip() or result.returncode}")
    return result.stdout
