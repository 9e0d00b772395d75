"""Accuracy against MACs: the paper's six sites, the whole model, and the model's profiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.setting import DENSE, PLAIN, SITES, Setting
from deltakwt.report.figures import MHSA, OURS, PROFILE, SOFT, THEIRS, Figure, legend_above, new
from deltakwt.report.page import Column, Content, Numbers, Section, Table
from deltakwt.report.study import PAPER, WHOLE, Study

# Multiples of the one setting that the paper prints; its other settings are only in a picture.
MHSA_SCALES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
WHOLE_SCALES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
KINDS = ("mhsa", "whole", "profile")


def settings(study: Study) -> Iterator[tuple[str, Setting]]:
    """Yield kind and setting of everything that is run."""
    for scale in MHSA_SCALES:
        yield "mhsa", scaled(PAPER, scale, f"paper × {scale:g}")
    for scale in WHOLE_SCALES:
        yield "whole", scaled(WHOLE, scale, f"whole × {scale:g}")
    for profile in study.model.profiles.profiles.values():
        if profile.setting.thresholds is not None:
            yield "profile", profile.setting
    own = (WHOLE, *(p.setting for p in study.model.profiles.profiles.values()))
    if study.setting not in own:
        yield "profile", study.setting


def scaled(setting: Setting, scale: float, name: str) -> Setting:
    """Return the setting with every threshold multiplied by `scale`."""
    assert setting.thresholds is not None
    values = {site: getattr(setting.thresholds, site) for site in SITES}
    changed = {s: round(scale * v, 6) for s, v in values.items() if v is not None}
    return Setting(type(setting.thresholds)(**changed), setting.front_end, name)


def collect(study: Study) -> Numbers:
    dense = study.batch(DENSE)
    accuracy = study.accuracy(dense.logits, "zero")
    found = [
        study.remember(
            f"{kind}, {setting.name}",
            lambda kind=kind, setting=setting: _point(study, kind, setting),  # type: ignore[misc]
        )
        for kind, setting in settings(study)
    ]
    return {
        "dense": {
            "accuracy": accuracy,
            "accuracy_noise": study.accuracy(dense.logits, "noise"),
            "noise_right": study.group_accuracy(dense.logits, study.sample.is_noise),
        },
        "points": found,
        "swept": {kind: sum(p["kind"] == kind for p in found) for kind in KINDS},
        "clip_points": float(100 / study.sample.weights("zero").sum()),  # what one clip is worth
        "cheapest": {kind: _cheapest(found, kind, accuracy) for kind in KINDS},
    }


def _point(study: Study, kind: str, setting: Setting) -> Numbers:
    batch = study.batch(setting)
    macs, words = (
        study.macs(setting, weights)
        for weights in (study.sample.weights("zero"), study.sample.is_word.astype(float))
    )
    noise = study.sample.is_noise
    return {
        "kind": kind,
        "name": str(setting) if setting.name else "given thresholds",
        "thresholds": str(setting.thresholds),
        "front_end": str(setting.front_end) if setting.front_end != PLAIN else None,
        "accuracy": study.accuracy(batch.logits, "zero"),
        **paired_difference(study, batch.logits),
        "accuracy_noise": study.accuracy(batch.logits, "noise"),
        "noise_right": study.group_accuracy(batch.logits, noise),
        "noise_model_percent": study.macs(setting, noise.astype(float)).model_percent
        if noise.any()
        else None,
        "mhsa_percent": macs.mhsa_percent,
        "model_percent": macs.model_percent,
        "executed_mhsa_percent": macs.executed_mhsa_percent,
        "executed_model_percent": macs.executed_model_percent,
        "words_model_percent": words.model_percent,
        "words_executed_percent": words.executed_model_percent,
        "speed_up": 100 / (macs.mhsa_percent if kind == "mhsa" else macs.model_percent),
    }


def paired_difference(study: Study, logits: NDArray[np.float32]) -> dict[str, float]:
    """Return the change of accuracy against dense in points, and half its paired 95% interval.

    Only clips on which exactly one of the two is right count (normal approximation of McNemar).
    """
    weights, targets = study.sample.weights("zero"), study.sample.targets
    before = study.batch(DENSE).logits.argmax(axis=1) == targets
    after = logits.argmax(axis=1) == targets
    n = weights.sum()
    won, lost = (float(weights[mask].sum()) for mask in (after & ~before, before & ~after))
    spread = math.sqrt(max(won + lost - (won - lost) ** 2 / n, 0.0))
    return {"difference": 100 * (won - lost) / n, "interval": 100 * 1.96 * spread / n}


def _cheapest(found: list[Numbers], kind: str, dense: float | None) -> Numbers | None:
    """Return the point of a kind with the fewest MACs that loses at most a tenth of a point."""
    good = [p for p in found if p["kind"] == kind and p["accuracy"] >= (dense or 0) - 0.1]
    return min(good, key=counted, default=None)


def counted(point: Numbers) -> float:
    """Return the paper's count of a point: of attention for its sites, else of the whole model."""
    return float(point["mhsa_percent" if point["kind"] == "mhsa" else "model_percent"])


def show(document: Numbers) -> Content:
    own, theirs = document["accuracy"], document["paper"]
    clips = document["facts"]["data"]["clips"]
    text = (
        f"The dense model gets **{own['dense']['accuracy']:.2f}%** of {clips:,} clips right. One"
        f" clip is {own['clip_points']:.2f} points, so smaller differences mean nothing. Each point"
        " of the figure is one setting, run on all clips. A point further left does less work; a"
        " point as high as the dashed line loses nothing."
        f"\n\nThe cheapest settings that lose at most 0.1 points:{_cheapest_text(own['cheapest'])}"
        " They are picked on these same clips, so they flatter a little. The paper reports for"
        f" {theirs['model']}: no loss down to {theirs['points'][1]['mhsa_percent']:.1f}% of the"
        f" MACs of attention.{_noise_text(own['dense'])}"
    )
    caption = (
        "Look at how far each line stays level before it falls. The x axis is the paper's count of"
        " MACs. It means two things: percent of attention where deltas are in attention only (the"
        " MLP, half of the model or more, then stays dense), and percent of all MACs for the whole"
        " model and the profiles. Compare lines of one kind only. The upper"
        " axis is the speed-up that would follow from the MACs, not measured time."
    )
    figure = Figure("accuracy", lambda: draw(document), caption, "as in the table below")
    return Content(
        "Accuracy against MACs",
        theirs["counterparts"]["accuracy"],
        text,
        [figure],
        [_table(own)],
    )


def _cheapest_text(cheapest: Numbers) -> str:
    """Return one sentence, with a part for each kind that has a point without loss."""
    kinds = (
        ("mhsa", "deltas in attention only, as in the paper, keep", "the MACs of attention"),
        ("whole", "deltas before the MLP as well keep", "all MACs"),
        ("profile", "profiles or given thresholds keep", "all MACs"),
    )
    parts = [
        f"{who} {point['accuracy']:.2f}% at **{counted(point):.1f}%** of {what}"
        f" (executed: {_executed(point):.1f}%)"
        for kind, who, what in kinds
        if (point := cheapest[kind]) is not None
    ]
    return f" {'; '.join(parts) or 'none'}."


def _executed(point: Numbers) -> float:
    key = "executed_mhsa_percent" if point["kind"] == "mhsa" else "executed_model_percent"
    return float(point[key])


def _noise_text(dense: Numbers) -> str:
    if dense["noise_right"] is None:
        return ""
    return (
        "\n\nSilence is an all-zero clip here, as in the paper. The data set also has recordings of"
        f" background noise in this class: the dense model gets {dense['noise_right']:.1f}% of them"
        f" right, and its accuracy with them is {dense['accuracy_noise']:.2f}%. The table has both"
        " for every setting."
    )


def _table(own: Numbers) -> Table:
    columns = [
        Column("setting"),
        Column("accuracy", ".2f", "%"),
        Column("change", "+.2f", "against dense, points"),
        Column("95% interval ±", ".2f", "against dense, points"),
        Column("attention", ".1f", "paper's count, %"),
        Column("all", ".1f", "paper's count, %"),
        Column("all, words", ".1f", "paper's count, %"),
        Column("attention", ".1f", "executed, %"),
        Column("all", ".1f", "executed, %"),
        Column("all, words", ".1f", "executed, %"),
        Column("speed-up", ".1f", "from MACs"),
        Column("accuracy", ".2f", "noise as silence, %"),
        Column("noise right", ".1f", "noise as silence, %"),
        Column("MACs of noise", ".1f", "noise as silence, %"),
        Column("thresholds"),
    ]
    keys = (
        *(
            "name",
            "accuracy",
            "difference",
            "interval",
            "mhsa_percent",
            "model_percent",
            "words_model_percent",
        ),
        *("executed_mhsa_percent", "executed_model_percent", "words_executed_percent"),
        *("speed_up", "accuracy_noise", "noise_right", "noise_model_percent"),
    )
    rows = [[*(p[key] for key in keys), _thresholds(p)] for p in own["points"]]
    caption = (
        "Every point of the figure. The interval is paired: it compares both runs clip by clip, and"
        " a setting whose interval contains zero does not differ significantly from dense. Words"
        " are the clips without silence. Thresholds are in the paper's order: X, Q, K, scores,"
        " softmax, heads, then MLP in and MLP hidden."
    )
    return Table("accuracy", caption, columns, rows)


def _thresholds(point: Numbers) -> str:
    """Return the thresholds; per-layer ones are too long for a table and are in the JSON."""
    text = point["thresholds"] if "," not in point["thresholds"] else "one per layer"
    return f"{text}, front end {point['front_end']}" if point["front_end"] else text


def draw(document: Numbers) -> Any:
    """Draw accuracy against counted MACs."""
    own, theirs = document["accuracy"], document["paper"]
    canvas, axis = new(4.2)
    dense = own["dense"]["accuracy"]
    axis.axhline(dense, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.text(4.2, dense + 0.12, f"dense {dense:.2f}%", fontsize=8, color=SOFT)
    series = (
        ("mhsa", MHSA, "o", "-", "attention only, % of attention"),
        ("whole", OURS, "s", "-", "whole model, % of all MACs"),
        ("profile", PROFILE, "*", "", "profiles, % of all MACs"),
    )
    for kind, colour, mark, line, label in series:
        chosen = sorted((p for p in own["points"] if p["kind"] == kind), key=counted)
        if chosen:
            axis.plot(
                [counted(p) for p in chosen], [p["accuracy"] for p in chosen],
                color=colour, marker=mark, linestyle=line or "none", label=label,
                markersize=9 if kind == "profile" else 4.5, linewidth=1.3,
                markeredgecolor="none",
            )  # fmt: skip
    axis.plot(
        [p["mhsa_percent"] for p in theirs["points"]], [p["accuracy"] for p in theirs["points"]],
        color=THEIRS, marker="D", markersize=4.5, linestyle=":", markerfacecolor="none",
        label=f"the paper, {theirs['model']}, % of attention",
    )  # fmt: skip
    _axes(axis, [p["accuracy"] for p in own["points"]] + [p["accuracy"] for p in theirs["points"]])
    legend_above(axis, columns=1, gap=0.2)
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
    axis.set_xlabel("MACs, the paper's count")
    axis.set_ylabel("accuracy")
    axis.grid(True)


SECTION = Section("accuracy", collect, show)
