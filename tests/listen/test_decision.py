"""The decision rule: which word is found, when, and with which arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.core.errors import DeltakwtError
from deltakwt.evaluate.stress import decide
from deltakwt.listen.decision import (
    Decider,
    Decision,
    WindowEvent,
    posteriors,
    smooth_stream,
)

LABELS = ("_silence_", "_unknown_", "yes", "no", "go")
YES, NO, GO = 2, 3, 4
f32 = np.float32


def logits(*windows: dict[int, float]) -> np.ndarray:
    """Return logits of windows, given the posteriors of some labels; silence has the rest."""
    rows = np.full((len(windows), len(LABELS)), 1e-6)
    for row, window in zip(rows, windows, strict=True):
        row[0] = 1 - sum(window.values())
        for label, value in window.items():
            row[label] = value
    return np.log(rows).astype(np.float32)


def decided_events(decision: Decision, *windows: dict[int, float]) -> list[tuple[int, int]]:
    """Return (label, window that decided) of each event."""
    events = Decider(decision, LABELS).push(logits(*windows))
    return [(event.label, event.window) for event in events]


PLAIN = Decision(smooth=1, patience=0, on=0.8, off=0.4, refractory=0.0)


def test_a_long_word_is_one_event() -> None:
    assert decided_events(PLAIN, {}, {YES: 0.9}, {YES: 0.95}, {YES: 0.5}, {YES: 0.9}, {}) == [
        (YES, 1)
    ]


def test_a_word_can_be_found_again_after_it_ended() -> None:
    assert decided_events(PLAIN, {YES: 0.9}, {YES: 0.39}, {YES: 0.9}) == [(YES, 0), (YES, 2)]


def test_no_event_in_the_refractory_time() -> None:
    decision = Decision(smooth=1, patience=0, on=0.8, off=0.4, refractory=0.2)
    windows = [{YES: 0.9}, {NO: 0.9}, {NO: 0.9}, {NO: 0.9}]
    assert decided_events(decision, *windows) == [(YES, 0), (NO, 3)]


def test_patience_lets_a_better_word_win() -> None:
    decision = Decision(smooth=1, patience=2, on=0.6, off=0.3, refractory=1.0)
    events = Decider(decision, LABELS).push(
        logits({NO: 0.7, GO: 0.1}, {NO: 0.2, GO: 0.75}, {GO: 0.7}, {})
    )
    assert [(e.label, e.first, e.peak, e.window) for e in events] == [(GO, 1, 1, 2)]
    assert events[0].score == pytest.approx(0.75, abs=1e-4)


def test_smoothing_is_the_power_mean_of_the_last_windows() -> None:
    decision = Decision(smooth=3, patience=0, on=0.42, off=0.2, refractory=0.0)
    # ((0.1 + 0.91 + 0.91) / 3)^2, where 0.1, 0.91 are roots of posteriors
    low, high = {YES: 0.01}, {YES: 0.8281}
    assert decided_events(decision, low, low, high, high) == []
    assert decided_events(replace(decision, on=0.4), low, low, high, high) == [(YES, 3)]
    assert decided_events(decision, low, low, high, low, high) == []


def test_at_the_start_of_a_stream_only_the_windows_that_exist_are_averaged() -> None:
    decision = Decision(smooth=3, patience=0, on=0.6, off=0.2, refractory=0.0)
    assert decided_events(decision, {YES: 0.61}) == [(YES, 0)]
    assert decided_events(decision, {YES: 0.5}, {YES: 0.75}) == [(YES, 1)]  # 0.62
    assert decided_events(decision, {YES: 0.5}, {YES: 0.65}) == []


def test_words_have_thresholds_of_their_own() -> None:
    decision = Decision(smooth=1, patience=0, on=0.5, off=0.3, words={"go": 0.95}, refractory=0.0)
    assert decided_events(decision, {GO: 0.9}, {YES: 0.6}, {GO: 0.96}) == [(YES, 1), (GO, 2)]


def test_silence_and_unknown_are_never_events() -> None:
    assert decided_events(PLAIN, {}, {1: 0.99}, {}) == []


def test_posteriors_are_computed_as_described() -> None:
    rows = np.random.default_rng(0).normal(0, 5, (200, 12)).astype(np.float32)
    for row, found in zip(rows, posteriors(rows), strict=True):
        top = max(row)
        powers = [f32(math.exp(float(f32(value - top)))) for value in row]
        total = f32(0)
        for power in powers:
            total = f32(total + power)
        assert [f32(power / total) for power in powers] == list(found)


def reference_rule(decision: Decision, rows: np.ndarray) -> list[WindowEvent]:
    """The five steps as one would write them in C, window by window."""
    count, labels = len(rows), len(LABELS)
    on = decision.thresholds(LABELS)
    armed, first = [True] * labels, [-1] * labels
    candidate, since, ready = None, 0, 0
    roots = np.sqrt(posteriors(rows))
    events = []
    for w in range(count):
        s = [f32(0)] * labels
        for back in range(decision.smooth - 1, -1, -1):
            if w >= back:
                s = [f32(a + b) for a, b in zip(s, roots[w - back], strict=True)]
        means = [f32(a / f32(min(decision.smooth, w + 1))) for a in s]
        s = [f32(mean * mean) for mean in means]
        best = None
        for i in range(2, labels):
            if s[i] < f32(decision.off):
                armed[i], first[i] = True, -1
                continue
            if first[i] < 0:
                first[i] = w
            if armed[i] and w >= ready and s[i] >= on[i] and (best is None or s[i] > s[best]):
                best = i
        if best is not None and (candidate is None or s[best] > candidate.score):
            since = w if candidate is None else since
            candidate = WindowEvent(best, s[best], first[best], w, w)
        if candidate is not None and w - since >= decision.patience:
            events.append(
                WindowEvent(candidate.label, candidate.score, candidate.first, candidate.peak, w)
            )
            armed[candidate.label] = bool(s[candidate.label] < f32(decision.off))
            ready = w + 1 + decision.refractory_windows
            candidate = None
    return events


windows = st.lists(
    st.lists(st.sampled_from([-4.0, 0.0, 1.0, 3.0, 6.0]), min_size=5, max_size=5), max_size=40
)


@given(
    windows=windows,
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    smooth=st.integers(1, 4),
    patience=st.integers(0, 3),
    refractory=st.sampled_from([0.0, 0.3, 1.0]),
    on=st.sampled_from([0.3, 0.6, 0.9]),
)
def test_any_cut_into_blocks_decides_as_the_reference(
    windows: list[list[float]],
    cuts: list[int],
    smooth: int,
    patience: int,
    refractory: float,
    on: float,
) -> None:
    decision = Decision(
        smooth=smooth, patience=patience, refractory=refractory, on=on, off=0.25, words={"go": 0.5}
    )
    rows = np.array(windows, np.float32).reshape(-1, len(LABELS))
    decider, found, at, turn = Decider(decision, LABELS), [], 0, 0
    while at < len(rows):
        size = cuts[turn % len(cuts)]
        found += decider.push(rows[at : at + size])
        at, turn = at + size, turn + 1
    assert found == reference_rule(decision, rows)
    if len(rows):
        whole = decide(smooth_stream(rows, smooth), LABELS, decision)
        assert whole == [one.event(LABELS, decision) for one in found]


@given(
    windows=windows,
    repeats=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    smooth=st.integers(1, 4),
    patience=st.integers(0, 3),
)
def test_windows_known_to_be_the_same_need_not_be_looked_at(
    windows: list[list[float]], repeats: list[int], smooth: int, patience: int
) -> None:
    decision = Decision(smooth=smooth, patience=patience, refractory=0.3, on=0.6, off=0.25)
    decider, found, rows = Decider(decision, LABELS), [], []
    for turn, window in enumerate(windows):
        row, again = np.array([window], np.float32), repeats[turn % len(repeats)]
        found += decider.push(row)
        for _ in range(again):
            found += decider.push(row, is_same=True)
        rows += [row] * (1 + again)
    assert found == reference_rule(decision, np.concatenate(rows or [np.zeros((0, 5), np.float32)]))


def test_reuse_of_zero_compares_everything() -> None:
    exact = Decision(reuse=0)
    assert (exact.compare_frames, exact.outliers_allowed) == (98, 0)
    assert (Decision().compare_frames, Decision().outliers_allowed) == (35, 2)
    assert Decision(hop=0.5).compare_frames == 50  # what is new is always compared


def test_settings_survive_json_and_leave_defaults_where_nothing_is_said() -> None:
    decision = Decision(hop=0.05, smooth=4, words={"yes": 0.9})
    assert Decision.from_json(decision.to_json()) == decision
    assert Decision.from_json({"on": 1}) == Decision(on=1.0)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"hop": 0.015}, "hop = 0.015: must be 0.01 to 1 second"),
        ({"compare_seconds": 0}, "compare_seconds = 0: must be 0.01 to 1 second"),
        ({"max_outliers": -1}, "max_outliers = -1: must be 0 to 10000 features"),
        ({"max_outliers": 1.5}, "max_outliers = 1.5 has the wrong type"),
        ({"smooth": 0}, "smooth = 0: must be 1 to 100"),
        ({"smooth": 2.5}, "smooth = 2.5 has the wrong type"),
        ({"on": 0.3, "off": 0.5}, "off = 0.5: must be above 0 and at most `on`"),
        ({"on": "high"}, "on = 'high' has the wrong type"),
        ({"volume": 1}, "unknown key 'volume'"),
        ({"smooth": float("inf")}, "smooth = inf has the wrong type"),
        ({"words": {"yes": 2}}, "words = {'yes': 2}: must be above 0"),
    ],
)
def test_bad_settings_give_a_one_line_error(bad: dict[str, object], message: str) -> None:
    with pytest.raises(DeltakwtError, match="decision: ") as error:
        Decision.from_json(bad)
    assert message in str(error.value)


def test_a_stream_of_one_window_is_decided_as_a_clip() -> None:
    def end(window: dict[int, float]) -> int | None:
        decider = Decider(Decision(smooth=3, patience=1, on=0.8, off=0.4), LABELS)
        decider.push(logits(window))
        found = decider.end_of_clip()
        return None if found is None else found.label

    assert end({YES: 0.5, NO: 0.3}) == YES  # below `on`
    assert end({YES: 0.9}) == YES  # patience has not passed
    assert end({YES: 0.39, NO: 0.3, GO: 0.2}) is None  # below `off`
    assert end({YES: 0.45}) is None  # silence is more likely
    decider = Decider(PLAIN, LABELS)
    assert [one.label for one in decider.push(logits({YES: 0.9}))] == [YES]
    assert decider.end_of_clip() is None  # reported before
