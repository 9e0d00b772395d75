"""What changed: every clip that deltas decide otherwise than the dense model, some to listen to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.macs import Macs
from deltakwt.report.run import Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.tables import Column, Table


def collect(run: Run) -> Numbers:
    sample, chosen = run.sample, run.chosen
    dense = run.batch(None).logits
    batch = run.batch(chosen.thresholds, chosen.front_end)
    assert batch.macs is not None
    before, after = scores(dense), scores(batch.logits)
    old, new = dense.argmax(axis=1), batch.logits.argmax(axis=1)
    rows = []
    for index in np.flatnonzero(old != new):
        clip, label = sample.clips[index], sample.labels
        rows.append(
            {
                "file": clip.path or "digital zero",
                "offset": clip.offset,
                "index": int(index),
                "true": clip.label,
                "dense": label[old[index]],
                "dense_score": float(before[index, old[index]]),
                "delta": label[new[index]],
                "delta_score": float(after[index, new[index]]),
                "outcome": _outcome(int(sample.targets[index]), int(old[index]), int(new[index])),
                "model_percent": Macs(run.model.config, batch.macs[index]).model_percent,
            }
        )
    outcomes = [row["outcome"] for row in rows]
    return {
        "thresholds": str(chosen.thresholds),
        "clips": len(sample),
        "changed": len(rows),
        "changed_percent": 100 * len(rows) / len(sample),
        "outcomes": {kind: outcomes.count(kind) for kind in ("lost", "won", "wrong anyway")},
        "playable": 0,  # set when sounds go into the page
        "rows": rows,
    }


def scores(logits: NDArray[np.float32]) -> NDArray[Any]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _outcome(true: int, dense: int, delta: int) -> str:
    if dense == true:
        return "lost"
    return "won" if delta == true else "wrong anyway"


def show(document: Numbers) -> Page:
    own, sounds = document["changes"], document.get("sounds", {})
    outcomes = own["outcomes"]
    listen = (
        f" {own['playable']} of them can be played."
        if sounds
        else " This copy holds no recordings; <code>deltakwt report</code> puts them in."
    )
    text = (
        f"<p>Of {own['clips']:,} clips, deltas change the decision on <b>{own['changed']:,}</b>"
        f" ({own['changed_percent']:.2f}%): {outcomes['lost']} were right before,"
        f" {outcomes['won']} are right only now, {outcomes['wrong anyway']} are wrong either"
        f" way.{listen if own['changed'] else ''}</p>"
    )
    columns = [
        Column("clip"),
        Column("true"),
        Column("says", "", "dense"),
        Column("score", ".2f", "dense"),
        Column("says", "", "deltas"),
        Column("score", ".2f", "deltas"),
        Column("outcome"),
        Column("all MACs, %", ".1f"),
    ]
    keys = ("file", "true", "dense", "dense_score", "delta", "delta_score", "outcome")
    rows = [[*(row[key] for key in keys), row["model_percent"]] for row in own["rows"]]
    players = [sounds.get(str(row["index"]), "") for row in own["rows"]] if sounds else []
    caption = "Every clip whose decision differs from the dense model's."
    table = Table(
        "changes", caption, columns, rows, document["setting"]["thresholds"]["text"], players
    )
    return Page("What changed", document["paper"]["counterparts"]["changes"], text, tables=[table])


SECTION = Section("changes", collect, show)
