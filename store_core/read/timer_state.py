# SPDX-License-Identifier: Apache-2.0
"""Reads the files of a 5.x timer: units of the timer log, slots of the wheel, the checkpoint.

A broker may have the store open. It writes units first, slots later or never, and saves its
progress once a second.

Source: RocketMQ ``TimerMessageStore``, ``TimerLog``, ``TimerWheel``, ``TimerCheckpoint`` (release
5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.errors import FileVanishedError, StoreFormatError
from store_core.files.segment_list import list_segments
from store_core.layout import (
    CONFIG_DIR,
    TIMER_CHECKPOINT,
    TIMER_CHECKPOINT_FILE,
    TIMER_LOG_DIR,
    TIMER_LOG_UNIT,
    TIMER_MAGIC_BITS,
    TIMER_SLOT,
    TIMER_WHEEL_FILE,
    TIMER_WHEEL_SLOTS,
    wheel_snapshot,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import StoreDirectory

    Int64s = npt.NDArray[np.int64]
    Units = npt.NDArray[np.void]

TIMER_WHEEL_BYTES = TIMER_WHEEL_SLOTS * TIMER_SLOT.size
_PIECE_BYTES = TIMER_LOG_UNIT.size << 15
_SIZE_OPTION = "mappedFileSizeTimerLog"


class TimerProgress(NamedTuple):
    """The timer's progress, from ``config/timercheck``.

    Attributes
    ----------
    read_ms
        Slots before this time are delivered, ms since the epoch.
    """

    read_ms: int = 0
    log_pos: int = 0
    queue_offset: int = 0


class TimerUnits(NamedTuple):
    """Units of the timer log, one row each, in log order."""

    positions: Int64s
    units: Units

    @property
    def slot_ms(self) -> Int64s:
        """The time that each unit waits for, ms."""
        return slot_times(self.units)


def slot_times(units: Units) -> Int64s:
    """Return the time that each unit waits for, ms."""
    times: Int64s = units["write_time"].astype(np.int64) + units["delay"]
    return times


def sound_units(data: npt.NDArray[np.uint8]) -> Units:
    """Return the units of a file before the first invalid one."""
    table = TIMER_LOG_UNIT.table(data, count=len(data) // TIMER_LOG_UNIT.size)
    is_sound = (table["size"] == TIMER_LOG_UNIT.size) & (table["magic"] & ~TIMER_MAGIC_BITS == 0)
    return table[: int(np.argmin(np.append(is_sound, False)))]


def timer_progress(data: bytes) -> TimerProgress:
    """Decode the content of ``config/timercheck``; fields that a short one lacks are 0."""
    row = TIMER_CHECKPOINT.unpack(data[: TIMER_CHECKPOINT.size].ljust(TIMER_CHECKPOINT.size, b"\0"))
    # A slave enqueues no further than its master has: RocketMQ uses the smaller of the two.
    queue_offset = min(row.last_timer_queue_offset, row.master_timer_queue_offset)
    return TimerProgress(row.last_read_time_ms, row.last_timer_log_flush_pos, queue_offset)


def load_timer_progress(directory: StoreDirectory) -> TimerProgress | None:
    """Read the timer's checkpoint; None if the store has none.

    Raises
    ------
    StoreReadError
        The file cannot be read.
    """
    path = directory.resolve(CONFIG_DIR, TIMER_CHECKPOINT_FILE)
    data = directory.read_head(path, TIMER_CHECKPOINT.size)
    return None if data is None else timer_progress(data)


def load_timer_units(directory: StoreDirectory) -> TimerUnits:
    """Read the units of all files, each up to its first invalid one.

    Memory: 60 bytes a unit.

    Raises
    ------
    StoreFormatError
        File names do not match the file size.
    StoreReadError
        A file cannot be read.
    """
    path = directory.resolve(TIMER_LOG_DIR)
    segments = list_segments(
        lambda: directory.list(path),
        file_size=None,
        option=_SIZE_OPTION,
        forget=lambda: directory.forget(path),
    )
    positions, units = [np.empty(0, np.int64)], [np.empty(0, TIMER_LOG_UNIT.dtype)]
    for segment in segments:
        try:
            source = directory.open(segment.path)
        except FileVanishedError:  # a broker deletes files of expired messages
            continue
        with source:
            found = _units_of_file(source)
        units.append(found)
        places = np.arange(len(found), dtype=np.int64) * TIMER_LOG_UNIT.size
        positions.append(segment.from_offset + places)
    return TimerUnits(np.concatenate(positions), np.concatenate(units))


def _units_of_file(source: ByteSource) -> Units:
    """Read piece by piece: most files, whatever their size, are largely empty."""
    pieces, at = [np.empty(0, TIMER_LOG_UNIT.dtype)], 0
    while at < source.size:
        data = source.view(at, _PIECE_BYTES)
        pieces.append(sound_units(data).copy())
        at += len(data)
        if len(pieces[-1]) * TIMER_LOG_UNIT.size < len(data):
            break
    return np.concatenate(pieces)


def load_timer_slots(directory: StoreDirectory) -> Units | None:
    """Read the slots of the wheel that are in use; None if the store has no wheel.

    If the broker writes snapshots of the wheel, the newest is read, as that broker does at start.

    Raises
    ------
    StoreFormatError
        The file's length is not RocketMQ's, which would refuse to start.
    StoreReadError
        The file cannot be read.
    """
    snapshots = {
        number: entry.name
        for entry in directory.list(directory.resolve())
        if (number := wheel_snapshot(entry.name)) is not None
    }
    path = directory.resolve(snapshots[max(snapshots)] if snapshots else TIMER_WHEEL_FILE)
    entry = directory.stat(path)
    if entry is None or entry.is_dir:
        return None
    if entry.size != TIMER_WHEEL_BYTES:
        text = f"has {entry.size} bytes; a timer wheel has {TIMER_WHEEL_BYTES}"
        raise StoreFormatError(text, path)
    with directory.open(path) as source:
        slots = TIMER_SLOT.table(source.view(0, TIMER_WHEEL_BYTES))
        used: Units = slots[slots["time"] != 0].copy()
    return used
