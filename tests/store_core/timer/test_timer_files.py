# SPDX-License-Identifier: Apache-2.0
"""Each of the three files by itself."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store_core.errors import StoreError, StoreFormatError, StoreWriteError
from store_core.layout import TIMER_CHECKPOINT, TIMER_LOG_UNIT, TIMER_SLOT
from store_core.read.timer_state import TimerProgress
from store_core.timer.timed_rows import RollRule
from store_core.timer.timer_files import TimerCheckpoint
from store_core.timer.timer_log import TimerLog
from store_core.timer.timer_wheel import Slot, TimerWheel, append_units, relink_units
from tests.store_core.crash.by_hand import nothing_forced
from tests.store_core.timer.timed_store import (
    START_MS,
    Clock,
    bodies,
    put_timed,
    run,
    timed_store,
)

DAY_MS = 86_400_000
WHEEL_MS = 14 * DAY_MS
BODIES = {b"%d" % number for number in range(9)}
OUT_MS = START_MS + 4_000
SLOT_AT = OUT_MS // 1000 % 1_209_600 * TIMER_SLOT.size
EDGES = [0, 1, -1, 52, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), OUT_MS, OUT_MS // 1000]


@pytest.fixture
def wheel(tmp_path):
    made = TimerWheel(str(tmp_path / "timerwheel"), 1000)
    made.load()
    yield made
    made.close()


def units_of(*times, magic=1, write_ms=START_MS):
    units = np.zeros(len(times), TIMER_LOG_UNIT.dtype)
    units["size"], units["magic"], units["write_time"] = TIMER_LOG_UNIT.size, magic, write_ms
    units["delay"] = np.array(times) - write_ms
    units["commit_log_offset"] = np.arange(len(times)) * 100
    return units


def is_zero(data):
    return data.count(0) == len(data)


def test_a_slot_is_that_of_one_time_only(wheel):
    wheel.put(START_MS, Slot(0, 52, 2))
    assert wheel.slot(START_MS + 999) == Slot(0, 52, 2)
    assert wheel.slot(START_MS + 1_000) is None
    assert wheel.slot(START_MS + WHEEL_MS) is None
    wheel.put(START_MS + WHEEL_MS, Slot(104, 104, 1))
    assert wheel.slot(START_MS) is None
    assert wheel.count_at(START_MS) == 0
    assert wheel.count_at(START_MS + WHEEL_MS) == 1


def test_times_are_found_over_the_end_of_the_wheel(wheel):
    end = START_MS // WHEEL_MS * WHEEL_MS + WHEEL_MS
    wanted = [end - 2_000, end - 1_000, end, end + 3_000]
    for number, time_ms in enumerate(wanted):
        wheel.put(time_ms, Slot(number, number, 1))
    assert wheel.times_between(end - 2_000, end + 3_000) == wanted[:3]
    assert wheel.times_between(end - DAY_MS, end + DAY_MS) == wanted
    assert wheel.times_between(0, end + 100 * DAY_MS) == wanted  # more than a round
    assert wheel.times_between(end, end) == []
    assert wheel.times_behind(end - 1_000, 2) == wanted[2:]
    assert wheel.count_from(end) == 2


def test_a_look_at_all_times_takes_little_memory(wheel):
    wheel.put(START_MS, Slot(0, 0, 1))
    tracemalloc.start()
    try:
        assert wheel.times_between(START_MS - WHEEL_MS + 2_000, START_MS + 1_000) == [START_MS]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20  # two or three for each slot of the wheel


def test_slots_reach_the_file_when_flushed_and_as_rocketmq_writes_them(wheel, tmp_path):
    path = tmp_path / "timerwheel"
    at = START_MS // 1000 % 1_209_600 * 32
    wheel.put(START_MS, Slot(7, 59, 3))
    assert is_zero(path.read_bytes())
    wheel.flush()
    data = path.read_bytes()
    assert data[at : at + 32] == struct.pack(">qqqii", START_MS // 1000, 7, 59, 3, 0)
    assert is_zero(data[:at] + data[at + 32 :])
    again = TimerWheel(str(path), 1000)
    again.load()
    assert again.slot(START_MS) == Slot(7, 59, 3)
    again.clear(START_MS)
    again.flush()
    assert is_zero(path.read_bytes())
    again.close()


def test_a_new_wheel_takes_no_room(wheel, tmp_path):
    wheel.put(START_MS, Slot(7, 59, 3))
    wheel.flush()
    assert (tmp_path / "timerwheel").stat().st_blocks * 512 <= 1 << 16


def test_a_failed_flush_is_done_again(wheel, monkeypatch, tmp_path):
    def fails(_):
        raise OSError(28, "No space left on device")

    wheel.put(START_MS, Slot(7, 59, 3))
    with monkeypatch.context() as full:
        full.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreWriteError, match="timerwheel: No space left on device: free"):
            wheel.flush()
    forced = []
    monkeypatch.setattr(os, "fdatasync", forced.append)
    wheel.flush()
    wheel.flush()
    assert len(forced) == 1


def test_units_are_chained_by_slots_within_and_over_files(wheel, tmp_path):
    log = TimerLog(str(tmp_path / "timerlog"), 2 * 52 + 16)
    log.load()
    a, b = START_MS + 1_000, START_MS + 2_000
    append_units(log, wheel, units_of(a, b, a, a, b))
    append_units(log, wheel, units_of(b, magic=5))
    assert wheel.slot(a) == Slot(0, 172, 3)
    assert wheel.slot(b) == Slot(52, 292, 1)  # one of three deletes
    assert log.chain(172)["prev_pos"].tolist() == [-1, 0, 120]
    assert log.chain(292)["commit_log_offset"].tolist() == [100, 400, 0]
    runs = [(start, len(units)) for start, units in log.runs_from(130)]
    assert runs == [(120, 2), (240, 2)]
    log.close()


def test_a_chain_ends_where_files_are_gone_or_positions_make_no_sense(wheel, tmp_path):
    log = TimerLog(str(tmp_path / "timerlog"), 2 * 52 + 16)
    log.load()
    append_units(log, wheel, units_of(*[START_MS] * 6))
    assert log.delete_expired(100) == 0  # the last of the first file is at 100
    assert log.delete_expired(101) == 1
    assert log.delete_expired(10**9) == 1  # never the last file
    assert log.chain(292)["commit_log_offset"].tolist() == [400, 500]
    assert len(log.chain(-1)) == len(log.chain(10**12)) == 0
    ring = units_of(START_MS)
    ring["prev_pos"] = log.end_pos + 120  # ahead of itself
    assert log.room() == 2
    log.append(ring)
    assert len(log.chain(360)) == 1
    log.close()


def test_the_log_has_room_for_whole_units_and_a_blank(tmp_path):
    with pytest.raises(StoreFormatError, match="mappedFileSizeTimerLog is 67"):
        TimerLog(str(tmp_path / "timerlog"), 67)
    log = TimerLog(str(tmp_path / "timerlog"), 68 + 51)
    log.load()
    assert log.room() == 1
    log.append(units_of(START_MS))
    assert log.room() == 1
    log.append(units_of(START_MS))
    data = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    assert data[52:68] == struct.pack(">iqI", 67, 0, 0xCBD43194)
    log.close()


@pytest.mark.parametrize("known", [0, 1, 2, 3])
def test_units_are_put_into_slots_that_know_some(wheel, known):
    places = np.arange(3, dtype=np.int64) * 52
    units = units_of(*[START_MS + 5_000] * 3)
    if known:
        relink_units(wheel, places[:known], units[:known])
    relink_units(wheel, places, units)
    assert wheel.slot(START_MS + 5_000) == Slot(0, 104, 3)


def test_rocketmqs_checkpoint_and_what_is_missing(tmp_path):
    path = tmp_path / "config" / "timercheck"
    checkpoint = TimerCheckpoint(str(path))
    checkpoint.load()
    assert checkpoint.progress == (0, 0, 0)
    path.parent.mkdir()
    path.write_bytes(struct.pack(">7q", START_MS, 104, 9, 8, 1, 2, 3).ljust(4096, b"\0"))
    checkpoint.load()
    assert checkpoint.progress == (START_MS, 104, 8)  # not further than the master
    path.write_bytes(struct.pack(">4q", START_MS, 104, 9, 9))  # before 5.1 it ended here
    checkpoint.load()
    assert checkpoint.progress == (START_MS, 104, 9)


def test_the_data_version_counts_what_is_new(tmp_path):
    path = tmp_path / "config" / "timercheck"
    checkpoint = TimerCheckpoint(str(path))
    checkpoint.load()
    for now, progress, version in [
        (5, TimerProgress(1_000, 52, 1), (5, 1)),
        (6, TimerProgress(1_000, 104, 1), (5, 1)),  # flushed further only
        (7, TimerProgress(2_000, 104, 1), (7, 2)),
    ]:
        checkpoint.save(progress, now)
        found = struct.unpack(">7q", path.read_bytes()[:56])
        assert found == (*progress, progress.queue_offset, 0, *version)
    checkpoint.close()


@pytest.mark.parametrize(
    ("wanted", "delay", "rolls"),
    [(0, 0, 0), (8_999, 8_999, 0), (9_000, 4_000, 1), (11_999, 4_000, 1), (12_000, 9_000, 1)],
)
def test_where_a_far_message_waits(wanted, delay, rolls):
    """Half of nine steps is four, a third of them three."""
    delays, is_roll = RollRule(9, 1_000).delays(np.array([wanted]))
    assert (delays.tolist(), is_roll.tolist()) == ([delay], [bool(rolls)])


# Timer files with arbitrary bytes: only messages that were put are delivered, or an error comes.


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    root = tmp_path_factory.mktemp("good") / "store"
    with timed_store(root, Clock(START_MS)) as (store, service):
        for body in sorted(BODIES):
            put_timed(store, body, TIMER_DELAY_SEC="5")
        run(store, service)
    return root


def damaged(layout, at, fields):
    """Return the position and the bytes to write to a file."""
    return st.builds(
        lambda field, number, value: (
            at + number * layout.size + layout.at(field),
            _bytes_of(layout, field, value),
        ),
        st.sampled_from(fields),
        st.integers(0, 3 if layout is TIMER_LOG_UNIT else 0),
        st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(0, 600)),
    )


def _bytes_of(layout, field, value):
    width = layout.dtype[field].itemsize
    return (value % (1 << 8 * width)).to_bytes(width, "big")


DAMAGE = st.one_of(
    st.tuples(
        st.sampled_from([f"timerlog/{start:020d}" for start in (0, 224, 448)]),
        damaged(TIMER_LOG_UNIT, 0, TIMER_LOG_UNIT.dtype.names),
    ),
    st.tuples(st.just("timerwheel"), damaged(TIMER_SLOT, SLOT_AT, TIMER_SLOT.dtype.names)),
    st.tuples(
        st.just("config/timercheck"), damaged(TIMER_CHECKPOINT, 0, TIMER_CHECKPOINT.dtype.names)
    ),
)


@settings(max_examples=10, deadline=None)
@given(damage=st.lists(DAMAGE, min_size=1, max_size=4))
@example(damage=[("timerwheel", (SLOT_AT + 24, b"\x7f\xff\xff\xff"))])
@example(damage=[("timerwheel", (SLOT_AT + 16, bytes(8))), ("config/timercheck", (8, bytes(16)))])
def test_no_damage_makes_up_messages(damage, good, tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged") / "store"
    shutil.copytree(good, root, copy_function=_copy)
    for name, (at, data) in damage:
        with (root / name).open("r+b") as file:
            file.seek(at)
            file.write(data)
    with nothing_forced(), timed_store(root, Clock(START_MS)) as (store, service):
        try:
            run(store, service)
            run(store, service, START_MS + 60_000)
        except StoreError:
            return
        assert set(bodies(store)) <= BODIES
        put_timed(store, b"5", TIMER_DELAY_SEC="5")
        run(store, service, START_MS + 120_000)


@pytest.mark.parametrize("count", [2**31 - 1, -(2**31)])
def test_a_count_that_has_no_room_left(count, good, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(good, root, copy_function=_copy)
    with (root / "timerwheel").open("r+b") as file:
        file.seek(SLOT_AT + TIMER_SLOT.at("count"))
        file.write(_bytes_of(TIMER_SLOT, "count", count))
    with timed_store(root, Clock(START_MS)) as (store, service):
        for magic in ({}, {"TIMER_DEL_UNIQKEY": "T+x"}, {"TIMER_DEL_UNIQKEY": "T+y"}):
            put_timed(store, b"9", TIMER_DELAY_SEC="5", **magic)
            run(store, service)
        run(store, service, START_MS + 9_000)
        assert set(bodies(store)) == {*BODIES, b"9"}


def _copy(source, target):
    """Copy a file; of the wheel, which is nearly all holes, only bytes that are not zero."""
    if not source.endswith("timerwheel"):
        return shutil.copyfile(source, target)
    with open(source, "rb") as given, open(target, "wb") as made:  # noqa: PTH123 (shutil's names)
        given.seek(SLOT_AT)
        made.truncate(38_707_200)
        made.seek(SLOT_AT)
        made.write(given.read(TIMER_SLOT.size))
    return target
