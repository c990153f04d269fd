# SPDX-License-Identifier: Apache-2.0
"""Splits: their number and size, and that they have each part once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.scan.splits import (
    Split,
    SplitLimits,
    clip_ranges,
    group_parts,
    merge_splits,
    outside,
    place_records,
    slices_of,
    total_bytes,
)
from store_core.files.segment_list import Segment, SegmentList

KIB = 1024
ranges = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 30)).map(lambda r: (r[0], sum(r))))


def segments(count, size=KIB, missing=()):
    held = [Segment(n * size, f"s{n}", size) for n in range(count) if n not in missing]
    return SegmentList(tuple(held), size)


@given(st.lists(st.integers(1, 5000), max_size=60), st.integers(1, 6000), st.integers(1, 20))
def test_groups_hold_every_part_in_order(lengths, target, most):
    parts = [(f"part{n}", length) for n, length in enumerate(lengths)]
    splits = group_parts("store", parts, target, most)
    assert [part for split in splits for part in split.parts] == [name for name, _ in parts]
    assert len(splits) <= most
    assert all(split.parts for split in splits)


def test_ten_thousand_segments_fit_four_thousand_splits():
    parts = [(n, 1 << 30) for n in range(10_000)]
    target = SplitLimits(128 << 20, 1, 4000, 2).target_bytes(10_000 << 30)
    splits = group_parts("store", parts, target, 4000)
    assert len(splits) == 4000
    assert {len(split.parts) for split in splits} == {2, 3}


def test_a_bound_of_splits_never_makes_a_split_empty():
    splits = group_parts("store", [("a", 0), ("b", 0), ("c", 0)], 1, 2)
    assert [part for split in splits for part in split.parts] == ["a", "b", "c"]


@given(st.integers(0, 50), st.integers(1, 60))
def test_merging_splits(have, want):
    splits = [Split("store", (n,)) for n in range(have)]
    merged = merge_splits(splits, want)
    assert len(merged) == min(have, want)
    assert [part for split in merged for part in split.parts] == list(range(have))


def test_sizes_of_splits():
    limits = SplitLimits(128 << 20, 1, 4000, 4)
    assert limits.target_bytes(0) == 1
    assert limits.target_bytes(1 << 20) == 1 << 20, "not cut for the sake of balance"
    assert limits.target_bytes(256 << 20) == 64 << 20, "all four cores get one"
    assert SplitLimits(128 << 20, 10, 4000, 1).target_bytes(1000) == 100
    assert SplitLimits(100, 1, 3, 1).target_bytes(1000) == 334


@given(ranges, st.integers(1, 5000), st.sampled_from([(), (1,), (0, 2)]))
def test_slices_cover_the_ranges_that_exist(asked, target, missing):
    log = segments(4, 32, missing)
    wanted = clip_ranges(asked, 0, 120)
    covered = set()
    for part in slices_of(log, wanted, 120, target):
        places = set(range(part.start, min(part.stop, part.end_offset)))
        assert places.isdisjoint(covered)
        assert len(places) <= target
        covered |= places
    held = {n for s in log for n in range(s.from_offset, s.from_offset + 32)}
    assert covered == {n for a, b in wanted for n in range(a, b)} & held


def test_lost_segments_are_noted_at_the_one_before():
    parts = slices_of(segments(5, KIB, (2, 3)), [(0, 5 * KIB)], 5 * KIB, 300)
    assert [(p.path, p.missing_bytes) for p in parts if p.missing_bytes] == [("s1", 2 * KIB)]
    before = slices_of(segments(5, KIB, (2, 3)), [(0, 2 * KIB - 1)], 5 * KIB, 300)
    assert not any(part.missing_bytes for part in before)


@given(st.lists(st.integers(0, 4 * KIB - 1), unique=True, max_size=80), st.integers(1, 500))
def test_records_are_placed_by_segment(at, target):
    offsets = np.array(sorted(at), np.int64)
    sizes = np.full(len(at), 50, np.int64)
    pieces = place_records(segments(4), offsets, sizes, 4 * KIB, target)
    assert [offset for piece, _ in pieces for offset in piece.array().tolist()] == offsets.tolist()
    for piece, length in pieces:
        assert (piece.array() // KIB == piece.from_offset // KIB).all()
        assert length == 50 * len(piece.array())
        assert length < target + 50


@given(ranges, st.integers(0, 60), st.integers(0, 99))
def test_ranges_are_clipped_and_merged(asked, start, stop):
    clipped = clip_ranges(asked, start, stop)
    inside = {n for a, b in asked for n in range(max(a, start), min(b, stop))}
    assert {n for a, b in clipped for n in range(a, b)} == inside
    assert total_bytes(clipped) == len(inside)
    assert all(b < c for (_, b), (c, _) in zip(clipped, clipped[1:]))
    keep = outside(np.arange(130), clipped)
    assert np.flatnonzero(~keep).tolist() == sorted(inside)
