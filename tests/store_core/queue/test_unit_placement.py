# SPDX-License-Identifier: Apache-2.0
"""Units computed for a few records, one by one, are the same as in columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.layout import CQ_UNIT
from store_core.queue.dispatch_request import DispatchRequests
from store_core.queue.unit_placement import few_units, place_units

_SMALL = st.integers(-2, 8)
_ROW = st.tuples(
    st.sampled_from([0, 0, 0, 0, 1, -1]),  # how far the queue offset is from the next one
    st.sampled_from([0, 0, 0, 3, -1]),  # and the record
    st.sampled_from([7, 7, 100, 1 << 22, 0, -5]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)


def _requests(rows: list[tuple[int, int, int, int]], queue_offset: int) -> DispatchRequests:
    offsets, starts, sizes, codes, at = [], [], [], [], 0
    for number, (step, gap, size, code) in enumerate(rows):
        offsets.append(queue_offset + number + step)
        starts.append(at + gap)
        sizes.append(size)
        codes.append(code)
        at += gap + size
    count = len(rows)
    return DispatchRequests(
        topics=["t"],
        topic_code=np.zeros(count, np.int32),
        queue_id=np.zeros(count, np.int32),
        queue_offset=np.array(offsets, np.int64),
        commit_log_offset=np.array(starts, np.int64),
        message_size=np.array(sizes, np.int32),
        tags_code=np.array(codes, np.int64),
        store_timestamp=np.zeros(count, np.int64),
        base_queue_offset=np.array(offsets, np.int64),
        batch_size=np.ones(count, np.int16),
        transaction_type=np.zeros(count, np.int32),
        light=np.zeros(count, bool),
    )


def _units(rows: DispatchRequests) -> bytes:
    units = np.empty(len(rows), CQ_UNIT.dtype)
    units["commit_log_offset"] = rows.commit_log_offset
    units["message_size"] = rows.message_size
    units["tags_code"] = rows.tags_code
    return units.tobytes()


@given(
    rows=st.lists(_ROW, max_size=20),
    next_offset=st.sampled_from([0, 5, (1 << 58) - 3]),
    shift=st.sampled_from([0, 0, 0, 1, -1]),
    max_physic_offset=_SMALL,
)
def test_they_are_those_of_the_columns(
    rows: list[tuple[int, int, int, int]], next_offset: int, shift: int, max_physic_offset: int
) -> None:
    requests = _requests(rows, next_offset + shift)
    found = few_units(requests, next_offset, max_physic_offset)
    if found is None:
        return
    placed = place_units(requests, next_offset, max_physic_offset)
    assert (placed.start, placed.counts.units) == (next_offset, len(rows))
    assert sum(placed.counts) == len(rows)
    assert found == _units(placed.rows)


def test_records_that_follow_are_taken_one_by_one() -> None:
    rows = [(0, 0, 7, 1), (0, 0, 100, -1)]
    assert few_units(_requests(rows, 5), 5, 0) == _units(_requests(rows, 5))
    assert few_units(_requests(rows, 6), 5, 0) is None
    assert few_units(_requests(rows, 5), 5, 1) is None
    assert few_units(_requests(rows * 9, 5), 5, 0) is None
    assert few_units(_requests([], 5), 5, 0) is None
