# SPDX-License-Identifier: Apache-2.0
"""Reading from a store while it is written."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager

import pytest

from store_core import GetMessageStatus, StoreSnapshot, TagFilter
from store_core.codec.message_id import message_id as offset_message_id
from store_core.files.mapped_file import MappedFile
from store_core.layout import TRANSACTION_PREPARED_TYPE
from store_core.log.live_log import PinnedLog
from tests.store_core.live_store import LiveStore
from tests.store_factory import START_MS, STORE_HOST


@pytest.fixture
def live(tmp_path):
    store = LiveStore(tmp_path / "store")
    yield store
    store.close()


def _fill(live, count=60):
    for number in range(count):
        live.put(
            "TopicA" if number % 3 else "TopicB",
            b"body %d " % number * (number % 7),
            queue_id=number % 2,
            keys=f"k{number} all",
            tags=f"tag{number % 4}",
        )


def _offsets(messages):
    return [message.commit_log_offset for message in messages]


def test_answers_as_a_snapshot_of_the_same_store(live):
    _fill(live)
    live.dispatch()
    live.queues.flush()
    with StoreSnapshot(live.root, live.config, live.log.max_offset) as snapshot:
        for offset in (-1, 0, 7, 15, 16, 19, 20, 21):
            for queue in (("TopicA", 0), ("TopicB", 1), ("None", 0)):
                asked = ("group", *queue, offset, 32)
                assert live.reads.get_message(*asked) == snapshot.get_message(*asked)
                tags = (*asked, TagFilter("tag1 || tag2"))
                assert live.reads.get_message(*tags) == snapshot.get_message(*tags)
                for name in ("get_min_offset_in_queue", "get_max_offset_in_queue"):
                    assert getattr(live.reads, name)(*queue) == getattr(snapshot, name)(*queue)
                asked = (*queue, offset)
                stored = live.reads.get_message_store_timestamp(*asked)
                assert stored == snapshot.get_message_store_timestamp(*asked)
        for ms in range(START_MS - 1500, START_MS + 65_000, 3500):
            for boundary in ("lower", "upper"):
                asked = ("TopicA", 0, ms, boundary)
                found = live.reads.get_offset_in_queue_by_time(*asked)
                assert found == snapshot.get_offset_in_queue_by_time(*asked)
        for key in ("k1", "k31", "all", "none"):
            asked = ("TopicA", key, 40, 0, START_MS * 2)
            assert live.reads.query_message(*asked) == snapshot.query_message(*asked)
            asked = ("TopicA", [key])
            assert live.reads.find_messages(*asked) == snapshot.find_messages(*asked)
        earliest = live.reads.get_earliest_message_time("TopicA", 1)
        assert earliest == snapshot.get_earliest_message_time("TopicA", 1) > 0
        assert live.reads.min_phy_offset == snapshot.min_phy_offset == 0
        assert live.reads.max_phy_offset == snapshot.max_phy_offset == live.log.max_offset


def test_an_empty_store_and_what_comes_next(live):
    reads = live.reads
    assert (reads.min_phy_offset, reads.max_phy_offset) == (-1, 0)
    assert reads.find_messages("TopicA", ["k"]) == []
    assert reads.look_message_by_offset(0) is None
    pulled = reads.get_message("group", "TopicA", 0, 0, 1)
    assert pulled.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
    live.put(keys="k", body=b"one")
    assert reads.look_message_by_offset(0).body == b"one"
    assert reads.look_message_by_offset(1) is None
    assert reads.look_message_by_id(offset_message_id(STORE_HOST, 0)).keys == ["k"]
    assert reads.look_message_by_id(offset_message_id(b"\1" * 8, 0)) is None
    assert reads.get_message("group", "TopicA", 0, 0, 1).messages == ()
    live.dispatch()
    assert reads.get_message("group", "TopicA", 0, 0, 1).messages[0].body == b"one"
    assert reads.get_message("group", "TopicA", 0, 1, 1).status.name == "OFFSET_OVERFLOW_ONE"


def test_find_scans_what_is_not_dispatched_and_not_indexed(live):
    live.put(keys="k")
    live.dispatch()
    live.put(keys="k")
    live.dispatch(index=False)
    live.put(keys="k")
    live.put(keys="k", sys_flag=TRANSACTION_PREPARED_TYPE)
    live.put("Other", keys="k")
    at = [record[0] for record in live.records]
    assert _offsets(live.reads.find_messages("TopicA", ["k"])) == at[:3]
    assert live.reads.find_offsets("TopicA", ["x", "k"]).commit_log_offset.tolist() == at[:3]
    assert _offsets(live.reads.find_messages("Other", ["k"])) == at[4:]


def test_slots_that_are_not_published_hide_nothing(live, monkeypatch):
    """The header of an index file is published before its slots."""
    for _ in range(5):
        live.put(keys="k")
    live.dispatch()
    seen = []
    real = os.pwrite

    def look_between_writes(*arguments):
        written = real(*arguments)
        seen.append(_offsets(live.reads.find_messages("TopicA", ["k"])))
        return written

    for number in range(5):
        live.put(keys=f"k k{number}")
    monkeypatch.setattr(os, "pwrite", look_between_writes)
    live.dispatch()
    monkeypatch.undo()
    assert len(seen) >= 3
    assert all(offsets == [record[0] for record in live.records] for offsets in seen)


def test_index_files_roll_and_are_deleted(live):
    for _ in range(6):
        _fill(live)
        live.dispatch()
    files = list((live.root / "index").iterdir())
    assert len(files) > 5
    expected = [r[0] for r in live.records if r[1] == "TopicA" and "k31 " in r[4]]
    assert _offsets(live.reads.find_messages("TopicA", ["k31"])) == expected
    for _ in range(4):
        live.expire()
        low = live.log.min_offset
        kept = [offset for offset in expected if offset >= low]
        assert _offsets(live.reads.find_messages("TopicA", ["k31"])) == kept
        pair = live.reads.find_offsets("TopicA", ["k31"])
        assert pair.commit_log_offset.tolist() == kept
    assert len(list((live.root / "index").iterdir())) < len(files)
    assert len(live.live_index._open) == len(list((live.root / "index").iterdir()))


def test_batch_queue(tmp_path):
    live = LiveStore(tmp_path / "store", batch_topics=("Batches",))
    for _ in range(3):
        live.put("Batches", keys="k")
    live.dispatch()
    pulled = live.reads.get_message("group", "Batches", 0, 1, 2)
    assert [message.queue_offset for message in pulled.messages] == [1, 2]
    assert live.reads.get_max_offset_in_queue("Batches", 0) == 3
    assert live.reads.get_offset_in_queue_by_time("Batches", 0, START_MS + 1000) == 1
    expected = [record[0] for record in live.records]
    assert _offsets(live.reads.find_messages("Batches", ["k"])) == expected
    live.close()


def test_a_held_segment_outlives_its_deletion(live):
    _fill(live)
    file = live.log.first
    with PinnedLog(live.log, "store", whole=True) as whole, PinnedLog(live.log, "store") as lazy:
        live.expire()
        assert whole.is_record(0, whole.end_offset)
        assert lazy.segments.find(0) is None
        assert lazy.min_offset == 0
        assert [s.from_offset for s in lazy.segments] == [
            f.file_from_offset for f in live.log.mapped_files
        ]
        assert not file.is_available
        assert file._map is not None
    assert file._map is None
    assert live.reads.look_message_by_offset(0) is None
    assert all(held._holds == 0 for held in live.log.mapped_files)


def test_a_record_that_is_being_appended_is_not_seen(live, monkeypatch):
    live.put(keys="k")
    seen = []
    real = MappedFile._write

    def look_before_and_after(self, at, view):
        real(self, at, view)
        seen.append((live.reads.max_phy_offset, live.reads.look_message_by_offset(at)))

    monkeypatch.setattr(MappedFile, "_write", look_before_and_after)
    placed = live.put(keys="k", body=bytes(3000))
    monkeypatch.undo()
    assert seen == [(placed.commit_log_offset, None)]
    assert live.reads.look_message_by_offset(placed.commit_log_offset).body == bytes(3000)


def test_expired_between_pin_and_read(live):
    _fill(live)
    live.dispatch()
    with live.pinned() as store:
        queue, reader = store.queue("TopicA", 0), store.reader
        for _ in range(2):
            live.expire()
        assert not reader.holds(0, 10)
        units = queue.unit_columns(queue.min_offset, queue.max_offset - queue.min_offset)
        assert len(units) == queue.max_offset - queue.min_offset
        first = live.queues.find("TopicA", 0).min_offset
        assert first > 0
        assert (units["commit_log_offset"][:first] == -1).all()
        assert (units["commit_log_offset"][first:] >= live.log.min_offset).all()


@contextmanager
def _running(*works):
    """Run each function repeatedly in a thread of its own; switch between threads often."""
    done, failed, errors = threading.Event(), threading.Event(), []

    def run(work):
        try:
            while not done.is_set():
                work()
        except BaseException as err:
            errors.append(err)
            failed.set()

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    try:
        for thread in threads:
            thread.start()
        yield failed
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switch)
    assert errors == []


def test_many_threads(tmp_path):
    """Readers see whole records in order, while other threads write, dispatch and delete."""
    live = LiveStore(tmp_path / "store", max_index_num=256)

    def pull():
        begin = live.reads.get_min_offset_in_queue("TopicA", 0)
        result = live.reads.get_message("group", "TopicA", 0, begin, 32)
        offsets = [message.queue_offset for message in result.messages]
        assert offsets == sorted(set(offsets))
        assert all(m.body == b"%d" % m.queue_offset * 20 for m in result.messages)

    def find():
        count, low = len(live.records), live.log.min_offset
        found = _offsets(live.reads.find_messages("TopicA", ["all"]))
        known = [record[0] for record in live.records[:count]]
        newest_low = live.log.min_offset
        assert set(found) >= {offset for offset in known if offset >= newest_low}
        assert all(offset >= low for offset in found)
        pairs = live.reads.find_offsets("TopicA", ["none", "all"])
        assert set(pairs.commit_log_offset.tolist()) >= {
            offset for offset in known if offset >= live.log.min_offset
        }

    with _running(pull, pull, find) as failed:
        for number in range(250):
            live.put(body=b"%d" % number * 20, keys=f"k{number} all")
            if number % 5 == 0:
                live.dispatch()
            if number % 25 == 0 and len(live.log.mapped_files) > 3:
                live.expire()
            if failed.is_set():
                break
    assert all(held._holds == 0 for held in live.log.mapped_files)
    live.close()
