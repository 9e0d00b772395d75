"""Hits of overlapping windows become words with a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.events import Event, Hit, find_events


def hits(label: str, first: int, *scores: float) -> list[Hit]:
    return [Hit(first + i, label, score) for i, score in enumerate(scores) if score]


def test_one_word_heard_by_many_windows_is_one_event() -> None:
    (event,) = find_events(hits("yes", 10, 0.7, 0.8, 0.9, 0.7))
    assert event == Event("yes", 0.9, pytest.approx(1.3), pytest.approx(2.0))


def test_a_short_gap_does_not_split_a_word() -> None:
    assert len(find_events(hits("yes", 0, 0.9, 0.9, 0, 0, 0.9, 0.9))) == 1


def test_the_same_word_twice_is_two_events() -> None:
    twice = hits("go", 0, 0.9, 0.9, 0.9, 0.9) + hits("go", 12, 0.9, 0.9, 0.9, 0.9)
    first, second = find_events(twice)
    assert first.end < second.start + 0.5
    run = hits("go", 0, 0.9, 0.9, 0.9, 0.9, 0.8, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9)
    assert len(find_events(run)) == 2  # no window shares sound with all of these


def test_lonely_hits_are_no_word() -> None:
    assert find_events(hits("up", 0, 0.9)) == []
    assert find_events(hits("up", 0, 0.9, 0, 0, 0, 0.9, 0, 0, 0, 0.9, 0, 0, 0, 0.9)) == []
    assert find_events([]) == []


def test_a_sound_of_few_windows_needs_half_of_them() -> None:
    one, two, three = (hits("up", 0, *[0.9] * count) for count in (1, 2, 3))
    assert len(find_events(one, windows=2)) == 1
    assert find_events(one, windows=3) == []
    assert len(find_events(two, windows=4)) == 1
    assert find_events(three, windows=40) == []


def test_of_two_words_in_the_same_sound_the_surer_stays() -> None:
    both = hits("stop", 0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9) + hits("up", 6, 0.8, 0.8, 0.8, 0.8)
    both.sort(key=lambda hit: hit.window)
    labels = [event.label for event in find_events(both)]
    assert labels[0] == "stop"


@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.sampled_from(["yes", "no"]), st.floats(0.5, 1.0)),
        max_size=60,
        unique_by=lambda hit: hit[0],
    )
)
def test_events_are_ordered_and_lie_in_the_sound(found: list[tuple[int, str, float]]) -> None:
    ordered = [Hit(*hit) for hit in sorted(found)]
    events = find_events(ordered)
    assert events == sorted(events, key=lambda event: (event.start, event.end))
    for event in events:
        assert 0 <= event.start < event.end <= 9.0
        assert event.end - event.start >= 0.5 - 1e-9
        assert event.score in {hit.score for hit in ordered if hit.label == event.label}
