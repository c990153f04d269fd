# SPDX-License-Identifier: Apache-2.0
"""Masks over frames and columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rmqsource.options.offsets import OffsetBound
from rmqsource.scan.predicate import IntRange, ScanPredicate
from rmqsource.scan.row_filter import (
    bounds_queue_offsets,
    column_mask,
    frame_mask,
    needs_properties,
    queue_offset_mask,
)
from store_core import native
from store_core.arrow import are_among
from store_core.codec.record_frames import RecordFrames
from tests.store_factory import StoreFactory

TOPICS = ("Orders", "Pläne", "%RETRY%g", "Orders2")


@pytest.fixture(autouse=True, params=[None, native.built()], ids=["NumPy", "kernel"])
def kernel(request, monkeypatch):
    if request.param is None and request.param_index:
        pytest.skip("no kernel was built")
    monkeypatch.setattr(native, "kernel", request.param)


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    factory = StoreFactory(tmp_path_factory.mktemp("x"), segment_bytes=1 << 16)
    for number in range(40):
        factory.add(TOPICS[number % 4], queue_id=number % 3, sys_flag=4 * (number % 4))
    data = np.frombuffer(bytes(factory.data), np.uint8)
    starts = np.array([r.commit_log_offset for r in factory.records], np.int64)
    return RecordFrames(data, 0, starts), factory.records


def rows(frames, predicate, undispatched=True):
    return np.flatnonzero(frame_mask(frames[0], predicate, undispatched=undispatched)).tolist()


def wanted(frames, test):
    return [n for n, record in enumerate(frames[1]) if test(n, record)]


def test_records_that_are_never_dispatched(frames):
    kept = rows(frames, ScanPredicate(), undispatched=False)
    assert kept == wanted(frames, lambda n, _: n % 4 in {0, 2})
    assert len(rows(frames, ScanPredicate())) == 40


@pytest.mark.parametrize("topics", [{"Orders"}, {"Pläne", "Orders2"}, {"nope"}, set(), {"\ud800"}])
def test_topics(frames, topics):
    found = rows(frames, ScanPredicate(topics=frozenset(topics)))
    assert found == wanted(frames, lambda n, _: TOPICS[n % 4] in topics)


def test_topics_are_compared_as_they_are_shown(tmp_path):
    factory = StoreFactory(tmp_path, segment_bytes=1 << 16)
    factory.add("badX")
    factory.add("bad\ufffd")
    factory.add("good")
    data = np.frombuffer(bytes(factory.data).replace(b"badX", b"bad\xff"), np.uint8)
    starts = np.array([r.commit_log_offset for r in factory.records], np.int64)
    shown = RecordFrames(data, 0, starts), factory.records
    assert rows(shown, ScanPredicate(topics=frozenset({"bad\ufffd"}))) == [0, 1]
    assert rows(shown, ScanPredicate(topics=frozenset({"bad\ufffd", "good"}))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("Orders", {"Orders"}),
        ("Orders.?", {"Orders", "Orders2"}),
        (".*ä.*", {"Pläne"}),
        ("x", set()),
    ],
)
def test_patterns_match_whole_names(frames, pattern, matching):
    found = rows(frames, ScanPredicate(topic_pattern=pattern))
    assert found == wanted(frames, lambda n, _: TOPICS[n % 4] in matching)


def test_ranges(frames):
    record = frames[1][17]
    time, place = record.store_timestamp, record.commit_log_offset
    for predicate, test in (
        (ScanPredicate(queue_ids=frozenset({0, 2})), lambda n, r: n % 3 != 1),
        (ScanPredicate(queue_ids=frozenset({1, 2})), lambda n, r: n % 3 >= 1),
        (ScanPredicate(queue_ids=frozenset()), lambda n, r: False),
        (ScanPredicate(queue_id_range=IntRange(1, None)), lambda n, r: n % 3 >= 1),
        (ScanPredicate(queue_id_range=IntRange(None, 0)), lambda n, r: False),
        (ScanPredicate(store_time_ms=IntRange(time, time + 1)), lambda n, r: n == 17),
        (ScanPredicate(commit_log_offset_range=IntRange(None, place)), lambda n, r: n < 17),
        (ScanPredicate(queue_offset_range=IntRange(2, 3)), lambda n, r: r.queue_offset == 2),
    ):
        assert rows(frames, predicate) == wanted(frames, test)


def test_offsets_bound_named_queues_only(frames):
    start = OffsetBound("specific", {("Pläne", 1): 2, ("nope", 0): 7})
    end = OffsetBound("specific", {("Orders", 0): 1})
    predicate = ScanPredicate(starting_offsets=start, ending_offsets=end)

    def test(n, record):
        queue = (TOPICS[n % 4], record.queue_id)
        low = record.queue_offset >= start.offsets.get(queue, 0)
        return low and record.queue_offset < end.offsets.get(queue, 99)

    assert rows(frames, predicate) == wanted(frames, test)
    assert len(wanted(frames, test)) < 40


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_topics_as_text_or_as_stored(kind):
    topics = pa.array(["Pläne", "Orders"]).cast(kind)
    bound = ScanPredicate(starting_offsets=OffsetBound("specific", {("Pläne", 0): 5}))
    ids, offsets = np.zeros(2, np.int32), np.array([4, 4])
    assert queue_offset_mask(topics, ids, offsets, bound).tolist() == [False, True]


class RecordedPredicate:
    """A predicate without conditions, which records the conditions it was asked for."""

    def __init__(self):
        self.asked = set()

    def __getattr__(self, name):
        self.asked.add(name)


def test_each_condition_on_columns_needs_properties():
    """A scan for a condition that is missing there would return all rows."""
    filtered, needed = RecordedPredicate(), RecordedPredicate()
    column_mask(None, 0, filtered)
    needs_properties(needed)
    assert "tags" in filtered.asked <= needed.asked


def test_what_has_to_be_looked_at():
    assert not needs_properties(ScanPredicate(topics=frozenset("a")))
    assert needs_properties(ScanPredicate(tags=frozenset()))
    assert not bounds_queue_offsets(ScanPredicate(starting_offsets=OffsetBound("earliest")))
    assert bounds_queue_offsets(ScanPredicate(queue_offset_range=IntRange(1, None)))


class _Columns:
    def __init__(self):
        self.values = {
            "tags": pa.array(["a", None, "b", "a"]),
            "unique_key": pa.array(["u", None, "w", ""]),
            "message_id": pa.array(["M1", "M2", "M3", "M4"]),
            "keys": pa.array([["k", "k"], None, [], ["x", "k", "w"]], pa.list_(pa.string())),
        }

    def column(self, name):
        return self.values[name]

    def are_among(self, name, texts):
        return are_among(self.values[name], texts)


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (ScanPredicate(), [0, 1, 2, 3]),
        (ScanPredicate(tags=frozenset({"a"})), [0, 3]),
        (ScanPredicate(tags=frozenset()), []),
        (ScanPredicate(unique_keys=frozenset({"", "w"})), [2, 3]),
        (ScanPredicate(message_ids=frozenset({"M2"})), [1]),
        (ScanPredicate(keys=frozenset({"k"})), [0, 3]),
        (ScanPredicate(key_equals=frozenset({"w"})), [2, 3]),
        (ScanPredicate(keys=frozenset({"k"}), tags=frozenset({"b"})), []),
        (ScanPredicate(keys=frozenset({"\ud800"})), []),
    ],
)
def test_columns(predicate, kept):
    assert np.flatnonzero(column_mask(_Columns(), 4, predicate)).tolist() == kept


def test_sliced_lists():
    columns = _Columns()
    columns.values["keys"] = columns.values["keys"].slice(2)
    assert column_mask(columns, 2, ScanPredicate(keys=frozenset({"x"}))).tolist() == [False, True]
