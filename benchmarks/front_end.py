"""Measure smoothing and floor of the front end: words, recorded noise and white noise.

    python benchmarks/front_end.py clips   --model M --data DIR [--split val]
    python benchmarks/front_end.py white   --model M
    python benchmarks/front_end.py streams --model M --data DIR [--split val]

Each prints one table in Markdown. MACs are percent of the whole dense model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import deltakwt
from deltakwt.core.config import LABELS, SILENCE
from deltakwt.core.frontend import FrontEndStream, mel_energies
from deltakwt.core.macs import Macs
from deltakwt.core.model import Model
from deltakwt.core.setting import PLAIN, FrontEndSetting, Setting, Thresholds
from deltakwt.data import speech_commands as dataset

Floats = NDArray[np.float32]
SECOND = 16_000

# The setting for a real room, chosen on validation clips: see docs/algorithm.md.
ROOM = FrontEndSetting(smooth=True, floor=2.0)
ROOM_THRESHOLDS = Thresholds.parse("0.25_0.15_0.2_0.07_0.001_0.05_0.25_0.07")


def load_clips(data: Path, split: str, seed: int) -> tuple[Floats, NDArray[np.intp], Floats]:
    """Words (n, 16000) and their classes, and clips of real background noise (m, 16000)."""
    manifest = dataset.draw(data, split, "noise", seed=seed)
    sounds = np.stack([dataset.read(manifest, clip) for clip in manifest.clips])
    classes = np.array([LABELS.index(clip.label) for clip in manifest.clips])
    silent = classes == LABELS.index(SILENCE)
    return sounds[~silent], classes[~silent], sounds[silent]


def measure(
    model: Model, clips: Floats, thresholds: Thresholds, front_end: FrontEndSetting
) -> tuple[NDArray[np.intp], float]:
    """Return the predicted classes and the MACs in percent of the model, by the paper's count."""
    batch = model.engine.batch(clips, Setting(thresholds, front_end))
    assert batch.macs is not None
    return batch.logits.argmax(axis=1), Macs(model.config, batch.macs.mean(axis=0)).model_percent


def clips_table(model: Model, options: argparse.Namespace) -> None:
    words, classes, noise = load_clips(options.data, options.split, options.seed)

    def accuracy(predicted: NDArray[np.intp]) -> str:
        return f"{100 * (predicted == classes).mean():.2f}%"

    print(
        f"{len(words)} words, {len(noise)} noise clips of {options.data.name} ({options.split})\n"
    )
    print("| front end | thresholds | words, dense | words, delta | words' MACs | noise's MACs |")
    print("|---|---|---|---|---|---|")
    for front_end in options.front_ends:
        dense = accuracy(model.engine.batch(words, Setting(None, front_end)).logits.argmax(axis=1))
        for thresholds in options.thresholds:
            predicted, cost = measure(model, words, thresholds, front_end)
            _, noise_cost = measure(model, noise, thresholds, front_end)
            print(
                f"| {front_end} | {thresholds} | {dense} | {accuracy(predicted)}"
                f" | {cost:.1f}% | {noise_cost:.1f}% |",
                flush=True,
            )


def white_table(model: Model, options: argparse.Namespace) -> None:
    levels = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    rng = np.random.default_rng(options.seed)
    noise = rng.standard_normal((64, SECOND)).astype(np.float32)
    print("| front end | thresholds | " + " | ".join(f"{level:g}" for level in levels) + " |")
    print("|---|---|" + "---|" * len(levels))
    for front_end in options.front_ends:
        for thresholds in options.thresholds:
            costs = (
                measure(model, noise * np.float32(a), thresholds, front_end)[1] for a in levels
            )
            print(
                f"| {front_end} | {thresholds} | " + " | ".join(f"{c:.1f}%" for c in costs) + " |"
            )


def streams_table(model: Model, options: argparse.Namespace) -> None:
    """Words in streams: the floor over the last second against the floor tracked causally."""
    words, classes, _ = load_clips(options.data, options.split, options.seed)
    rng = np.random.default_rng(options.seed)
    chosen = rng.permutation(len(words))[: options.words]
    recordings = _noise_recordings(options.noises or options.data / dataset.NOISE_FOLDER)
    streams = [_stream(words, n, _turn(recordings, i), rng) for i, n in enumerate(chosen)]
    rooms = [_noise(_turn(recordings, i), 10, rng) for i in range(2 * len(recordings))]
    jumps = [np.concatenate([room[: 5 * SECOND] / 10, room[: 5 * SECOND]]) for room in rooms]
    thresholds = options.thresholds[0]
    print(f"{len(streams)} streams, thresholds {thresholds}\n")
    print("| front end | floor | words | constant room's MACs | 2 and 4 s after a jump of 20 dB |")
    print("|---|---|---|---|---|")
    for front_end in options.front_ends:
        for steps in [None, *options.steps] if front_end.floor else [None]:

            def run(sounds: list[Floats], ends: Sequence[float]) -> tuple[NDArray[np.intp], float]:
                rows = [_windows(model, sound, front_end, steps, ends) for sound in sounds]  # noqa: B023
                return measure(model, np.concatenate(rows), thresholds, PLAIN)

            predicted, _ = run(streams, [6])
            accuracy = 100 * (predicted == classes[chosen]).mean()
            _, room = run(rooms, np.arange(6, 10.1, 0.4))
            jump = ", ".join(f"{run(jumps, [end])[1]:.1f}%" for end in (7, 9))
            floor = (
                "the window's" if steps is None else f"tracked, steps {steps[0]:g}, {steps[1]:g}"
            )
            print(
                f"| {front_end} | {floor if front_end.floor else 'none'} | {accuracy:.2f}%"
                f" | {room:.1f}% | {jump} |",
                flush=True,
            )


def _windows(
    model: Model,
    sound: Floats,
    front_end: FrontEndSetting,
    steps: tuple[float, float] | None,
    ends: Sequence[float],
) -> Floats:
    """(len(ends), frames, 40): the second before each end, floored by itself or by the stream."""
    if steps is None:
        stops = [round(end * SECOND) for end in ends]
        return np.stack([model.engine.features(sound[e - SECOND : e], front_end) for e in stops])
    frames, stride = model.config.frames, model.config.stride
    rows = FrontEndStream(front_end, *steps).push(mel_energies(sound, stride))
    complete = [1 + (round(end * 100) - 3) // stride for end in ends]  # a frame has three steps
    return np.stack([rows[e - frames : e] for e in (min(e, len(rows)) for e in complete)])


def _noise_recordings(folder: Path) -> list[Floats]:
    import soundfile

    return [soundfile.read(path, dtype="float32")[0] for path in sorted(folder.glob("*.wav"))]


def _turn(recordings: list[Floats], number: int) -> Floats:
    return recordings[number % len(recordings)]


def _noise(recording: Floats, seconds: int, rng: np.random.Generator) -> Floats:
    """A cut of a recording at an RMS of 0.001 to 0.01: a quiet room to a busy one."""
    start = rng.integers(len(recording) - seconds * SECOND)
    cut = recording[start : start + seconds * SECOND]
    level = 10 ** rng.uniform(-3, -2)
    return np.asarray(cut * (level / np.sqrt((cut**2).mean() + 1e-12)), np.float32)


def _stream(words: Floats, number: int, recording: Floats, rng: np.random.Generator) -> Floats:
    """Six seconds of a room: at 1.5 and 3.2 s somebody says other words, at 5 s this one."""
    room = _noise(recording, 6, rng)
    for at in (1.5, 3.2):
        start = int(at * SECOND)
        room[start : start + SECOND] += words[rng.integers(len(words))]
    room[-SECOND:] += words[number]
    return room


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("table", choices=["clips", "white", "streams"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--noises", type=Path, help="folder of long noise recordings")
    parser.add_argument("--words", type=int, default=300, help="streams with a word in them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--front-end", dest="front_ends", type=FrontEndSetting.parse, nargs="+",
        default=[PLAIN, ROOM],
    )  # fmt: skip
    parser.add_argument(
        "--thresholds", type=Thresholds.parse, nargs="+",
        default=[ROOM_THRESHOLDS],
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=lambda text: tuple(map(float, text.split(","))), nargs="+",
        default=[(1.0, 0.05)], help="first,least of the tracked floor",
    )  # fmt: skip
    options = parser.parse_args()
    tables = {"clips": clips_table, "white": white_table, "streams": streams_table}
    tables[options.table](deltakwt.load(options.model, arithmetic="float"), options)


if __name__ == "__main__":
    main()
