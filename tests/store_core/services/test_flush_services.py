# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreWriteError
from store_core.results import PutMessageStatus
from store_core.services.allocate_mapped_file import AllocateMappedFileService, TransientStorePool
from store_core.services.flush_services import (
    CommitRealTimeService,
    FlushManager,
    FlushRealTimeService,
    GroupCommitService,
)
from store_core.state.checkpoint import CheckpointFile
from tests.store_core.services.growing_log import GrowingLog

TIMEOUT_MS = 10_000


@pytest.fixture
def checkpoint(tmp_path):
    made = CheckpointFile(str(tmp_path / "checkpoint"))
    yield made
    made.close()


@pytest.fixture
def syncs(monkeypatch):
    real, calls = os.fdatasync, []

    def counting(fd):
        calls.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", counting)
    return calls


class Woken:
    count = 0

    def wakeup(self):
        self.count += 1


def with_buffers(log, size=3):
    pool = TransientStorePool(size, log.queue.file_size)
    log.queue.allocate = AllocateMappedFileService(
        log.queue.file_size, MessageStoreConfig(), pool
    ).allocate
    return pool


def test_a_real_time_flush_waits_for_pages_or_its_time(tmp_path, checkpoint):
    log = GrowingLog(tmp_path / "log", 1 << 20)
    service = FlushRealTimeService(log.queue, MessageStoreConfig(), checkpoint, log.clock)
    first = log.add(100)
    assert service.run_once()
    assert (log.queue.flushed_where, checkpoint.physic_msg_timestamp) == (first, log.clock.now)
    log.add(100)
    assert not service.run_once()
    flushed = log.add(4 * 4096)
    assert service.run_once()
    assert log.queue.flushed_where == flushed
    assert checkpoint.physic_msg_timestamp < log.clock.now  # of the last thorough flush
    end = log.add(100)
    log.clock.now += 9_000
    assert not service.run_once()
    stamp = log.clock.now
    log.clock.now += 1_000
    assert service.run_once()
    assert (log.queue.flushed_where, checkpoint.physic_msg_timestamp) == (end, stamp - 9_000)
    log.queue.destroy()


def test_a_clock_that_was_set_back_does_not_stop_flushes(log, checkpoint):
    service = FlushRealTimeService(log.queue, MessageStoreConfig(), checkpoint, log.clock)
    service.run_once()
    log.clock.now -= 500_000
    log.add(1)
    assert service.run_once()


def test_a_real_time_flush_takes_all_segments(log, checkpoint):
    service = FlushRealTimeService(log.queue, MessageStoreConfig(), checkpoint, log.clock)
    end = log.add(*[600] * 5)
    assert service.run_once()
    assert log.queue.flushed_where == end
    end = log.add(5)
    service.start()
    service.shutdown()
    assert log.queue.flushed_where == end


def test_one_flush_serves_all_that_wait(log, checkpoint, syncs):
    service = GroupCommitService(log.queue, checkpoint)
    flush_may_run, all_run = threading.Semaphore(0), service.run_once

    def run_when_allowed():
        assert flush_may_run.acquire(timeout=TIMEOUT_MS)
        return all_run()

    service.run_once = run_when_allowed
    service.start()
    end = log.add(1, 2, 3)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(service.wait_for(end, TIMEOUT_MS)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    while len(service._waiters) < 8:
        threads[0].join(0.001)
    flush_may_run.release()
    for thread in threads:
        thread.join()
    assert (answers, len(syncs)) == ([True] * 8, 1)
    assert checkpoint.physic_msg_timestamp == log.clock.now
    flush_may_run.release(100)
    service.shutdown()


def test_a_flush_that_does_not_come_in_time(log, checkpoint):
    service = GroupCommitService(log.queue, checkpoint)
    service.run_once = lambda: False
    service.start()
    assert not service.wait_for(log.add(1), 1)
    assert service._waiters == []
    service.shutdown()


def test_what_is_on_the_disk_already_is_not_waited_for(log, checkpoint):
    service = GroupCommitService(log.queue, checkpoint)
    service.start()
    end, begin = log.add(1), time.monotonic()
    assert service.wait_for(end, TIMEOUT_MS)
    assert service.wait_for(end, TIMEOUT_MS)
    assert time.monotonic() < begin + TIMEOUT_MS / 1000
    service.shutdown()


def test_a_failed_flush_is_told_at_once_and_not_forgotten(log, checkpoint, monkeypatch):
    service = GroupCommitService(log.queue, checkpoint)
    end = log.add(1)

    def fails(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        begin = time.monotonic()
        service.start()
        assert not service.wait_for(end, TIMEOUT_MS)
        assert not service.wait_for(end, TIMEOUT_MS)
        assert time.monotonic() < begin + TIMEOUT_MS / 1000
        service.shutdown()
        assert isinstance(service.last_error, StoreWriteError)
    with pytest.raises(StoreWriteError, match="Input/output error"):
        service.run_once()
    assert (log.queue.flushed_where, checkpoint.physic_msg_timestamp) == (0, 0)


def test_without_its_thread_the_caller_flushes(log, checkpoint):
    service = GroupCommitService(log.queue, checkpoint)
    end = log.add(1, 600, 600)
    assert service.wait_for(end, 0)
    assert log.queue.flushed_where == end
    assert not service.run_once()


def test_who_waits_does_not_wait_for_the_buffers_to_be_written(log, checkpoint):
    with_buffers(log)
    service = GroupCommitService(log.queue, checkpoint)
    end = log.add(600, 600, 600)
    assert log.queue.max_offset == 0
    assert service.wait_for(end, 0)
    assert log.queue.flushed_where == log.queue.max_offset == end


def test_threads_that_put_and_wait(log, checkpoint):
    service = GroupCommitService(log.queue, checkpoint)
    service.start()
    lock, lost = threading.Lock(), []

    def put():
        for _ in range(25):
            with lock:
                end = log.add(30)
            if not service.wait_for(end, TIMEOUT_MS) or log.queue.flushed_where < end:
                lost.append(end)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    service.shutdown()
    assert (lost, len(log.offsets), service.last_error) == ([], 100, None)


def test_buffers_are_written_by_pages_or_time_and_the_flush_is_woken(log):
    pool, woken = with_buffers(log), Woken()
    service = CommitRealTimeService(log.queue, MessageStoreConfig(), log.clock, woken)
    first = log.add(10)
    assert log.queue.max_offset == 0
    assert service.run_once()
    assert (log.queue.max_offset, log.queue.committed_where, woken.count) == (first, first, 1)
    end = log.add(20)
    assert not service.run_once()
    log.clock.now += 200
    assert service.run_once()
    assert (log.queue.max_offset, woken.count) == (end, 2)
    assert pool.available == 2
    log.add(900, 900)  # full segments are written at any time
    assert service.run_once()
    assert pool.available == 2
    end = log.add(1)
    service.start()
    service.shutdown()
    assert log.queue.max_offset == end


def test_a_full_segment_in_memory_ends_what_can_be_read(log):
    with_buffers(log, 1)
    log.add(600)
    log.add(600)  # goes to the file directly: no buffer is left
    assert (log.queue.max_wrote_offset, log.queue.max_offset) == (1024 + 692, 0)
    log.queue.commit()
    assert log.queue.max_offset == 1024 + 692


class TestFlushManager:
    def made(self, log, checkpoint, **keys):
        return FlushManager(log.queue, MessageStoreConfig(**keys), checkpoint, log.clock)

    def test_asynchronous(self, log, checkpoint):
        manager = self.made(log, checkpoint)
        end = log.add(1)
        assert manager.handle(end, wait=True) is PutMessageStatus.PUT_OK
        assert (manager.confirm_offset(), log.queue.flushed_where) == (end, 0)
        manager.start()
        manager.shutdown_or_finish()
        assert log.queue.flushed_where == end

    def test_synchronous(self, log, checkpoint):
        manager = self.made(log, checkpoint, flush_disk_type="SYNC_FLUSH")
        manager.start()
        end = log.add(1)
        assert manager.handle(end, wait=True) is PutMessageStatus.PUT_OK
        assert manager.confirm_offset() == log.queue.flushed_where == end
        end = log.add(1)
        assert manager.handle(end, wait=False) is PutMessageStatus.PUT_OK
        manager.shutdown_or_finish()
        assert manager.confirm_offset() == end

    def test_synchronous_and_too_late(self, log, checkpoint):
        manager = self.made(log, checkpoint, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=1)
        manager.group_commit.run_once = lambda: False
        manager.start()
        end = log.add(1)
        assert manager.handle(end, wait=True) is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert manager.confirm_offset() == 0
        manager.shutdown_or_finish()

    @pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
    def test_with_the_transient_pool(self, log, checkpoint, flush_disk_type):
        pool = with_buffers(log)
        manager = self.made(
            log, checkpoint, flush_disk_type=flush_disk_type, transient_store_pool_enable=True
        )
        manager.start()
        end = log.add(*[600] * 8)
        assert manager.handle(end, wait=True) is PutMessageStatus.PUT_OK
        manager.shutdown_or_finish()
        assert manager.confirm_offset() == log.queue.flushed_where == end
        data = b"".join(Path(f.path).read_bytes() for f in log.queue.mapped_files)
        assert all(data[o + 4 : o + 8] == bytes.fromhex("daa320a7") for o in log.offsets)
        assert pool.available >= 2

    def test_a_slave_has_no_pool(self, log, checkpoint):
        manager = self.made(log, checkpoint, broker_role="SLAVE", transient_store_pool_enable=True)
        assert manager.commit_service is None

    @pytest.mark.parametrize("pool", [False, True])
    @pytest.mark.parametrize("wakes", [False, True])
    def test_wakes_what_the_configuration_says(self, log, checkpoint, pool, wakes):
        manager = self.made(
            log,
            checkpoint,
            transient_store_pool_enable=pool,
            wake_flush_when_put_message=wakes,
            wake_commit_when_put_message=wakes,
        )
        woken = []
        for service in (manager.flush_service, manager.commit_service):
            if service is not None:
                service.wakeup = partial(woken.append, service)
        manager.handle(1, wait=True)
        assert woken == [manager.commit_service or manager.flush_service] * wakes
