# SPDX-License-Identifier: Apache-2.0
"""Offsets are distributed: each one once, in order, in splits of about equal size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.live.live_planner import plan_ranges, plan_splits
from rmqsource.live.live_queues import LiveQueue, QueueSlice, QueueState
from rmqsource.options.offsets import SPECIFIC, OffsetBound
from rmqsource.scan.predicate import IntRange, ScanPredicate


def state(topic="t", broker="b", queue_id=0, low=0, high=100, **more):
    return QueueState(LiveQueue(topic, broker, queue_id), f"{broker}@x", low, high, **more)


def spans(predicate, *states):
    ranges, missing = plan_ranges(states, predicate)
    return [(part.start, part.end) for part in ranges], [(m.start, m.stop) for m in missing]


@pytest.mark.parametrize(
    ("more", "expected", "gone"),
    [
        ({}, [(10, 100)], []),
        ({"queue_ids": frozenset([1])}, [], []),
        ({"queue_id_range": IntRange(None, 1)}, [(10, 100)], []),
        ({"queue_offset_range": IntRange(20, 30)}, [(20, 30)], []),
        ({"queue_offset_range": IntRange(0, 5)}, [], []),
        ({"queue_offset_range": IntRange(5, 5)}, [], []),
        ({"starting_offsets": OffsetBound(SPECIFIC, {("t", 0): 50})}, [(50, 100)], []),
        ({"starting_offsets": OffsetBound(SPECIFIC, {("t", 0): 3})}, [(10, 100)], [(3, 10)]),
        ({"starting_offsets": OffsetBound(SPECIFIC, {("t", 0): 100})}, [], []),
        ({"starting_offsets": OffsetBound(SPECIFIC, {("t", 0): 105})}, [], [(100, 105)]),
        ({"ending_offsets": OffsetBound(SPECIFIC, {("t", 0): 12})}, [(10, 12)], []),
        ({"ending_offsets": OffsetBound(SPECIFIC, {("t", 0): 900})}, [(10, 100)], []),
        ({"tags": frozenset()}, [], []),
    ],
    ids=str,
)
def test_bounds(more, expected, gone):
    assert spans(ScanPredicate(**more), state(low=10)) == (expected, gone)


def test_times_bound_as_brokers_find_them():
    assert spans(ScanPredicate(), state(from_time=20, to_time=30)) == ([(20, 30)], [])
    assert spans(ScanPredicate(), state(low=25, from_time=0, to_time=900)) == ([(25, 100)], [])


queues = st.lists(st.integers(0, 50_000), max_size=12)


@given(queues, st.integers(1, 8), st.integers(1, 40), st.integers(40, 100), st.booleans())
def test_every_offset_is_in_one_split(counts, parallelism, least, most, whole):
    ranges = [
        QueueSlice(LiveQueue("t", "b", number), "b@x", 7, 7 + count)
        for number, count in enumerate(counts)
    ]
    splits = plan_splits(
        ranges, parallelism=parallelism, min_splits=least, max_splits=most, whole_queues=whole
    )
    parts = [part for split in splits for part in split.ranges]
    joined: list[QueueSlice] = []
    for part in parts:
        if joined and joined[-1].queue == part.queue and joined[-1].end == part.start:
            joined[-1] = joined[-1]._replace(end=part.end)
        else:
            joined.append(part)
    assert joined == [part for part in ranges if part.messages]
    assert len(splits) <= most
    if whole:
        assert len(parts) == len(joined)
        return
    total = sum(counts)
    assert len(splits) >= min(least, total) // 2
    sizes = [sum(part.messages for part in split.ranges) for split in splits]
    assert all(size == sizes[0] for size in sizes[:-1])
