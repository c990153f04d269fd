# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import arrow
from store_core.arrow import binary_parts, fixed_width_strings, gather_binary, replace_rows
from store_core.codec.group_ranks import group_ranks


@st.composite
def pieces(draw):
    """Return bytes and ascending ranges in them that do not overlap."""
    data = draw(st.binary(max_size=60))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return data, list(zip(cuts[0::2], cuts[1::2]))


def gathered(data, ranges):
    starts = np.array([a for a, _ in ranges], np.int64)
    lengths = np.array([b - a for a, b in ranges], np.int64)
    return gather_binary(np.frombuffer(data, np.uint8), starts, lengths)


@settings(deadline=None)
@given(pieces())
def test_ranges_are_copied(data_and_ranges):
    data, ranges = data_and_ranges
    array = gathered(data, ranges)
    array.validate(full=True)
    assert array.type == pa.binary()
    assert array.to_pylist() == [data[a:b] for a, b in ranges]


def test_a_span_over_the_limit_is_gathered_in_parts(monkeypatch):
    monkeypatch.setattr(arrow, "_MAX_SPAN", 7)
    data = bytes(range(40))
    ranges = [(0, 3), (3, 3), (5, 9), (20, 22), (38, 40)]
    assert gathered(data, ranges).to_pylist() == [data[a:b] for a, b in ranges]


def test_the_result_outlives_the_bytes():
    data = bytearray(b"abcdef")
    array = gathered(data, [(1, 3)])
    data[:] = b"xxxxxx"
    assert array.to_pylist() == [b"bc"]


@given(st.lists(st.binary(max_size=5)), st.integers(0, 5), st.integers(0, 5))
def test_parts_of_a_sliced_array(values, skip, length):
    array = pa.array(values, pa.binary()).slice(min(skip, len(values)), length)
    offsets, data = binary_parts(array)
    bounds = offsets.tolist() if len(array) else []
    assert [bytes(data[a:b]) for a, b in zip(bounds, bounds[1:])] == array.to_pylist()


@pytest.mark.parametrize("rows", [[], ["ab"], ["ab", "cd", "  "]])
def test_fixed_width_rows_become_strings(rows):
    codes = np.array([list(row.encode()) for row in rows], np.uint8).reshape(len(rows), 2)
    array = fixed_width_strings(codes)
    array.validate(full=True)
    assert array.to_pylist() == rows


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1), st.data())
def test_rows_are_replaced(values, data):
    rows = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    new = [-row for row in rows]
    replaced = replace_rows(
        pa.array(values, pa.int64()), np.array(rows, np.int64), pa.array(new, pa.int64())
    )
    expected = [-i if i in rows else value for i, value in enumerate(values)]
    assert replaced.to_pylist() == expected


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
