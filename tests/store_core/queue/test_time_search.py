# SPDX-License-Identifier: Apache-2.0
"""Offsets by time, against a walk over all messages."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import StoreConfigError, StoreSnapshot
from store_core.layout import HEADER_IPV4
from store_core.queue.batch_consume_queue import NATIVE_BATCH_CQ_UNIT
from store_core.queue.readable_queue import LOWER, UPPER, BatchQueue
from tests.examples import examples
from tests.store_factory import START_MS, StoreFactory


def _expected(times, time, boundary):
    if boundary == "lower":
        return sum(t < time for t in times)
    return max(sum(t <= time for t in times) - 1, 0)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=120), st.sampled_from([16, 50]))
def test_equals_a_walk(steps, units_per_file):
    times = [START_MS + sum(steps[: i + 1]) for i in range(len(steps))]
    with tempfile.TemporaryDirectory() as folder:
        factory = StoreFactory(Path(folder), units_per_file=units_per_file)
        for time in times:
            factory.add(store_timestamp=time)
        with StoreSnapshot(str(factory.write())) as snapshot:
            for time in range(START_MS - 1, times[-1] + 2):
                for boundary in ("lower", "upper"):
                    found = snapshot.get_offset_in_queue_by_time("TopicA", 0, time, boundary)
                    assert found == _expected(times, time, boundary)


def test_lost_segments_are_passed_over(tmp_path):
    factory = StoreFactory(tmp_path, units_per_file=200)
    for _ in range(150):
        factory.add(body=bytes(100))
    root = factory.write()
    for offset in (4096, 8192, 12288, 16384):
        factory.segment_path(offset).unlink()
    held = [r for r in factory.records if not 4096 <= r.commit_log_offset < 20480]
    with StoreSnapshot(root) as snapshot:
        for record in held:
            found = snapshot.get_offset_in_queue_by_time("TopicA", 0, record.store_timestamp)
            assert found == record.queue_offset
        last = held[-1]
        after = snapshot.get_offset_in_queue_by_time("TopicA", 0, last.store_timestamp + 1)
        assert after == 150


@pytest.mark.parametrize("said", [4_102_444_800_000, 1_600_000_000_000, 0])
def test_one_damaged_time_misleads_no_search(tmp_path, said):
    factory = StoreFactory(tmp_path, units_per_file=200, step_ms=60_000)
    for _ in range(100):
        factory.add()
    root = factory.write()
    for damaged in (1, 24, 49, 50, 51, 74, 98):
        record = factory.records[damaged]
        path = factory.segment_path(record.commit_log_offset)
        whole = path.read_bytes()
        at = record.commit_log_offset % factory.segment_bytes + HEADER_IPV4.at("store_timestamp")
        path.write_bytes(whole[:at] + said.to_bytes(8, "big") + whole[at + 8 :])
        with StoreSnapshot(root) as snapshot:
            for other in factory.records:
                if other is not record:
                    found = snapshot.get_offset_in_queue_by_time("TopicA", 0, other.store_timestamp)
                    assert found == other.queue_offset, damaged
        path.write_bytes(whole)


@pytest.mark.parametrize("said", [4_102_444_800_000, 1_600_000_000_000, 0, -5])
def test_one_damaged_time_misleads_no_search_of_a_batch_queue(said):
    units = np.zeros(20, NATIVE_BATCH_CQ_UNIT)
    units["base_queue_offset"], units["batch_size"] = np.arange(20) * 3, 3
    times = START_MS + np.arange(20) * 60_000
    for damaged in range(20):
        units["store_timestamp"] = times
        units["store_timestamp"][damaged] = said
        queue = BatchQueue(units, 100, 0)
        for other, time in enumerate(times.tolist()):
            if other != damaged and damaged - other != 1:
                found = queue.offset_by_time(time, UPPER, None)
                assert found == other * 3, damaged
            if other != damaged and (damaged, other) != (0, 1):
                found = queue.offset_by_time(time, LOWER, None)
                assert found == other * 3, damaged


def test_unknown_boundary_and_queue(tmp_path):
    factory = StoreFactory(tmp_path)
    factory.add()
    with StoreSnapshot(str(factory.write())) as snapshot:
        assert snapshot.get_offset_in_queue_by_time("Nope", 0, START_MS) == 0
        with pytest.raises(StoreConfigError, match="'lower' or 'upper'"):
            snapshot.get_offset_in_queue_by_time("TopicA", 0, START_MS, "nearest")
