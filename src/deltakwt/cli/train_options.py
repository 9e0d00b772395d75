"""The options of `deltakwt train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from deltakwt.cli.options import JsonOption, ThreadsOption
from deltakwt.core.errors import DeltakwtError


@dataclass(frozen=True)
class TrainArguments:
    """The options of `deltakwt train`."""

    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Write the run and the finished model to this folder."
        ),
    ]
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Learn words from this folder, which has one folder per word. Can be repeated.",
        ),
    ] = None
    speech: Annotated[
        list[Path] | None,
        typer.Option(
            "--speech",
            metavar="DIR",
            help="Learn to reject the speech in this folder of recordings. Can be repeated.",
        ),
    ] = None
    sounds: Annotated[
        list[Path] | None,
        typer.Option(
            "--sounds",
            metavar="DIR",
            help="Treat the sounds or music in this folder as silence, and mix them behind words."
            " Can be repeated.",
        ),
    ] = None
    rooms: Annotated[
        str,
        typer.Option(
            "--rooms",
            metavar="ROOMS",
            help="Add reverberation: the impulse responses in this folder, 'simulated' (rooms"
            " simulated with pyroomacoustics) or 'noise' (decaying noise). Default: none.",
        ),
    ] = ""
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="Train this size: kwt-0, kwt-1, kwt-2 or kwt-3. Default: kwt-1.",
        ),
    ] = None
    shape: Annotated[
        str,
        typer.Option(
            "--shape",
            metavar="SHAPE",
            help="Train this shape instead of a size: DIM,HEADS,MLP,LAYERS.",
        ),
    ] = ""
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            metavar="N",
            help="Take one token per N times 10 ms of sound; 2 halves the tokens. Default: that of"
            " the size or of the model to start from, otherwise 1.",
        ),
    ] = None
    words: Annotated[
        str | None,
        typer.Option(
            "--words",
            metavar="WORDS",
            help="Learn these words, separated by commas. Default: the ten keywords.",
        ),
    ] = None
    synth: Annotated[
        bool,
        typer.Option("--synth", help="Synthesise training speech for the words with espeak-ng."),
    ] = False
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="MODEL", help="Start from the weights of this model."),
    ] = None
    grow: Annotated[
        str | None,
        typer.Option("--grow", metavar="MODEL", help="Widen this model to --size, then train it."),
    ] = None
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            "--teacher",
            metavar="MODEL",
            help="Distil from this model: learn from its posteriors too. Can be repeated.",
        ),
    ] = None
    teacher_share: Annotated[
        float | None,
        typer.Option(
            "--teacher-share",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Weight the distillation loss by this, from 0 (labels only) to 1 (teachers only)."
            " Default: 0.6, or 0.9 with --layerwise.",
        ),
    ] = None
    layerwise: Annotated[
        float | None,
        typer.Option(
            "--layerwise",
            metavar="SHARE",
            min=0.0,
            max=0.95,
            help="Use this share of the run for layer-wise distillation from a teacher of the same"
            " shape. Default: 0.55 if training starts from random weights without --speech,"
            " otherwise 0.",
        ),
    ] = None
    hints: Annotated[
        str,
        typer.Option(
            "--hints",
            metavar="MODEL",
            help="Train each block to predict the tokens of this narrower model.",
        ),
    ] = ""
    hint_until: Annotated[
        float,
        typer.Option(
            "--hint-until",
            metavar="SHARE",
            min=0.01,
            max=1.0,
            help="Fade the loss of --hints out over this share of the run.",
        ),
    ] = 0.33
    delta: Annotated[
        str,
        typer.Option(
            "--delta",
            metavar="THRESHOLDS",
            help="Apply these thresholds in training, or those of this profile of --from.",
        ),
    ] = ""
    mac_penalty: Annotated[
        float,
        typer.Option(
            "--mac-penalty",
            metavar="WEIGHT",
            min=0.0,
            help="With --delta: add the MACs to the loss with this weight.",
        ),
    ] = 0.0
    front_end_share: Annotated[
        float,
        typer.Option(
            "--front-end-share",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Use a smoothed front end for this share of the clips, and a floor for this share;"
            " 0 uses the plain front end only.",
        ),
    ] = 0.6
    background_share: Annotated[
        float,
        typer.Option(
            "--background-share",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Mix a background into this share of the words and of the speech, at a"
            " signal-to-noise ratio of -5 to 28 dB.",
        ),
    ] = 0.62
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            metavar="N",
            min=1,
            help="Train for this many epochs. Default: 96; 7 with --layerwise, 8 with --grow,"
            " 10 with --from.",
        ),
    ] = None
    bank: Annotated[
        int,
        typer.Option(
            "--bank",
            metavar="N",
            min=0,
            max=10_000_000,
            help="Make this many augmented examples once and reuse them in every epoch, which is"
            " faster for small models. Each takes 8 KB on disk. Default: 0, each is made anew.",
        ),
    ] = 0
    batch: Annotated[
        int,
        typer.Option(
            "--batch", metavar="N", min=1, max=65_536, help="Use this many clips per step."
        ),
    ] = 128
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            min=1e-8,
            max=1.0,
            help="Use this peak learning rate. Default: it depends on how training starts.",
        ),
    ] = None
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, max=8_000_000, help="Use this seed for all random draws."
        ),
    ] = 1
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="Keep decoded audio in this folder. Default: the user's cache.",
        ),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted run in --out.")
    ] = False
    threads: ThreadsOption = 0
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="Train on this device: cpu or cuda.")
    ] = "cpu"
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
