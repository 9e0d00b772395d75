"""One benchmark from the choice of engines to the JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.bench import growth
from deltakwt.bench.probe import probe
from deltakwt.bench.race import Course, agreement, course, fed, pinned, race, rows
from deltakwt.bench.receipt import receipt
from deltakwt.bench.runners import BASELINE, PEERS, Runner, Setting, ours
from deltakwt.core.engine import Engine, available_isas
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import Thresholds
from deltakwt.provenance import command, machine, model_name
from deltakwt.weights.folder import Weights

PAPER = "0.2_0.2_0.2_0.05_0.001_0.05"
WHOLE = f"{PAPER}_0.3_0.1"
ENOUGH = 0.99  # agreement below which a peer does not compute the same model

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What to race, over which clips, how often."""

    clips: int = 300
    noise: int = 60
    rounds: int = 5
    peers: tuple[str, ...] = tuple(PEERS)
    isas: tuple[str, ...] = ()  # default: every vector set there is, or scalar where none is
    seed: int = 0
    growth: bool = False
    receipt: bool = False


def settings_of(model: Model) -> list[Setting]:
    """The paper's six sites, the whole model at fixed thresholds, and the model's profiles."""
    fixed = [
        Setting("paper", "mhsa", Thresholds.parse(PAPER)),
        Setting("fixed", "model", Thresholds.parse(WHOLE)),
    ]
    profiles = [
        Setting(profile.name, "model", profile.thresholds, profile.front_end)
        for profile in model.profiles.profiles.values()
    ]
    return fixed + profiles


def find_peers(
    names: Sequence[str], weights: Weights, path: Path, say: Say
) -> tuple[list[Runner], dict[str, str]]:
    """The peers that run here, and why the others do not."""
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
    runners: list[Runner], engine: Engine, track: Course, missing: dict[str, str]
) -> tuple[list[Runner], list[NDArray[np.bool_]]]:
    """The runners whose words are our dense model's, and where they are.

    Quantised peers and deltas may differ a little and only have to tell.
    """
    good, same = [], []
    for runner in runners:
        agreed = agreement(runner, engine, track)
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
    """The whole document."""
    track = course(data, options.clips, options.noise, options.seed)
    settings = settings_of(model)
    isas = options.isas or tuple(isa for isa in available_isas() if isa != "scalar") or ("scalar",)
    peers, missing = find_peers(options.peers, weights, path, say)
    own = [r for isa in isas for r in ours(Engine(weights.config, weights.tensors, isa), settings)]
    with pinned() as core:
        say("checking answers")
        runners, same = check([*peers, *own], model.engine, track, missing)
        say("racing")
        done, total = 0, options.rounds * len(track.audio)

        def step() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        best = race(runners, model.engine, track, options.rounds, step)
        document: dict[str, Any] = {
            "machine": {**machine(model.engine.isa), "pinned_core": core},
            "model": model_name(model.name),
            "data": data.name,
            "clips": {part: int(track.members(part).sum()) for part in ("all", "words", "noise")},
            "rounds": options.rounds,
            "seed": options.seed,
            "baseline": BASELINE,
            "settings": {
                s.name: {"thresholds": s.thresholds.to_json(), "steady": s.front_end.to_json()}
                for s in settings
            },
            "missing": missing,
            "rows": rows(runners, best, same, track),
            "command": command(),
        }
        last = settings[-1] if len(settings) == 2 else settings[2]
        if options.receipt:
            say("writing receipts")
            document["receipts"] = _receipts(model.engine, track, settings)
        if options.growth:
            say("stretching clips")
            clip = track.audio[track.members("words")][0]
            document["growth"] = {
                "tokens": growth.by_tokens(weights, clip, last, options.rounds),
                "loudness": growth.by_loudness(
                    model.engine, settings[1:], options.rounds, options.seed
                ),
            }
    return document


def _receipts(engine: Engine, track: Course, settings: list[Setting]) -> list[dict[str, Any]]:
    made = []
    for setting in settings:
        runner = Runner("", setting.mode, "features", lambda x: x, setting.front_end)
        features = fed(runner, engine, track)
        for part in ("words", "noise", "zero"):
            chosen = [f for f, mine in zip(features, track.members(part), strict=True) if mine]
            if chosen:
                told = receipt(engine, chosen[:60], setting.thresholds)
                made.append({"setting": setting.name, "part": part, **told})
    return made
