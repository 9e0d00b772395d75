"""What every figure states: model, data, thresholds, machine, command."""

from __future__ import annotations

from typing import Any

import deltakwt
from deltakwt.provenance import command, machine, model_name
from deltakwt.report.run import Run


def setting(run: Run) -> dict[str, Any]:
    """The `setting` of the report's JSON."""
    config, sample, chosen = run.model.config, run.sample, run.chosen
    return {
        "model": {
            "name": model_name(run.model.name),
            "dim": config.dim,
            "heads": config.heads,
            "mlp": config.mlp,
            "layers": config.layers,
        },
        "data": {
            "name": sample.manifest.root.resolve().name,
            "split": sample.manifest.split,
            "seed": sample.manifest.seed,
            "clips": int(sample.weights("zero").sum()),
            "words": int(sample.is_word.sum()),
            "digital_silence": sample.zeros,
            "noise": int(sample.is_noise.sum()),
            "unreadable": [file for file, _ in sample.failed],
        },
        "thresholds": {
            "name": chosen.name,
            "text": threshold_text(str(chosen.thresholds)),
            "values": chosen.thresholds.to_json(),
            "steady": chosen.front_end.to_json(),
        },
        "machine": machine(run.model.engine.isa),
        "command": command(),
        "version": deltakwt.__version__,
    }


def threshold_text(thresholds: str) -> str:
    """The paper's form; per-layer thresholds would fill a page."""
    return thresholds if "," not in thresholds else "one threshold a layer (see the JSON)"


def stamp(facts: dict[str, Any], thresholds: str) -> str:
    """One line below each figure."""
    data, machine_ = facts["data"], facts["machine"]
    return (
        f"{facts['model']['name']} · {data['name']}, {data['clips']:,} {data['split']} clips ·"
        f" thresholds: {thresholds} · {machine_['processor']}, {machine_['cores']} cores,"
        f" {machine_['kernels']} · {facts['command']} · deltakwt {facts['version']}"
    )
