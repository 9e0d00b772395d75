"""The C tests of another processor's kernels: cross-built for aarch64 and run under qemu.

Those of this processor run under the sanitizers in `make test-sanitize`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parent.parent / "native"


def test_neon_kernels_under_qemu(tmp_path: Path) -> None:
    tools = {
        "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
        "qemu-aarch64": "qemu-user",
    }
    for tool, package in tools.items():
        if not shutil.which(tool):
            pytest.skip(f"needs {tool} (Debian: {package})")
    settings = {
        "CC": "aarch64-linux-gnu-gcc",
        "FLAGS": "-O2 -static",
        "RUN": "qemu-aarch64",
        "BUILD": str(tmp_path),
    }
    done = subprocess.run(
        ["sh", NATIVE / "test_sanitize.sh"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "neon checked" in done.stdout
