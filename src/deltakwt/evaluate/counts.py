"""MACs, kept values and stored bytes of delta runs, added up over clips.

Bytes are those of the delta-encoded tensors: the compression that the paper claims and does not
measure. There are two forms, both for 32-bit values, row by row (a row of scores or softmax is that
of one head):
- bitmap: one bit per value says whether it changed, then the changed deltas follow;
- index: the number of changed values, then the position and the delta of each.
The first rows, which are always exact, are stored as they are. So is a tensor of which nothing was
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import Audio, Sound, blocks
from deltakwt.core.config import HOP_SAMPLES, Config
from deltakwt.core.macs import Macs
from deltakwt.core.model import Model
from deltakwt.core.reference import UNTOUCHED
from deltakwt.core.setting import ALL_SITES, Setting, SettingLike
from deltakwt.listen.runner import StreamRunner
from deltakwt.listen.spotter import decision_of

FORMS = ("dense", "bitmap", "index")
VALUE_BYTES = 4
BATCH = 64  # windows run at once


def shapes(config: Config, last: bool) -> dict[str, tuple[int, int]]:
    """Return the rows and the width of each site's tensor in a layer; heads lie side by side."""
    T, d = config.tokens, config.dim
    queries = 1 if last else T
    return {
        "x": (T, d),
        "q": (queries, d),
        "k": (T, d),
        "scores": (queries, config.heads * T),
        "softmax": (queries, config.heads * T),
        "heads": (queries, d),
        "mlp_in": (queries, d),
        "mlp_hidden": (queries, config.mlp),
        "v": (T, d),
    }


def row_overhead(width: int, form: str) -> tuple[int, int]:
    """Return the bytes of a row before any value, and the bytes of position per value."""
    if form == "bitmap":
        return (width + 7) // 8, 0
    index = 1 if width < 256 else 2  # also wide enough for the count of a full row
    return index, index


def packed_bytes(rows: int, width: int, nonzeros: float, form: str, segments: int = 1) -> float:
    """Return the bytes of a tensor of which `nonzeros` values were kept, exact rows included.

    `segments` is the number of heads that lie side by side in a row, each with its own list.
    """
    plain = min(UNTOUCHED, rows) * width
    rest = nonzeros - plain
    if form == "dense" or rest >= rows * width - plain:
        return rows * width * VALUE_BYTES
    row, position = row_overhead(width // segments, form)
    lists = (rows - min(UNTOUCHED, rows)) * segments
    return plain * VALUE_BYTES + lists * row + rest * (position + VALUE_BYTES)


def site_bytes(config: Config, nonzeros: NDArray[Any]) -> list[dict[str, dict[str, float]]]:
    """Return {site: {form: bytes}} per layer, from (layers, 9) kept values."""
    layers = []
    for layer, counts in enumerate(nonzeros):
        tensors = shapes(config, last=layer == config.layers - 1)
        layers.append(
            {
                site: {
                    form: float(packed_bytes(*tensors[site], count, form, _segments(config, site)))
                    for form in FORMS
                }
                for site, count in zip(ALL_SITES, counts, strict=True)
            }
        )
    return layers


def _segments(config: Config, site: str) -> int:
    return config.heads if site in ("scores", "softmax") else 1


# The tensors that are in memory at the same time, step by step, if a layer works on whole tensors.
# The residual needs x and mlp_in exactly, so their deltas are used but not stored.
STEPS = (
    ("x", "q", "k", "v"),
    ("x", "q", "k", "v", "scores"),
    ("x", "v", "scores", "softmax"),
    ("x", "v", "softmax", "heads"),
    ("x", "heads", "mlp_in"),
    ("mlp_in", "mlp_hidden"),
)
EXACT = ("x", "mlp_in")


def peak_bytes(config: Config, layers: list[dict[str, dict[str, float]]], form: str) -> float:
    """Return the most bytes of activations that are in memory at once, in any step of any layer.

    Each encoded tensor also holds one dense row, the reference to which its deltas add up.
    """
    peak = 0.0
    for layer, sites in enumerate(layers):
        widths = {s: width for s, (_, width) in shapes(config, layer == config.layers - 1).items()}
        for step in STEPS:
            total = sum(sites[site]["dense" if site in EXACT else form] for site in step)
            if form != "dense":
                total += sum(widths[site] * VALUE_BYTES for site in step)
            peak = max(peak, total)
    return peak


def stored_bytes(config: Config, nonzeros: NDArray[Any]) -> dict[str, Any]:
    """Return the bytes of all tensors, from the (layers, 9) kept values of a clip or their mean."""
    layers = site_bytes(config, nonzeros)
    sites = {
        site: {form: sum(layer[site][form] for layer in layers) for form in FORMS}
        for site in ALL_SITES
    }
    return {
        "total": {form: sum(site[form] for site in sites.values()) for form in FORMS},
        "peak": {form: peak_bytes(config, layers, form) for form in FORMS},
        "sites": sites,
        "layers": layers,
    }


class DeltaCounts:
    """Executed MACs and kept values of any number of clips."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.clips = 0
        self._macs: Any = 0  # (layers, 6)
        self._nonzeros: Any = 0  # (layers, 9)

    def add(self, macs: NDArray[np.int64] | None, nonzeros: NDArray[np.int64] | None) -> None:
        """Add the counts of n clips, (n, layers, 6) and (n, layers, 9); None for dense runs."""
        if macs is not None and nonzeros is not None:
            self.clips += len(macs)
            self._macs = self._macs + macs.sum(axis=0)
            self._nonzeros = self._nonzeros + nonzeros.sum(axis=0)

    @property
    def macs(self) -> Macs | None:
        """The mean over the clips; None if none was counted."""
        if not self.clips:
            return None
        return Macs(self.config, self._macs / self.clips, self._nonzeros / self.clips)

    @property
    def bytes(self) -> dict[str, Any] | None:
        """The bytes of the delta-encoded tensors, mean over the clips."""
        return stored_bytes(self.config, self._nonzeros / self.clips) if self.clips else None

    def to_json(self) -> dict[str, Any]:
        """Return `macs` and `bytes`; an empty object for dense runs."""
        macs = self.macs
        return {} if macs is None else {"macs": macs.to_json(), "bytes": self.bytes}


def count_windows(
    model: Model,
    sound: Sound,
    sample_rate: int | None = None,
    *,
    setting: SettingLike | None = None,
    threads: int = 0,
) -> DeltaCounts:
    """Return the counts of the windows of a sound, layer by layer; reused windows are left out.

    Windows that `Model.spot` leaves out because no word can depend on them are counted. The stream
    gives only the sum of its MACs, so the computed windows are run a second time.
    """
    chosen = model.setting_of(setting)
    runner = StreamRunner(model, chosen, decision_of(model))
    front_end = model.engine.frontend.stream(chosen.front_end)
    counts = DeltaCounts(model.config)
    rows = np.zeros((0, model.config.features), np.float32)
    windows: list[NDArray[np.float32]] = []
    for samples in _frames(blocks(sound, sample_rate), runner):
        computed = runner.meter.total.computed
        runner.push(samples)
        rows = np.concatenate([rows, front_end.push(samples)])[-model.config.frames :]
        if runner.meter.total.computed > computed:
            windows.append(rows)
        if len(windows) == BATCH:
            _count(model, windows, chosen, threads, counts)
            windows = []
    if windows:
        _count(model, windows, chosen, threads, counts)
    return counts


def _frames(parts: Iterator[Audio], runner: StreamRunner) -> Iterator[Audio]:
    """Yield a sound and its ending 160 samples at a time, so that no push gives two windows."""
    held, total = np.zeros(0, np.float32), 0
    for part in parts:
        held, total = np.concatenate([held, part]), total + len(part)
        whole = len(held) - len(held) % HOP_SAMPLES
        yield from np.split(held[:whole], whole // HOP_SAMPLES) if whole else ()
        held = held[whole:]
    held = np.concatenate([held, np.zeros(runner.ending(total), np.float32)])
    for start in range(0, len(held), HOP_SAMPLES):
        yield held[start : start + HOP_SAMPLES]


def _count(
    model: Model,
    windows: list[NDArray[np.float32]],
    setting: Setting,
    threads: int,
    counts: DeltaCounts,
) -> None:
    batch = model.engine.batch(np.stack(windows), setting, threads)
    counts.add(batch.macs, batch.nonzeros)
