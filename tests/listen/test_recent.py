"""The newest samples of a stream, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.core.errors import DeltakwtError
from deltakwt.listen.recent import Recent


@given(st.lists(st.integers(0, 30), max_size=40))
def test_the_last_samples_are_there_after_any_blocks(sizes: list[int]) -> None:
    recent = Recent(kept=50, longest=30)
    sound = np.arange(sum(sizes), dtype=np.float32)
    at = 0
    for size in sizes:
        recent.push(sound[at : at + size])
        at += size
        assert recent.total == at
        first = max(0, at - 50)
        assert np.array_equal(recent.cut(first, at), sound[first:at])


def test_before_the_stream_there_is_silence() -> None:
    recent = Recent(10, 10)
    recent.push(np.ones(5, np.float32))
    assert recent.cut(-3, 2).tolist() == [0, 0, 0, 1, 1]
    assert recent.cut(-3, -1).tolist() == [0, 0]


@pytest.mark.parametrize(("start", "end"), [(0, 6), (4, 2)])
def test_what_is_not_held_is_told(start: int, end: int) -> None:
    recent = Recent(10, 10)
    recent.push(np.ones(5, np.float32))
    with pytest.raises(DeltakwtError, match="are not held; 0 to 5 are"):
        recent.cut(start, end)
