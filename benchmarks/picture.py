"""Draw docs/compute.png: a sentence and a pause above, the MACs that each window executed below.

python benchmarks/picture.py [--model kwt-1] [--out docs/compute.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import deltakwt
from deltakwt.audio import read_blocks

SENTENCE = Path(__file__).parent.parent / "examples" / "clips" / "sentence.flac"
RATE, HOP = 16_000, 1_600  # samples per second, samples between windows
PAUSE = 3 * RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="kwt-1")
    parser.add_argument("--out", default="docs/compute.png")
    options = parser.parse_args()
    model = deltakwt.load(options.model)
    spoken = np.concatenate(list(read_blocks(SENTENCE)))
    sound = np.concatenate([spoken, np.zeros(PAUSE, np.float32)])
    padded = np.concatenate([np.zeros(RATE, np.float32), sound])
    ends = np.arange(HOP, len(sound) + 1, HOP)
    windows = np.stack([padded[end : end + RATE] for end in ends])  # each ends at `end`
    batch = model.engine.batch(windows, model.setting)
    assert batch.macs is not None
    millions = batch.macs.sum(axis=(1, 2)) / 1e6
    dense = 73.4 if model.config.dim == 64 else None
    draw(sound, ends / RATE, millions, dense, model.spot(spoken).events, options.out)


def draw(sound, ends, millions, dense, events, out) -> None:  # type: ignore[no-untyped-def]
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 3.6), sharex=True)
    above.plot(np.arange(len(sound)) / RATE, sound, color="#345", linewidth=0.4)
    above.set_yticks([])
    above.set_ylabel("sound")
    for event in events:
        middle = (event.start + event.end) / 2
        above.text(middle, 1.02 * np.abs(sound).max(), event.label, ha="center", weight="bold")
    above.set_ylim(-1.05 * np.abs(sound).max(), 1.4 * np.abs(sound).max())
    below.fill_between(ends, millions, step="pre", color="#2a7", linewidth=0)
    below.set_ylabel("million MACs\nof the last second")
    below.set_xlabel("seconds")
    below.set_ylim(0, 1.15 * max(millions.max(), 1))
    if dense:
        below.text(0.995, 0.9, f"dense: {dense} million for every window",
                   transform=below.transAxes, ha="right", color="#666")  # fmt: skip
    below.set_xlim(0, len(sound) / RATE)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels()
    figure.tight_layout()
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    main()
