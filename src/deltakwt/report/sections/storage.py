"""Memory: the state that deltas need, the bytes of encoded tensors, and the softmax's exponentials.

Three claims of the paper that have no number there. The state is that of the core's memory layout;
bytes and exponentials are measured on clips, and every encoded tensor is decoded again. A tensor
(rows, width) of 32-bit values is stored row by row; a row of scores or softmax has one list for
each head.

- bitmap: one bit per value says whether it changed; the changed values follow.
- index: the number of changed values, then the position of each; the values follow.

The first two rows are never delta encoded and are stored as they are. A tensor in which every value
changed is stored dense, because no list would make it smaller. What is stored is the new value of a
feature, so that decoding gives back every reference to the bit; a stored difference would take the
same bytes and add up rounding errors. `evaluate.counts` counts the same bytes without writing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import EXACT_ROWS
from deltakwt.core.native import state_bytes as plan_bytes
from deltakwt.core.setting import ALL_SITES, Setting, Thresholds
from deltakwt.report import traces
from deltakwt.report.figures import MHSA, OURS, SITE_NAMES, THEIRS, Figure, legend_above, new
from deltakwt.report.page import Column, Content, Numbers, Section, Table
from deltakwt.report.study import Study

Values = NDArray[np.float32]  # (rows, width)
Mask = NDArray[np.bool_]  # (rows, width)

HEADER = struct.Struct("<BBHI")  # format, lists per row, rows, width
FORMATS = {"dense": 0, "bitmap": 1, "index": 2}
NAMES = {number: name for name, number in FORMATS.items()}
CLIPS = 24  # whose tensors are written and read back
V_THRESHOLD = 0.3  # of V where the setting leaves it dense: the paper's future work
VALUE_BYTES = 4


def encode(references: Values, kept: Mask, form: str, lists: int = 1) -> bytes:
    """Return a tensor as bytes, its header included.

    `references` are the rows that the deltas add up to, `kept` says where a value changed; both are
    in a trace of the engine. `lists` is the number of heads side by side in a row.
    """
    rows, width = references.shape
    if kept.shape != references.shape or width % lists:
        raise DeltakwtError(f"encoding: {kept.shape} flags in {lists} lists for {rows} x {width}")
    exact = min(EXACT_ROWS, rows)
    values = np.ascontiguousarray(references, "<f4")
    if form == "dense" or kept[exact:].all():
        return HEADER.pack(FORMATS["dense"], lists, rows, width) + values.tobytes()
    write = _BY_NAME[form].write
    parts = [HEADER.pack(FORMATS[form], lists, rows, width), values[:exact].tobytes()]
    for t in range(exact, rows):
        for row, flags in zip(np.split(values[t], lists), np.split(kept[t], lists), strict=True):
            parts += [write(flags), row[flags].tobytes()]
    return b"".join(parts)


def decode(data: bytes) -> Values:
    """Return the references (rows, width) that `encode` was given, to the bit."""
    try:
        number, lists, rows, width = HEADER.unpack_from(data)
        reader = _Reader(data, HEADER.size)
        if NAMES[number] == "dense":
            return reader.values(rows * width).reshape(rows, width)
        exact = min(EXACT_ROWS, rows)
        references = np.empty((rows, width), np.float32)
        references[:exact] = reader.values(exact * width).reshape(exact, width)
        read, part = _BY_NAME[NAMES[number]].read, width // lists
        for t in range(exact, rows):
            references[t] = references[t - 1]
            for row in np.split(references[t], lists):
                changed = read(reader, part)
                row[changed] = reader.values(len(changed))
    except (struct.error, KeyError, ValueError, IndexError, ZeroDivisionError):
        raise DeltakwtError("decoding: these bytes are not an encoded tensor") from None
    return references


class _Reader:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, kind: str, count: int) -> NDArray[Any]:
        taken = np.frombuffer(self.data, kind, count, self.at)
        self.at += taken.nbytes
        return taken

    def values(self, count: int) -> Values:
        return self.take("<f4", count).astype(np.float32) if count else np.empty(0, np.float32)


@dataclass(frozen=True)
class _Format:
    """How the places of the changed values are written and read."""

    write: Callable[[Mask], bytes]
    read: Callable[[_Reader, int], NDArray[np.intp]]


def _write_bitmap(flags: Mask) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def _read_bitmap(reader: _Reader, width: int) -> NDArray[np.intp]:
    packed = reader.take("u1", (width + 7) // 8)
    return np.flatnonzero(np.unpackbits(packed, count=width, bitorder="little"))


def _index_type(width: int) -> str:
    return "u1" if width < 256 else "<u2"  # wide enough for the count of a full row, too


def _write_index(flags: Mask) -> bytes:
    (places,) = np.nonzero(flags)
    return np.array([len(places), *places], _index_type(len(flags))).tobytes()


def _read_index(reader: _Reader, width: int) -> NDArray[np.intp]:
    kind = _index_type(width)
    count = int(reader.take(kind, 1)[0])
    places = reader.take(kind, count).astype(np.intp) if count else np.empty(0, np.intp)
    if count and places.max() >= width:
        raise ValueError
    return places


_BY_NAME = {
    "bitmap": _Format(_write_bitmap, _read_bitmap),
    "index": _Format(_write_index, _read_index),
}


def encoded_bytes(config: Config, trace: dict[str, NDArray[Any]]) -> dict[str, dict[str, int]]:
    """Encode and decode every tensor of a clip; return {site: {format: bytes written}}.

    The bytes are those of the tensors without their headers. It is an error if a tensor does not
    come back to the bit.
    """
    total = {site: dict.fromkeys(FORMATS, 0) for site in ALL_SITES}
    for site in ALL_SITES:
        lists = config.heads if site in ("scores", "softmax") else 1
        for layer in range(config.layers):
            is_last = layer == config.layers - 1 and site not in ("x", "k", "v")
            rows = 1 if is_last else config.tokens
            references, kept = trace[site][layer, :rows], trace[f"{site}.mask"][layer, :rows]
            for form in FORMATS:
                data = encode(references, kept, form, lists)
                if not np.array_equal(decode(data), references):
                    raise DeltakwtError(f"encoding: {site} of layer {layer + 1} does not come back")
                total[site][form] += len(data) - HEADER.size
    return total


def state_bytes(config: Config) -> Numbers:
    """Return the bytes that deltas keep from token to token, site by site, and the dense tensors.

    References and running results are those of the core's own layout, whole cache lines included
    (native/src/plan.c). A reference is one row of the site; a running result is one row of the
    product, which the next token adds to. K and V need no extra row, because their references
    replace the tensor itself. `dense` is the tensor that a dense run holds at the site for the
    tokens of a clip; scores and softmax are held for one head at a time. The core uses one state
    for all layers, since it finishes a layer before the next; `all_layers` is for a run token by
    token.
    """
    T, square = config.tokens, config.tokens**2
    values = dict.fromkeys(ALL_SITES, T * config.dim)  # of the dense tensors
    values |= {"scores": square, "softmax": square, "mlp_hidden": T * config.mlp}
    sites = {
        site: {
            "reference": int(reference),
            "running": int(running),
            "dense": VALUE_BYTES * values[site],
        }
        for site, (reference, running) in zip(ALL_SITES, plan_bytes(config), strict=True)
    }
    total = {key: sum(site[key] for site in sites.values()) for key in sites["x"]}
    state = total["reference"] + total["running"]
    return {
        "sites": sites,
        "total": total,
        "state": state,
        "all_layers": config.layers * state,
        "state_percent": 100 * state / total["dense"],
    }


def collect(study: Study) -> Numbers:
    config, engine = study.model.config, study.model.engine
    thresholds = _with_v(study.thresholds)
    picks = study.sample.spread(CLIPS)
    written = np.zeros((len(ALL_SITES), len(FORMATS)))
    counts: dict[str, Any] = {}
    for index in picks:
        features = study.sample.features(study.setting.front_end)[index]
        trace = engine.trace(features, thresholds)
        found = encoded_bytes(config, trace)
        written += [[found[site][form] for form in FORMATS] for site in ALL_SITES]
        for name, layers in traces.exponentials(config, trace).items():
            counts[name] = counts.get(name, 0) + layers[:-1] / len(picks)
        study.step(1)
    mean = {
        site: dict(zip(FORMATS, (written[n] / len(picks)).tolist(), strict=True))
        for n, site in enumerate(ALL_SITES)
    }
    total = {form: sum(site[form] for site in mean.values()) for form in FORMATS}
    shares = {
        site: {form: 100 * found[form] / found["dense"] for form in FORMATS}
        for site, found in (*mean.items(), ("all", total))
    }
    dense = counts["dense"].sum()
    without, with_v = (
        study.accuracy(study.batch(setting).logits, "zero")
        for setting in (study.setting, Setting(thresholds, study.setting.front_end))
    )
    return {
        "clips": len(picks),
        "thresholds": str(thresholds),
        "v_threshold": thresholds.v,
        "accuracy": {"without_v": without, "with_v": with_v},
        "state": state_bytes(config),
        "bytes": mean,
        "total": total,
        "percent": shares["all"],
        "shares": shares,
        "exponentials": {
            name: {
                "millions": float(layers.sum() / 1e6),
                "percent": float(100 * layers.sum() / dense),
                "least": float((100 * layers / counts["dense"]).min()),
                "most": float((100 * layers / counts["dense"]).max()),
            }
            for name, layers in counts.items()
        },
    }


def _with_v(thresholds: Thresholds) -> Thresholds:
    """Return the thresholds with one for V, which they may leave dense."""
    values = {site: getattr(thresholds, site) for site in ALL_SITES}
    if values["v"] is None:
        values["v"] = V_THRESHOLD
    return Thresholds(**values)


def show(document: Numbers) -> Content:
    own = document["storage"]
    state, percent, exps = own["state"], own["percent"], own["exponentials"]
    text = (
        "**State.** The paper says that only a single token has to be stored as a reference. That"
        " is so at each site; the row of results that the next token adds to is needed as well."
        f" Both together take **{state['state']:,} bytes** here, {state['state_percent']:.1f}% of"
        f" the {state['total']['dense']:,} bytes of tensors that a dense layer works on. A run"
        f" token by token through all layers needs {state['all_layers']:,} bytes."
        "\n\n**Bytes.** Every tensor of"
        f" {own['clips']} clips was encoded, written, read back and compared: all of them came back"
        f" exactly. They take **{percent['bitmap']:.1f}%** of the dense bytes as a bitmap and"
        f" values and {percent['index']:.1f}% as indices and values. V is encoded too, with a"
        f" threshold of {own['v_threshold']}; it saves no MACs. With it"
        f" {own['accuracy']['with_v']:.2f}% of all clips are right, without it"
        f" {own['accuracy']['without_v']:.2f}%."
        "\n\n**Exponentials.** The paper computes the softmax of a changed row from that of the row"
        " before, with one exponential per changed score and a scaling factor. The C core computes"
        " a row anew if any of its scores changed:"
        f" **{exps['core']['percent']:.1f}%** of the exponentials of a dense run, where scaling"
        f" factors would need {exps['scaling_factors']['percent']:.1f}% (layer by layer"
        f" {exps['core']['least']:.0f} to {exps['core']['most']:.0f}% against"
        f" {exps['scaling_factors']['least']:.0f} to {exps['scaling_factors']['most']:.0f}%; the"
        " last layer has one row and is left out). Scaling factors would add a division per row and"
        f" a multiplication per value.{_softmax_time(document)}"
    )
    figure = Figure(
        "storage",
        lambda: _draw(own),
        "Bytes written for each site, all layers of one clip, mean over the clips. The shorter a"
        " coloured bar is beside its grey one, the better the site compresses. A site that is left"
        " dense has three equal bars.",
        own["thresholds"] if "," not in own["thresholds"] else "one threshold per layer",
    )
    counterpart = document["paper"]["counterparts"]["storage"]
    return Content("Memory", counterpart, text, [figure], [_bytes_table(own), _state_table(state)])


def _softmax_time(document: Numbers) -> str:
    """Return what the softmax takes of the time of a word, if time was measured."""
    if "timing" not in document:
        return ""
    own = document["timing"]
    softmax = next(part for part in own["breakdown"] if part["part"] == "softmax")
    return (
        f" The softmax takes {softmax['delta_ms']:.2f} of the {own['delta_ms']:.2f} ms of a word"
        " (section Time), so even without any exponential the model would be faster by this part"
        " at most."
    )


def _bytes_table(own: Numbers) -> Table:
    columns = [Column("site"), *(Column(form, ",.0f", "bytes written") for form in FORMATS)]
    columns += [Column(form, ".1f", "% of dense") for form in ("bitmap", "index")]
    rows: list[Any] = []
    for name, found in (*own["bytes"].items(), ("all", own["total"])):
        percents = [own["shares"][name][form] for form in ("bitmap", "index")]
        rows.append([SITE_NAMES.get(name, name), *(found[form] for form in FORMATS), *percents])
    return Table("storage", "Bytes of the encoded tensors of one clip.", columns, rows)


def _state_table(state: Numbers) -> Table:
    columns = [
        Column("site"),
        Column("reference row", ",d", "delta state, bytes"),
        Column("running result", ",d", "delta state, bytes"),
        Column("dense tensor", ",d", "bytes"),
    ]
    rows: list[Any] = [
        [SITE_NAMES.get(name, name), found["reference"], found["running"], found["dense"]]
        for name, found in (*state["sites"].items(), ("all", state["total"]))
    ]
    caption = "State that deltas keep for one layer, and the tensors of a dense layer."
    return Table("state", caption, columns, rows)


def _draw(own: Numbers) -> Any:
    canvas, axis = new(3.0)
    places = np.arange(len(ALL_SITES))
    for number, (form, colour) in enumerate((("dense", THEIRS), ("bitmap", OURS), ("index", MHSA))):
        kib = [own["bytes"][site][form] / 1024 for site in ALL_SITES]
        axis.bar(places + 0.27 * (number - 1), kib, 0.25, color=colour, label=form)
    axis.set_xticks(places, [SITE_NAMES[s] for s in ALL_SITES], rotation=35, ha="right")
    axis.set_ylabel("KiB per clip")
    axis.grid(True, axis="y")
    axis.set_axisbelow(True)
    axis.tick_params(axis="x", length=0)
    legend_above(axis, columns=3)
    return canvas


SECTION = Section("storage", collect, show)
