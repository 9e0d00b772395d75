"""Calls from 8 threads with changing settings: same answers, flat memory.

The long version is `python fuzz/threads.py --calls 100000`; `make test-threads` runs it under
ThreadSanitizer.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from conftest import PROJECT

spec = importlib.util.spec_from_file_location("threads", PROJECT / "fuzz" / "threads.py")
assert spec is not None
assert spec.loader is not None
threads = importlib.util.module_from_spec(spec)
spec.loader.exec_module(threads)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_eight_threads_get_the_answers_of_one() -> None:
    wrong, grown = threads.soak(600, 8)
    assert wrong == 0
    assert grown < 64  # the working memory of 8 threads; the long run holds it to 16


REFUSED = """
import resource
import numpy as np
from deltakwt.core.config import Config
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_scales import calibrate
from deltakwt.weights.folder import random_tensors
config = Config(dim=8, heads=1, mlp=8, layers=1, labels=("a", "b"))
tensors = random_tensors(config)
tensors["embed.weight"] *= 0.01
features = np.zeros((64, 98, 40), np.float32)
features += np.random.default_rng(0).normal(size=features.shape).astype(np.float32)
engine = FixedEngine(config, tensors, calibrate(config, tensors, features[:2]))
sounds = np.random.default_rng(1).normal(0, 0.1, (64, 16000)).astype(np.float32)
expected = [engine.batch(clips, threads=1).logits for clips in (features, sounds)]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), resource.RLIM_INFINITY))
for clips, logits in zip((features, sounds), expected):
    assert (engine.batch(clips, threads=64).logits == logits).all()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits its own memory")
def test_the_fixed_engine_goes_on_when_the_system_refuses_a_thread() -> None:
    """Each thread wants 8 MB of stack: most of 64 cannot start. This ended the process."""
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    assert done.stdout == "done\n"
