"""The options of `deltakwt train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from deltakwt.cli.common import JsonOption, ThreadsOption
from deltakwt.core.errors import DeltakwtError


@dataclass(frozen=True)
class TrainArguments:
    """The options of `deltakwt train`."""

    out: Annotated[
        Path, typer.Option("--out", help="Write the run and the finished model to this folder.")
    ]
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="Learn words from this folder of word folders. Repeatable."),
    ] = None
    speech: Annotated[
        list[Path] | None,
        typer.Option(
            "--speech",
            help="Learn to reject running speech from this folder of recordings. Repeatable.",
        ),
    ] = None
    sounds: Annotated[
        list[Path] | None,
        typer.Option(
            "--sounds",
            help="Learn from this folder of other sounds or music that they are silence, and use"
            " them as backgrounds. Repeatable.",
        ),
    ] = None
    rooms: Annotated[
        str,
        typer.Option(
            "--rooms",
            help="Use the impulse responses in this folder; 'simulated' simulates rooms with"
            " pyroomacoustics, 'noise' uses decaying noise. The default is no rooms.",
        ),
    ] = ""
    size: Annotated[
        str | None,
        typer.Option(
            "--size", help="Train this size: kwt-0, kwt-1, kwt-2 or kwt-3. Default: kwt-1."
        ),
    ] = None
    shape: Annotated[
        str,
        typer.Option("--shape", help="Train this shape instead of a size: DIM,HEADS,MLP,LAYERS."),
    ] = ""
    words: Annotated[
        str | None,
        typer.Option(
            "--words", help="Spot these words, separated by commas. Default: the ten words."
        ),
    ] = None
    synth: Annotated[
        bool, typer.Option("--synth", help="Make training speech for the words with espeak-ng.")
    ] = False
    start: Annotated[str | None, typer.Option("--from", help="Continue to train this model.")] = (
        None
    )
    grow: Annotated[
        str | None, typer.Option("--grow", help="Widen this model to the size, then train it.")
    ] = None
    teacher: Annotated[
        list[str] | None,
        typer.Option("--teacher", help="Learn from the answers of this model too. Repeatable."),
    ] = None
    teacher_share: Annotated[
        float | None,
        typer.Option(
            "--teacher-share",
            min=0.0,
            max=1.0,
            help="Part of the loss on keywords that comes from the teachers. Default: 0.6, or 0.9"
            " with --layerwise.",
        ),
    ] = None
    layerwise: Annotated[
        float | None,
        typer.Option(
            "--layerwise",
            min=0.0,
            max=0.95,
            help="Part of the run for layer-wise distillation from a teacher of the same shape."
            " Default: 0.55 from random weights without --speech, otherwise 0.",
        ),
    ] = None
    hints: Annotated[
        str,
        typer.Option("--hints", help="Guide every block with the tokens of this narrower model."),
    ] = ""
    hint_until: Annotated[
        float,
        typer.Option(
            "--hint-until",
            min=0.01,
            max=1.0,
            help="Part of the run at which hints have faded to 0.",
        ),
    ] = 0.33
    delta: Annotated[
        str,
        typer.Option(
            "--delta", help="Train with these thresholds, or with those of a profile of --from."
        ),
    ] = ""
    mac_penalty: Annotated[
        float,
        typer.Option(
            "--mac-penalty", min=0.0, help="Weight of the MACs in the loss, with --delta."
        ),
    ] = 0.0
    front_end_share: Annotated[
        float,
        typer.Option(
            "--front-end-share",
            min=0.0,
            max=1.0,
            help="Part of the clips with a smoothed front end, and with a floor. 0: plain only.",
        ),
    ] = 0.6
    background_share: Annotated[
        float,
        typer.Option(
            "--background-share",
            min=0.0,
            max=1.0,
            help="Part of the words and of the speech with a background at -5 to 28 dB.",
        ),
    ] = 0.62
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            help="Number of epochs. Default: 96; 7 with --layerwise, 8 with --grow, 10 with"
            " --from.",
        ),
    ] = None
    batch: Annotated[int, typer.Option("--batch", min=1, max=65_536, help="Clips per step.")] = 128
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", min=1e-8, max=1.0, help="Highest learning rate. Default: depends on the plan."
        ),
    ] = None
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=8_000_000, help="Seed of all random numbers.")
    ] = 1
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache", help="Keep decoded audio in this folder. Default: the user's cache."
        ),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Continue the stopped run in --out.")] = (
        False
    )
    threads: ThreadsOption = 0
    device: Annotated[str, typer.Option("--device", help="Train on this device: cpu or cuda.")] = (
        "cpu"
    )
    as_json: JsonOption = False

    def check(self) -> None:
        """Raise an error for options that do not go together."""
        if self.start and self.grow:
            raise DeltakwtError("--from and --grow exclude each other; give one of them")
        if self.size and self.shape:
            raise DeltakwtError("--size and --shape exclude each other; give one of them")
        if self.mac_penalty and not self.delta:
            raise DeltakwtError("--mac-penalty counts MACs at thresholds; give them with --delta")
        if not self.data and not self.synth and not self.resume:
            raise DeltakwtError("give --data FOLDER, or --words with --synth")
