"""A `Spotter` on a very long stream: memory growth, drift of times, and a hash of the events."""

from __future__ import annotations

import hashlib
import json
import mmap
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.model import Model
from deltakwt.core.setting import SettingLike
from deltakwt.evaluate.streams import PlannedStream
from deltakwt.evaluate.stress import Progress
from deltakwt.listen.decision import Decision
from deltakwt.listen.spotter import Spotter

WARM_UP = 60  # blocks (10 minutes) after which every buffer has its final size


def soak(
    model: Model,
    stream: PlannedStream,
    setting: SettingLike | None = None,
    decision: Decision | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run a spotter over the whole stream. Events go into a hash, delays into two short lists."""
    spotter = Spotter(model, setting=setting, decision=decision)
    ends = np.array([word.end for word in stream.truth])
    delays: list[list[float]] = [[], []]  # in the first and in the last tenth
    digest, count, rss = hashlib.sha256(), 0, 0
    begun, cpu = time.monotonic(), time.process_time()
    total = stream.scenario.samples / SAMPLE_RATE
    for number, block in enumerate(stream.blocks()):
        for event in spotter.push(block):
            count += 1
            digest.update(json.dumps(event.to_json()).encode())
            part = 0 if event.time < total / 10 else 1 if event.time > 0.9 * total else None
            if part is not None and len(ends):
                nearest = float(event.time - ends[np.abs(ends - event.time).argmin()])
                if abs(nearest) < 1:
                    delays[part].append(nearest)
        if number == WARM_UP:
            rss = _resident()
        if progress:
            progress(spotter.seconds, total)
    grown = _resident() - rss if rss else None  # measured before the report itself takes memory
    medians = [float(np.median(d)) if d else None for d in delays]
    return {
        "model": model.name,
        "scenario": asdict(stream.scenario),
        "stream": stream.digest,
        "events": count,
        "events_sha256": digest.hexdigest(),
        "seconds": spotter.seconds,
        "memory_growth_bytes": grown,
        "median_delay_first_tenth": medians[0],
        "median_delay_last_tenth": medians[1],
        "wall_seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "meter": spotter.meter.to_json(),
    }


def _resident() -> int:
    """Return the bytes of this process in memory; without /proc, the maximum so far.

    0 on Windows, which has neither.
    """
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        if sys.platform == "win32":
            return 0
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
