"""Units of a queue that point at or after an offset of the log, wherever they stand in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.queue.batch_consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.stored_units import StoredUnits

    Int64s = npt.NDArray[np.int64]
    Units = npt.NDArray[np.void]

_BLOCK_UNITS = 1 << 16


class PlacedUnits(NamedTuple):
    """Units, ascending by where they point.

    Attributes
    ----------
    start, size
        Of their records.
    number
        The queue offsets at which they stand.
    """

    start: Int64s
    size: Int64s
    number: Int64s

    def rows_of(self, start: Int64s, size: npt.NDArray[np.int32]) -> Int64s:
        """Return which unit refers to each of some records; -1 where none does."""
        found = np.full(len(start), -1, np.int64)
        if len(self.start):
            low = np.searchsorted(self.start, start)
            high = np.searchsorted(self.start, start, "right") - 1
            for at in (np.minimum(low, len(self.start) - 1), high):  # an old cut may leave two
                is_own = (self.start[at] == start) & (self.size[at] == size)
                found[is_own] = at[is_own]
        return found


class UnitsBehind:
    """The units of a simple queue that point at or after an offset of the log.

    As a rule they are its last ones, which are bisected. A queue that is not in the order of the
    log may have others: `search_all` finds them.

    Attributes
    ----------
    first, stop
        Queue offsets of the first unit that is held, and of the first that points there: those
        between point before the offset.
    placed
        Those that were found.
    """

    def __init__(self, queue: StoredUnits, offset: int) -> None:
        self._queue, self._offset = queue, offset
        self.first, self._end = queue.first_unit_offset(), queue.end_of_units()
        self.stop = max(min(queue.correct_min_offset(offset, self._end), self._end), 0)
        self._parts = [self._part(self.stop, self._end)]
        self.placed = _placed(self._parts)

    def search_all(self) -> bool:
        """Look at the rest of the queue, too; return whether it is known that there are no more.

        Blocks before the last ones are read until one has no such unit; of the files before only
        the first units are, which tells files that stand in each other's place.
        """
        at = self.stop
        while at > self.first:
            begin = max(at - _BLOCK_UNITS, self.first)
            part = self._part(begin, at)
            self._parts.append(part)
            at = begin
            if not len(part.start):
                break
        for begin in range(self._end, self._queue.stored_end(), _BLOCK_UNITS):  # after a hole
            self._parts.append(self._part(begin, begin + _BLOCK_UNITS))
        self.placed = _placed(self._parts)
        borders = [border for border in self._queue.file_boundaries() if self.first < border < at]
        return all(self._queue.place_of(border)[0] < self._offset for border in borders)

    def _part(self, begin: int, stop: int) -> PlacedUnits:
        return _units_from(self._queue, begin, stop, self._offset)


def unit_blocks(queue: StoredUnits | BatchConsumeQueue) -> Iterator[PlacedUnits]:
    """Yield all units of a queue, block by block, the last first; also what lies after a hole."""
    if isinstance(queue, BatchConsumeQueue):
        yield batch_units(queue)
        return
    first, stop = queue.first_unit_offset(), queue.stored_end()
    while stop > first:
        begin = max(stop - _BLOCK_UNITS, first)
        yield _placed([_units_from(queue, begin, stop, 0)])
        stop = begin


def batch_units(queue: BatchConsumeQueue) -> PlacedUnits:
    """Return all units of a batch queue; their numbers are those of their first messages."""
    units = queue.read_units()
    columns = ("commit_log_offset", "message_size", "base_queue_offset")
    return _placed([PlacedUnits(*(units[name].astype(np.int64) for name in columns))])


def _units_from(queue: StoredUnits, begin: int, stop: int, offset: int) -> PlacedUnits:
    """Return the units ``[begin, stop)`` that point at or after an offset of the log."""
    units = queue.read_units(begin, stop)
    wanted = (units["commit_log_offset"] >= offset) & (units["message_size"] > 0)
    number = np.flatnonzero(wanted).astype(np.int64)
    start = units["commit_log_offset"][number].astype(np.int64)
    return PlacedUnits(start, units["message_size"][number].astype(np.int64), number + begin)


def _placed(parts: list[PlacedUnits]) -> PlacedUnits:
    joined = [np.concatenate(column) for column in zip(*parts)]
    order = np.lexsort((joined[1], joined[0]))
    return PlacedUnits(*(column[order] for column in joined))
