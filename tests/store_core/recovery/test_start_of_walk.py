# SPDX-License-Identifier: Apache-2.0
"""Where recovery and readers begin after a crash: queues have units of all earlier records."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from store_core import MessageStore, MessageStoreConfig
from store_core.layout import CHECKPOINT
from store_core.log.commit_log import last_begun_by
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.repair.store_recovery import recover_store
from tests.store_factory import StoreFactory

SMALL = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)
KEYS = (("A", 0), ("A", 1), ("B", 0))


def recovered(root):
    recover_store(str(root), SMALL, clock=lambda: 1_800_000_000_000)


def loaded(root):
    store = MessageStore(replace(SMALL, store_path_root_dir=str(root)))
    store.load()
    store.shutdown()


def crash(factory, flushed_ms):
    """Write a store whose checkpoint calls records of a time flushed; return its directory."""
    root = factory.write(abort=b"1")
    numbers = (flushed_ms, flushed_ms, 0, 0, 0, 0)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*numbers).ljust(4096, b"\0"))
    return root


def units(view):
    found = set()
    for key in view.queue_paths:
        held = view.queue_range(*key)
        rows = view.consume_queue(*key).read_units(held.min_offset, held.max_offset)
        found |= set(rows["commit_log_offset"].tolist())
    return found


def set_back_before_a_segment(root):
    """A store whose last segment is all of one topic, and older than the flushed time."""
    factory = StoreFactory(root, segment_bytes=1024, step_ms=10)
    for number in range(9):
        factory.add("AB"[number % 2])
    flushed_ms = factory.records[-1].store_timestamp
    factory.roll()
    factory.set_back(3_600_000)
    for _ in range(6):
        factory.add("A")
    return factory, flushed_ms


def random_crash(root, seed):
    """A store in which any queue lost its end after the checkpoint; its clock was set back."""
    chance = random.Random(seed)
    factory = StoreFactory(
        root,
        segment_bytes=1024,
        step_ms=chance.choice([1, 500, 5000]),
        units_per_file=16,
    )
    count = chance.randrange(20, 40)
    flushed, set_back = chance.randrange(1, count), chance.randrange(1, count)
    for number in range(count):
        if number == set_back:
            factory.set_back(chance.choice([2000, 70_000, 3_600_000]))
        topic, queue_id = chance.choice(KEYS if number < count * chance.random() else KEYS[:1])
        factory.add(topic, b"b" * chance.randrange(20), queue_id=queue_id)
    last = factory.records[flushed]
    for held in factory.queues.values():
        kept = sum(unit[0] <= last.commit_log_offset for unit in held)
        del held[chance.randrange(kept, len(held) + 1) :]
    return factory, last.store_timestamp


@pytest.mark.parametrize("repair", [recovered, loaded])
def test_a_segment_of_an_older_time_hides_nothing_that_a_queue_lacks(tmp_path, repair):
    factory, flushed_ms = set_back_before_a_segment(tmp_path)
    del factory.queues["B", 0][2:]
    root = crash(factory, flushed_ms)
    repair(root)
    with StoreSnapshot(root, SMALL) as view:
        assert view.queue_range("B", 0).max_offset == 4
        assert units(view) == {record.commit_log_offset for record in factory.records}


def test_readers_do_not_take_a_segment_of_an_older_time_for_dispatched(tmp_path):
    factory, flushed_ms = set_back_before_a_segment(tmp_path)
    del factory.queues["B", 0][2:]
    root = crash(factory, flushed_ms + SMALL.flush_consume_queue_thorough_interval)
    with StoreSnapshot(root, SMALL) as view:
        assert view.dispatched_offset() == 0


def test_readers_believe_a_checkpoint_no_more_than_recovery_does(tmp_path):
    """A unit of a record of the last minute may not have reached the disk."""
    factory = StoreFactory(tmp_path, segment_bytes=1024, step_ms=5000)
    for number in range(30):
        factory.add("AB"[number % 2])
    flushed_ms = factory.records[-1].store_timestamp
    lost = factory.queues["B", 0].pop()
    del factory.queues["A", 0][-1]
    assert lost[0] >= 2048
    root = crash(factory, flushed_ms)
    with StoreSnapshot(root, SMALL) as view:
        proved = view.dispatched_offset()
        assert {r.commit_log_offset for r in factory.records if r.commit_log_offset < proved} <= (
            units(view)
        )
        assert proved > 0


@pytest.mark.parametrize("repair", [recovered, loaded])
def test_no_queue_lacks_a_record_after_any_crash_with_a_clock_set_back(tmp_path, repair):
    for seed in range(60):
        factory, flushed_ms = random_crash(tmp_path / str(seed), seed)
        root = crash(factory, flushed_ms)
        starts = {record.commit_log_offset for record in factory.records}
        with StoreSnapshot(root, SMALL) as view:
            proved = view.dispatched_offset()
            assert {start for start in starts if start < proved} <= units(view), seed
        repair(root)
        with StoreSnapshot(root, SMALL) as view:
            assert units(view) == starts, seed


def test_the_last_segment_begun_by_a_time_where_times_grow(tmp_path):
    factory = StoreFactory(tmp_path, segment_bytes=1024, step_ms=1000)
    for _ in range(60):
        factory.add()
    factory.write()
    end = factory.end_offset
    with StoreSnapshot(tmp_path, SMALL) as view:
        firsts = [record for record in factory.records if record.commit_log_offset % 1024 == 0]
        assert len(firsts) > 4
        for record in firsts:
            begun_ms = record.store_timestamp + 1000  # when the second record says so, too
            assert last_begun_by(view.log, end, begun_ms) == record.commit_log_offset
            before = max(record.commit_log_offset - 1024, 0)
            assert last_begun_by(view.log, end, begun_ms - 1) == before


def test_an_old_segment_that_cannot_be_read_does_not_stop_the_search(tmp_path):
    factory, flushed_ms = set_back_before_a_segment(tmp_path)
    factory.write()
    with StoreSnapshot(tmp_path, SMALL) as view:
        oldest = Path(view.log.segments.find(0).path)
        assert last_begun_by(view.log, factory.end_offset, flushed_ms) == 1024
        view.log.close()
        oldest.unlink()
        assert last_begun_by(view.log, factory.end_offset, flushed_ms - 1) == 1024


def test_the_look_back_is_bounded_however_long_the_log(tmp_path, monkeypatch):
    factory, flushed_ms = set_back_before_a_segment(tmp_path)
    factory.write()
    with StoreSnapshot(tmp_path, SMALL) as view:
        assert last_begun_by(view.log, factory.end_offset, flushed_ms - 1) == 0
        monkeypatch.setattr("store_core.log.commit_log._FARTHEST_BYTES", 32)
        assert last_begun_by(view.log, factory.end_offset, flushed_ms - 1) == 1024
