"""What every figure states beside its data: model, machine, command."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any


def model_name(name: str) -> str:
    """A name that means something outside of this machine: of a path, its last folder."""
    path = Path(name)
    if path.suffix == ".tflite":  # the authors' files all have the same name
        return path.resolve().parent.name
    return path.name or name


def machine(isa: str) -> dict[str, Any]:
    """Processor, cores, kernels, system and Python."""
    return {
        "processor": cpu_facts().get("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "kernels": isa,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def cpu_facts() -> dict[str, str]:
    """What the system says of a core; nothing where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def command() -> str:
    """As it was typed, so that it can be typed again."""
    return shlex.join(["deltakwt", *sys.argv[1:]])
