# SPDX-License-Identifier: Apache-2.0
"""The ``timerlog`` directory: one unit per waiting message, in a chain per slot.

Source: RocketMQ ``TimerLog``, ``MappedFileQueue.deleteExpiredFileByOffsetForTimerLog`` (release
5.3.3).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.errors import StoreFormatError
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.layout import (
    TIMER_LOG_BLANK,
    TIMER_LOG_BLANK_MAGIC,
    TIMER_LOG_UNIT,
)
from store_core.read.timer_state import sound_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile

    Units = npt.NDArray[np.void]
    """Of dtype ``TIMER_LOG_UNIT``."""

NO_UNIT = -1
"""Used for a missing position."""
_UNIT_BYTES = TIMER_LOG_UNIT.size
_unpack_prev = TIMER_LOG_UNIT.struct.unpack_from


class TimerLog:
    """Units in files of equal length; for one thread at a time."""

    def __init__(self, directory: str, file_size: int) -> None:
        self._files = MappedFileQueue((directory,), file_size, option="mappedFileSizeTimerLog")
        self._per_file = (file_size - TIMER_LOG_BLANK.size) // _UNIT_BYTES
        if self._per_file < 1:
            raise StoreFormatError(
                f"mappedFileSizeTimerLog is {file_size}: no unit of {_UNIT_BYTES} bytes fits",
                directory,
            )

    def load(self) -> None:
        """Open the files; the end of their units is unknown until `cut`.

        Raises
        ------
        StoreFormatError
            A file has another length: RocketMQ would not start either.
        StoreWriteError
            A file cannot be opened.
        """
        self._files.load()

    @property
    def file_size(self) -> int:
        """Bytes of a file."""
        return self._files.file_size

    @property
    def end_pos(self) -> int:
        """End of the last unit; 0 without files."""
        return self._files.max_wrote_offset

    @property
    def flushed_pos(self) -> int:
        """Position up to which units are on the disk."""
        return self._files.flushed_where

    def runs_from(self, position: int) -> Iterator[tuple[int, Units]]:
        """Yield start and sound units of each file, from the one that contains a position on.

        The last one is the first file whose units are not followed by a blank.
        """
        files = self._files.mapped_files
        first = max((n for n, f in enumerate(files) if f.file_from_offset <= position), default=0)
        for file in files[first:]:
            with file.select(0) as data:
                if data is None:
                    return
                units = sound_units(data[: self._per_file * _UNIT_BYTES])
                yield file.file_from_offset, units
                rest = data[len(units) * _UNIT_BYTES :]
                if len(rest) < TIMER_LOG_BLANK.size or not _is_blank(rest):
                    return

    def cut(self, position: int) -> None:
        """End the log at a position, and erase everything after it."""
        self._files.truncate_dirty_files(position)

    def room(self) -> int:
        """Return how many units the next `append` may have; begins a new file if none fits.

        Raises
        ------
        StoreWriteError
            A file cannot be created or written.
        """
        file = self._files.writable_file()
        units = self._room_in(file)
        if units < 1:
            left = file.file_size - file.wrote_position
            file.append_last(TIMER_LOG_BLANK.pack(size=left, zero=0, magic=TIMER_LOG_BLANK_MAGIC))
            units = self._room_in(self._files.writable_file())
        return units

    def append(self, units: Units) -> None:
        """Append units at `end_pos`, at most as many as `room` returned.

        Raises
        ------
        StoreWriteError
            The units cannot be written; the log has none of them.
        """
        self._files.writable_file().append(np.ascontiguousarray(units).view(np.uint8).data)

    def chain(self, last_pos: int) -> Units:
        """Return the units of a slot, oldest first, given the position of its newest one.

        If files have expired, the chain begins with its oldest unit that is still in the log.
        """
        rows: list[tuple[Any, ...]] = []
        position, before = last_pos, self.end_pos
        with ExitStack() as held:
            start, data = 0, None
            while NO_UNIT < position < before:
                if data is None or not start <= position < start + len(data):
                    file = self._files.find(position)
                    if file is None:
                        break
                    start = file.file_from_offset
                    data = held.enter_context(file.select(0))
                if data is None or position - start + _UNIT_BYTES > len(data):
                    break
                row = _unpack_prev(data, position - start)
                rows.append(row)
                # Always further back: a chain with a ring, by a defect, ends as well.
                position, before = row[1], position
        rows.reverse()
        return np.array(rows, TIMER_LOG_UNIT.dtype)

    def flush(self) -> None:
        """Force all units to the disk.

        Raises
        ------
        StoreWriteError
            The units cannot be forced.
        """
        while not self._files.flush():
            pass

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete the files whose messages are all gone from the commit log; return how many.

        As in RocketMQ, the last unit of a file decides: units are in log order.
        """
        stop = self._files.min_offset
        for file in self._files.mapped_files[:-1]:
            with file.select((self._per_file - 1) * _UNIT_BYTES, _UNIT_BYTES) as data:
                if data is None or TIMER_LOG_UNIT.unpack(data).commit_log_offset >= min_phy_offset:
                    break
            stop = file.end_offset
        return self._files.delete_files_before(stop)

    def close(self) -> None:
        """Close the files without flushing."""
        self._files.close()

    def _room_in(self, file: MappedFile) -> int:
        return self._per_file - file.wrote_position // _UNIT_BYTES


def _is_blank(data: npt.NDArray[np.uint8]) -> bool:
    return bool(TIMER_LOG_BLANK.unpack(data).magic == TIMER_LOG_BLANK_MAGIC)
