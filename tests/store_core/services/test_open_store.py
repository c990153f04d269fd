# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from store_core.recovery.store_files import OpenOptions, open_store_files
from store_core.services.environment import Environment
from store_core.services.open_store import OpenStore, _QueuesBehindLog
from store_core.state.running_flags import RunningFlags
from tests.store_core.crash.messages import config_of


def now():
    return 1_700_000_000_000


@pytest.fixture
def make(tmp_path):
    opened = []

    def make(**settings):
        files = open_store_files(config_of(tmp_path / "store", **settings), OpenOptions(now))
        opened.append(files)
        return OpenStore(files, RunningFlags(), Environment(now), (), bytes(8), True, None)

    yield make
    for files in opened:
        files.close(clean=True)


def test_all_services_run_between_start_and_shutdown(make):
    # A Spark session of another test has threads of its own in this process.
    others = set(threading.enumerate())

    def names():
        return {thread.name for thread in threading.enumerate() if thread not in others}

    store = make(transient_store_pool_enable=True)
    assert not names()
    store.start()
    assert names() == {
        "AllocateMappedFileService",
        "BuildIndexService",
        "CheckpointService",
        "CommitRealTimeService",
        "FlushConsumeQueueService",
        "GroupCommitService",
        "ReputMessageService",
        "ServicesInTurn",
        "StoreStatsService",
    }
    store._stop()
    assert not names()
    assert not store.is_failing


def test_who_was_never_started_is_finished_all_the_same(make, monkeypatch):
    store, finished = make(), []
    for name in ("reput", "build_index", "flush_queues", "checkpoint", "allocate"):
        service = getattr(store, name)
        monkeypatch.setattr(service, "finish", lambda name=name: finished.append(name))
    store._stop()
    assert finished == ["reput", "build_index", "flush_queues", "allocate", "checkpoint"]


@pytest.mark.parametrize("name", ["reput", "build_index", "flush_queues", "checkpoint"])
def test_a_failure_at_the_end_is_known(make, monkeypatch, name):
    store = make()

    def fails():
        raise OSError("no")

    monkeypatch.setattr(getattr(store, name), "finish", fails)
    store._stop()
    assert store.is_failing


def test_dispatch_ends_where_the_log_is_flushed_unless_uncommitted_is_read(make):
    store = make()
    store.reput._log.writable_file().append(bytes(100))
    assert store.dispatch_behind_bytes == 0
    assert store.flush_log() == 100
    assert store.dispatch_behind_bytes == 100


def test_read_uncommitted(make):
    store = make(read_un_committed=True)
    store.reput._log.writable_file().append(bytes(100))
    assert store.dispatch_behind_bytes == 100


def test_the_log_is_not_forced_for_queues_that_wait(make, monkeypatch):
    store, forced = make(), []
    monkeypatch.setattr(store, "flush_log", lambda: forced.append("log"))
    queues = _QueuesBehindLog(store.flush_log, QueuesThatWait(forced))
    queues.flush(2)
    assert forced == []
    queues.flush(1)
    queues.flush()
    assert forced == ["log", 1, "log", 0]


class QueuesThatWait:
    """One page of a queue waits."""

    def __init__(self, forced):
        self.flush = lambda least_pages=0: forced.append(least_pages)

    def is_worth_flush(self, least_pages):
        return least_pages <= 1
