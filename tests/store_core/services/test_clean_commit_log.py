# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreWriteError
from store_core.files.mapped_file import MappedFile
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.services.clean_commit_log import (
    CleanCommitLogService,
    CleanConsumeQueueService,
    CorrectLogicOffsetService,
)
from store_core.services.environment import disk_ratio, local_hour
from store_core.state.running_flags import RunningFlag, RunningFlags

HOUR = 3_600_000
NOW = 1000 * HOUR


class Store:
    """Six segments, the oldest 100 hours old, each 10 hours younger than the one before."""

    def __init__(self, log, **keys):
        log.add(*[600] * 6)
        for number, file in enumerate(log.queue.mapped_files):
            seconds = (NOW - (100 - 10 * number) * HOUR) // 1000
            os.utime(file.path, (seconds, seconds))
        log.clock.now = NOW
        self.queue, self.flags, self.clock = log.queue, RunningFlags(), log.clock
        self.log_ratio, self.queue_ratio, self.hour = 0.5, 0.5, 12
        self.dispatched = log.queue.max_offset
        self.queues = Path(log.queue.directories[0]).with_name("consumequeue")
        self.queues.mkdir(exist_ok=True)
        self.service = CleanCommitLogService(
            log.queue,
            MessageStoreConfig(**keys),
            self.flags,
            log.clock,
            queue_directory=str(self.queues),
            dispatched_offset=lambda: self.dispatched,
            disk_ratio=self._ratio,
            hour=lambda now: self.hour if now == self.clock.now else -1,
        )

    def _ratio(self, path):
        if not Path(path).is_dir():
            return disk_ratio(path)
        return self.queue_ratio if path == str(self.queues) else self.log_ratio

    def run(self):
        """Run once; return how many segments were deleted."""
        before = len(self.queue.mapped_files)
        answer = self.service.run_once()
        deleted = before - len(self.queue.mapped_files)
        assert answer == (deleted > 0)
        return deleted


@pytest.fixture
def store(log):
    return Store(log)


def test_nothing_goes_outside_of_the_hours(store):
    assert store.run() == 0


def test_what_is_old_enough_goes_in_its_hour(store):
    store.hour = 4
    assert [store.run(), store.run()] == [3, 0]
    assert store.queue.min_offset == 3 * 1024
    store.clock.now += 2 * HOUR
    assert store.run() == 1


def test_several_hours(log):
    store = Store(log, delete_when="05;12", file_reserved_time=85)
    assert store.run() == 2


def test_the_hour_of_a_time_zone(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    assert local_hour(1_700_000_000_000) == 3  # 22:13 UTC, and 5:45 h more
    monkeypatch.undo()
    time.tzset()


def test_by_hand_for_twenty_runs(store):
    store.service.execute_delete_files_manually()
    assert [store.run() for _ in range(19)] == [3] + [0] * 18
    store.clock.now += 10 * HOUR
    assert store.run() == 1
    store.clock.now += 10 * HOUR
    assert store.run() == 0


@pytest.mark.parametrize(
    ("log_ratio", "queue_ratio"), [(0.76, 0.1), (0.1, 0.76), (-1, 0.1), (0.1, -1)]
)
def test_expired_segments_go_at_any_hour_when_space_gets_short(store, log_ratio, queue_ratio):
    store.log_ratio, store.queue_ratio = log_ratio, queue_ratio
    assert store.run() == 3
    assert store.flags.is_writeable


def test_what_is_not_dispatched_stays_even_when_the_disk_is_full(store):
    store.dispatched, store.log_ratio = 2047, 0.95
    assert store.run() == 1
    store.dispatched = 2048
    assert store.run() == 1
    assert store.queue.min_offset == 2048


def test_no_segment_can_go(log, caplog):
    store = Store(log, file_reserved_time=200)
    store.log_ratio = 0.8
    assert store.run() == 0
    assert "no segment of the commit log can be deleted" in caplog.text


@pytest.mark.parametrize("which", ["log_ratio", "queue_ratio"])
def test_a_disk_that_fills_up_and_gets_free_again(log, which, caplog):
    store = Store(log, delete_file_batch_max=2)
    flag = RunningFlag.DISK_FULL if which == "log_ratio" else RunningFlag.LOGIC_DISK_FULL
    seen = []
    for ratio in (0.85, 0.86, 0.90, 0.91, 0.92, 0.88, 0.85, 0.86):
        setattr(store, which, ratio)
        seen.append((store.run(), store.flags.flags))
    # 0.85 is above diskMaxUsedSpaceRatio: old enough segments go. Above that any but the last.
    full = [0, 0, 0, flag, flag, flag, 0, 0]
    assert seen == list(zip([2, 2, 1, 0, 0, 0, 0, 0], full))
    assert caplog.text.count("puts are refused") == 1


def test_segments_that_are_too_young_stay_where_the_configuration_says_so(log):
    store = Store(log, clean_file_forcibly_enable=False)
    store.log_ratio = 0.95
    assert [store.run(), store.run()] == [3, 0]


@pytest.mark.parametrize(
    ("keys", "level"),
    [
        ({"disk_space_warning_level_ratio": 99}, 0.90),
        ({"disk_space_warning_level_ratio": 70, "disk_space_clean_forcibly_ratio": 60}, 0.70),
        ({"disk_space_warning_level_ratio": 1}, 0.35),
    ],
)
def test_the_warning_level_has_bounds(log, keys, level):
    store = Store(log, **keys)
    store.queue_ratio, store.log_ratio = 0.1, level
    store.run()
    assert store.flags.is_writeable
    store.log_ratio = level + 0.01
    store.run()
    assert not store.flags.is_writeable


@pytest.mark.parametrize(("ratio", "level"), [(99, 0.85), (60, 0.60), (1, 0.30)])
def test_the_forced_level_has_bounds(log, ratio, level):
    store = Store(log, disk_space_clean_forcibly_ratio=ratio)
    store.queue_ratio, store.log_ratio = 0.1, level
    assert store.run() == (3 if level > 0.75 else 0)
    store.log_ratio = level + 0.01
    assert store.run() == (2 if level > 0.75 else 5)


@pytest.mark.parametrize(("ratio", "level"), [(1, 0.10), (9, 0.10), (10, 0.10), (60, 0.60)])
def test_the_level_of_any_hour_has_bounds(log, ratio, level):
    store = Store(log, disk_max_used_space_ratio=ratio)
    store.queue_ratio = store.log_ratio = level
    assert store.run() == 0
    store.log_ratio = level + 0.01
    assert store.run() == 3


def test_above_its_highest_level_segments_go_at_any_hour(log):
    """So they do at the forced level, but not if that is turned off."""
    store = Store(log, disk_max_used_space_ratio=100, clean_file_forcibly_enable=False)
    store.queue_ratio, store.log_ratio = 0.1, 0.95
    store.service._forced = store.service._warning = 1.0
    assert store.run() == 0
    store.log_ratio = 0.96
    assert store.run() == 3


def test_full_directories_of_several(tmp_path):
    ratios = {str(tmp_path / "a"): 0.86, str(tmp_path / "b"): 0.2, str(tmp_path / "c"): 0.85}
    queue, flags = MappedFileQueue(list(ratios), 64, option="size"), RunningFlags()
    config = MessageStoreConfig()
    service = CleanCommitLogService(
        queue,
        config,
        flags,
        lambda: NOW,
        queue_directory="q",
        dispatched_offset=lambda: 0,
        disk_ratio=lambda path: ratios.get(path, 0.1),
        hour=lambda _: 0,
    )
    service.run_once()
    assert queue.full_directories == {str(tmp_path / "a")}
    ratios.update(dict.fromkeys(ratios, 0.95))
    service.run_once()
    assert queue.full_directories == set(ratios)
    assert not flags.is_writeable
    ratios[str(tmp_path / "b")] = 0.2  # the emptiest decides
    service.run_once()
    assert flags.is_writeable
    assert len(queue.full_directories) == 2


@pytest.mark.parametrize(
    ("which", "name"),
    [("log", "storePathCommitLog"), ("queues", "the directory of the queues")],
)
def test_a_directory_that_is_gone_is_no_full_disk(store, caplog, which, name):
    """No expired segment is deleted for it, at no hour; puts go on when the directory is back."""
    path = Path(store.queue.directories[0]) if which == "log" else store.queues
    kept = path.rename(path.with_name("kept"))
    assert [store.run(), store.run()] == [0, 0]
    said = f"{name} {path} no longer exists: restore it (is its disk mounted?)"
    assert (store.flags.gone, store.flags.is_writeable, store.flags.flags) == (said, False, 0)
    assert caplog.messages == [said]
    kept.rename(path)
    assert store.run() == 0
    assert (store.flags.gone, store.flags.is_writeable) == ("", True)
    store.log_ratio = 0.95  # a full disk is reported as such, as ever
    store.service.run_once()
    assert RunningFlag.DISK_FULL in store.flags.flags


def test_a_full_disk_whose_directory_goes_is_not_called_full(store, caplog):
    store.dispatched, store.log_ratio = 0, 0.95
    store.run()
    path = Path(store.queue.directories[0])
    path.rename(path.with_name("kept"))
    caplog.clear()
    store.run()
    assert "no longer exists" in store.flags.gone
    assert caplog.messages == [store.flags.gone]
    path.with_name("kept").rename(path)


def test_one_of_several_directories_that_is_gone(tmp_path, caplog):
    """New segments go to the others, which are as full as they are."""
    log, queues = [tmp_path / name for name in "abc"], tmp_path / "consumequeue"
    for path in (*log[:2], queues):
        path.mkdir()
    ratios = {str(log[0]): 0.95, str(log[1]): 0.92}
    queue, flags = MappedFileQueue([*map(str, log)], 64, option="size"), RunningFlags()
    service = CleanCommitLogService(
        queue,
        MessageStoreConfig(),
        flags,
        lambda: NOW,
        queue_directory=str(queues),
        dispatched_offset=lambda: 0,
        disk_ratio=lambda path: ratios.get(path, 0.1 if Path(path).is_dir() else -1),
        hour=lambda _: 0,
    )
    service.run_once()
    assert f"storePathCommitLog {log[2]} no longer exists" in caplog.text
    assert (flags.gone, flags.flags) == ("", RunningFlag.DISK_FULL)
    ratios[str(log[1])] = 0.2
    service.run_once()
    assert flags.is_writeable
    assert {queue.directory_of(64 * number) for number in range(6)} == {str(log[1])}


def test_the_thread_rests_between_files_until_it_is_to_stop(log):
    store = Store(log, delete_commit_log_files_interval=HOUR)
    store.hour = 4
    first_is_gone = threading.Event()
    delete = store.queue.delete_expired_files

    def deletes(*args, **options):
        count = delete(*args, **options)
        first_is_gone.set()
        return count

    store.queue.delete_expired_files = deletes
    store.service._first_delay_s = 0
    store.service.start()
    assert first_is_gone.wait(10)
    assert len(list(Path(store.queue.directories[0]).iterdir())) == 5
    store.service.shutdown()


def test_a_full_disk_shows_while_a_segment_cannot_be_deleted(store, monkeypatch):
    def fail(file):
        raise StoreWriteError("Operation not permitted", file.path)

    monkeypatch.setattr(MappedFile, "destroy", fail)
    store.hour = 4
    with pytest.raises(StoreWriteError):
        store.service.run_once()
    store.clock.now += 200_000  # the next check is due
    store.log_ratio = 0.95
    with pytest.raises(StoreWriteError):
        store.service.run_once()
    assert RunningFlag.DISK_FULL in store.flags.flags


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
