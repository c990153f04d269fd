# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.services.flush_services import CheckpointService, FlushConsumeQueueService
from store_core.state.checkpoint import CheckpointFile


@pytest.fixture
def checkpoint(tmp_path):
    made = CheckpointFile(str(tmp_path / "checkpoint"))
    yield made
    made.close()


def stored(checkpoint):
    again = CheckpointFile(checkpoint.path)
    again.load()
    return again.physic_msg_timestamp, again.logics_msg_timestamp


def test_the_checkpoint_is_written_now_and_at_the_end(checkpoint):
    service = CheckpointService(checkpoint, lambda: 100)
    checkpoint.physic_msg_timestamp = 7
    service.run_once()
    assert stored(checkpoint) == (7, 0)
    service.start()
    checkpoint.physic_msg_timestamp = 8
    service.shutdown()
    assert stored(checkpoint) == (8, 0)


def test_no_time_of_the_checkpoint_lies_behind_a_clock_that_was_set_back(checkpoint):
    now = [100]
    service = CheckpointService(checkpoint, lambda: now[0])
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = 90
    service.run_once()
    assert stored(checkpoint) == (90, 90)
    now[0] = 50
    service.run_once()
    assert stored(checkpoint) == (90, 50)
    assert checkpoint.min_timestamp == 0


class Queues:
    def __init__(self):
        self.flushes = []
        self.meanwhile = lambda: None

    def flush(self, least_pages=0):
        self.flushes.append(least_pages)
        self.meanwhile()


class Dispatched:
    offset, timestamp = -1, 0

    def __call__(self):
        return self.offset, self.timestamp


@pytest.fixture
def parts(log, checkpoint):
    queues, dispatched = Queues(), Dispatched()
    service = FlushConsumeQueueService(
        queues, MessageStoreConfig(), checkpoint, log.clock, dispatched
    )
    return service, queues, dispatched


def test_queues_are_flushed_once_a_minute(log, checkpoint, parts):
    service, queues, dispatched = parts
    dispatched.timestamp = 50
    log.clock.now += 59_999
    assert not service.run_once()
    log.clock.now += 1
    assert [service.run_once(), service.run_once()] == [True, False]
    assert (queues.flushes, stored(checkpoint)) == ([2, 0, 2], (0, 50))


def test_without_least_pages_all_are_flushed_each_time(log, checkpoint):
    queues, dispatched = Queues(), Dispatched()
    dispatched.timestamp = 50
    config = MessageStoreConfig(flush_consume_queue_least_pages=0)
    service = FlushConsumeQueueService(queues, config, checkpoint, log.clock, dispatched)
    assert service.run_once()
    assert (queues.flushes, stored(checkpoint)) == ([0], (0, 50))


def test_the_checkpoint_gets_the_time_from_before_the_flush(log, checkpoint, parts):
    service, queues, dispatched = parts
    dispatched.timestamp = 50

    def dispatch():
        assert checkpoint.logics_msg_timestamp == 0
        dispatched.timestamp = 60

    queues.meanwhile = dispatch
    log.clock.now += 60_000
    service.run_once()
    assert stored(checkpoint) == (0, 50)


def test_a_failed_flush_moves_no_time_and_is_tried_again(log, checkpoint, parts):
    service, queues, dispatched = parts
    dispatched.timestamp = 50

    def fails():
        raise OSError("disk full")

    queues.meanwhile = fails
    log.clock.now += 60_000
    with pytest.raises(OSError, match="disk full"):
        service.run_once()
    assert checkpoint.logics_msg_timestamp == 0
    queues.meanwhile = lambda: None
    assert service.run_once()
    assert stored(checkpoint) == (0, 50)


def test_the_end_flushes_everything_and_keeps_a_known_time(checkpoint, parts):
    service, queues, _ = parts
    checkpoint.logics_msg_timestamp = 40
    service.start()
    service.shutdown()
    assert (queues.flushes, stored(checkpoint)) == ([2, 0], (0, 40))


def test_a_checkpoint_for_5_5_gets_the_place_of_the_last_dispatch(log, checkpoint, parts):
    service, _, dispatched = parts
    checkpoint.for_5_5 = True
    dispatched.offset, dispatched.timestamp = 700, 50
    log.clock.now += 60_000
    service.run_once()
    again = CheckpointFile(checkpoint.path)
    again.load()
    assert again.logics_physical_offset == 700
