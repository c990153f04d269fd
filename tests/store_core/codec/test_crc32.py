# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import runpy
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec import crc32 as crc32_module
from store_core.codec.crc32 import crc32_ranges


def laid_out(lengths, gaps, seed=1):
    starts = np.cumsum(np.asarray(lengths) + gaps, dtype=np.int64) - lengths
    ends = starts + lengths
    size = int(ends[-1]) + 3 if len(ends) else 3
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8), starts, ends


def expected(data, starts, ends):
    return [zlib.crc32(data[a:b]) & 0x7FFFFFFF for a, b in zip(starts.tolist(), ends.tolist())]


@given(
    st.lists(st.tuples(st.integers(0, 150), st.integers(0, 40)), max_size=8),
    st.sampled_from([1, 30, 600]),
)
@settings(deadline=None)
def test_any_ranges(sizes, times):
    lengths = np.array([length for length, _ in sizes] * times, np.int64)
    gaps = np.array([gap for _, gap in sizes] * times, np.int64)
    data, starts, ends = laid_out(lengths, gaps)
    assert crc32_ranges(data, starts, ends).tolist() == expected(data, starts, ends)


@pytest.mark.parametrize("length", [*range(0, 70), 100, 127, 128, 129, 1000])
def test_many_of_one_length_without_room_before_them(length):
    data, starts, ends = laid_out(np.full(5000, length, np.int64), np.zeros(5000, np.int64))
    assert crc32_ranges(data, starts, ends).tolist() == expected(data, starts, ends)


def test_more_rows_than_a_block_of_mixed_lengths():
    lengths = np.random.default_rng(2).integers(0, 220, 40_000)
    data, starts, ends = laid_out(lengths, np.full(40_000, 7))
    assert crc32_ranges(data, starts, ends).tolist() == expected(data, starts, ends)


def test_bytes_before_a_range_do_not_count():
    data, starts, ends = laid_out(np.full(3000, 21, np.int64), np.full(3000, 30, np.int64))
    before = crc32_ranges(data, starts, ends)
    inside = np.zeros(len(data), bool)
    for a, b in zip(starts.tolist(), ends.tolist()):
        inside[a:b] = True
    data[~inside] ^= 0xFF
    assert crc32_ranges(data, starts, ends).tolist() == before.tolist()


def test_the_library_that_is_there_is_taken(monkeypatch):
    """With and without zlib-ng the CRC is the same; without it, it is Python's zlib."""
    path = Path(crc32_module.__file__)
    found = runpy.run_path(str(path))["crc32"]
    monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    without = runpy.run_path(str(path))["crc32"]
    assert found.__module__.startswith("zlib_ng")
    assert without is zlib.crc32
    for length in (0, 1, 15, 100, 1000, 1 << 20):
        data = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8)
        assert found(memoryview(data)) == without(memoryview(data)) == zlib.crc32(data)
