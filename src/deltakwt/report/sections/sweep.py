"""Accuracy against executed MACs: the paper's six sites, ours on the whole model, the profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltakwt.core.macs import Macs
from deltakwt.core.setting import PLAIN, SITES, Thresholds
from deltakwt.report.run import PAPER, WHOLE, Run, Setting
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import MHSA, OURS, PROFILE, SOFT, THEIRS, Figure, new
from deltakwt.report.tables import Column, Table

# Multiples of the paper's one printed setting; its other settings are only in a picture.
MHSA_SCALES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
WHOLE_SCALES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
KINDS = ("mhsa", "whole", "profile")


def points(run: Run) -> Iterator[tuple[str, Setting]]:
    """Kind and setting of everything that is swept."""
    for scale in MHSA_SCALES:
        yield "mhsa", Setting(f"paper × {scale:g}", scaled(PAPER, scale))
    for scale in WHOLE_SCALES:
        yield "whole", Setting(f"whole × {scale:g}", scaled(WHOLE, scale))
    for profile in run.model.profiles.profiles.values():
        yield "profile", Setting(profile.name, profile.thresholds, profile.front_end)
    if run.chosen.name not in run.model.profiles.profiles and run.chosen.thresholds != WHOLE:
        yield "profile", run.chosen


def scaled(thresholds: Thresholds, scale: float) -> Thresholds:
    values = {site: getattr(thresholds, site) for site in SITES}
    return Thresholds(**{s: round(scale * v, 6) for s, v in values.items() if v is not None})


def collect(run: Run) -> Numbers:
    dense = run.batch(None)
    accuracy = run.accuracy(dense.logits, "zero")
    found = [
        run.remember(
            f"{kind}, {setting.name}",
            lambda kind=kind, setting=setting: _point(run, kind, setting),  # type: ignore[misc]
        )
        for kind, setting in points(run)
    ]
    return {
        "dense": {
            "accuracy": accuracy,
            "accuracy_noise": run.accuracy(dense.logits, "noise"),
            "noise_right": run.group_accuracy(dense.logits, run.sample.is_noise),
        },
        "points": found,
        "swept": {kind: sum(p["kind"] == kind for p in found) for kind in KINDS},
        "clip_points": float(100 / run.sample.weights("zero").sum()),  # what one clip is worth
        "cheapest": {kind: _cheapest(found, kind, accuracy) for kind in KINDS},
    }


def _point(run: Run, kind: str, setting: Setting) -> Numbers:
    batch = run.batch(setting.thresholds, setting.front_end)
    assert batch.macs is not None
    weights = run.sample.weights("zero")
    mean = (weights[:, None, None] * batch.macs).sum(axis=0) / weights.sum()
    macs = Macs(run.model.config, mean)
    return {
        "kind": kind,
        "name": setting.name,
        "thresholds": str(setting.thresholds),
        "steady": setting.front_end.to_json() if setting.front_end != PLAIN else None,
        "accuracy": run.accuracy(batch.logits, "zero"),
        "accuracy_noise": run.accuracy(batch.logits, "noise"),
        "noise_right": run.group_accuracy(batch.logits, run.sample.is_noise),
        "noise_model_percent": _noise_macs(run, batch.macs),
        "mhsa_percent": macs.mhsa_percent,
        "model_percent": macs.model_percent,
        "speed_up": 100 / (macs.mhsa_percent if kind == "mhsa" else macs.model_percent),
    }


def _noise_macs(run: Run, macs: Any) -> float | None:
    noise = run.sample.is_noise
    return Macs(run.model.config, macs[noise].mean(axis=0)).model_percent if noise.any() else None


def _cheapest(found: list[Numbers], kind: str, dense: float | None) -> Numbers | None:
    """The point of a kind with the fewest MACs that loses at most a tenth of a point."""
    good = [p for p in found if p["kind"] == kind and p["accuracy"] >= (dense or 0) - 0.1]
    return min(good, key=_executed, default=None)


def _executed(point: Numbers) -> float:
    return float(point["mhsa_percent" if point["kind"] == "mhsa" else "model_percent"])


def show(document: Numbers) -> Page:
    own, theirs = document["sweep"], document["paper"]
    clips = document["setting"]["data"]["clips"]
    text = (
        f"<p>Dense, the model gets <b>{own['dense']['accuracy']:.2f}%</b> of {clips:,} clips right"
        f" (one clip is {own['clip_points']:.2f} points). Cheapest of the settings tried that lose"
        " at most a tenth of a point, picked on these clips:"
        + _cheapest_text(own["cheapest"])
        + f" The paper, on {theirs['model']}: no loss down to"
        f" {theirs['points'][1]['mhsa_percent']:.1f}% of attention's MACs.</p>"
        + _noise_text(own["dense"])
    )
    caption = (
        "Accuracy against executed MACs, in percent of what each series speaks of: attention for"
        " the paper's sites, everything for the whole model. Speed-up on the upper axis is derived"
        " from MACs, as in the paper; measured time is further below."
    )
    figure = Figure("accuracy", lambda: draw(document), caption, "as in the table below")
    return Page(
        "Accuracy against executed MACs",
        theirs["counterparts"]["sweep"],
        text,
        [figure],
        [_table(own)],
    )


def _cheapest_text(cheapest: Numbers) -> str:
    """One sentence, with a part for each kind that has a point without loss."""
    kinds = (
        ("mhsa", "deltas in attention alone, as in the paper, keep", "attention's MACs"),
        ("whole", "deltas before the MLP as well keep", "all MACs"),
        ("profile", "profiles or given thresholds keep", "all MACs"),
    )
    parts = [
        f"{who} {point['accuracy']:.2f}% at <b>{_executed(point):.1f}%</b> of {what}"
        for kind, who, what in kinds
        if (point := cheapest[kind]) is not None
    ]
    return f" {'; '.join(parts) or 'none'}."


def _noise_text(dense: Numbers) -> str:
    if dense["noise_right"] is None:
        return ""
    return (
        "<p>Silence is digital zero here, as the paper has it. Of the recorded noise clips that"
        f" belong to the class, the dense model gets {dense['noise_right']:.1f}% right, and counted"
        f" with them its accuracy is {dense['accuracy_noise']:.2f}%; the table has both for every"
        " setting.</p>"
    )


def _table(own: Numbers) -> Table:
    columns = [
        Column("setting"),
        Column("accuracy", ".2f", "%"),
        Column("MHSA MACs", ".1f", "%"),
        Column("all MACs", ".1f", "%"),
        Column("speed-up", ".1f"),
        Column("accuracy", ".2f", "noise as silence, %"),
        Column("noise right", ".1f", "noise as silence, %"),
        Column("MACs of noise", ".1f", "noise as silence, %"),
        Column("thresholds"),
    ]
    rows = [
        [
            p["name"],
            p["accuracy"],
            p["mhsa_percent"],
            p["model_percent"],
            p["speed_up"],
            p["accuracy_noise"],
            p["noise_right"],
            p["noise_model_percent"],
            _short(p["thresholds"]) + (" steady" if p["steady"] else ""),
        ]
        for p in own["points"]
    ]
    caption = (
        "Every point of the figure. Thresholds in the paper's order: X, Q, K, scores, softmax,"
        " heads, then MLP in and MLP hidden."
    )
    return Table("accuracy", caption, columns, rows)


def _short(thresholds: str) -> str:
    """Per-layer thresholds are too long for a table; the JSON has them."""
    return thresholds if "," not in thresholds else "one a layer"


def draw(document: Numbers) -> Any:
    own, theirs = document["sweep"], document["paper"]
    canvas, axis = new(3.5)
    dense = own["dense"]["accuracy"]
    axis.axhline(dense, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.text(4.2, dense + 0.12, f"dense {dense:.2f}%", fontsize=8, color=SOFT)
    series = (
        ("mhsa", MHSA, "o", "-", "attention only, of MHSA MACs"),
        ("whole", OURS, "s", "-", "whole model, of all MACs"),
        ("profile", PROFILE, "*", "", "profiles or --thresholds, of all MACs"),
    )
    for kind, colour, mark, line, label in series:
        chosen = sorted((p for p in own["points"] if p["kind"] == kind), key=_executed)
        if chosen:
            axis.plot(
                [_executed(p) for p in chosen], [p["accuracy"] for p in chosen],
                color=colour, marker=mark, linestyle=line or "none", label=label,
                markersize=9 if kind == "profile" else 4.5, linewidth=1.3,
                markeredgecolor="none",
            )  # fmt: skip
    axis.plot(
        [p["mhsa_percent"] for p in theirs["points"]], [p["accuracy"] for p in theirs["points"]],
        color=THEIRS, marker="D", markersize=4.5, linestyle=":", markerfacecolor="none",
        label=f"the paper, {theirs['model']}, of MHSA MACs",
    )  # fmt: skip
    _axes(axis, [p["accuracy"] for p in own["points"]] + [p["accuracy"] for p in theirs["points"]])
    return canvas


def _axes(axis: Any, accuracies: list[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_xscale("log")
    axis.set_xlim(4, 115)
    axis.set_ylim(max(min(accuracies), max(accuracies) - 12) - 0.5, max(accuracies) + 0.6)
    ticks = (5, 10, 20, 30, 50, 100)
    upper = axis.secondary_xaxis("top")
    for scale, form in ((axis.xaxis, "{:g}%"), (upper.xaxis, "{:g}×")):
        scale.set_major_locator(FixedLocator(ticks))
        scale.set_minor_locator(NullLocator())
        values = FuncFormatter(
            lambda v, _, form=form: form.format(v if "%" in form else round(100 / v, 1))
        )
        scale.set_major_formatter(values)
    upper.set_xlabel("speed-up in MACs", color=SOFT)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}%"))
    axis.set_xlabel("executed MACs")
    axis.set_ylabel("accuracy")
    axis.grid(True)
    axis.legend(loc="lower right", fontsize=8)


SECTION = Section("sweep", collect, show)
