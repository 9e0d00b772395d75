"""The card of a shipped model: what it is, what it learned from, how well it hears, its limits.

`ship` writes it before thresholds are searched for. Afterwards

    python -m deltakwt.train.card FOLDER

puts the folder's profiles into it.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from deltakwt.core.setting import FrontEndSetting
from deltakwt.weights.folder import write_atomically

Facts = dict[str, Any]


def render(name: str, commands: Sequence[str], stored: Facts, facts: Facts, log: str) -> str:
    """README.md of a model folder."""
    dense = facts["dense"]
    parts = [
        _head(name, stored, dense),
        "## Training\n" + _training(commands, stored, log),
        "## Accuracy, dense, plain front end\n" + _accuracy(dense),
        "## With deltas\n" + _deltas(facts["settings"], facts["control"]),
        "## In noise\n" + _noise(facts["noise"]),
        "## Confusion, official test set, noise as silence\n" + _confusion(dense["test noise"]),
        "## Limits\n" + LIMITS,
        "## Data and licence\n" + LICENCE,
    ]
    return "\n".join(parts)


def _head(name: str, stored: Facts, dense: Facts) -> str:
    words = ", ".join(label for label in dense["test zero"]["per_class"] if label[0] != "_")
    bits = "float32"
    if stored["half"]:
        bits = "float16 (the confusion on all test clips is the same as in float32)"
    return (
        f"# {name}\n\n"
        f"A Keyword Transformer for the ten command words ({words}), silence and unknown words;"
        f" trained by this project from random weights. Weights are stored as {bits}.\n\n"
        f"**{_percent(dense['test zero']['accuracy'])}** on the official Speech Commands v0.02"
        f" test set with digital silence, **{_percent(dense['test noise']['accuracy'])}** with its"
        " recorded noise as silence. It learned from v0.01, half the size of v0.02, from which the"
        " KWT authors' models learned (97.5%, 98.6% for KWT-1 and KWT-3, digital silence)"
        f"{stored['also'] and ', ' + stored['also']}.\n"
    )


def _training(commands: Sequence[str], stored: Facts, log: str) -> str:
    runs = stored["runs"]
    told = "\n".join(f"{number}. {_run(run)}" for number, run in enumerate(runs, 1))
    rows = list(csv.DictReader(log.splitlines()))
    every = max(1, len(rows) // 12)
    shown = [row for n, row in enumerate(rows, 1) if n % every == 0 or n == len(rows)]
    keys = ("run", "epoch", "loss", "validation", "rate")
    hours = sum(run["seconds"] for run in runs) / 3600
    steady = 100 * runs[-1]["plan"]["recipe"]["steady_chance"]
    return (
        "\n```\n" + "\n\n".join(commands) + "\n```\n\n" + told + "\n\n"
        f"{hours:.1f} hours in all on two cores that were shared with other work. Only speakers of"
        " the training split were heard; the background noises are those of the data set."
        " Outside lessons, the steady front end's smoothing and its floor were each on for"
        f" {steady:.0f}% of the clips. At the end {stored['silence_bias']:g} was added to the logit"
        " of silence, which costs no word of the validation clips. The weights were chosen by"
        " validation; the test set was looked at a few times, to see whether to train on.\n\n"
        + _table(keys, ([f"{float(row[key]):.4g}" for key in keys] for row in shown))
        + "\nValidation: 1,000 clips, all of them in the last fifth of a run; every epoch:"
        " `training.csv`.\n"
    )


def _run(run: Facts) -> str:
    """One run in a sentence or three."""
    plan = run["plan"]
    said = f"Seed {plan['seed']}, {plan['epochs']} epochs, {100 * run['validation']:.2f}% of the"
    said += " validation clips right."
    if plan["teacher"]:
        said += f" Teacher: the KWT authors' `{plan['teacher']}`, whose answers to the same"
        said += f" clips without noise are {100 * plan['teacher_share']:.0f}% of the loss except"
        said += " for silence."
    if plan.get("lessons"):
        said += f" For the first {100 * plan['lessons']:.0f}% it gave lessons: every half block"
        said += " learned to give the teacher's next tokens from the teacher's tokens."
    if plan["delta"]:
        said += f" Thresholds in the loop: `{plan['delta']}` times 0.3 to 1.3."
    return said


def _accuracy(dense: Facts) -> str:
    titles = {
        "test zero": "v0.02 test, silence zero",
        "test noise": "v0.02 test, silence noise",
        "val zero": "v0.01 validation, silence zero",
        "val noise": "v0.01 validation, silence noise",
    }
    labels = list(dense["test zero"]["per_class"])
    rows = [["all", *(_percent(dense[key]["accuracy"]) for key in titles)]]
    rows += [
        [f"`{label}`", *(_percent(dense[key]["per_class"][label]["accuracy"]) for key in titles)]
        for label in labels
    ]
    clips = ["clips", *(f"{dense[key]['clips']:,}" for key in titles)]
    return "\n" + _table(("class", *titles.values()), [*rows, clips])


def _deltas(settings: list[Facts], control: list[Facts]) -> str:
    columns = (
        *("setting", "thresholds", "front end", "silence zero", "silence noise"),
        *("MHSA MACs", "all MACs", "all MACs, real noise"),
    )
    text = (
        "\nOn the official test set. MACs are counted as in the paper, against a dense run;"
        " real noise are the test set's 408 recorded silence clips.\n\n"
        + _table(columns, map(_setting, settings))
    )
    if control:
        text += "\nThe same with a model that learned without thresholds in the loop:\n\n" + _table(
            columns, map(_setting, control)
        )
    return text


def _setting(s: Facts) -> list[str]:
    return [
        s["name"],
        f"`{s['thresholds']}`" if s["thresholds"] else "",
        s["steady"],
        _percent(s["zero"]),
        _percent(s["noise"]),
        *("" if s[k] is None else f"{s[k]:.1f}%" for k in MACS),
    ]


MACS = ("mhsa_percent", "model_percent", "noise_percent")


def _noise(rows: list[Facts]) -> str:
    shown = [
        [
            "as recorded" if row["snr_db"] is None else f"{row['snr_db']} dB",
            _percent(row["plain"]),
            _percent(row["steady"]),
        ]
        for row in rows
    ]
    return (
        "\nThe test set's 4,482 spoken clips, mixed with pieces of the background noises (which"
        " the training had too), dense.\n\n"
        + _table(("signal to noise", "plain front end", "steady front end"), shown)
    )


def _confusion(run: Facts) -> str:
    labels = list(run["confusion"])
    rows = [
        [f"`{true}`", *(str(n or "") for n in run["confusion"][true].values())] for true in labels
    ]
    return "\nRows are what was said, columns what was heard.\n\n" + _table(("", *labels), rows)


LIMITS = """
- English words, one second, one speaker at a time, recorded close to a microphone by volunteers
  with their own devices. Strong accents, children, distance and reverberation were not measured.
- An unknown word that sounds like a keyword is sometimes taken for it. Whoever acts on a word that
  must not be misheard should ask for it twice.
- Words cut out by a noise gate, with digital silence around them, were not in the training and are
  sometimes called unknown; any faint noise cures it.
- It hears words, not who speaks them: it is no lock.
"""

LICENCE = """
Speech Commands v0.01, and v0.02 where clips of it are named above, by Google, CC BY 4.0 (Pete
Warden, *Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition*, 2018). The weights
are under the licence of this project, Apache-2.0.
"""


PROFILES, NEXT = "## Profiles\n", "## In noise\n"


def with_profiles(card: str, document: Facts) -> str:
    """The card with what its profiles.json says in front of its noise, instead of what it said."""
    head, rest = card.split(NEXT)
    columns = (
        *("profile", "front end", "words right", "unknown right", "noise right"),
        *("MHSA MACs, words", "all MACs, words", "all MACs, real noise"),
    )
    rows = (_profile(name, profile) for name, profile in document["profiles"].items())
    section = (
        "\nThresholds that `deltakwt tune` found on the validation split, on the official test set;"
        f" `{document['default']}` is the default. Commands and intervals: `profiles.json`.\n\n"
        + _table(columns, rows)
    )
    return f"{head.split(PROFILES)[0]}{PROFILES}{section}\n{NEXT}{rest}"


def _profile(name: str, profile: Facts) -> list[str]:
    groups = profile["measured"]["groups"]
    right = (groups.get(group, {}).get("accuracy") for group in ("words", "unknown", "noise"))
    words, noise = groups["words"], groups["noise"]
    macs = (words["mhsa_percent"], words["macs_percent"], noise["macs_percent"])
    return [
        f"`{name}`",
        str(FrontEndSetting(**profile["steady"])),
        *("" if share is None else f"{share:.2f}%" for share in right),
        *(f"{share:.1f}%" for share in macs),
    ]


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}%"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    profiles = json.loads((folder / "profiles.json").read_text())
    card = folder / "README.md"
    write_atomically(card, with_profiles(card.read_text(), profiles).encode())
