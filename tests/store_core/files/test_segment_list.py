# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from store_core.files.segment_list import merged_ranges

RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair)))
)


@given(RANGES)
def test_merged_ranges_hold_the_same_numbers_and_touch_nowhere(ranges):
    merged = merged_ranges(ranges)
    held = [number for start, stop in merged for number in range(start, stop)]
    assert held == sorted({number for start, stop in ranges for number in range(start, stop)})
    assert all(a[1] < b[0] for a, b in zip(merged, merged[1:]))
