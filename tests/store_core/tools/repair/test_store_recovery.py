# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from store_core import MessageStore, MessageStoreConfig, StoreFormatError, StoreNotFoundError
from store_core.errors import LogDamageError, StoreLockedError
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CHECKPOINT, CQ_UNIT, PRE_BLANK_SIZE
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.checkpoint import load_checkpoint
from store_core.state.store_lock import StoreLock
from store_core.tools.repair.rebuild_in_place import rebuild_queues_in_place
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from tests.golden_store import CLUSTER_NAMES, RECOVERED_NAMES, STORE_NAMES, golden
from tests.store_core.queue.test_consume_queue_store import assert_as_dumped, config_of
from tests.store_core.tools.check.support import checked, kinds
from tests.store_core.tools.repair.test_rebuild_index import (
    lost_by_recovery,
    pairs,
    split_by_recovery,
)
from tests.store_factory import START_MS, StoreFactory, small_store

NOW_MS = 1_800_000_000_000
SMALL = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)
INTACT = sorted({*STORE_NAMES, *CLUSTER_NAMES} - {*RECOVERED_NAMES})


def recover(root, config=SMALL, **options):
    planned = plan_recovery(str(root), config)
    result = recover_store(str(root), config, clock=lambda: NOW_MS, **options)
    assert planned.log.log_end == result.log.log_end
    assert planned.log.dispatched_units == result.log.dispatched_units
    assert set(planned.log.queues_cut) == set(result.log.queues_cut)
    assert planned.log.deleted_files == result.log.deleted_files
    assert (planned.index_dropped, planned.index_from_offset) == (
        result.index_dropped,
        result.index_from_offset,
    )
    return result


def files(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def changed(before, after):
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


def opened_queues(root, config=SMALL):
    queues = ConsumeQueueStore(str(root), config)
    queues.load()
    queues.recover()
    queues.correct_min_offsets(0)
    return queues


def units(root):
    """{(topic, queue id): all units} from the files, without reading the log."""
    queues = opened_queues(root)
    return {
        key: [tuple(unit) for unit in queues.find(*key).read_units(0, 1 << 30).tolist()]
        for key in queues.queues()
    }


def log_bytes(root):
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


@pytest.mark.parametrize("name", INTACT)
def test_a_clean_store_stays_as_it_is(name, tmp_path):
    store = golden(name)
    root = store.copy_to(tmp_path)
    before = files(root)
    result = recover(root, config_of(store))
    assert changed(before, files(root)) <= {"checkpoint"}
    assert result.log.dispatched_units == 0
    if not store.is_cluster:
        assert result.log.log_end == store.meta["max_phy_offset"]
        if "5x" in name:
            assert files(root)["checkpoint"] == java_files(store)["checkpoint"]


def java_files(store):
    found = store.document("recovered_files")
    return {name: entry.get("sha256") for name, entry in found.items()}


@pytest.mark.parametrize("name", INTACT)
def test_an_intact_store_that_was_not_stopped(name, tmp_path):
    store = golden(name)
    root = store.copy_to(tmp_path)
    (root / "abort").write_text("77")
    before = files(root)
    result = recover(root, config_of(store))
    # the newest index file is not known to have been flushed: RocketMQ would rebuild it
    assert changed(before, files(root)) <= {"abort", "checkpoint"}
    assert result.index_dropped == ()
    assert pairs(store, root) == pairs(store, store.root)
    assert not (root / "abort").exists()
    assert result.log.dispatched_units == result.log.cut_bytes == 0


@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_crashed_stores_end_as_after_recovery_by_java(name, tmp_path):
    store = golden(name)
    root = store.copy_to(tmp_path)
    result = recover(root, config_of(store), cut=name == "torn-5x")
    assert result.log.log_end == store.meta["max_phy_offset"]
    queues = opened_queues(root, config_of(store))
    assert_as_dumped(store, queues)
    theirs = golden(name, recovered=True)
    before, _, after = split_by_recovery(theirs)
    lost = lost_by_recovery(theirs)
    assert pairs(store, root) == before + lost + after
    checkpoint = load_checkpoint(StoreDirectory(str(root)))
    meta = store.meta["checkpoint"]
    assert checkpoint.confirm_phy_offset == meta["confirm_phy_offset"]
    if name != "crashed-551":  # its index files have fewer entries, and end elsewhere
        assert checkpoint.index_msg_timestamp == meta["index_msg_timestamp"]
    assert checkpoint.physic_msg_timestamp == meta["logics_msg_timestamp"]  # all is flushed
    # where Java leaves old bytes after the cut, here are zeros
    ours, java = files(root), java_files(store)
    cut = {n for n, digest in java.items() if digest and ours.get(n) != digest}
    cut -= {n for n in cut if n.startswith(("index/", "abort", "checkpoint", "rocksdbstore/"))}
    assert len(cut) == (10 if name == "torn-5x" else 0)
    for path in cut:
        mine, old = (root / path).read_bytes(), (theirs.root / path).read_bytes()
        kept = mine.rstrip(b"\0")
        assert len(mine) == len(old)
        assert old.startswith(kept)


def test_a_store_recovered_by_java_loses_its_stale_bytes(tmp_path):
    store = golden("torn-5x", recovered=True)
    root = store.copy_to(tmp_path)
    result = recover(root, config_of(store))
    assert result.log.last_exit_ok
    assert result.log.log_end == 222710
    assert result.log.records_behind == 32
    assert len(result.log.queues_cut) == 9
    assert not log_bytes(root)[222710:].strip(b"\0")
    (copy,) = (root / "_cut").rglob("*222710")  # nothing readable is destroyed
    data = log_bytes(store.root)[222710:].rstrip(b"\0")
    assert copy.is_dir() or copy.read_bytes() == data
    assert recover(root, config_of(store)).log.cut_bytes == 0


def two_records(root, dispatched=12, **sizes):
    factory = StoreFactory(root, **sizes)
    for number in range(12):
        factory.add(
            queue_id=number % 2,
            properties={"KEYS": f"k{number}"},
            dispatched=number < dispatched,
            queue_offset=number // 2,
        )
    return factory


def test_the_record_where_dispatch_stood_gets_its_unit(tmp_path):
    # RocketMQ compares with > after a clean stop, and leaves it out for good
    factory = two_records(tmp_path)
    missing = factory.add(dispatched=False, queue_offset=6)
    root = factory.write()
    result = recover(root)
    assert result.log.last_exit_ok
    assert result.log.dispatched_units == 1
    assert units(root)["TopicA", 0][-1][0] == missing.commit_log_offset


def test_queues_that_are_gone_are_made_again(tmp_path):
    factory = small_store(tmp_path)
    root = factory.write()
    before = units(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    result = recover(root)
    assert result.log.dispatched_units == 60
    assert units(root) == before
    assert result.index_from_offset == 0


def test_a_torn_last_record_is_cut_off(tmp_path):
    factory = two_records(tmp_path)
    end = factory.end_offset
    factory.add(body=b"x" * 300)
    torn = factory.records[-1]
    del factory.data[-200:]
    factory.data += bytes(200)
    root = factory.write(abort=b"1")
    with (root / "checkpoint").open("r+b") as file:  # the log was not forced up to it
        file.write(factory.records[-2].store_timestamp.to_bytes(8, "big"))
    result = recover(root)
    assert result.log.log_end == end
    assert result.log.cut_bytes == torn.total_size - 200
    assert result.log.kept_at == ""  # no record was readable there
    assert log_bytes(root)[end:].strip(b"\0") == b""
    assert result.log.queues_cut == (("TopicA", 0),)
    assert sum(map(len, units(root).values())) == 12


def damaged(root, *, physic_ms, abort=None, confirm=0, at=5, units=12):
    factory = two_records(root, dispatched=units, step_ms=10_000)
    victim = factory.records[at]
    factory.data[victim.commit_log_offset + 90] ^= 0xFF
    factory.write(abort=abort, confirm_phy_offset=confirm)
    times = (physic_ms, physic_ms, 0, 0, confirm)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*times, 0).ljust(4096, b"\0"))
    return factory, victim.commit_log_offset


@pytest.mark.parametrize("abort", [None, b"1"])
def test_readable_records_behind_damage_are_not_cut(tmp_path, abort):
    factory, at = damaged(tmp_path, physic_ms=START_MS + 10**9, abort=abort)
    before = files(tmp_path)
    with pytest.raises(
        LogDamageError, match=r"followed by 6 readable records.*salvage.*--cut"
    ) as caught:
        recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS)
    assert caught.value.position == at
    assert caught.value.records_behind == 6
    assert files(tmp_path) == before
    result = recover(tmp_path, cut=True)
    assert result.log.log_end == at
    assert result.log.records_behind == 6
    assert sum(map(len, units(tmp_path).values())) == 5
    (kept,) = Path(result.log.kept_at).iterdir()
    assert kept.read_bytes() == bytes(factory.data[at:]).rstrip(b"\0")
    with StoreSnapshot(tmp_path, SMALL) as view:
        assert view.end_offset == at


def test_what_was_not_flushed_before_a_crash_is_cut_as_by_rocketmq(tmp_path):
    _, at = damaged(tmp_path, physic_ms=START_MS + 60_000, abort=b"1", units=5)
    result = recover(tmp_path)
    assert result.log.log_end == at
    assert "before the records after it were flushed or dispatched" in result.log.reason
    assert list(Path(result.log.kept_at).iterdir())


def test_an_old_cut_is_no_damage(tmp_path):
    factory = two_records(tmp_path)
    end = factory.records[6].commit_log_offset
    root = factory.write(confirm_phy_offset=factory.records[5].commit_log_offset)
    path = factory.segment_path()
    data = bytearray(path.read_bytes())
    data[end + 90] ^= 0xFF  # the record at which recovery stopped then
    path.write_bytes(data)
    last = factory.records[5]
    numbers = (0, last.store_timestamp, 0, 0, last.commit_log_offset)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*numbers, 0).ljust(4096, b"\0"))
    result = recover(root)
    assert result.log.log_end == end
    assert "confirms the record before it as the last" in result.log.reason
    assert result.log.last_exit_ok


def test_cut_off_records_do_not_come_back(tmp_path):
    # a record of exactly the torn one's size is appended: bytes after it must not join up
    factory, at = damaged(tmp_path, physic_ms=START_MS, abort=b"1", units=5)
    recover(tmp_path)
    path = factory.segment_path(at)
    data = bytearray(path.read_bytes())
    whole = factory.records[5]
    again = bytearray(factory.data[at : at + whole.total_size])
    again[90] ^= 0xFF
    data[at : at + whole.total_size] = again
    path.write_bytes(data)
    result = recover(tmp_path)
    assert result.log.log_end == at + whole.total_size
    assert result.log.cut_bytes == 0


def test_phantom_units_are_cut_before_anything_is_dispatched(tmp_path):
    # as RocketMQ leaves them: after the cut, and the log has grown over the place they point to
    factory = two_records(tmp_path)
    phantom = factory.end_offset + 30
    last = factory.add(dispatched=False, queue_offset=6, body=b"x" * 100)
    factory.queues["TopicA", 0].append((phantom, 150, 0))
    root = factory.write()
    result = recover(root)
    assert result.log.queues_cut == (("TopicA", 0),)
    assert [unit[0] for unit in units(root)["TopicA", 0]][-1] == last.commit_log_offset
    assert len(units(root)["TopicA", 0]) == 7


def test_an_empty_last_queue_file_gets_no_bogus_unit(tmp_path):
    factory = two_records(tmp_path, units_per_file=6)
    root = factory.write()
    extra = root / "consumequeue/TopicA/0" / f"{6 * CQ_UNIT.size:020d}"
    extra.write_bytes(bytes(6 * CQ_UNIT.size))
    recover(root)
    assert opened_queues(root).find("TopicA", 0).max_offset == 6


def test_a_queue_of_fillers_gets_its_units(tmp_path):
    factory = two_records(tmp_path)
    for key, held in factory.queues.items():
        factory.queues[key] = [(0, PRE_BLANK_SIZE, 0)] * 3
        factory.expected = held
    root = factory.write(abort=b"1")
    result = recover(root)
    # RocketMQ would skip everything below byte 2147483647 of the log
    assert result.log.dispatched_units == 12


def test_lost_units_in_the_middle_come_back_after_a_crash(tmp_path):
    factory = small_store(tmp_path, 60, units_per_file=16)
    root = factory.write(abort=b"1")
    before = units(root)
    path = root / "consumequeue/TopicA/1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[5 * 20 : 8 * 20] = bytes(60)
    path.write_bytes(data)
    recover(root)
    assert units(root) == before


def test_units_that_expired_before_they_were_flushed_leave_no_gap(tmp_path):
    # RocketMQ goes on where the units end: later messages get other queue offsets than in records
    root = small_store(tmp_path, 60, units_per_file=16).write(abort=b"1")
    before = units(root)
    (root / "commitlog" / f"{0:020d}").unlink()
    for path in (root / "consumequeue").rglob("0" * 20):
        data = path.read_bytes()
        path.write_bytes(data[: 4 * 20].ljust(len(data), b"\0"))
        for later in set(path.parent.iterdir()) - {path}:
            later.unlink()
    recover(root)
    after = opened_queues(root)
    for key in after.queues():
        queue, starts = after.find(*key), [unit[0] for unit in before[key]]
        assert queue.max_offset == len(starts)
        first = sum(start < 4096 for start in starts)
        found = queue.read_units(first, queue.max_offset)
        assert found["commit_log_offset"].tolist() == starts[first:]


def test_segments_behind_the_end_are_deleted(tmp_path):
    factory = two_records(tmp_path)
    root = factory.write(abort=b"1", spare_segments=2)
    result = recover(root)
    assert [Path(path).name for path in result.log.deleted_files] == [
        f"{4096:020d}",
        f"{8192:020d}",
    ]
    assert result.log.log_end == factory.end_offset


def test_a_blank_record_closes_every_segment(tmp_path):
    factory = small_store(tmp_path, 60)
    factory.roll()
    root = factory.write(abort=b"1", spare_segments=1)
    result = recover(root)
    assert result.log.records == 60
    assert result.log.log_end == factory.end_offset


def test_queues_without_a_log_are_not_destroyed(tmp_path):
    root = two_records(tmp_path).write()
    shutil.rmtree(root / "commitlog")
    with pytest.raises(StoreFormatError, match="storePathCommitLog"):
        recover_store(str(root), SMALL, clock=lambda: NOW_MS)
    assert sum(map(len, units(root).values())) == 12


def test_a_store_that_is_open_is_refused(tmp_path):
    root = two_records(tmp_path).write()
    before = files(root)
    with StoreLock(str(root)), pytest.raises(StoreLockedError):
        recover_store(str(root), SMALL, clock=lambda: NOW_MS)
    assert files(root) == before


def test_no_store(tmp_path):
    with pytest.raises(StoreNotFoundError):
        recover_store(str(tmp_path / "nothing"), SMALL, clock=lambda: NOW_MS)
    assert not (tmp_path / "nothing").exists()


def test_progress_ends_with_everything(tmp_path):
    root = two_records(tmp_path).write(abort=b"1")
    seen = []
    recover_store(
        str(root),
        SMALL,
        clock=lambda: NOW_MS,
        progress=lambda done, all_: seen.append((done, all_)),
    )
    assert seen[-1] == (4096, 4096)
    assert seen == sorted(seen)


@pytest.mark.parametrize("start", [0, 4096, 8192])
def test_after_a_crash_the_walk_begins_where_all_is_flushed(tmp_path, start):
    # 3 s before the checkpoint, as in RocketMQ, and the minute after which queues are flushed
    factory = small_store(tmp_path, 60, step_ms=4000)
    root = factory.write(abort=b"1")
    # Of the segment's second record: one time alone, which no checksum covers, decides nothing.
    second = next(r for r in factory.records if r.commit_log_offset > start)
    newest = second.store_timestamp + 63_000
    times = (newest, newest + 5000, 0, 0, 0)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*times, 0).ljust(4096, b"\0"))
    assert plan_recovery(str(root), SMALL).log.start_offset == start
    times = (newest - 1, newest, 0, 0, 0)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*times, 0).ljust(4096, b"\0"))
    assert plan_recovery(str(root), SMALL).log.start_offset == max(start - 4096, 0)


def swapped(root):
    one, other = (root / "consumequeue/TopicA" / str(number) / f"{0:020d}" for number in (0, 1))
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def shifted(root):
    path = root / "consumequeue/TopicA/0" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes((data[:20] + data)[: len(data)])


def disordered(root):
    path = root / "consumequeue/TopicA/0" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:20] + data[40:60] + data[20:40] + data[60:])


@pytest.mark.parametrize("harm", [swapped, shifted, disordered])
def test_queues_that_are_not_mended_are_told(tmp_path, harm):
    root = two_records(tmp_path).write()
    assert recover(root).queues_not_mended == ()
    harm(root)
    planned = plan_recovery(str(root), SMALL)
    result = recover(root)
    assert ("TopicA", 0) in result.queues_not_mended
    assert planned.queues_not_mended == result.queues_not_mended
    rebuild_queues_in_place(str(root), SMALL)
    assert recover(root).queues_not_mended == ()


@pytest.mark.parametrize("at", [5, 20, 33])
@pytest.mark.parametrize("size", [1, 3000])
def test_a_unit_of_another_size_is_made_anew_after_a_crash(tmp_path, at, size):
    factory = small_store(tmp_path, 60, units_per_file=40)
    root = factory.write(abort=b"1")
    before = units(root)
    key = max(before, key=lambda key: len(before[key]))
    at = min(at, len(before[key]) - 1)
    path = root / "consumequeue" / key[0] / str(key[1]) / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at * 20 + 8 : at * 20 + 12] = size.to_bytes(4, "big")
    path.write_bytes(data)
    recover_store(str(root), SMALL, clock=lambda: NOW_MS)
    assert units(root) == before


def test_a_unit_that_claims_all_later_records_is_told(tmp_path):
    """Recovery reads only after the unit: there is nothing to compare its queue with."""
    factory = small_store(tmp_path, 60, units_per_file=64, step_ms=100_000)
    root = factory.write(abort=b"1")
    path = root / "consumequeue/TopicA/0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[2 * 20 + 8 : 2 * 20 + 12] = (1 << 30).to_bytes(4, "big")
    path.write_bytes(data)
    result = recover_store(str(root), SMALL, clock=lambda: NOW_MS, cut=True)
    assert result.log.start_offset > factory.queues["TopicA", 0][2][0]
    assert result.queues_not_mended == (("TopicA", 0),)
    rebuild_queues_in_place(str(root), SMALL)
    assert len(units(root)["TopicA", 0]) == len(factory.queues["TopicA", 0])


def test_damaged_queues_of_crashed_stores_are_mended_or_told(tmp_path):
    """Any bytes in a queue: only errors of this project, and no good end of a bad queue."""
    factory = small_store(tmp_path / "source", 40, units_per_file=8)
    source = factory.write(abort=b"1")
    known = {(r.queue_offset, r.commit_log_offset) for r in factory.records}
    for seed in range(80):
        chance, root = random.Random(seed), tmp_path / str(seed)
        shutil.copytree(source, root)
        path = chance.choice(sorted((root / "consumequeue").rglob("0" * 17 + "*")))
        data = bytearray(path.read_bytes())
        start = chance.randrange(8) * 20 + chance.choice([0, 8])
        length = chance.choice([4, 8, 12])
        data[start : start + length] = chance.choice([bytes(length), chance.randbytes(length)])
        path.write_bytes(data)
        result = recover_store(str(root), SMALL, clock=lambda: NOW_MS, cut=True)
        assert result.log.records_behind == 0
        places = [(o, u[0]) for held in units(root).values() for o, u in enumerate(held)]
        if not set(places) <= known or len(places) < 40:
            assert result.queues_not_mended, seed
        shutil.rmtree(root)


@pytest.mark.parametrize("torn", ["whole", "a chain", "an entry"])
def test_what_was_flushed_of_an_index_is_proved_by_place_when_the_clock_was_set_back(
    tmp_path, torn
):
    """The newest file ends before the one that the checkpoint calls flushed."""
    factory = StoreFactory(tmp_path, entries=8)
    for number in range(18):
        factory.add(
            properties={"KEYS": f"k{number}"},
            store_timestamp=START_MS + (100_000 if number < 14 else 0) + number * 1000,
        )
    root = factory.write(abort=b"1")
    names = sorted(path.name for path in (root / "index").iterdir())
    assert len(names) == 3
    path = root / "index" / names[2]
    data = bytearray(path.read_bytes())
    entries = 40 + 8 * 4
    if torn == "a chain":
        data[40:entries] = bytes(8 * 4)
    elif torn == "an entry":
        data[entries + 20 : entries + 40] = bytes(20)
    path.write_bytes(data)
    flushed = factory.records[13].store_timestamp
    numbers = (flushed, flushed, flushed, 0, 0)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*numbers, 0).ljust(4096, b"\0"))
    config = MessageStoreConfig(max_hash_slot_num=8, max_index_num=8)
    result = recover(root, config)
    assert result.index_dropped == (() if torn == "whole" else (names[2],))
    with MessageStore(replace(config, store_path_root_dir=str(root))) as store:
        for number in range(18):
            found = store.query_message("TopicA", f"k{number}", 32, 0, 2**62).messages
            assert [m.queue_offset for m in found] == [number]


def test_an_index_file_whose_begin_is_of_another_time_is_made_anew(tmp_path):
    factory = small_store(tmp_path)
    root = factory.write()
    path = max((root / "index").iterdir())
    data = path.read_bytes()
    begin = -int.from_bytes(data[:8], "big")
    path.write_bytes(begin.to_bytes(8, "big", signed=True) + data[8:])
    assert recover(root).index_dropped == (path.name,)
    with StoreSnapshot(root, SMALL) as view:
        first = view.index.files[-1].header
        assert first.begin_timestamp == view.store_timestamp_at(first.begin_phy_offset)


def test_a_queue_that_lost_its_begin_is_told(tmp_path):
    factory = small_store(tmp_path, 60, units_per_file=64)
    root = factory.write()
    assert recover(root).queues_not_mended == ()
    last = factory.records[-1].commit_log_offset
    topic, queue_id = next(key for key, held in factory.queues.items() if held[-1][0] == last)
    (root / "consumequeue" / topic / str(queue_id) / f"{0:020d}").unlink()
    result = recover(root)
    assert result.log.dispatched_units
    assert result.queues_not_mended == ((topic, queue_id),)


LOST = ("TopicA", 0)


def without_a_queue(tmp_path, names=None):
    """Write a store that was stopped cleanly, and lose a queue's directory."""
    root = small_store(tmp_path, 40).write()  # the last record is of another queue
    shutil.rmtree(root / "consumequeue" / LOST[0] / str(LOST[1]))
    if names is not None:
        (root / "config").mkdir(exist_ok=True)
        table = {name: {"topicName": name} for name in names}
        (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return root


@pytest.mark.parametrize("names", [None, [], ["TopicA", "TopicB"]])
def test_a_queue_without_files_is_told_after_a_clean_stop(tmp_path, names):
    root = without_a_queue(tmp_path, names)
    assert plan_recovery(str(root), SMALL).queues_not_mended == (LOST,)
    result = recover(root)
    assert (result.log.last_exit_ok, result.queues_not_mended) == (True, (LOST,))
    rebuild_queues_in_place(str(root), SMALL)
    assert recover(root).queues_not_mended == ()


def test_the_queues_of_a_deleted_topic_are_not_lost(tmp_path):
    assert recover(without_a_queue(tmp_path, ["TopicB"])).queues_not_mended == ()


def test_a_queue_without_files_is_made_after_a_crash(tmp_path):
    root = without_a_queue(tmp_path)
    (root / "abort").write_bytes(b"1")
    assert recover(root).queues_not_mended == ()
    assert any((root / "consumequeue" / LOST[0] / str(LOST[1])).iterdir())


def test_a_queue_that_lost_its_last_file_is_told_after_a_clean_stop(tmp_path):
    root = small_store(tmp_path, 60).write()
    files = sorted((root / "consumequeue" / LOST[0] / str(LOST[1])).iterdir())
    assert len(files) > 1
    files[-1].unlink()
    assert plan_recovery(str(root), SMALL).queues_not_mended == (LOST,)
    for _ in range(2):
        assert recover(root).queues_not_mended == (LOST,)
    rebuild_queues_in_place(str(root), SMALL)
    assert recover(root).queues_not_mended == ()


@pytest.mark.parametrize("field", [0, 1, 2])
@pytest.mark.parametrize("wrong", [-5, START_MS * 2])
def test_times_of_a_checkpoint_that_cannot_be_are_mended(tmp_path, field, wrong):
    factory = small_store(tmp_path)
    root = factory.write()
    last = factory.records[-1].store_timestamp
    times = [last, last, last, 0, 0]
    times[field] = wrong
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*times, 0).ljust(4096, b"\0"))
    clock = START_MS * 3  # no time is ahead of it
    assert plan_recovery(str(root), SMALL).files_not_mended
    result = recover_store(str(root), SMALL, clock=lambda: clock)
    assert result.files_not_mended == ()
    found = load_checkpoint(StoreDirectory(str(root)))
    assert (found.physic_msg_timestamp, found.logics_msg_timestamp) == (last, last)
    assert found.index_msg_timestamp in {0, last}


def test_a_damaged_queue_offset_of_a_record_is_no_fault_of_its_queue(tmp_path):
    factory = two_records(tmp_path)
    root = factory.write(abort=b"1")
    record = [r for r in factory.records if (r.topic_bytes, r.queue_id) == (b"TopicA", 0)][-1]
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[record.commit_log_offset + 20 : record.commit_log_offset + 28] = bytes(8)
    path.write_bytes(data)
    result = recover_store(str(root), SMALL, clock=lambda: NOW_MS)
    assert result.queues_not_mended == ()
    assert kinds(checked(root, {"maxHashSlotNum": "8", "maxIndexNum": "64"}))["QUEUE_OFFSET"] == 1


@pytest.mark.parametrize("at", [16, 24])
def test_an_index_file_whose_header_names_other_entries_is_told(tmp_path, at):
    root = small_store(tmp_path).write()
    assert recover(root).files_not_mended == ()
    path = max((root / "index").iterdir())
    data = bytearray(path.read_bytes())
    end = int.from_bytes(data[at : at + 8], "big")
    entry = 40 + 8 * 4 + 20 * (1 if at == 16 else int.from_bytes(data[36:40], "big") - 1)
    assert data[entry + 4 : entry + 12] == end.to_bytes(8, "big")
    data[entry + 4 : entry + 12] = (end - 1).to_bytes(8, "big")
    path.write_bytes(data)
    (left,) = recover(root).files_not_mended
    assert left.path == str(path)
    assert f"entry has {end - 1}" in left.found


def test_an_index_file_with_an_end_and_no_entries_is_made_anew(tmp_path):
    root = small_store(tmp_path).write()
    path = max((root / "index").iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:36] + (-500).to_bytes(4, "big", signed=True) + data[40:])
    assert recover(root).index_dropped == (path.name,)
    with StoreSnapshot(root, SMALL) as view:
        assert view.index.files[-1].header.entry_count > 0


def test_a_record_of_no_possible_queue_is_told(tmp_path):
    factory = two_records(tmp_path)
    root = factory.write(abort=b"1")
    record = [r for r in factory.records if (r.topic_bytes, r.queue_id) == (b"TopicA", 0)][-1]
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[record.commit_log_offset + 12 : record.commit_log_offset + 16] = b"\xff" * 4
    path.write_bytes(data)
    result = recover_store(str(root), SMALL, clock=lambda: NOW_MS)
    assert ("TopicA", -1) in result.queues_not_mended


def test_the_checkpoint_names_no_record_that_recovery_cuts(tmp_path, monkeypatch):
    """5.5 would take its position for the end of the log, and append after a hole."""
    store = golden("crashed-551")
    root = store.copy_to(tmp_path)
    starts = [line["commit_log_offset"] for line in store.dump("messages") if "topic" in line]
    before = load_checkpoint(StoreDirectory(str(root))).logics_physical_offset
    end = starts[starts.index(before) - 20]
    with (root / "commitlog" / "00000000000000196608").open("r+b") as file:
        file.seek(end - 196608)
        file.write(bytes(32768 - (end - 196608)))
    (root / "commitlog" / "00000000000000229376").write_bytes(bytes(32768))

    def killed(queue, offset):
        found = load_checkpoint(StoreDirectory(str(root))).logics_physical_offset
        assert found in starts[: starts.index(end)]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MappedFileQueue, "truncate_dirty_files", killed)
        with pytest.raises(KeyboardInterrupt):
            recover_store(str(root), config_of(store), clock=lambda: NOW_MS, cut=True)
    result = recover_store(str(root), config_of(store), clock=lambda: NOW_MS, cut=True)
    assert result.log.log_end == end
    found = load_checkpoint(StoreDirectory(str(root))).logics_physical_offset
    assert found == starts[starts.index(end) - 1]
