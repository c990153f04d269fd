from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.message_codec import encode_blank
from store_core.codec.record_frames import is_record, magic_code_hits, walk_records
from store_core.layout.message import MESSAGE_MAGIC_CODE, RECORD_PREFIX
from tests.store_core.codec.record_strategies import record_lists
from tests.store_core.codec.test_record_frames import decoded

ALL = 10**9


def as_array(data):
    return np.frombuffer(bytes(data), np.uint8)


@settings(max_examples=60, deadline=None)
@given(record_lists, st.integers(1, 4), st.integers(1, 400))
def test_batches_follow_each_other(placed, rows, size):
    data, positions, records = placed
    at, found = 0, []
    while at < len(data):
        walk = walk_records(data, at, len(data), rows, size)
        assert 0 < len(walk.starts) <= rows
        assert not walk.failed
        assert not walk.blank
        last = records[len(found) + len(walk.starts) - 1].total_size
        assert walk.stop - at - last < size
        found += walk.starts.tolist()
        at = walk.stop
    assert found == positions.tolist()


@settings(max_examples=60, deadline=None)
@given(record_lists, st.data())
def test_records_that_start_behind_stop_are_not_walked(placed, draw):
    data, positions, _ = placed
    stop = draw.draw(st.integers(0, len(data)))
    walk = walk_records(data, 0, stop, ALL, ALL)
    assert walk.starts.tolist() == [at for at in positions.tolist() if at < stop]


@settings(max_examples=60, deadline=None)
@given(record_lists, st.integers(0, 9))
def test_a_blank_record_and_a_failure_stop_the_walk(placed, left):
    data, positions, _ = placed
    blank = walk_records(as_array(data.tobytes() + encode_blank(8 + left)), 0, ALL, ALL, ALL)
    assert (blank.starts.tolist(), blank.stop) == (positions.tolist(), len(data))
    assert (blank.blank, blank.failed) == (True, False)
    zeros = walk_records(as_array(data.tobytes() + bytes(left)), 0, ALL, ALL, ALL)
    assert (zeros.stop, zeros.blank, zeros.failed) == (len(data), False, left > 0)


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 90])
def test_an_impossible_size_fails(size):
    data = RECORD_PREFIX.pack(total_size=size, magic_code=MESSAGE_MAGIC_CODE) + bytes(200)
    walk = walk_records(as_array(data), 0, len(data), 10, ALL)
    assert (len(walk.starts), walk.stop, walk.failed) == (0, 0, True)


@settings(max_examples=40, deadline=None)
@given(record_lists, st.binary(max_size=12))
def test_every_record_is_among_the_hits_and_judged_as_by_the_scalar_codec(placed, garbage):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    moved = as_array(garbage + data.tobytes())
    hits = list(magic_code_hits(moved))
    assert hits == sorted(hits)
    assert {at + len(garbage) for at in positions.tolist()} <= set(hits)
    for at in hits:
        offset = base - len(garbage) + at
        is_one = decoded(moved, at, offset) is not None
        assert is_record(moved, base - len(garbage), at) == is_one


@given(st.binary(max_size=120), st.integers(-5, 130))
def test_garbage_is_no_record(data, at):
    assert not is_record(as_array(data), 0, at)
