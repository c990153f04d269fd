# SPDX-License-Identifier: Apache-2.0
"""Whatever a crash leaves of the timer's files: nothing is lost, nothing enqueued twice."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from store_core.layout import TIMER_LOG_UNIT
from store_core.timer import timer_message_store
from tests.store_core.timer.timed_store import (
    START_MS,
    Clock,
    SavedFiles,
    bodies,
    checkpoint_of,
    put_timed,
    run,
    slot_of,
    timed_store,
    units_of,
)

SLOTS = 1_209_600
LATER_MS = START_MS + 60_000


@pytest.fixture
def clock():
    return Clock(START_MS)


def put_some(store, names, seconds=5):
    for name in names:
        put_timed(store, name.encode(), TIMER_DELAY_SEC=str(seconds))


def delivered(root, clock, now=LATER_MS):
    """Open the store, deliver, stop cleanly; return how often each body came."""
    with timed_store(root, clock) as (store, service):
        run(store, service, now)
        return Counter(body.decode() for body in bodies(store))


@pytest.mark.parametrize(
    "old", [c for n in range(4) for c in itertools.combinations(("log", "wheel", "check"), n)]
)
def test_files_of_different_moments(tmp_path, clock, old):
    """All combinations of files flushed before a crash and not flushed."""
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abcde")
        run(store, service)
        service.save()
        saved = SavedFiles(tmp_path)
        put_some(store, "fghij", seconds=7)
        put_some(store, "klm")
        run(store, service)
    saved.restore(*old)
    with timed_store(tmp_path, clock) as (store, service):
        run(store, service)
        service.finish()
        assert len(units_of(tmp_path)) == 13  # also if the log is older than the checkpoint
        if old != ("wheel",):  # no crash leaves that: some of its units are too old
            assert slot_of(tmp_path, START_MS + 4_000).count == 8
            assert slot_of(tmp_path, START_MS + 6_000).count == 5
    assert delivered(tmp_path, clock) == Counter("abcdefghijklm")


@pytest.mark.parametrize("old", [(), ("wheel",), ("check",), ("wheel", "check"), ("log", "check")])
def test_what_was_delivered_before_a_save_does_not_come_again(tmp_path, clock, old):
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "ab", seconds=2)
        put_some(store, "cd", seconds=9)
        run(store, service)
        run(store, service, START_MS + 5_000)
        service.save()
        saved = SavedFiles(tmp_path)
        put_some(store, "ef", seconds=20)
        run(store, service, START_MS + 12_000)
    saved.restore(*old)
    found = delivered(tmp_path, clock)
    again = 2 if "check" in old else 1  # since the checkpoint: as by a broker
    assert found == Counter(a=1, b=1, c=again, d=again, e=1, f=1)


def test_a_wheel_that_was_lost_is_made_anew(tmp_path, clock):
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abcdefghi")
        run(store, service)
    (tmp_path / "timerwheel").unlink()
    with timed_store(tmp_path, clock) as (store, service):
        assert service.waiting == 9
    assert delivered(tmp_path, clock) == Counter("abcdefghi")


@pytest.mark.parametrize("is_wheel_there", [False, True])
def test_a_wheel_that_was_kept_in_snapshots_is_made_of_the_log(tmp_path, clock, is_wheel_there):
    """``timerWheelSnapshotFlush``: the wheel file itself, if it exists, has almost no data."""
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abcdefghijklmnop")
        run(store, service)
    (tmp_path / "timerwheel").rename(tmp_path / "timerwheel.52")
    if is_wheel_there:
        with (tmp_path / "timerwheel").open("wb") as file:
            file.truncate((tmp_path / "timerwheel.52").stat().st_size)
    with timed_store(tmp_path, clock) as (store, service):
        assert service.waiting == 16
    assert delivered(tmp_path, clock) == Counter("abcdefghijklmnop")


def test_slots_that_point_behind_the_log_lead_nowhere(tmp_path, clock):
    """After a power failure: the wheel's pages were written, the log's not."""
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abc")
        run(store, service)
        service.save()
        saved = SavedFiles(tmp_path)
        put_some(store, "def", seconds=8)
        put_some(store, "ghi")
        run(store, service)
    saved.restore("log", "check")
    with timed_store(tmp_path, clock) as (store, service):
        service.load()
        service._files.wheel.flush()
        assert slot_of(tmp_path, START_MS + 7_000).last_pos == 0
        assert slot_of(tmp_path, START_MS + 4_000).count == 3
        put_some(store, "x", seconds=6)  # takes the place of a lost unit
        run(store, service)
        run(store, service, LATER_MS)
        assert Counter(b"".join(bodies(store)).decode()) == Counter("abcdefghix")


@pytest.mark.parametrize("at", [0, 8, 12, 40])
def test_a_torn_unit_ends_the_log(tmp_path, clock, at):
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "ab")
        run(store, service)
        service.save()
        saved = SavedFiles(tmp_path)
        put_some(store, "cd")
        run(store, service)
    saved.restore("check")
    path = tmp_path / "timerlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    torn = 2 * TIMER_LOG_UNIT.size + at
    data[torn : 4 * TIMER_LOG_UNIT.size] = bytes(4 * TIMER_LOG_UNIT.size - torn)
    path.write_bytes(data)
    found = delivered(tmp_path, clock)
    if at > 12:  # RocketMQ's rule as well: size and magic say that it is one
        assert found["a"] == found["b"] == found["d"] == 1
    else:
        assert found == Counter("abcd")


def test_units_of_records_that_a_power_failure_took(tmp_path, clock):
    """Another record has taken their place by the time that the timers start."""
    with timed_store(tmp_path / "a", clock) as (store, service):
        put_some(store, "a")
        run(store, service)
        service.save()
        before = SavedFiles(tmp_path / "a")
        put_some(store, "b")  # of the same size as that which follows
        run(store, service)
        kept = SavedFiles(tmp_path / "a")
    with timed_store(tmp_path / "b", clock) as (store, service):
        put_some(store, "a")
        run(store, service)
    for saved, names in ((before, ["check"]), (kept, ["log", "wheel"])):
        saved.root = tmp_path / "b"
        saved.restore(*names)
    assert len(units_of(tmp_path / "b")) == 2
    with timed_store(tmp_path / "b", clock) as (store, service):
        put_some(store, "z", seconds=9)
        assert store.wait_for_dispatch()
        run(store, service)
        run(store, service, START_MS + 6_000)
        assert bodies(store) == [b"a"]
        run(store, service, START_MS + 9_000)
        assert bodies(store) == [b"a", b"z"]


def test_a_store_that_stood_for_ten_days_delivers_all(tmp_path, clock):
    """RocketMQ's wheel forgets messages that were due more than seven days ago."""
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abc")
        run(store, service)
    ten_days_later = START_MS + 10 * 86_400_000
    assert delivered(tmp_path, clock, ten_days_later) == Counter("abc")
    assert checkpoint_of(tmp_path).last_read_time_ms == ten_days_later


def test_older_units_do_not_take_a_slot_from_newer_ones(tmp_path, clock):
    """Two weeks later a slot is that of another time; the log still has units of the first."""
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "a")
        run(store, service, START_MS + 9_000)
        clock.now = START_MS + SLOTS * 1_000
        put_some(store, "b")
        run(store, service)
    with timed_store(tmp_path, clock) as (store, service):
        run(store, service)
        run(store, service, clock.now + 5_000)
        assert bodies(store) == [b"a", b"b"]


def test_files_as_java_leaves_them_after_a_clean_stop(tmp_path, clock):
    """It does not flush its wheel, and records an earlier flush position of the log."""
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abc")
        run(store, service)
        service.save()
        before = SavedFiles(tmp_path)
        put_some(store, "defg")
        run(store, service)
    behind = checkpoint_of(tmp_path)
    before.restore("wheel")
    path = tmp_path / "config" / "timercheck"
    data = bytearray(path.read_bytes())
    data[8:16] = (3 * 52).to_bytes(8, "big")  # lastTimerLogFlushPos
    path.write_bytes(data)
    assert behind.last_timer_queue_offset == 7
    assert delivered(tmp_path, clock) == Counter("abcdefg")


def test_a_restart_in_the_middle_of_a_slot(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(timer_message_store, "_MOST_UNITS", 2)
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abcde")
        run(store, service)
        assert service.run_once(LATER_MS)
        assert service.delivered == 2
    # The slot is read again, as by a broker: no file says how many of its messages are done.
    assert delivered(tmp_path, clock) == Counter(a=2, b=2, c=1, d=1, e=1)


def test_expired_messages_leave_no_files_behind(tmp_path, clock):
    with timed_store(tmp_path, clock, mapped_file_size_commit_log=2048) as (store, service):
        put_some(store, "abcdefghijklmnopqrstuvwxyz")
        run(store, service)
        run(store, service, LATER_MS)
        assert service.clean() == 0
        before = sorted(Path(tmp_path, "timerlog").iterdir())
        segments = store._opened().files.segments
        segments.delete_files_before(segments.max_offset // 2048 * 2048)
        removed = service.clean()
        assert removed >= 2
        assert sorted(Path(tmp_path, "timerlog").iterdir()) == before[removed:]
        put_some(store, "z", seconds=9)
        run(store, service, LATER_MS)


def test_a_destroyed_store_leaves_no_messages_waiting(tmp_path, clock):
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "abc")
        run(store, service)
        service.finish()
        store.destroy()
        assert {path.name for path in tmp_path.iterdir()} == {"config", "lock"}
    (tmp_path / "config" / "timercheck").unlink()
    with timed_store(tmp_path, clock) as (store, service):
        put_some(store, "xyz")  # records of the same size at the same places
        run(store, service)
    assert delivered(tmp_path, clock) == Counter("xyz")
