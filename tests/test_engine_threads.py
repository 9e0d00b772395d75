"""The native engine in many threads: batches, shared engines and streams, refused threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from test_engine import WHOLE, WORDS, Floats, clip, runner

from deltakwt.core.config import KWT1
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.native import FrontEnd
from deltakwt.core.setting import FrontEndSetting, Setting
from deltakwt.weights.folder import random_tensors


def test_a_batch_equals_its_clips_on_any_number_of_threads(isa: str) -> None:
    engine = Engine(KWT1, random_tensors(KWT1), isa)
    sounds = np.stack([clip(word) for word in WORDS])
    features = np.stack([engine.features(sound) for sound in sounds])
    for threads in (0, 1, 3):
        batch = engine.batch(sounds, Setting(WHOLE), threads=threads)
        assert batch.macs is not None
        for i in range(len(WORDS)):
            run = engine.delta(features[i], WHOLE)
            np.testing.assert_array_equal(batch.logits[i], run.logits)
            np.testing.assert_array_equal(batch.macs[i], run.macs)
        dense = engine.batch(features, threads=threads)
        assert dense.macs is None
        np.testing.assert_array_equal(dense.logits[0], engine.dense(features[0]))
    assert engine.batch(features[:0]).logits.shape == (0, 12)


def test_features_of_many_sounds_equal_those_of_each(isa: str) -> None:
    frontend, smooth = FrontEnd(isa), FrontEndSetting(True, 2.0)
    sounds = np.stack([clip(word) for word in WORDS])
    for threads in (0, 1, 3):
        batch = frontend.batch(sounds, smooth, threads)
        for i, sound in enumerate(sounds):
            np.testing.assert_array_equal(batch[i], frontend.features(sound, smooth))
    assert frontend.batch(sounds[:0]).shape == (0, 98, 40)
    for wrong in (sounds[0], sounds[:, :479], sounds * np.nan):
        with pytest.raises(DeltakwtError, match="sound"):
            frontend.batch(wrong)


def test_one_engine_serves_many_threads() -> None:
    engine = Engine(KWT1, random_tensors(KWT1))
    features = [engine.features(clip(word)) for word in WORDS]
    alone = [engine.delta(f, WHOLE).logits for f in features]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda f: engine.delta(f, WHOLE).logits, features * 8))
    for i, logits in enumerate(together):
        np.testing.assert_array_equal(logits, alone[i % len(alone)])


def from_threads(push: Callable[[Floats], object]) -> None:
    """Push many blocks of many sizes from 8 threads."""
    sizes = np.random.default_rng(0).integers(1, 3000, 50)
    blocks = [np.zeros(size, np.float32) for size in sizes]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: [push(block) for block in blocks[i:]], range(8)))


def test_eight_threads_may_push_into_one_feature_stream() -> None:
    stream, count = FrontEnd().stream(FrontEndSetting(True, 2.0)), []
    from_threads(lambda block: count.append((len(block), len(stream.push(block)))))
    samples, rows = (sum(column) for column in zip(*count, strict=True))
    assert rows == (samples - 480) // 160  # smoothing holds the last row back
    assert np.isfinite(stream.push(clip("yes"))).all()


def test_eight_threads_may_push_into_one_stream_runner() -> None:
    engine = Engine(replace(KWT1, layers=1), random_tensors(replace(KWT1, layers=1)))
    one, count = runner(engine), []
    from_threads(lambda block: count.append((len(block), len(one.push(block)[0]))))
    samples, windows = (sum(column) for column in zip(*count, strict=True))
    assert windows == (1 + (samples - 480) // 160 - 98) // 10 + 1


WITHOUT_THREADS = """
import resource
import numpy as np
from deltakwt.core.config import KWT1
from deltakwt.core.engine import Engine
from deltakwt.weights.folder import random_tensors
engine = Engine(KWT1, random_tensors(KWT1))
clips = np.zeros((4, 98, 40), np.float32)
expected = engine.batch(clips, threads=1).logits
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (4 << 20)  # less than the stack of a thread
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for threads in (8, 2, 8):
    assert (engine.batch(clips, threads=threads).logits == expected).all()
print("done")
"""


def test_a_batch_runs_on_fewer_threads_where_the_system_refuses_more() -> None:
    if sys.platform != "linux":
        pytest.skip("limits its own memory as Linux does")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "done\n", done.stderr
