# SPDX-License-Identifier: Apache-2.0
"""Eight threads put, four read, one cleans, one moves the clock."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store_core import GetMessageStatus, Message, MessageStore
from store_core.services.environment import Environment
from tests.store_core.crash.judge import assert_sound
from tests.store_core.crash.messages import config_of, make_batch, make_message

PUTTERS, READERS, EACH = 8, 4, 150
SHARED = "Shared"
START_MS = 1_700_000_000_000
_PAUSE_S = 0.002  # leaves the processor to the others


def body_of(who, number):
    return b"%d:%d:" % (who, number) + bytes([(who * 31 + number) % 251]) * (number * 53 % 700)


class Crowd:
    """The work of the threads, and their observations."""

    def __init__(self, root, **settings):
        self.now, self.failures = START_MS, []
        self.stopped = threading.Event()
        self.put, self.dispatched = [], Counter()
        self.store = MessageStore(
            config_of(
                root,
                mapped_file_size_commit_log=32 << 10,
                os_page_cache_busy_time_out_mills=1 << 40,  # the clock's jumps are no slow disk
                delete_commit_log_files_interval=0,
                delete_consume_queue_files_interval=0,
                **settings,
            ),
            environment=Environment(lambda: self.now, lambda _: 0.87, lambda _: 12),
            dispatchers=[self.take],
        )

    def take(self, frames):
        self.dispatched.update(frames.column("commit_log_offset").tolist())

    def run(self, work, *args):
        def guarded():
            try:
                work(*args)
            except BaseException as err:
                self.failures.append(err)

        thread = threading.Thread(target=guarded, name=f"{work.__name__}{args}")
        thread.start()
        return thread

    def putter(self, who):
        for number in range(EACH):
            shared = number % 3 == 0
            topic, queue_id = (SHARED, 0) if shared else ("Own", who)
            message = Message(topic, body_of(who, number), queue_id=queue_id, keys=[f"k{number}"])
            if number % 5 == 0:
                result = self.store.put_messages([message])
            else:
                result = self.store.put_message(message)
            assert result.status.name == "PUT_OK", result
            done = result.append_result
            self.put.append(
                (done.commit_log_offset, done.store_size, topic, queue_id, done.queue_offset)
            )

    def reader(self, who):
        """Read queues from their beginning, over and over; every message must be whole."""
        generator = np.random.default_rng(who)
        while not self.stopped.is_set():
            shared = generator.random() < 0.3
            topic, queue_id = (SHARED, 0) if shared else ("Own", int(generator.integers(PUTTERS)))
            at = self.store.get_min_offset_in_queue(topic, queue_id)
            stop = self.store.get_max_offset_in_queue(topic, queue_id)
            while at < stop:
                result = self.store.get_message("g", topic, queue_id, at, 32)
                if result.status is not GetMessageStatus.FOUND:
                    break  # it expired meanwhile
                offsets = [message.queue_offset for message in result.messages]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                for message in result.messages:
                    who_put, number, _ = message.body.split(b":", 2)
                    assert message.body == body_of(int(who_put), int(number))
                at = result.next_begin_offset
            for message in self.store.query_message("Own", f"k{who}", 8, 0, 1 << 62).messages:
                assert message.keys == [f"k{who}"]

    def cleaner(self):
        services = self.store.services
        while not self.stopped.wait(_PAUSE_S) or not self.store.min_phy_offset:
            services.clean_commit_log.run_once()
            services.correct_logic_offset.run_once()
            services.clean_consume_queue.run_once()

    def clock(self):
        for step in itertools.cycle([7, 40, -90, 3000, -2500, 900]):
            if self.stopped.wait(_PAUSE_S):
                return
            self.now += step


@pytest.mark.parametrize("settings", [{}, {"transient_store_pool_enable": True}])
def test_nothing_is_lost_torn_or_repeated(tmp_path, settings):
    crowd = Crowd(tmp_path / "store", **settings)
    with crowd.store as store:
        others = [crowd.run(crowd.reader, who) for who in range(READERS)]
        others += [crowd.run(crowd.cleaner), crowd.run(crowd.clock)]
        putters = [crowd.run(crowd.putter, who) for who in range(PUTTERS)]
        for thread in putters:
            thread.join()
        crowd.stopped.set()
        for thread in others:
            thread.join()
        assert not crowd.failures
        assert store.wait_for_dispatch()
        assert len(crowd.put) == PUTTERS * EACH
        crowd.put.sort()
        ends = [offset + size for offset, size, *_ in crowd.put]
        assert all(end <= row[0] for end, row in zip(ends, crowd.put[1:]))  # no two overlap
        assert crowd.dispatched == Counter(offset for offset, *_ in crowd.put)
        queues = {}
        for _, _, topic, queue_id, queue_offset in crowd.put:
            queues.setdefault((topic, queue_id), []).append(queue_offset)
        for key, offsets in queues.items():
            assert offsets == list(range(len(offsets))), key  # in the order of the log
            assert store.get_max_offset_in_queue(*key) == len(offsets)
        assert store.min_phy_offset > 0
    assert not (tmp_path / "store" / "abort").exists()
    assert_sound(tmp_path / "store", store.config)


def store_on_a_full_disk(root):
    return MessageStore(
        config_of(root), environment=Environment(lambda: START_MS, lambda _: 0.87, lambda _: 12)
    )


def test_a_segment_is_deleted_and_unmapped_when_nobody_holds_it(tmp_path):
    with store_on_a_full_disk(tmp_path / "store") as store:
        store.append_batch(make_batch(range(200)))
        assert store.wait_for_dispatch()
        first = store.services.flush._queue.first
        with first.select(0) as view:
            before = bytes(view)
            for _ in range(2):
                assert not store.services.clean_commit_log.run_once()
                assert store.min_phy_offset == first.file_size
            assert Path(first.path).exists()
            assert not first.hold()
            assert first._map is not None
            assert bytes(view) == before
            del view
        assert first._map is None
        assert first._fd < 0
        assert store.look_message_by_offset(0) is None
        assert store.services.clean_commit_log.run_once()
        assert not Path(first.path).exists()


def test_a_segment_that_is_held_for_too_long_is_deleted(tmp_path):
    now = [START_MS]
    config = config_of(tmp_path / "store", destroy_maped_file_interval_forcibly=5000)
    store = MessageStore(
        replace(config, redelete_hanged_file_interval=3000, delete_file_batch_max=2),
        environment=Environment(lambda: now[0], lambda _: 0.87, lambda _: 12),
    )
    with store:
        store.append_batch(make_batch(range(200)))
        assert store.wait_for_dispatch()
        first, clean = store.services.flush._queue.first, store.services.clean_commit_log
        with first.select(0) as view:
            before = bytes(view)
            assert not clean.run_once()
            clean._disk_ratio = lambda _: 0.1  # no other segment may be deleted
            clean._hour = lambda _: 3
            for passed in (3000, 1999, 1, 999, 1):
                now[0] += passed
                is_there = now[0] < START_MS + 6000  # the second check
                clean.run_once()
                assert Path(first.path).exists() == is_there, now[0] - START_MS
            assert bytes(view) == before
            del view
        assert first._fd < 0


def test_an_expired_segment_that_is_held_is_deleted_by_shutdown(tmp_path):
    with store_on_a_full_disk(tmp_path / "store") as store:
        store.append_batch(make_batch(range(200)))
        assert store.wait_for_dispatch()
        first = store.services.flush._queue.first
        with first.select(0):
            store.services.clean_commit_log.run_once()
            store.shutdown()
            assert not Path(first.path).exists()


def test_shutdown_while_others_put_and_read(tmp_path):
    """Acknowledged messages are there afterwards; the rest was refused."""
    config = config_of(tmp_path / "store", flush_disk_type="ASYNC_FLUSH")
    store = MessageStore(config)
    store.load()
    store.start()
    done, refused = [], threading.Event()

    def put(first):
        for number in itertools.count(first, PUTTERS):
            result = store.put_message(make_message(number))
            if not result.is_appended:
                assert result.status.name == "SERVICE_NOT_AVAILABLE", result
                refused.set()
                return
            done.append(number)
            enough.release()

    enough = threading.Semaphore(0)
    threads = [threading.Thread(target=put, args=(first,)) for first in range(PUTTERS)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        enough.acquire()
    store.shutdown()
    for thread in threads:
        thread.join()
    assert refused.is_set()
    assert not (tmp_path / "store" / "abort").exists()
    with MessageStore(config) as again:
        total = sum(
            again.get_max_offset_in_queue(t, q) for t in ("TopicA", "TopicB") for q in (0, 1)
        )
        assert total == len(done)
        keys = {
            topic: [f"U{n}" for n in done if n % 2 == at]
            for at, topic in enumerate(("TopicA", "TopicB"))
        }
        for topic, wanted in keys.items():
            assert len(again.find_messages(topic, wanted)) == len(wanted)
    assert_sound(tmp_path / "store", config)
