# SPDX-License-Identifier: Apache-2.0
"""Reading the timer's files of any size, up to the first damage."""

from __future__ import annotations

import os

import numpy as np
import pytest

from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import TIMER_LOG_BLANK, TIMER_LOG_UNIT, TIMER_SLOT
from store_core.read.timer_state import (
    TIMER_WHEEL_BYTES,
    TimerProgress,
    load_timer_progress,
    load_timer_slots,
    load_timer_units,
    timer_progress,
)


def some_units(count, first=0):
    units = np.zeros(count, TIMER_LOG_UNIT.dtype)
    units["size"], units["magic"] = TIMER_LOG_UNIT.size, 1
    units["write_time"] = 1000 * np.arange(first, first + count)
    units["commit_log_offset"] = np.arange(first, first + count)
    return units


def write_units(root, units, start=0, size=None):
    path = root / "timerlog" / f"{start:020d}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(units.tobytes())
    os.truncate(path, size or len(units) * TIMER_LOG_UNIT.size)
    return path


def offsets(root):
    found = load_timer_units(StoreDirectory(str(root)))
    return found.positions.tolist(), found.units["commit_log_offset"].tolist()


@pytest.mark.parametrize("count", [0, 1, 1 << 15, (1 << 15) + 1, 70_000])
def test_units_of_a_file_of_any_size(tmp_path, count):
    write_units(tmp_path, some_units(count), size=1 << 40)  # sparse; no more of it is read
    positions, found = offsets(tmp_path)
    assert found == list(range(count))
    assert positions == [TIMER_LOG_UNIT.size * row for row in range(count)]


def test_units_of_several_files(tmp_path):
    size = 10 * TIMER_LOG_UNIT.size + TIMER_LOG_BLANK.size
    write_units(tmp_path, some_units(10), 0, size)
    write_units(tmp_path, some_units(10, 10), size, size)
    write_units(tmp_path, some_units(4, 20), 2 * size, size)
    positions, found = offsets(tmp_path)
    assert found == list(range(24))
    assert positions[10] == size
    (tmp_path / "timerlog" / f"{0:020d}").unlink()
    assert offsets(tmp_path)[1] == list(range(10, 24))


def test_a_store_without_a_timer(tmp_path):
    directory = StoreDirectory(str(tmp_path))
    assert load_timer_progress(directory) is None
    assert load_timer_slots(directory) is None
    assert len(load_timer_units(directory).units) == 0


def test_a_short_checkpoint_lacks_what_it_does_not_hold():
    assert timer_progress(b"") == TimerProgress(0, 0, 0)
    assert timer_progress((7).to_bytes(8, "big")) == TimerProgress(7, 0, 0)


def test_slots_that_something_waits_in(tmp_path):
    path = tmp_path / "timerwheel"
    slot = TIMER_SLOT.pack(time=9, first_pos=0, last_pos=52, count=2, magic=0)
    with path.open("wb") as file:
        file.seek(9 * TIMER_SLOT.size)
        file.write(slot)
        file.truncate(TIMER_WHEEL_BYTES)
    found = load_timer_slots(StoreDirectory(str(tmp_path)))
    assert found["time"].tolist() == [9]
    os.truncate(path, TIMER_WHEEL_BYTES - 1)
    with pytest.raises(StoreFormatError, match="a timer wheel has"):
        load_timer_slots(StoreDirectory(str(tmp_path)))


def test_of_snapshots_the_newest_is_read(tmp_path):
    """A starting broker uses the one with the greatest position, 520."""
    for number, position in ((7, 52), (8, 520), (9, 104)):
        with (tmp_path / f"timerwheel.{position}").open("wb") as file:
            file.seek(number * TIMER_SLOT.size)
            file.write(TIMER_SLOT.pack(time=number, first_pos=0, last_pos=0, count=1, magic=0))
            file.truncate(TIMER_WHEEL_BYTES)
    (tmp_path / "timerwheel.999.tmp").write_bytes(b"not yet one")
    assert load_timer_slots(StoreDirectory(str(tmp_path)))["time"].tolist() == [8]
