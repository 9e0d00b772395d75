"""One benchmark: choose the runtimes, check their answers, time them, and return a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.bench.breakdown import breakdown, by_loudness, by_tokens
from deltakwt.bench.runners import BASELINE, PEERS, Runner, our_runners, probe
from deltakwt.bench.timing import (
    Clips,
    agreement,
    draw_clips,
    inputs_of,
    pinned,
    rows,
    time_runners,
)
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_weights import Scales
from deltakwt.core.model import Model
from deltakwt.core.native import available_isas
from deltakwt.core.setting import PAPER_THRESHOLDS, WHOLE_THRESHOLDS, Setting
from deltakwt.provenance import command, machine, model_name
from deltakwt.weights.folder import Weights

PAPER = Setting(PAPER_THRESHOLDS, name="paper")
WHOLE = Setting(WHOLE_THRESHOLDS, name="whole model")
ENOUGH = 0.99  # a peer that agrees on a smaller share of the clips computes another model
BREAKDOWN_CLIPS = 60

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What to time, over which clips, how often."""

    clips: int = 300
    noise: int = 60
    rounds: int = 5
    peers: tuple[str, ...] = tuple(PEERS)
    isas: tuple[str, ...] = ()  # default: every vector set there is, or scalar where none is
    seed: int = 0
    growth: bool = False
    breakdown: bool = False
    in_float: bool = True  # time the float engine
    scales: Scales | None = None  # time the fixed-point engine too


def settings_of(model: Model) -> list[Setting]:
    """Return the paper's thresholds, these with the MLP, and the profiles with thresholds."""
    profiles = [profile.setting for profile in model.profiles.profiles.values()]
    return [PAPER, WHOLE, *(setting for setting in profiles if setting.thresholds is not None)]


def find_peers(
    names: Sequence[str], weights: Weights, path: Path, say: Say
) -> tuple[list[Runner], dict[str, str]]:
    """Return the peers that run here, and why the others do not."""
    runners, missing = [], {}
    for name in names:
        if name not in PEERS:
            raise DeltakwtError(f"--peer {name}: unknown; peers are {', '.join(PEERS)}")
        say(f"trying {name}")
        if reason := probe(name, weights, path):
            missing[name] = reason
        else:
            runners.append(PEERS[name](weights, path))
    return runners, missing


def check(
    runners: list[Runner], engine: Engine, clips: Clips, missing: dict[str, str]
) -> tuple[list[Runner], list[NDArray[np.bool_]]]:
    """Return the runners that compute our dense model, and on which clips they agree with it.

    Quantised peers and deltas may differ a little; their agreement is only reported.
    """
    good, same = [], []
    for runner in runners:
        agreed = agreement(runner, engine, clips)
        if runner.is_exact and agreed.mean() < ENOUGH:
            missing[runner.engine] = f"another model: agrees on {agreed.mean():.1%} of the clips"
            continue
        good.append(runner)
        same.append(agreed)
    return good, same


def benchmark(
    model: Model,
    weights: Weights,
    path: Path,
    data: Path,
    options: Options,
    say: Say = lambda text: None,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Run the benchmark and return its document."""
    clips = draw_clips(data, options.clips, options.noise, options.seed)
    settings = settings_of(model)
    isas = options.isas or tuple(isa for isa in available_isas() if isa != "scalar") or ("scalar",)
    peers, missing = find_peers(options.peers, weights, path, say)
    engines = [engine for isa in isas for engine in _engines(weights, isa, options)]
    own = [runner for engine in engines for runner in our_runners(engine, settings)]
    with pinned() as core:
        say("checking answers")
        runners, same = check([*peers, *own], model.engine, clips, missing)
        say("timing")
        done, total = 0, options.rounds * len(clips.audio)

        def step() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        best = time_runners(runners, model.engine, clips, options.rounds, step)
        document: dict[str, Any] = {
            "machine": {**machine(model.engine.isa), "pinned_core": core},
            "model": model_name(model.name),
            "data": data.name,
            "clips": {part: int(clips.members(part).sum()) for part in ("all", "words", "noise")},
            "rounds": options.rounds,
            "seed": options.seed,
            "baseline": BASELINE,
            "settings": {str(setting): setting.to_json() for setting in settings},
            "missing": missing,
            "rows": rows(runners, best, same, clips),
            "command": command(),
        }
        if options.breakdown:
            say("measuring the parts")
            document["breakdowns"] = _breakdowns(model.engine, clips, settings)
        if options.growth:
            say("measuring growth")
            word = clips.audio[clips.members("words")][0]
            chosen = settings[2] if len(settings) > 2 else settings[-1]  # the first profile
            document["growth"] = {
                "tokens": by_tokens(weights, word, chosen, options.rounds),
                "loudness": by_loudness(model.engine, settings[1:], options.rounds, options.seed),
            }
    return document


def _engines(weights: Weights, isa: str, options: Options) -> Iterator[Engine]:
    """Yield our engines for one instruction set."""
    if options.in_float:
        yield Engine(weights.config, weights.tensors, isa)
    if options.scales is not None:
        yield FixedEngine(weights.config, weights.tensors, options.scales, isa)


def _breakdowns(engine: Engine, clips: Clips, settings: list[Setting]) -> list[dict[str, Any]]:
    made = []
    for setting in settings:
        assert setting.thresholds is not None
        features = inputs_of(Runner("", "features", lambda x: x, setting), engine, clips)
        for part in ("words", "noise", "zero"):
            chosen = [f for f, mine in zip(features, clips.members(part), strict=True) if mine]
            if chosen:
                found = breakdown(engine, chosen[:BREAKDOWN_CLIPS], setting.thresholds)
                made.append({"setting": str(setting), "part": part, **found})
    return made
