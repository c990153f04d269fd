"""What bitmaps of extension units prove, in columns as for one message."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core import SqlFilter
from store_core.config.consumer_filter_file import ConsumerFilterData
from store_core.filter.bloom_filter import has_bits
from store_core.filter.consumer_filter_manager import RegisteredFilter
from store_core.filter.message_filter import SqlMessageFilter, proving_filters
from store_core.queue.consume_queue_ext import ExtUnits

BITS = 24
PROVEN_FROM = 5


def registered(expression, positions):
    data = ConsumerFilterData(
        "T", "group", expression, bit_count=BITS, bit_positions=tuple(positions)
    )
    return RegisteredFilter(data, SqlFilter(expression), PROVEN_FROM)


def ext_units(rows):
    """Return units of (bitmap or None, store time), with the bitmaps that have ``BITS``."""
    size = BITS // 8
    units = ExtUnits(
        np.zeros(len(rows), np.int64),
        np.array([time for _, time in rows], np.int64),
        np.ones(len(rows), bool),
        np.array([len(bitmap or b"") for bitmap, _ in rows], np.int64),
        np.zeros((len(rows), size), np.uint8),
    )
    for row, (bitmap, _) in enumerate(rows):
        if bitmap is not None and len(bitmap) == size:
            units.bitmaps[row] = list(bitmap)
    return units


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=4), st.integers(0, 10)), max_size=20),
    st.lists(st.integers(0, BITS - 1), max_size=4),
)
def test_a_bitmap_says_no_where_it_is_believed_and_a_bit_is_missing(rows, positions):
    wanted = SqlMessageFilter(SqlFilter("a = 1"), registered("a = 1", positions))
    assert wanted.bitmap_bytes == BITS // 8
    units = ext_units(rows)
    assert wanted.matches_units(units.tags_code, units).tolist() == [
        bitmap is None
        or len(bitmap) != BITS // 8
        or time <= PROVEN_FROM
        or has_bits(bitmap, positions)
        for bitmap, time in rows
    ]


def test_only_groups_with_the_same_expression_prove_something():
    same, spaced = registered("a = 1", [3]), registered("a =  1", [4])
    unparsed = RegisteredFilter(same.data, None, 0)
    wordy = registered("a CONTAINS 'x'", [5])
    entries = [same, spaced, unparsed, wordy, same]
    found = proving_filters(SqlFilter("a = 1"), entries)
    assert [each.bitmap_bytes for each in found] == [3, 3]
    for other in (SqlFilter("a = 1", 4), SqlFilter("a CONTAINS 'x'"), SqlFilter("b = 1")):
        assert proving_filters(other, entries) == ()
