"""Sets of ranges against Python's sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.tools.check.queue_units import OffsetRanges

numbers = st.integers(0, 40)


@given(st.lists(st.sets(numbers)), numbers, numbers)
def test_holes_are_what_is_not_in_the_set(parts: list[set[int]], start: int, stop: int) -> None:
    ranges = OffsetRanges()
    for part in parts:
        ranges.add_sorted(np.array(sorted(part), np.int64))
    held = set().union(*parts)
    assert [n for a, b in ranges.ranges() for n in range(a, b)] == sorted(held)
    holes = [n for a, b in ranges.holes(start, stop) for n in range(a, b)]
    assert holes == [n for n in range(start, stop) if n not in held]


def test_what_grows_at_the_end_is_one_range() -> None:
    ranges = OffsetRanges()
    for start in range(0, 1000, 10):
        ranges.add_sorted(np.arange(start, start + 10))
    assert ranges.ranges() == [(0, 1000)]
