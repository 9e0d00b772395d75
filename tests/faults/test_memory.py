"""Commands whose memory is limited (RLIMIT_AS) end with one line, not with an abort."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("limits memory as Linux does", allow_module_level=True)

# The limit is set after a first, short run: how much the imports take depends on the libraries.
LIMITED = """
import contextlib, io, resource, sys
from deltakwt.cli import build, main
from deltakwt.cli.running import run
extra = int(sys.argv.pop(1)) << 20
with contextlib.redirect_stdout(io.StringIO()):
    assert run(build(), [*sys.argv[1:], "--limit", "3"]) == 0
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + extra
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
main()
"""


@pytest.mark.parametrize("megabytes", [1, 20])
def test_eval_that_does_not_get_its_memory(megabytes: int, many_clips: Path) -> None:
    """It lacks the memory for a thread and the weights, or for a batch of clips."""
    command = [sys.executable, "-c", LIMITED, str(megabytes), "eval", "--model", "kwt-3"]
    command += ["--arithmetic", "float"]
    done = subprocess.run(
        [*command, "--data", str(many_clips), "--threads", "1", "-q"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    # The interpreter may add words of its own when a finalizer finds no memory either.
    assert done.stderr.count("\n") == 1, done.stderr
    assert "deltakwt: not enough memory" in done.stderr
