from __future__ import annotations

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.services.clean_commit_log import (
    CleanConsumeQueueService,
    CorrectLogicOffsetService,
)


class Recorder:
    def __init__(self):
        self.calls = []
        self.error = None

    def delete_expired(self, min_phy_offset):
        self.calls.append(min_phy_offset)
        if self.error is not None:
            raise self.error

    correct_min_offsets = delete_expired

    def queues(self):
        return [("T", 0)]

    def delete_expired_of(self, key, min_phy_offset):
        assert key == ("T", 0)
        self.delete_expired(min_phy_offset)
        return 1


def test_queues_and_index_follow_the_log(log):
    queues, index = Recorder(), Recorder()
    service = CleanConsumeQueueService(log.queue, queues, index, MessageStoreConfig())
    assert not service.run_once()  # there is no log
    log.add(*[600] * 4)
    assert not service.run_once()
    log.queue.delete_files_before(2048)
    assert [service.run_once() for _ in range(3)] == [True, False, False]
    log.queue.delete_files_before(3072)
    assert service.run_once()
    assert queues.calls == index.calls == [2048, 3072]


def test_what_failed_is_done_again(log):
    queues, index = Recorder(), Recorder()
    service = CleanConsumeQueueService(log.queue, queues, index, MessageStoreConfig())
    log.add(*[600] * 2)
    log.queue.delete_files_before(1024)
    index.error = OSError("read-only")
    with pytest.raises(OSError, match="read-only"):
        service.run_once()
    index.error = None
    assert service.run_once()
    assert index.calls == [1024, 1024]


def test_least_offsets_are_corrected_when_the_log_is_cut_or_after_five_minutes(log):
    queues = Recorder()
    service = CorrectLogicOffsetService(log.queue, queues, MessageStoreConfig(), log.clock)
    log.clock.now += 400_000
    assert not service.run_once()  # there is no log
    log.clock.now -= 400_000
    log.add(*[600] * 4)
    assert not service.run_once()
    log.queue.delete_files_before(1024)
    assert [service.run_once(), service.run_once()] == [True, False]
    log.clock.now += 299_999
    assert not service.run_once()
    log.clock.now += 1
    assert [service.run_once(), service.run_once()] == [True, False]
    assert queues.calls == [1024, 1024]
