from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.group_ranks import group_ranks


@given(st.lists(st.integers(0, 4), max_size=30), st.sampled_from([5, 100_000]))
def test_rows_are_numbered_within_their_group(codes, groups):
    seen, expected = {}, []
    for code in codes:
        expected.append(seen.get(code, 0))
        seen[code] = seen.get(code, 0) + 1
    ranks, counts = group_ranks(np.array(codes, np.int32), groups)
    assert ranks.tolist() == expected
    assert counts.tolist() == [seen.get(code, 0) for code in range(groups)]


def test_one_group_and_none():
    assert group_ranks(np.zeros(3, np.int32), 1)[0].tolist() == [0, 1, 2]
    assert group_ranks(np.zeros(0, np.int32), 0)[1].tolist() == []
