"""The card of a shipped model: its shape, data, licences, accuracy and limits.

`ship` writes it; `card_figures` adds what other commands measure later.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

from deltakwt.data.sources import KEYS, DataSource

Facts = dict[str, Any]


def render(name: str, commands: Sequence[str], stored: Facts, facts: Facts, log: str) -> str:
    """Return README.md of a model folder."""
    dense, wide = facts["dense"], "width" in stored
    parts = [
        _head(name, stored, dense),
        "## Training\n" + _training(commands, stored, log),
        "## Accuracy, dense, plain front end\n" + _accuracy(dense),
        "## With deltas\n" + _deltas(facts["settings"], facts["control"]),
        PROFILES + "\nNone yet: `deltakwt tune` finds them.\n",
        "## In noise\n" + _noise(facts["noise"]),
        "## Confusion, official test set, noise as silence\n" + _confusion(dense["test noise"]),
        "## Reliability of the scores\n" + _reliability(stored),
        *(["## Use of the width\n" + use_of_width(name, stored["width"])] if wide else []),
        "## Limits\n" + LIMITS,
        "## Data and licence\n" + _licences(stored),
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
        f" trained by this project. Weights are stored as {bits}.\n\n"
        f"**{_percent(dense['test zero']['accuracy'])}** on the official Speech Commands v0.02"
        f" test set with digital silence, **{_percent(dense['test noise']['accuracy'])}** with its"
        " recorded noise as silence. The KWT authors' models, which were trained on all of v0.02,"
        " have 97.5% (KWT-1) and 98.6% (KWT-3) with digital silence.\n"
    )


def _training(commands: Sequence[str], stored: Facts, log: str) -> str:
    runs = stored["runs"]
    described = "\n".join(f"{number}. {_run(run)}" for number, run in enumerate(runs, 1))
    rows = list(csv.DictReader(log.splitlines()))
    every = max(1, len(rows) // 12)
    shown = [row for n, row in enumerate(rows, 1) if n % every == 0 or n == len(rows)]
    keys = ("run", "epoch", "loss", "validation", "rate")
    hours = sum(run.get("seconds", 0) for run in runs) / 3600
    text = (
        "\n```\n" + "\n\n".join(commands) + "\n```\n\n" + described + "\n\n"
        f"Training took {hours:.1f} hours. Only speakers of the training split were"
        " used. The weights were chosen on validation data. At the end"
        f" {-stored['unknown_bias']:g} was subtracted from the logit of unknown words, which gives"
        f" the most right validation clips, and {stored['silence_bias']:g} was added to the logit"
        " of silence, which costs no word of them.\n"
    )
    if not rows:
        return text
    return (
        f"{text}\n"
        + markdown_table(keys, ([f"{float(row[key]):.4g}" for key in keys] for row in shown))
        + "\nValidation: 1,000 clips, in the last fifth of a run all clips. `training.csv` has"
        " every epoch.\n"
    )


def _run(run: Facts) -> str:
    """Return one run in a few sentences."""
    plan = run.get("plan")
    if plan is None:
        return "The command above is all that was recorded of this run."
    text = f"Seed {plan['seed']}, {plan['epochs']} epochs, {_percent(run['validation'])} of the"
    text += " validation clips right."
    if run.get("speech_accepts") is not None:
        text += f" {_percent(run['speech_accepts'])} of the validation cuts of running speech were"
        text += " taken for a keyword."
    if plan["teachers"]:
        names = ", ".join(f"`{name}`" for name in plan["teachers"])
        # The answers to the examples of a bank count everywhere, others only on keywords.
        answered = "clean clips are", " on keywords"
        if plan.get("bank"):
            answered = f"{plan['bank']:,} examples (keywords without added noise) are", ""
        text += f" Teacher: {names}, whose answers to the {answered[0]}"
        text += f" {100 * plan['teacher_share']:.0f}% of the loss{answered[1]}."
    if plan.get("layerwise"):
        text += f" The first {100 * plan['layerwise']:.0f}% of the run was layer-wise distillation."
    if plan.get("hints"):
        text += f" Hints from `{plan['hints']}` guided every block for the first"
        text += f" {100 * plan['hint_until']:.0f}% of the run."
    if plan["delta"]:
        low, high = plan["delta_scale"]
        text += f" Thresholds in the loop: `{plan['delta']}` times {low:g} to {high:g}."
    share = 100 * plan["recipe"]["front_end_chance"]
    return f"{text} The front end was smoothed, and had a floor, in {share:.0f}% of the clips each."


def _reliability(stored: Facts) -> str:
    fitted = stored["calibration"]
    return (
        f"\nScores were calibrated with a temperature of {fitted['temperature']:.2f} on"
        f" {fitted['clips']:,} validation clips and cuts of running speech. The expected"
        f" calibration error (10 bins) is {_percent(fitted['error'])}; it was"
        f" {_percent(fitted['error_before'])} before.\n"
    )


def use_of_width(name: str, width: Facts) -> str:
    """Return what `deltakwt models width` measured, for a model of several heads."""
    columns = ("layer", "components of X for 99% of the variance", "correlation of the heads")
    rows = [
        [str(row["layer"]), str(row["components"]), f"{row['head_correlation']:.3f}"]
        for row in width["layers"]
    ]
    verdict = "" if width["independent"] else " By these figures its parts are copies."
    return (
        f"\nOn {width['clips']} test clips: `deltakwt models width {name} --data"
        " data/speech_commands_test_set_v0.02`. A model that was widened by copying a KWT-1 has"
        f" at most 64 components and heads that correlate by more than 0.99.{verdict}\n\n"
        + markdown_table(columns, rows)
    )


def _licences(stored: Facts) -> str:
    """Return a list of all sources of data, each once, and the licence of the weights."""
    listed = [source for run in stored["runs"] for source in run.get("sources", ())]
    lines: dict[str, str] = {}
    for entry in [*listed, *stored.get("sources", ())]:
        source = DataSource(**{key: entry[key] for key in KEYS if key in entry})
        role = f" ({entry['role']})" if "role" in entry else ""
        lines.setdefault(str(source), f"- {source}{role}\n")
    return "\n" + "".join(lines.values()) + LICENCE


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
    return "\n" + markdown_table(("class", *titles.values()), [*rows, clips])


def _deltas(settings: list[Facts], control: list[Facts]) -> str:
    columns = (
        *("setting", "thresholds", "front end", "silence zero", "silence noise"),
        *("MHSA MACs", "all MACs", "all MACs, real noise"),
    )
    text = (
        "\nOn the official test set. MACs are counted as in the paper, relative to a dense run."
        " Real noise means the 408 recorded silence clips of the test set.\n\n"
        + markdown_table(columns, map(_setting, settings))
    )
    if control:
        text += (
            "\nThe same for a model that was trained without thresholds in the loop:\n\n"
            + markdown_table(columns, map(_setting, control))
        )
    return text


def _setting(s: Facts) -> list[str]:
    return [
        s["name"],
        f"`{s['thresholds']}`" if s["thresholds"] else "",
        s["front_end"],
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
            _percent(row["smoothed"]),
        ]
        for row in rows
    ]
    return (
        "\nThe dense model on the 4,482 spoken clips of the test set, mixed with background noises."
        " The same noises were used in training.\n\n"
        + markdown_table(("signal to noise", "plain front end", "smooth_2 front end"), shown)
    )


def _confusion(run: Facts) -> str:
    labels = list(run["confusion"])
    rows = [
        [f"`{true}`", *(str(n or "") for n in run["confusion"][true].values())] for true in labels
    ]
    return "\nRows are the spoken words, columns the answers.\n\n" + markdown_table(
        ("", *labels), rows
    )


LIMITS = """
- English words of up to one second, spoken by themselves, one speaker at a time. Strong accents and
  children were not measured.
- A word inside a fluent sentence is treated as running speech, which is rejected.
- An unknown word that sounds like a keyword is sometimes taken for it. Ask for confirmation before
  acting on a word that must not be misunderstood.
- The model recognises words, not speakers. Do not use it as a lock.
"""

LICENCE = """
The test set is part of Speech Commands v0.02 by Google, CC BY 4.0 (Pete Warden, *Speech Commands: A
Dataset for Limited-Vocabulary Speech Recognition*, 2018). The weights are under the licence of this
project, Apache-2.0.
"""

PROFILES = "## Profiles\n"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}%"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
