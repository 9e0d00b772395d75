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


# A batch of 4,096 clips takes its 262 MB at once, so that memory for the interpreter is left.
BATCH = """
import resource, sys
from pathlib import Path
from deltakwt.data.speech_commands import batches, draw
manifest = draw(Path(sys.argv[1]), "test", "zero")
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (32 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    next(batches(manifest, 4096, 1, print))
except MemoryError as error:
    print(error)
"""


@pytest.mark.parametrize("megabytes", [1, 6])
def test_eval_that_does_not_get_its_memory(megabytes: int, many_clips: Path) -> None:
    """It lacks the memory for a thread and for the weights, or for the weights only."""
    command = [sys.executable, "-c", LIMITED, str(megabytes), "eval", "--model", "kwt-3"]
    command += ["--arithmetic", "float", "--data", str(many_clips), "--threads", "1", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    # Python itself may print messages before this line, if a thread or finalizer has no memory.
    assert "deltakwt: not enough memory" in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr


def test_the_memory_of_a_batch_is_taken_at_once(many_clips: Path) -> None:
    command = [sys.executable, "-c", BATCH, str(many_clips)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Unable to allocate" in done.stdout
