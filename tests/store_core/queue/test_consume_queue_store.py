# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from store_core import MessageStoreConfig, StoreFormatError
from store_core.errors import StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog, scan_frames
from store_core.log.log_scan import skip_gap
from store_core.queue import queue_files as queue_files_module
from store_core.queue.batch_consume_queue_writer import BatchConsumeQueueWriter
from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueOffsetTable
from store_core.queue.dispatch_request import DispatchDecoder
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden
from tests.store_core.queue.test_consume_queue_writer import requests_of

INTACT = sorted({*STORE_NAMES} - {*RECOVERED_NAMES})


def config_of(store):
    return MessageStoreConfig.from_properties(store.config_properties)


def loaded(root, config=None, **options):
    store = ConsumeQueueStore(str(root), config or MessageStoreConfig(), **options)
    store.load()
    store.recover()
    return store


def two_queues(count=3, start=0):
    rows = [(start + 10 * i, 10, i // 2) for i in range(2 * count)]
    return requests_of(rows, queue_id=np.arange(2 * count, dtype=np.int32) % 2)


def queue_files(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for name in ("consumequeue", "consumequeue_ext", "batchconsumequeue")
        for path in sorted((root / name).rglob("*"))
        if path.is_file()
    }


def assert_as_dumped(store, queues):
    lines = list(store.dump("consume_queue"))
    assert set(queues.queues()) == {(line["topic"], line["queue_id"]) for line in lines}
    for line in lines:
        queue = queues.find(line["topic"], line["queue_id"])
        assert (queue.min_offset, queue.max_offset) == (line["min_offset"], line["max_offset"])
        if isinstance(queue, BatchConsumeQueueWriter):
            rows = [list(row)[:7] for row in queue.read_units().tolist()]
            assert rows == line["batch_units"]
        else:
            rows = queue.read_units(queue.min_offset, queue.max_offset).tolist()
            assert [list(row) for row in rows] == line["units"]


@pytest.mark.parametrize("name", INTACT)
@pytest.mark.parametrize("trusted", [True, False])
def test_queues_are_those_of_the_golden_store(name, trusted):
    store = golden(name)
    queues = loaded(store.root, config_of(store))
    queues.recover(trusted=trusted)
    queues.correct_min_offsets(max(store.meta["min_phy_offset"], 0))
    assert_as_dumped(store, queues)
    simple, batch = queues.next_queue_offsets()
    kinds = {(q["topic"], q["queue_id"]): q["type"] for q in store.dump("consume_queue")}
    assert {kinds[key] for key in batch} <= {"BatchCQ"}
    assert all(queues.find(*key).max_offset == end for key, end in {**simple, **batch}.items())


# Bitmaps of extensions come from the test that wrote them; expired queues begin elsewhere.
@pytest.mark.parametrize("name", sorted({*INTACT} - {"expired-5x", "ext-5x"}))
def test_dispatching_a_log_gives_the_files_of_the_golden_store(name, tmp_path):
    store = golden(name)
    config = config_of(store)
    log = CommitLog(StoreDirectory(str(store.root)), config)
    topics = store.config["topic_queue_types"]
    queues = loaded(tmp_path, config, is_batch_topic=lambda t: topics.get(t) == "BatchCQ")
    decoder = DispatchDecoder(config.delay_levels_ms)
    for frames in scan_frames(log, 0, store.meta["max_phy_offset"], on_gap=skip_gap):
        requests = decoder.decode(frames).queued()
        half = len(requests) // 2
        queues.put(requests.take(slice(0, half)))
        queues.put(requests)  # existing units are skipped
    queues.flush()
    log.close()
    assert queue_files(tmp_path) == queue_files(store.root)
    assert_as_dumped(store, queues)


def test_extension_units_go_on_where_they_ended(tmp_path):
    store = golden("ext-5x")
    root, config = store.copy_to(tmp_path), config_of(store)
    queues = loaded(root, config)
    before = queue_files(root)
    cut = store.meta["max_phy_offset"] // 2
    assert queues.truncate_dirty(cut)
    units = sum(
        len(data.rstrip(b"\0")) for name, data in queue_files(root).items() if "_ext" in name
    )
    assert units < sum(len(d.rstrip(b"\0")) for n, d in before.items() if "_ext" in n)
    log = CommitLog(StoreDirectory(str(store.root)), config)
    decoder = DispatchDecoder(config.delay_levels_ms)
    for frames in scan_frames(log, 0, store.meta["max_phy_offset"], on_gap=skip_gap):
        queues.put(decoder.decode(frames).queued())
    log.close()
    again = loaded(root, config)
    for line in store.dump("consume_queue"):
        queue = again.find(line["topic"], line["queue_id"])
        rows = queue.read_units(0, queue.max_offset)
        assert [list(row)[:2] for row in rows.tolist()] == [u[:2] for u in line["units"]]
        assert (np.diff(rows["tags_code"]) > 0).all()  # addresses, ascending


def test_light_queues_are_filled_only_where_that_is_enabled(tmp_path):
    rows = two_queues()
    rows.light[:] = [False, True] * 3
    queues = loaded(tmp_path)
    assert queues.put(rows).units == 3
    assert queues.queues() == [("T", 0)]
    enabled = loaded(tmp_path / "b", MessageStoreConfig(enable_multi_dispatch=True))
    assert enabled.put(rows).units == 6


def test_cutting_deletes_zeroes_and_names_the_queues(tmp_path):
    queues = loaded(tmp_path, MessageStoreConfig(mapped_file_size_consume_queue=40))
    queues.put(two_queues())
    assert queues.max_physic_offset == 60
    assert queues.reaches(("T", 1), 50)
    assert not queues.reaches(("T", 0), 50)
    assert queues.truncate_dirty(50) == (("T", 1),)
    assert queues.truncate_dirty(50) == ()
    assert queues.max_physic_offset == 50
    assert queues.next_queue_offsets() == ({("T", 0): 3, ("T", 1): 2}, {})
    queues.destroy()
    assert queue_files(tmp_path) == {}
    assert queues.queues() == []


def test_names_that_make_no_directory_are_counted(tmp_path):
    queues = loaded(tmp_path)
    rows = two_queues()
    rows.queue_id[:] = -1
    assert queues.put(rows).units == 0
    assert queues.refused == {("T", -1): 6}


def test_files_of_another_size_are_refused(tmp_path):
    loaded(tmp_path, MessageStoreConfig(mapped_file_size_consume_queue=40)).put(two_queues())
    assert loaded(tmp_path).max_physic_offset == 60  # the size is that of the files
    with pytest.raises(StoreFormatError, match="mappedFileSizeConsumeQueue"):
        loaded(tmp_path, MessageStoreConfig(mapped_file_size_consume_queue=80))
    path = next((tmp_path / "consumequeue/T/0").iterdir())
    os.truncate(path, 60)
    with pytest.raises(StoreFormatError, match="has 60 bytes"):
        loaded(tmp_path, MessageStoreConfig(mapped_file_size_consume_queue=40))


@pytest.mark.parametrize("attribute", ["BatchCQ", "SimpleCQ"])
def test_a_topic_in_the_wrong_directory_is_refused(tmp_path, attribute):
    is_batch = attribute == "BatchCQ"
    loaded(tmp_path, is_batch_topic=lambda _: not is_batch).put(two_queues())
    (tmp_path / "config").mkdir()
    table = {"T": {"topicName": "T", "attributes": {"queue.type": attribute}}}
    text = json.dumps({"topicConfigTable": table})
    (tmp_path / "config" / "topics.json").write_text(text)
    with pytest.raises(StoreFormatError, match=f"queue.type={attribute}"):
        loaded(tmp_path)
    shutil.rmtree(tmp_path / ("consumequeue" if is_batch else "batchconsumequeue"))
    queues = loaded(tmp_path)
    queues.put(two_queues())
    assert (queues.find_batch("T", 0) is not None) == is_batch


def test_a_write_error_names_the_place_and_can_be_repeated(tmp_path, monkeypatch):
    queues = loaded(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(StoreWriteError, match="No space left"):
            queues.put(two_queues())
    assert queues.put(two_queues()).units == 6


def test_many_queues_hold_no_descriptors(tmp_path):
    count = 300
    rows = requests_of(
        [(10 * i, 10, 0) for i in range(count)], queue_id=np.arange(count, dtype="i4")
    )
    config = MessageStoreConfig(mapped_file_size_consume_queue=200)
    loaded(tmp_path, config).put(rows)
    before = len(list(Path("/proc/self/fd").iterdir()))
    queues = loaded(tmp_path, config)
    assert len(queues.queues()) == count
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_flush_waits_for_one_that_is_under_way(tmp_path, monkeypatch):
    queues = loaded(tmp_path)
    queues.put(two_queues())
    begun, may_end, ended = threading.Event(), threading.Event(), []
    sync_file = queue_files_module.sync_file

    def wait_and_sync(path):
        begun.set()
        assert may_end.wait(30)
        sync_file(path)

    monkeypatch.setattr(queue_files_module, "sync_file", wait_and_sync)
    flushes = [
        threading.Thread(target=lambda n=n: (queues.flush(), ended.append(n))) for n in range(2)
    ]
    flushes[0].start()
    assert begun.wait(30)
    flushes[1].start()
    flushes[1].join(0.05)
    assert ended == []  # the first has taken a file off the list, and not forced it yet
    may_end.set()
    for flush in flushes:
        flush.join(30)
    assert sorted(ended) == [0, 1]


def test_counters_of_both_kinds_are_replaced_together():
    table = QueueOffsetTable()
    table.simple["old", 0] = 5
    table.batch["old", 0] = 6
    table.set_all({("a", 1): 7, ("%LMQ%x", 0): 3}, {("b", 0): 8})
    assert table.counters(is_batch=False) == {("a", 1): 7, ("%LMQ%x", 0): 3}
    assert table.counters(is_batch=True) == {("b", 0): 8}
    assert (table.next_light("%LMQ%x"), table.next_light("%LMQ%y")) == (3, 0)
    table.advance_light(["%LMQ%x", "%LMQ%y"])
    assert (table.next_light("%LMQ%x"), table.next_light("%LMQ%y")) == (4, 1)


def test_a_topic_is_forgotten_with_all_its_queues():
    table = QueueOffsetTable()
    table.set_all({("a", 0): 1, ("a", 1): 2, ("b", 0): 3}, {("a", 0): 4})
    table.remove("a")
    assert (table.simple, table.batch) == ({("b", 0): 3}, {})


def test_locks_are_held_together_and_given_back():
    table = QueueOffsetTable(lock_num=3)
    queues = [("t", number) for number in range(20)]
    with table.locks(queues, light=True):
        assert all(table.lock(queue).locked() for queue in queues)
        assert table.light_lock.locked()
    assert not any(table.lock(queue).locked() for queue in queues)
    assert not table.light_lock.locked()


def test_overlapping_sets_of_locks_do_not_block_each_other_for_ever():
    table = QueueOffsetTable(lock_num=5)
    queues = [("t", number) for number in range(12)]
    counts = [0]

    def work(own):
        for _ in range(200):
            with table.locks(own):
                counts[0] += len(own)

    orders = [queues, queues[::-1], queues[3:8], queues[8:2:-1]]
    threads = [threading.Thread(target=work, args=(own,), daemon=True) for own in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
