"""Put what other commands measured into the card of a model: profiles, conditions and listening.

    python -m deltakwt.train.card_figures FOLDER [--robustness FILE] [--stress FILE ...]

FOLDER holds the card (README.md) and profiles.json, as `ship` and `deltakwt tune` write them. The
files are the output of `deltakwt robustness --json` and `deltakwt stress --json`. A section that
is in the card already is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from deltakwt.core.setting import FrontEndSetting
from deltakwt.files import write_atomically
from deltakwt.train.card import PROFILES, markdown_table

Facts = dict[str, Any]

CONDITIONS = "## Under other conditions\n"
LISTENING = "## Listening\n"


def with_section(card: str, title: str, text: str, after: str) -> str:
    """Return the card with this section, in its old place or after the section `after`."""
    section = f"{title}\n{text}\n"
    if title in card:
        head, _, rest = card.partition(title)
        return head + section + rest[_next_title(rest) :]
    head, _, rest = card.partition(after)
    end = _next_title(rest)
    return head + after + rest[:end] + section + rest[end:]


def _next_title(text: str) -> int:
    return text.index("\n## ") + 1


def profiles_section(document: Facts) -> str:
    """Return the profiles of profiles.json with their figures on the test set."""
    columns = (
        *("profile", "front end", "words right", "unknown right", "noise right"),
        *("MHSA MACs, words", "all MACs, words", "all MACs, real noise"),
    )
    rows = (_profile(name, profile) for name, profile in document["profiles"].items())
    return (
        "Thresholds that `deltakwt tune` found on the validation split, on the official test set;"
        f" `{document['default']}` is the default. Commands and intervals: `profiles.json`.\n\n"
        + markdown_table(columns, rows)
    )


def _profile(name: str, profile: Facts) -> list[str]:
    groups = profile["measured"]["groups"]
    right = (groups.get(group, {}).get("accuracy") for group in ("words", "unknown", "noise"))
    words, noise = groups["words"], groups["noise"]
    macs = (words["mhsa_percent"], words["macs_percent"], noise["macs_percent"])
    return [
        f"`{name}`",
        str(FrontEndSetting.from_json(profile["front_end"])),
        *("" if share is None else f"{share:.2f}%" for share in right),
        *(f"{share:.1f}%" for share in macs),
    ]


def conditions_section(document: Facts) -> str:
    """Return the accuracy of every setting under every condition, of `robustness --json`."""
    rows = document["conditions"]
    names = list(rows[0]["accuracy"])
    shown = (
        [
            row["condition"],
            str(row["clips"]),
            *(f"{100 * row['accuracy'][name]:.1f}" for name in names),
        ]
        for row in rows
    )
    return (
        "Accuracy in percent on spoken clips of the test set (`deltakwt robustness`). Sounds are"
        " ESC-50 folds 4 and 5, talkers are\nLibriSpeech test-clean; nothing was trained or chosen"
        ' on them. "Whole" counts the words that stay inside the clip.\n\n'
        + markdown_table(("condition", "clips", *(_code(name) for name in names)), shown)
    )


def listening_section(documents: Sequence[Facts]) -> str:
    """Return false accepts, misses and confusions of streams, one of each `stress --json`.

    The false accepts are those of the documents with negatives. All documents must have the same
    settings.
    """
    names = [setting["setting"] for setting in documents[0]["settings"]]
    columns = [[_decided(document, name) for document in documents] for name in names]
    ratios = " / ".join(f"{document['scenario']['snr']:g} dB" for document in documents)
    rows = [
        [f"commands missed among sounds, {ratios}"]
        + [" / ".join(f"{d['miss_percent']:.1f}" for d in c) + "%" for c in columns],
        [f"confusions per hour, {ratios}"]
        + [" / ".join(f"{d['confusions_per_hour']:.0f}" for d in c) for c in columns],
    ]
    for number, document in enumerate(documents):
        for place, folder in enumerate(document["negatives"] or ()):
            name = "/".join(Path(folder["folder"]).parts[-2:])
            found = [c[number]["negatives"][place] for c in columns]
            rows.append(
                [f"false accepts per hour, {name} ({folder['hours']:.1f} h)"]
                + [f"{figures['false_accepts_per_hour']:.1f}" for figures in found]
            )
    decision = documents[0]["decision"]
    words = "; single words have their own thresholds" if decision["words"] else ""
    return (
        "With the decision settings of `config.json`: threshold"
        f" {decision['on']:g}, mean of {decision['smooth']} windows{words}. The words are those of"
        " the test set, every 4 to 10 s.\nThe commands are in `docs/listening.md`.\n\n"
        + markdown_table(("", *(_code(name) for name in names)), rows)
    )


def _decided(document: Facts, name: str) -> Facts:
    """Return the misses, confusions and false accepts of one setting."""
    found: Facts = next(s["decided"] for s in document["settings"] if s["setting"] == name)
    return found


def _code(name: str) -> str:
    return name if name == "dense" else f"`{name}`"


def update(
    folder: Annotated[Path, typer.Argument(help="The folder of the model.")],
    robustness: Annotated[
        Path | None, typer.Option(help="Output of deltakwt robustness --json.")
    ] = None,
    stress: Annotated[
        list[Path] | None, typer.Option(help="Output of deltakwt stress --json. Can be repeated.")
    ] = None,
) -> None:
    """Put profiles and measurements into the card of a model."""
    path = folder / "README.md"
    card = path.read_text(encoding="utf-8")
    card = with_section(card, PROFILES, profiles_section(_read(folder / "profiles.json")), "")
    if robustness is not None:
        card = with_section(card, CONDITIONS, conditions_section(_read(robustness)), PROFILES)
    if stress:
        after = CONDITIONS if CONDITIONS in card else PROFILES
        card = with_section(card, LISTENING, listening_section([_read(f) for f in stress]), after)
    write_atomically(path, card.encode())


def _read(path: Path) -> Facts:
    document: Facts = json.loads(path.read_text(encoding="utf-8"))
    return document


if __name__ == "__main__":
    typer.run(update)
