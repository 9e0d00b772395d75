"""Measure accuracy and MACs over the thresholds of a model, for the picture beside the sliders.

python benchmarks/page_curves.py --data DIR [--model kwt-1] [--limit 500]

Writes curves.json into the model's folder. It holds the dense model, every profile, and the default
profile with all its thresholds multiplied by several factors: once with deltas at the six sites of
the paper, once with deltas in the MLP too. Run it again after the weights or the profiles have
changed, because curves of other weights are ignored.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

from deltakwt.core.model import Model, load
from deltakwt.core.setting import ALL_SITES, DENSE, Setting, Thresholds
from deltakwt.data.speech_commands import Manifest, draw
from deltakwt.evaluate.accuracy import evaluate
from deltakwt.explore.site import CURVES_FILE
from deltakwt.files import write_atomically
from deltakwt.weights.folder import load_weights
from deltakwt.weights.quantize import checksum
from deltakwt.weights.registry import resolve

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
SITES = {"6": ALL_SITES[:6], "8": ALL_SITES[:8]}


def measure(model: Model, manifest: Manifest) -> dict[str, Any]:
    """Return the settings and the curves, in percent."""
    run, base = copy(model), model.profiles.setting(None)

    def point(name: str, setting: Setting) -> dict[str, float]:
        run.setting = setting
        found = evaluate(run, manifest)
        macs = 100.0 if found.macs is None else found.macs.model_percent
        print(f"{name:>16}  {100 * found.accuracy:6.2f}%  {macs:5.1f}% of the MACs", flush=True)
        return {"accuracy": round(100 * found.accuracy, 3), "macs_percent": round(macs, 3)}

    named = {"dense": DENSE} | {n: p.setting for n, p in model.profiles.profiles.items()}
    return {
        "base": base.name,
        "factors": list(FACTORS),
        "settings": {name: point(name, setting) for name, setting in named.items()},
        "curves": {
            count: [
                {"factor": factor, **point(f"{count} sites, x{factor:g}", setting)}
                for factor, setting in scaled(base, sites)
            ]
            for count, sites in SITES.items()
        },
    }


def scaled(base: Setting, sites: tuple[str, ...]) -> Iterator[tuple[float, Setting]]:
    """Yield the setting with the thresholds of these sites times each factor."""
    for factor in FACTORS:
        values = {}
        for site in sites:
            value = getattr(base.thresholds, site, None)
            if value is not None:
                many = isinstance(value, tuple)
                values[site] = tuple(v * factor for v in value) if many else value * factor
        yield factor, Setting(Thresholds(**values), base.front_end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a Speech Commands folder")
    parser.add_argument("--model", default="kwt-1")
    parser.add_argument("--limit", type=int, help="use this many clips; the default is all")
    given = parser.parse_args()
    folder, model = resolve(given.model), load(given.model, arithmetic="fixed")
    manifest = draw(given.data, "test", "zero", limit=given.limit, labels=model.labels)
    document = {
        "weights": checksum(load_weights(folder).tensors),
        "data": manifest.root.name,
        "clips": len(manifest.clips),
        **measure(model, manifest),
    }
    path = folder / CURVES_FILE
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
