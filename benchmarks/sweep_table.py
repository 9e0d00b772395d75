"""Print the tables of docs/reproduction.md for a sweep: python benchmarks/sweep_table.py FILE.

FILE is the sweep.json that `deltakwt sweep` wrote.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deltakwt.files import read_json
from deltakwt.report.sections.sweep import MAX_BYTES, summary


def main() -> None:
    own = summary(read_json(Path(sys.argv[1]), MAX_BYTES))
    dense = own["dense_accuracy"]
    print(f"{own['trials']} settings; dense {dense['subset']:.1f}% of the subset,", end=" ")
    print(f"{dense['full']:.2f}% of all clips\n")
    print("| loss | paper | here: paper's count / executed | speed-up | loss in points (95%) |")
    print("|---|---|---|---|---|")
    for answer in own["answers"]:
        name = f"at most {answer['loss']:g} points" if answer["loss"] else "none"
        printed, point = answer["paper"]["mhsa_percent"], answer["point"]
        here = "no such setting | | |" if point is None else f"{cost(point)} | {loss(point)} |"
        print(f"| {name} | {printed:g}% ({100 / printed:.1f}x) | {here}")
    print("\n| | thresholds | subset | accuracy | loss in points (95%) | MHSA MACs | speed-up |")
    print("|---|---|---|---|---|---|---|")
    for point in own["points"]:
        subset = "adjusted" if point["kind"] == "adjusted" else f"{point['subset_accuracy']:.1f}%"
        cells = (f"`{point['thresholds']}`", subset, f"{point['accuracy']:.2f}%", loss(point))
        print(f"| {point['number']} | {' | '.join(cells)} | {cost(point)} |")


def cost(point: dict[str, float]) -> str:
    macs, executed = point["mhsa_percent"], point["executed_mhsa_percent"]
    return f"{macs:.1f} / {executed:.1f}% | {100 / macs:.1f}x"


def loss(point: dict[str, list[float]]) -> str:
    low, high = point["loss_interval"]
    return f"{point['loss']:+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    main()
