"""The windows of a long sound: every sample is in one, and the last is padded with zeros."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.report.explain import WINDOW_HOP, windows


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(0, 8 * CLIP_SAMPLES),
    cuts=st.lists(st.integers(0, 8 * CLIP_SAMPLES), max_size=6),
    group=st.integers(1, 70),
)
def test_windows_cover_every_sample_and_the_last_is_padded(
    length: int, cuts: list[int], group: int
) -> None:
    sound = np.arange(1, length + 1, dtype=np.float32)  # every sample tells its place
    blocks = np.split(sound, sorted(min(cut, length) for cut in cuts))
    found = [
        (first + number * WINDOW_HOP, window)
        for first, clips in windows(blocks, group)
        for number, window in enumerate(clips)
    ]
    assert [start for start, _ in found] == list(range(0, len(found) * WINDOW_HOP, WINDOW_HOP))
    for start, window in found:
        expected = np.zeros(CLIP_SAMPLES, np.float32)
        part = sound[start : start + CLIP_SAMPLES]
        expected[: len(part)] = part
        np.testing.assert_array_equal(window, expected)
    last = found[-1][0]
    assert last + CLIP_SAMPLES >= length  # every sample is in a window
    assert last == 0 or last + CLIP_SAMPLES - WINDOW_HOP < length  # and no window is superfluous


def test_a_group_holds_no_more_windows_than_asked_for() -> None:
    sound = np.zeros(5 * CLIP_SAMPLES + 7, np.float32)
    sizes = [len(clips) for _, clips in windows([sound], group=16)]
    assert max(sizes) == 16
    assert sum(sizes) == 42
