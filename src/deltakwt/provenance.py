"""What every figure and result states about itself: model, machine and command."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

from deltakwt.text import mask_passwords, printable


def model_name(name: str) -> str:
    """Return a name that means something on other machines: of a path, its last folder."""
    path = Path(name)
    if path.suffix == ".tflite":  # the authors' files all have the same name
        return printable(path.resolve().parent.name)
    return printable(path.name or name)


def machine(isa: str) -> dict[str, Any]:
    """Return processor, cores, kernels, system and Python."""
    return {
        "processor": cpu_facts().get("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "kernels": isa,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def cpu_facts() -> dict[str, str]:
    """Return what the system reports about a core, or nothing where it does not report."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def command() -> str:
    """Return the command line as it was typed, without the passwords of databases."""
    return printable(shlex.join(["deltakwt", *map(mask_passwords, sys.argv[1:])]))
