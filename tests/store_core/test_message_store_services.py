# SPDX-License-Identifier: Apache-2.0
"""Other work of a store than puts and reads: flush, dispatch, expiry; and its reports."""

from __future__ import annotations

import threading

import pytest

from store_core import MessageStore, StoreConfigError
from store_core.services import open_store
from store_core.services.environment import Environment
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of, make_batch, make_message, numbers_in
from tests.store_core.whole_store import put, statuses


def test_transient_pool(root):
    config = config_of(root, transient_store_pool_enable=True, flush_disk_type="ASYNC_FLUSH")
    with without_threads(), MessageStore(config) as store:
        put(store, range(10))
        assert (store.max_phy_offset, store.dispatch_behind_bytes) == (0, 0)
        end = store.flush()
        assert store.max_phy_offset == end > 0
        dispatch_all(store)
        put(store, range(10, 100))  # rolls; `shutdown` writes it out
    judge(root, config, range(100), range(100))


def test_transient_pool_without_memory(root, monkeypatch):
    def no_memory(*_):
        raise OSError(12, "Cannot allocate memory")

    config = config_of(root, transient_store_pool_enable=True)
    with monkeypatch.context() as patch:
        patch.setattr(open_store, "TransientStorePool", no_memory)
        with pytest.raises(StoreConfigError, match="transientStorePoolSize=5: there is no memory"):
            MessageStore(config).load()
    with MessageStore(config) as store:  # the lock was given back
        put(store, [0])


def test_dispatchers_get_all_records_once(root):
    seen = []
    config = config_of(root)
    take = lambda frames: seen.extend(frames.column("commit_log_offset").tolist())  # noqa: E731
    with MessageStore(config, dispatchers=[take]) as store:
        puts = [store.put_message(make_message(n)).append_result for n in range(60)]
        assert store.wait_for_dispatch()
    assert seen == [done.commit_log_offset for done in puts]


def test_a_dispatcher_that_fails_gets_the_records_again(by_hand, root):
    by_hand.shutdown()
    calls = []

    def fail_once(frames):
        calls.append(len(frames))
        if len(calls) == 1:
            raise ValueError("not now")

    store = MessageStore(config_of(root), dispatchers=[fail_once])
    with store:
        put(store, range(3))
        with pytest.raises(ValueError, match="not now"):
            dispatch_all(store)
        dispatch_all(store)
        assert calls == [3, 3]
    judge(root, store.config, range(3), range(3))


def test_runtime_info_has_rocketmqs_keys(by_hand, root):
    put(by_hand, range(3))
    info = by_hand.runtime_info()
    assert info["putMessageTimesTotal"] == "3"
    assert int(info["commitLogMaxOffset"]) == by_hand.max_phy_offset
    directory = root / "commitlog"
    assert info["commitLogDiskRatio"] == info[f"commitLogDiskRatio_{directory}"]
    assert 0 <= float(info["consumeQueueDiskRatio"]) <= 1
    assert {"bootTimestamp", "putTps", "getTotalTps", "commitLogMinOffset"} <= set(info)


def test_shutdown_that_cannot_dispatch_leaves_abort(root):
    def never(_):
        raise ValueError("never")

    with without_threads(), MessageStore(config_of(root), dispatchers=[never]) as store:
        put(store, range(3))
    assert (root / "abort").exists()
    judge(root, store.config, range(3), range(3))


def test_sync_flush_that_takes_too_long(root, monkeypatch):
    """The message is in the log, and safe when the disk has done its work."""
    from store_core.files import mapped_file

    slow, true = threading.Event(), mapped_file.sync_data

    def sync(fd):
        assert slow.wait(30)
        true(fd)

    monkeypatch.setattr(mapped_file, "sync_data", sync)
    with MessageStore(config_of(root, sync_flush_timeout=30)) as store:
        result = store.put_message(make_message(0))
        assert (result.status.name, result.append_result.queue_offset) == ("FLUSH_DISK_TIMEOUT", 0)
        assert store.append_batch(make_batch([4])).status.name == "FLUSH_DISK_TIMEOUT"
        slow.set()
        assert store.flush() == store.max_phy_offset
    with MessageStore(config_of(root)) as store:
        assert store.put_message(make_message(8)).status.name == "PUT_OK"
    judge(root, store.config, [0, 4, 8], [0, 4, 8])


class TestExpiry:
    """The effect of the cleaning services on a whole store; clock and disks are simulated."""

    @pytest.fixture
    def store(self, root):
        self.ratio, self.hour, self.later_ms = 0.5, 12, 0
        begin = 1_000  # before any file was changed
        store = MessageStore(
            config_of(root, mapped_file_size_commit_log=8 << 10, delete_file_batch_max=2),
            environment=Environment(
                lambda: begin + self.later_ms, lambda _: self.ratio, lambda _: self.hour
            ),
        )
        with without_threads(), store:
            put(store, range(200))
            dispatch_all(store)
            self.segments = len(store.services.flush._queue.mapped_files)
            yield store

    def clean(self, store):
        services = store.services
        before = store.min_phy_offset
        services.clean_commit_log.run_once()
        services.correct_logic_offset.run_once()
        services.clean_consume_queue.run_once()
        return (store.min_phy_offset - before) // (8 << 10)

    def test_at_the_hour_when_old(self, store):
        assert self.clean(store) == 0
        self.hour = 4
        assert self.clean(store) == 0  # not old enough
        self.later_ms = 10**15
        assert [self.clean(store) for _ in range(3)] == [2, 2, 2]
        self.hour = 5
        assert self.clean(store) == 0
        for (topic, queue_id), numbers in numbers_in(store).items():
            least = store.get_min_offset_in_queue(topic, queue_id)
            first = store.get_message("g", topic, queue_id, least, 1).messages[0]
            assert first.commit_log_offset >= store.min_phy_offset
            assert store.get_max_offset_in_queue(topic, queue_id) - least == len(numbers) < 50

    def test_disk_is_nearly_full(self, store):
        self.ratio = 0.8
        assert self.clean(store) == 0  # not old enough
        self.ratio = 0.86
        assert self.clean(store) == 2
        assert statuses(store) == ["PUT_OK"] * 3
        self.ratio = 0.95
        assert self.clean(store) == 2
        refused = store.put_message(make_message(0))
        assert refused.status.name == "SERVICE_NOT_AVAILABLE"
        assert "free space" in refused.reason
        self.ratio = 0.5
        assert self.clean(store) == 0
        assert statuses(store) == ["PUT_OK"] * 3

    def test_what_is_not_dispatched_stays(self, store):
        put(store, range(200, 800))
        self.ratio = 0.86
        while self.clean(store):
            pass
        assert store.min_phy_offset <= store.services.reput.reput_from_offset
        assert store.dispatch_behind_bytes > 0
        dispatch_all(store)
        assert sum(map(len, numbers_in(store).values())) >= 600
        assert self.clean(store) > 0
