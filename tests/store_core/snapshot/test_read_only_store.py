# SPDX-License-Identifier: Apache-2.0
"""A store that another process owns, read in place and followed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from store_core import (
    CorruptRecordError,
    GetMessageStatus,
    Message,
    MessageStoreConfig,
    StoreNotFoundError,
    StoreState,
)
from store_core.snapshot.read_only_store import ReadOnlyStore
from tests.golden_store import golden
from tests.rmqsource.stream.growing_store import GrowingStore


def files_of(root):
    """Return everything that a change of a store would change."""
    found = {}
    for path in sorted(Path(root).rglob("*")):
        entry = path.stat()
        found[path] = (entry.st_mtime_ns, entry.st_ctime_ns, entry.st_size)
    return found


def look_until(store, condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        store.look()


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store") as store:
        store.put(8)
        yield store


class Followed:
    """A store that is followed, and the offsets of the records it passed on."""

    def __init__(self, root):
        self.told = []
        config = MessageStoreConfig(store_path_root_dir=str(root))
        self.store = ReadOnlyStore(config, self.take)

    def take(self, frames):
        self.told.extend(frames.column("commit_log_offset").tolist())

    def end(self, topic="Topic0", queue_id=0):
        return self.store.get_max_offset_in_queue(topic, queue_id)


@pytest.fixture
def followed(growing):
    found = Followed(growing.root)
    yield found
    found.store.close()


def test_what_queues_have_got_is_told_once(growing, followed):
    assert followed.store.state is StoreState.LIVE
    assert (followed.end(), followed.told) == (2, [])
    assert not followed.store.look()
    start = growing.store.max_phy_offset
    growing.put(4)
    assert followed.store.look()
    assert followed.end() == 3
    assert followed.told[0] == start
    assert len(followed.told) == 4
    assert not followed.store.look()
    assert len(followed.told) == 4


def test_what_no_queue_has_yet_is_told_later(growing, followed):
    growing.put(4, dispatch=False)
    followed.store.look()
    assert (followed.told, followed.end()) == ([], 2)
    growing.dispatch()
    look_until(followed.store, lambda: len(followed.told) == 4)
    assert followed.end() == 3


def test_segments_come_and_go(growing, followed):
    growing.put(200)
    assert followed.store.look()
    assert (followed.end(), len(followed.told)) == (52, 200)
    growing.expire(1)
    growing.put(4)
    assert followed.store.look()
    found = followed.store.pull_records("g", "Topic0", 0, 0, 32)
    assert found.status is GetMessageStatus.OFFSET_TOO_SMALL
    assert found.next_begin_offset > 0


def test_another_log_at_the_same_place(growing, followed):
    growing.make_anew()
    growing.put(2)
    assert followed.store.look()
    assert followed.store.max_phy_offset == growing.store.max_phy_offset
    assert followed.end() == 1


def test_it_serves_on_when_the_store_is_gone(growing, followed):
    growing.root.rename(growing.root.with_name("away"))
    with pytest.raises(StoreNotFoundError):
        followed.store.look()
    assert followed.end() == 2
    growing.root.with_name("away").rename(growing.root)
    growing.put(4)
    assert followed.store.look()
    assert followed.end() == 3


def test_nothing_changes(growing):
    growing.put(4, dispatch=False)
    before = files_of(growing.root)
    found = Followed(growing.root)
    found.store.look()
    found.store.query_message("Topic0", "key2", 10, 0, 1 << 60)
    found.store.pull_records("g", "Topic0", 0, 0, 32)
    found.store.close()
    assert files_of(growing.root) == before
    growing.dispatch()


def test_a_crashed_store_of_a_broker_is_read_as_it_lies():
    store = golden("crashed-5x", recovered=False)
    before = files_of(store.root)
    config = MessageStoreConfig.from_properties(
        {**store.config_properties, "storePathRootDir": str(store.root)}
    )
    reader = ReadOnlyStore(config)
    assert reader.state is StoreState.CRASHED
    counts, _ = reader.queue_counts()
    for topic, count in counts.items():
        for queue_id in range(count):
            end = reader.get_max_offset_in_queue(topic, queue_id)
            first = reader.get_min_offset_in_queue(topic, queue_id)
            found = reader.pull_records("g", topic, queue_id, first, 32)
            assert end == first or found.status is GetMessageStatus.FOUND
    assert not reader.look()
    reader.close()
    assert files_of(store.root) == before


def test_damage_stops_one_queue_only(growing):
    growing.close()
    found = Followed(growing.root)
    record = found.store.look_message_by_offset(0)
    assert (record.topic, record.queue_id) == ("Topic0", 0)
    with growing.segments()[0].open("r+b") as log:
        log.write(bytes(4))  # its size
    with pytest.raises(CorruptRecordError, match=growing.segments()[0].name):
        found.store.pull_records("g", "Topic0", 0, 0, 32)
    others = found.store.pull_records("g", "Topic1", 0, 0, 32)
    assert (others.status, others.messages) == (GetMessageStatus.FOUND, 2)
    assert found.store.pull_records("g", "Topic0", 0, 1, 32).messages == 1
    found.store.close()


def test_queries_of_many_threads_while_it_is_followed(growing, followed):
    is_over, wrong = threading.Event(), []

    def ask():
        seen = 0
        while not is_over.is_set():
            found = followed.store.pull_records("g", "Topic0", 0, 0, 32)
            if found.max_offset < seen or found.status is not GetMessageStatus.FOUND:
                wrong.append(found)
            seen = found.max_offset

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        growing.put(4)
        followed.store.look()
    is_over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    look_until(followed.store, lambda: followed.end() == 12)


def test_queues_as_directories_show(growing, followed):
    assert followed.store.queue_counts() == ({"Topic0": 2, "Topic1": 2}, {})
    growing.store.put_message(Message("New", b"", queue_id=2))
    growing.dispatch()
    followed.store.look()
    assert followed.store.queue_counts()[0]["New"] == 3


def test_a_log_that_begins(tmp_path):
    with GrowingStore(tmp_path / "store") as growing:
        found = Followed(growing.root)
        assert not found.store.look()
        growing.put(4)
        assert found.store.look()
        assert (found.end(), len(found.told)) == (1, 4)
        found.store.close()


def test_no_store(tmp_path):
    with pytest.raises(StoreNotFoundError):
        ReadOnlyStore(MessageStoreConfig(store_path_root_dir=str(tmp_path / "none")))
