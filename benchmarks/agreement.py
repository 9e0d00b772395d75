"""How well the native core and the NumPy reference agree, clip by clip.

    python benchmarks/agreement.py --model M --data DIR --clips 1000

A rounding difference may flip a threshold decision and the flip spreads, so the two are compared
by the class they choose, by the median difference of their logits and by their counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from deltakwt.core.engine import Engine
from deltakwt.core.macs import Macs
from deltakwt.core.setting import Thresholds
from deltakwt.data import speech_commands as dataset
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

PAPER = "0.2_0.2_0.2_0.05_0.001_0.05"
GROUP = 16  # clips at a time: their tensors stay in the cache


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--thresholds", nargs="+", default=[PAPER, PAPER + "_0.3_0.1"])
    options = parser.parse_args()
    weights = load_weights(resolve(options.model))
    config, tensors = weights.config, weights.tensors
    engine = Engine(config, tensors)
    manifest = dataset.draw(options.data, "test", "zero", limit=options.clips)
    features = np.stack([engine.features(dataset.read(manifest, c)) for c in manifest.clips])
    print(f"{len(features)} clips, kernels {engine.isa}\n")
    print("| thresholds | same class | median difference | MHSA MACs | all MACs |")
    print("|---|---|---|---|---|")
    for text in options.thresholds:
        thresholds = Thresholds.parse(text)
        native = engine.batch(features, thresholds)
        groups = [
            reconstruct.delta(config, tensors, features[i : i + GROUP], thresholds)
            for i in range(0, len(features), GROUP)
        ]
        logits = np.concatenate([group.logits for group in groups])
        same = (native.logits.argmax(axis=1) == logits.argmax(axis=1)).mean()
        median = np.median(np.abs(native.logits - logits))
        ours = Macs(config, np.concatenate([group.macs for group in groups]).mean(axis=0))
        theirs = Macs(config, native.macs.mean(axis=0))
        print(
            f"| {text} | {100 * same:.1f}% | {median:.1e}"
            f" | {theirs.mhsa_percent:.3f}% against {ours.mhsa_percent:.3f}%"
            f" | {theirs.model_percent:.3f}% against {ours.model_percent:.3f}% |",
            flush=True,
        )


if __name__ == "__main__":
    main()
