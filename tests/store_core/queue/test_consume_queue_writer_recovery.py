# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.layout import CQ_UNIT
from tests.examples import examples
from tests.store_core.queue.queue_writers import open_writer, state
from tests.store_core.queue.test_consume_queue_writer import BLANK, FILE_SIZE, in_row, units_in


def opened(root, *, trusted=True):
    return open_writer(root / "consumequeue" / "T" / "0", FILE_SIZE, trusted=trusted)


def offsets(queue, start=0, stop=1 << 40):
    return queue.read_units(start, stop)["commit_log_offset"].tolist()


def units(root):
    return units_in(root / "consumequeue" / "T" / "0")


def test_what_is_appended_is_read_at_once(tmp_path):
    queue = opened(tmp_path)
    assert state(queue) == (0, 0, -1)
    assert offsets(queue) == []
    for first in range(0, 9, 3):
        queue.append(in_row(range(first, first + 3), 1000 + 10 * first))
        assert offsets(queue) == list(range(1000, 1030 + 10 * first, 10))
    assert state(queue) == (0, 9, 1090)
    assert offsets(queue, 2, 7) == [1020, 1030, 1040, 1050, 1060]
    assert state(opened(tmp_path)) == (0, 9, 1090)
    assert offsets(opened(tmp_path)) == offsets(queue)


def test_a_queue_that_begins_late_has_no_fillers_to_read(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row([6, 7, 8]))
    assert state(queue) == (6, 9, 1030)
    assert offsets(queue) == [1000, 1010, 1020]
    assert units(tmp_path)[4][:2] == [BLANK, BLANK]
    assert state(opened(tmp_path)) == (6, 9, 1030)
    assert state(opened(tmp_path, trusted=False)) == (6, 9, 1030)


@pytest.mark.parametrize("end", range(10))
def test_what_is_cut_off_becomes_zeros(tmp_path, end):
    queue = opened(tmp_path)
    queue.append(in_row(range(9)))
    assert queue.end_below(1000 + 10 * end) == min(end, 9)
    assert queue.truncate(queue.end_below(1000 + 10 * end)) == (end < 9)
    expected = (0, end, 1000 + 10 * end if end else -1)
    assert state(queue) == expected
    assert state(opened(tmp_path)) == expected
    left = [unit for file in units(tmp_path).values() for unit in file]
    assert [unit[0] for unit in left if unit[1]] == list(range(1000, 1000 + 10 * end, 10))
    queue.append(in_row(range(end, 12), 5000))  # and goes on as if nothing had been there
    assert offsets(queue)[end:] == list(range(5000, 5000 + 10 * (12 - end), 10))
    assert offsets(opened(tmp_path)) == offsets(queue)


def test_units_behind_a_hole_are_erased_too(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row(range(3)))
    with (tmp_path / "consumequeue/T/0" / f"{0:020d}").open("rb+") as file:
        file.seek(20)
        file.write(bytes(20))
    queue = opened(tmp_path)
    assert queue.max_offset == 1
    assert not queue.truncate(1, on_disk=False)
    assert units(tmp_path)[0][2][0] == 1020
    assert not queue.truncate(1)  # no unit was cut off
    assert units(tmp_path)[0][1:] == [(0, 0, 0)] * 3


def test_a_queue_of_which_nothing_is_left_keeps_its_offset(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row(range(5, 10)))
    queue.truncate(queue.end_below(0))
    # by the name of the first file; RocketMQ would begin at 0 again
    assert state(queue) == (4, 4, -1)
    assert state(opened(tmp_path)) == (4, 4, -1)
    queue.append(in_row([30], 7000))
    assert state(queue) == (30, 31, 7010)
    assert list(units(tmp_path)) == [28]
    assert offsets(queue) == [7000]


def test_fillers_alone_are_no_units(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row([2, 3]))
    queue.truncate(queue.end_below(1000))
    # RocketMQ would take the fillers for units that end at byte 2147483647 of the log
    assert state(queue) == (0, 0, -1)
    assert units(tmp_path) == {} if (tmp_path / "consumequeue/T/0").exists() else True


def test_holes_of_a_power_failure_end_the_queue(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row(range(12)))
    path = tmp_path / "consumequeue/T/0" / f"{FILE_SIZE:020d}"
    with path.open("rb+") as file:
        file.seek(20)
        file.write(bytes(20))
    assert opened(tmp_path).max_offset == 12
    queue = opened(tmp_path, trusted=False)
    assert state(queue) == (0, 5, 1050)
    assert queue.lost_from == 1050
    queue.append(in_row(range(12)))
    assert offsets(queue) == list(range(1000, 1120, 10))


@pytest.mark.parametrize("row", [0, 4, 8])
@pytest.mark.parametrize("kept", range(9, 20))
def test_a_unit_of_which_the_end_is_lost_is_made_anew(tmp_path, row, kept):
    rows = in_row(range(9))
    rows.message_size[:] = 0x01020304  # no byte is 0: a loss shows, in the code too
    rows.commit_log_offset[:] = 1000 + np.arange(9) * 0x02000000
    rows.tags_code[:] = 0x0102030405060708
    queue = opened(tmp_path)
    queue.append(rows)
    whole = units(tmp_path)
    path = tmp_path / "consumequeue/T/0" / f"{row * 20 // FILE_SIZE * FILE_SIZE:020d}"
    with path.open("rb+") as file:
        file.seek(row * 20 % FILE_SIZE + kept)
        file.write(bytes(20 - kept))
    queue = opened(tmp_path, trusted=False)
    assert queue.max_offset == 9
    assert queue.cut_torn(rows.take(slice(min(row, 3), 9))) == 9 - row
    assert queue.max_offset == row
    queue.append(rows)
    assert units(tmp_path) == whole
    assert queue.cut_torn(rows) == 0


def test_a_unit_between_others_that_is_no_records_is_cut_off(tmp_path):
    queue, rows = opened(tmp_path), in_row(range(9))
    queue.append(rows)
    with (tmp_path / "consumequeue/T/0" / f"{FILE_SIZE:020d}").open("rb+") as file:
        file.write(CQ_UNIT.pack(commit_log_offset=1041, message_size=1, tags_code=0))
    assert opened(tmp_path, trusted=False).cut_torn(rows) == 5


def test_units_with_another_code_are_left(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row(range(4)))
    rows = in_row(range(4))
    rows.tags_code[:] = 7  # such as a delivery time by another table of delays
    assert queue.cut_torn(rows) == 0


def test_expiry_deletes_whole_files_and_moves_the_minimum(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row(range(10)))
    assert queue.delete_expired(1030) == 0
    assert queue.min_offset == 3
    assert queue.delete_expired(1070) == 1
    assert state(queue) == (7, 10, 1100)
    assert list(units(tmp_path)) == [4, 8]
    assert queue.delete_expired(5000) == 1
    assert state(queue) == (10, 10, 1100)
    assert list(units(tmp_path)) == [8]
    queue.append(in_row([10], 5000))
    assert offsets(queue) == [5000]


def test_a_reader_sees_whole_units_while_files_come_and_go(tmp_path):
    queue = opened(tmp_path)
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            low = queue.min_offset
            found = queue.read_units(low, low + 6)
            if (found["message_size"] != 10).any() or (
                len(found) and (np.diff(found["commit_log_offset"]) != 10).any()
            ):
                wrong.append(found.tolist())

    readers = [threading.Thread(target=read) for _ in range(2)]
    interval = sys.getswitchinterval()
    for reader in readers:
        reader.start()
    try:
        sys.setswitchinterval(interval / 50)  # they take turns more often, the writer waits less
        for at in range(0, 300, 3):
            queue.append(in_row(range(at, at + 3), 1000 + 10 * at))
            queue.delete_expired(1000 + 10 * (at - 20))
            queue.flush()
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert not wrong
    assert state(opened(tmp_path))[1:] == (300, 4000)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aacer"), st.integers(0, 12)), max_size=12))
def test_equals_a_list(tmp_path_factory, steps):
    root = tmp_path_factory.mktemp("q")
    queue, held, position, low = opened(root), {}, 1000, 0
    for step, number in steps:
        if step == "a":
            first = queue.max_offset
            queue.append(in_row(range(first, first + number), position))
            held.update({first + i: position + 10 * i for i in range(number)})
            position += 10 * number
        elif step == "c":
            cut = position - 10 * number
            queue.truncate(queue.end_below(cut))
            held = {q: at for q, at in held.items() if at < cut}
            position = max(cut, 1000)
        elif step == "e":
            queue.delete_expired(low := max(low, position - 10 * number))
        else:
            queue = opened(root, trusted=bool(number % 2))
            queue.correct_min_offset(low)
        expected = [at for _, at in sorted(held.items()) if at >= queue_min(queue, held)]
        assert [at for at in offsets(queue) if at >= low] == [at for at in expected if at >= low]


def queue_min(queue, held):
    return held.get(queue.min_offset, 1 << 40)


def test_units_are_native_numbers(tmp_path):
    queue = opened(tmp_path)
    queue.append(in_row([0]))
    assert queue.read_units(0, 1).dtype == CQ_UNIT.dtype.newbyteorder("=")
