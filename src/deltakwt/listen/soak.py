"""A Spotter on a very long stream: is memory flat, does time drift, is a rerun the same?"""

from __future__ import annotations

import hashlib
import json
import resource
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.model import Model
from deltakwt.listen.decision import Decision
from deltakwt.listen.spotter import Spotter
from deltakwt.listen.streams import Stream
from deltakwt.listen.stress import Progress

WARM = 60  # blocks (10 minutes) after which every buffer has its size


def soak(
    model: Model, stream: Stream, decision: Decision | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Hear all of it. Nothing is kept: events go into a hash, delays into two short lists."""
    spotter = Spotter(model, decision=decision)
    ends = np.array([word.end for word in stream.truth])
    late: list[list[float]] = [[], []]  # delays in the first and in the last tenth
    digest, count, rss = hashlib.sha256(), 0, 0
    begun, cpu = time.monotonic(), time.process_time()
    total = stream.scenario.samples / SAMPLE_RATE
    for number, block in enumerate(stream.blocks()):
        for event in spotter.push(block):
            count += 1
            digest.update(json.dumps(event.to_json()).encode())
            part = 0 if event.time < total / 10 else 1 if event.time > 0.9 * total else None
            nearest = float(event.time - ends[np.abs(ends - event.time).argmin()])
            if part is not None and abs(nearest) < 1:
                late[part].append(nearest)
        if number == WARM:
            rss = _resident()
        if progress:
            progress(spotter.seconds, total)
    grown = _resident() - rss if rss else None  # before this report takes memory of its own
    delays = [float(np.median(d)) if d else None for d in late]
    return {
        "model": model.name,
        "scenario": asdict(stream.scenario),
        "stream": stream.digest,
        "events": count,
        "events_sha256": digest.hexdigest(),
        "heard_seconds": spotter.seconds,
        "memory_growth_bytes": grown,
        "median_delay_first_tenth": delays[0],
        "median_delay_last_tenth": delays[1],
        "wall_seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "meter": spotter.meter.to_json(),
    }


def _resident() -> int:
    """Bytes of this process in memory (where /proc is missing: the most there ever were)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
