"""Compare the native core with the NumPy reference, clip by clip.

    python benchmarks/agreement.py --model M --data DIR --clips 1000

A rounding difference can flip a threshold decision, and the flip spreads. So the two are compared
by the class they choose, by the median difference of their logits and by their counts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import reconstruct

from deltakwt.core.engine import Engine
from deltakwt.core.macs import Macs
from deltakwt.core.setting import Setting, Thresholds
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
        native = engine.batch(features, Setting(thresholds))
        groups = [
            reconstruct.delta(config, tensors, features[i : i + GROUP], thresholds)
            for i in range(0, len(features), GROUP)
        ]
        logits = np.concatenate([group.logits for group in groups])
        same = (native.logits.argmax(axis=1) == logits.argmax(axis=1)).mean()
        median = np.median(np.abs(native.logits - logits))
        ours = Macs(config, np.concatenate([group.macs for group in groups]).mean(axis=0))
        assert native.macs is not None
        theirs = Macs(config, native.macs.mean(axis=0))
        print(
            f"| {text} | {100 * same:.1f}% | {median:.1e}"
            f" | {theirs.mhsa_percent:.3f}% against {ours.mhsa_percent:.3f}%"
            f" | {theirs.model_percent:.3f}% against {ours.model_percent:.3f}% |",
            flush=True,
        )


if __name__ == "__main__":
    main()
