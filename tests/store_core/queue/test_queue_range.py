# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.queue.queue_range import QueueRange
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden
from tests.store_factory import StoreFactory

SEGMENT = 2048


def ranges(root, end_offset=None, config=None):
    with StoreSnapshot(root, config, end_offset) as view:
        return {key: view.queue_range(*key) for key in view.queue_paths}


@pytest.mark.parametrize("name", STORE_NAMES)
def test_ranges_are_those_of_rocketmq(name):
    store = golden(name, recovered=name in RECOVERED_NAMES)
    config = MessageStoreConfig.from_properties(store.config_properties)
    found = ranges(store.root, config=config)
    rows = [r for r in store.dump("consume_queue") if r["type"] == "SimpleCQ"]
    assert {key: value[:2] for key, value in found.items()} == {
        (r["topic"], r["queue_id"]): (r["min_offset"], r["max_offset"]) for r in rows
    }
    ends = [unit[0] + unit[1] for row in rows for unit in row["units"][-1:]]
    assert max((r.last_end for r in found.values()), default=0) == max(ends, default=0)


@pytest.fixture
def store(tmp_path):
    factory = StoreFactory(tmp_path / "store", segment_bytes=SEGMENT)
    for _ in range(50):
        factory.add()
    return factory


def test_units_behind_the_end_of_the_log_do_not_count(store):
    root = store.write()
    for count in (0, 1, 2, 17, 49, 50):
        ends = [r.commit_log_offset + r.total_size for r in store.records]
        end = ends[count - 1] if count else 0
        (found,) = ranges(root, end).values()
        assert found.max_offset == count
        if count:
            last = store.records[count - 1]
            assert found == QueueRange(0, count, last.commit_log_offset, end)


@pytest.mark.parametrize("bad", [[24], [25, 37], [5, 24, 25, 26, 27, 37, 43, 46]])
def test_units_of_damaged_records_hide_no_units_after_them(store, bad):
    """Also if the last unit belongs to a damaged record: then it is not known whether it counts."""
    for number in [*bad, 49]:
        store.data[store.records[number].commit_log_offset + 4] ^= 0xFF
    end = store.end_offset
    (found,) = ranges(store.write(), end).values()
    last = store.records[48]
    assert found == QueueRange(0, 49, last.commit_log_offset, store.records[49].commit_log_offset)


@pytest.mark.parametrize("phantoms", [1, 5, 40])
def test_phantom_units_into_the_middle_of_records_do_not_count(store, phantoms):
    units = store.queues["TopicA", 0]
    units += [(units[i][0] + 3, units[i][1], 0) for i in range(phantoms)]
    (found,) = ranges(store.write()).values()
    assert found[:2] == (0, 50)


def test_units_that_point_at_records_of_another_queue_do_not_count(store):
    other = [store.add("TopicB") for _ in range(3)]
    units = store.queues["TopicA", 0]
    units += [(r.commit_log_offset, r.total_size, 0) for r in other]
    found = ranges(store.write())
    assert found["TopicA", 0][:2] == (0, 50)
    assert found["TopicB", 0][:2] == (0, 3)


def test_light_queues_hold_records_of_other_topics(store):
    store.queues["%LMQ%x", 0] = store.queues["TopicA", 0][:7]
    assert ranges(store.write())["%LMQ%x", 0][:2] == (0, 7)


def test_units_of_lost_segments_count(store):
    root = store.write()
    store.segment_path(SEGMENT).unlink()
    (found,) = ranges(root).values()
    assert found[:2] == (0, 50)


def test_units_of_expired_and_of_lost_last_segments_do_not(store):
    root = store.write()
    store.segment_path(0).unlink()
    gone = sum(r.commit_log_offset < SEGMENT for r in store.records)
    (found,) = ranges(root).values()
    assert found[:2] == (gone, 50)
    store.segment_path(2 * SEGMENT).unlink()
    (found,) = ranges(root).values()
    assert found[:2] == (gone, sum(r.commit_log_offset < 2 * SEGMENT for r in store.records))


@pytest.mark.parametrize(
    "unit", [(-1, 100, 0), (2**62, 100, 0), (2**63 - 1, 2**31 - 1, 0), (5, -1, 0)]
)
def test_impossible_units_do_not_count(store, unit):
    store.queues["TopicA", 0].append(unit)
    (found,) = ranges(store.write()).values()
    assert found[:2] == (0, 50)


def test_a_queue_without_units(store):
    store.queues["Empty", 3] = []
    assert ranges(store.write())["Empty", 3] == QueueRange(0, 0)


def test_a_directory_whose_name_is_no_utf8(store):
    root = store.write()
    queues = root / "consumequeue"
    try:
        (queues / "TopicA").rename(queues / os.fsdecode(b"\xff\xfe"))
    except OSError:
        pytest.skip("this filesystem takes UTF-8 names only")
    (found,) = ranges(root).values()
    assert found == QueueRange(0, 0)
