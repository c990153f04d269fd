from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.staged_commit.staged_records import place


@given(
    st.lists(st.integers(1, 40), max_size=40),
    st.integers(0, 200),
    st.sampled_from([48, 64, 100]),
    st.integers(0, 40),
)
def test_records_lie_where_one_by_one_appends_put_them(sizes, position, segment, cut):
    expected, at = [], position
    for size in sizes:
        if segment - at % segment < size + 8:
            at += segment - at % segment
        expected.append(at)
        at += size
    found = []
    for part in (sizes[:cut], sizes[cut:]):  # as blocks come, one after the other
        runs, position = place(np.array(part, np.int32), position, segment)
        for first, stop, offset in runs:
            ends = np.cumsum(part[first:stop]).tolist()
            found += [offset + end - size for end, size in zip(ends, part[first:stop])]
    assert (found, position) == (expected, at)


def test_a_record_that_fits_no_segment_is_refused():
    with pytest.raises(ValueError, match="57 bytes do not fit a segment of 64"):
        place(np.array([3, 57], np.int32), 5, 64)
