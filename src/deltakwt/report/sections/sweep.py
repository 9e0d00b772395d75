"""The paper's experiment: the front of a threshold sweep, as `deltakwt sweep` wrote it.

The report does not run the sweep again; it shows the numbers of sweep.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Thresholds
from deltakwt.files import read_json
from deltakwt.report import paper
from deltakwt.report.figures import GOOD, MHSA, SOFT, THEIRS, Figure, new
from deltakwt.report.page import Column, Content, Numbers, Table

NAME = "sweep"
MAX_BYTES = 8 << 20
TICKS = (3, 5, 7, 10, 15, 25, 50, 100)  # percent of MACs
LEGEND_LINE = 0.148  # inches
CROWDED = 1.1  # of two costs: the ratio below which their numbers would overlap
LEGEND = "accuracy, speed-up and the thresholds of X, Q, K, QKᵀ, softmax, heads"
FIGURES = ("accuracy", "loss", "mhsa_percent", "executed_mhsa_percent", "mcnemar_p")


def load(path: Path, model: str) -> Numbers:
    """Return what a report shows of sweep.json; it must be a sweep of this model."""
    document = read_json(path, MAX_BYTES)
    if document.get("model") != model:
        raise DeltakwtError(f"{path}: is a sweep of {document.get('model')!r}, not of {model}")
    try:
        return summary(document)
    except (KeyError, TypeError, IndexError, AttributeError):
        raise DeltakwtError(f"{path}: not a sweep.json of this version of deltakwt") from None


def summary(document: Numbers) -> Numbers:
    """Return the points of a sweep.json, each setting once, without the trials of the search."""
    points = []
    for number, point in enumerate(document["front"], 1):
        for kind, found in (("front", point), ("adjusted", point["adjusted"])):
            if found is not None:
                full = found["full"]
                points.append(
                    {
                        "number": number,
                        "kind": kind,
                        "thresholds": str(Thresholds.from_json(found["thresholds"])),
                        "subset_accuracy": point["subset"]["accuracy"] if found is point else None,
                        "loss_interval": [float(end) for end in full["loss_interval"]],
                        **{key: float(full[key]) for key in FIGURES},
                    }
                )
    return {
        "model": document["model"],
        "data": document["data"],
        "trials": len(document["trials"]),
        "seed": document["seed"],
        "command": document["command"],
        "machine": document["machine"],
        "dense_accuracy": document["dense_accuracy"],
        "points": points,
        "adjustment": adjustment(points),
        "answers": answers(points),
    }


def answers(points: list[Numbers]) -> list[Numbers]:
    """Return the cheapest point for each loss that the paper names, or None where there is none.

    Without loss means that the paired 95% interval of the loss contains zero.
    """
    found = []
    for loss, place in paper.LOSSES:
        good = [
            p for p in points if (p["loss_interval"][0] <= 0 if not loss else p["loss"] <= loss)
        ]
        cheapest = min(good, key=lambda p: p["mhsa_percent"], default=None)
        found.append({"loss": loss, "paper": paper.POINTS[place], "point": cheapest})
    return found


def show(document: Numbers) -> Content:
    """Return the section, from a report that has a sweep."""
    own, theirs = document[NAME], document["paper"]
    data, dense = own["data"], own["dense_accuracy"]
    text = (
        f"**Search.** {own['trials']} settings of the six sites of attention, one threshold each"
        f" for all layers, were tried on {data['subset']['clips']} clips of the test set (dense:"
        f" {dense['subset']:.1f}%). The MLP stays dense, the front end is plain, and the arithmetic"
        " is that of 32-bit floats."
        "\n\n**Front.** The best settings at each cost ran on all"
        f" {data['full']['clips']:,} clips (dense: {dense['full']:.2f}%)."
    )
    if data["validation"] is not None:
        text += (
            "\n\n**Adjustment.** Each setting of the front was changed at equal cost to lose less"
            f" on {data['validation']['clips']:,} validation clips, which share no speaker with the"
            f" test clips, and ran on all test clips again.{_adjustment(own)}"
        )
    text += (
        "\n\nThe x axis and the speed-up are the paper's count of MACs; the tables have the"
        f" executed count as well. The sweep was made by `{own['command']}`."
    )
    picture = figure(own)
    tables = [_answers_table(own), _table(own)]
    return Content("The paper's sweep", theirs["counterparts"][NAME], text, [picture], tables)


def _adjustment(own: Numbers) -> str:
    """Return what the adjustment changed: how many points it raised, and by how much on average."""
    change = own["adjustment"]
    return (
        f" {change['better']} of {change['points']} settings became better by it on the test clips;"
        f" the mean change is {change['mean']:+.2f} points."
    )


def adjustment(points: list[Numbers]) -> Numbers | None:
    """Return how the adjusted points differ from those of the front, on all clips."""
    by_kind = {
        kind: {p["number"]: p["accuracy"] for p in points if p["kind"] == kind}
        for kind in ("front", "adjusted")
    }
    changes = [after - by_kind["front"][n] for n, after in by_kind["adjusted"].items()]
    if not changes:
        return None
    better = sum(change > 0 for change in changes)
    return {"points": len(changes), "better": better, "mean": sum(changes) / len(changes)}


def figure(own: Numbers) -> Figure:
    """Return the paper's figure for this sweep."""
    is_adjusted = any(point["kind"] == "adjusted" for point in own["points"])
    before = " Hollow triangles: the same before the adjustment." if is_adjusted else ""
    caption = (
        "The paper's figure of results. Orange triangles, left axis: accuracy on all clips of the"
        " settings listed below the axes, with paired 95% intervals against dense."
        f"{before} Green, right axis: the speed-up of attention that follows from the MACs. Grey"
        " diamonds: the paper's points. Look at where the orange bars leave the dashed line."
    )
    return Figure("sweep", lambda: draw(own), caption, "as in the legend")


def final_points(own: Numbers) -> list[Numbers]:
    """Return the adjusted points, or those of the front where nothing was adjusted."""
    adjusted = [p for p in own["points"] if p["kind"] == "adjusted"]
    return adjusted or own["points"]


def draw(own: Numbers) -> Any:
    """Draw accuracy (left) and speed-up (right) against attention MACs by the paper's count."""
    points = final_points(own)
    before = [p for p in own["points"] if p["kind"] == "front"]
    rows = LEGEND_LINE * (len(points) + (4 if points == before else 5))  # inches of the legend
    canvas, (axis, below) = new(3.1 + rows, 2, height_ratios=(3.1, rows))
    right = axis.twinx()
    dense = own["dense_accuracy"]["full"]
    axis.axhline(dense, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.plot(100, dense, "o", color=MHSA, markersize=6, label=f"dense: {dense:.2f}%")
    if points != before:
        axis.plot([p["mhsa_percent"] for p in before], [p["accuracy"] for p in before], "^",
                  color=MHSA, markerfacecolor="none", markersize=5, linestyle="none",
                  label="before the adjustment")  # fmt: skip
    theirs = paper.POINTS
    axis.plot([p["mhsa_percent"] for p in theirs], [p["accuracy"] for p in theirs], color=THEIRS,
              marker="D", markersize=4.5, linestyle=":", markerfacecolor="none",
              label="the paper, KWT-3")  # fmt: skip
    costs = [p["mhsa_percent"] for p in points]
    right.plot(costs, [100 / cost for cost in costs], "v", color=GOOD, markersize=4.5)
    axis.plot([], [], "v", color=GOOD, markersize=4.5, label="speed-up (right axis)")
    is_below = False  # two numbers side by side: one above its point, one below
    for point, last in zip(points, [None, *points], strict=False):
        is_near = last is not None and last["mhsa_percent"] / point["mhsa_percent"] < CROWDED
        is_below = is_near and not is_below
        _mark(axis, point, (4, -9) if is_below else (4, 4))
    _axes(axis, right, costs)
    below.set_axis_off()
    below.legend(*axis.get_legend_handles_labels(), loc="upper left", fontsize=7, borderaxespad=0,
                 handletextpad=0.4, handlelength=1.6, title=LEGEND, title_fontsize=7,
                 alignment="left")  # fmt: skip
    return canvas


def _mark(axis: Any, point: Numbers, offset: tuple[int, int]) -> None:
    """Draw one setting with its interval and its number."""
    place, (low, high) = (point["mhsa_percent"], point["accuracy"]), point["loss_interval"]
    reach = [[max(0.0, high - point["loss"])], [max(0.0, point["loss"] - low)]]
    axis.errorbar(*place, reach, fmt="none", ecolor=MHSA, capsize=2.5, elinewidth=0.9)
    label = (
        f"{point['number']}: {point['accuracy']:.2f}%, {100 / point['mhsa_percent']:.1f}×,"
        f" {point['thresholds']}"
    )
    axis.plot(*place, "^", color=MHSA, markersize=6, linestyle="none", label=label)
    axis.annotate(str(point["number"]), place, xytext=offset, textcoords="offset points",
                  fontsize=7)  # fmt: skip


def _axes(axis: Any, right: Any, costs: list[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_xscale("log")
    axis.set_xlim(0.85 * min(*costs, 6.35), 115)
    axis.xaxis.set_major_locator(FixedLocator([t for t in TICKS if t >= 0.85 * min(costs)]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}%"))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}%"))
    axis.set_xlabel("MACs of attention (MHSA), the paper's count")
    axis.set_ylabel("accuracy")
    axis.grid(True)
    right.set_ylim(0, None)
    right.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}×"))
    right.set_ylabel("speed-up from MACs", color=GOOD)
    right.spines["right"].set_visible(True)


def _answers_table(own: Numbers) -> Table:
    columns = [
        Column("loss up to", "", "points"),
        Column("paper", ".2f", "MHSA MACs, %"),
        Column("here", ".2f", "MHSA MACs, %"),
        Column("executed", ".2f", "MHSA MACs, %"),
        Column("point", "", ""),
        Column("mean", "+.2f", "loss here, points"),
        Column("95% interval", "", "loss here, points"),
    ]
    rows: list[Any] = []
    for answer in own["answers"]:
        name = f"{answer['loss']:g}" if answer["loss"] else "none"
        printed, point = answer["paper"]["mhsa_percent"], answer["point"]
        if point is None:
            rows.append([name, printed, None, None, "none", None, ""])
            continue
        macs = [point["mhsa_percent"], point["executed_mhsa_percent"]]
        which = f"{point['number']}{'' if point['kind'] == 'adjusted' else ', front'}"
        low, high = point["loss_interval"]
        reach = f"{low:+.2f} to {high:+.2f}"
        rows.append([name, printed, *macs, which, point["loss"], reach])
    caption = (
        "The cheapest setting of the sweep for each loss that the paper names, with the paired 95%"
        " interval of its loss. No loss means that the interval contains zero."
    )
    return Table("sweep-answers", caption, columns, rows)


def _table(own: Numbers) -> Table:
    columns = [
        Column("point", "d"),
        Column("setting"),
        Column("on the subset", ".1f", "accuracy, %"),
        Column("on all clips", ".2f", "accuracy, %"),
        Column("loss", "+.2f", "points"),
        Column("from", "+.2f", "paired 95% interval"),
        Column("to", "+.2f", "paired 95% interval"),
        Column("McNemar p", ".3f"),
        Column("paper's count", ".2f", "MHSA MACs, %"),
        Column("executed", ".2f", "MHSA MACs, %"),
        Column("speed-up", ".1f", "from MACs"),
        Column("thresholds"),
    ]
    rows: list[Any] = [
        [
            *(p["number"], p["kind"], p["subset_accuracy"], p["accuracy"], p["loss"]),
            *(*p["loss_interval"], p["mcnemar_p"], p["mhsa_percent"]),
            *(p["executed_mhsa_percent"], 100 / p["mhsa_percent"], p["thresholds"]),
        ]
        for p in own["points"]
    ]
    caption = "Every setting of the front on all clips, as it was found and adjusted."
    return Table("sweep", caption, columns, rows)
