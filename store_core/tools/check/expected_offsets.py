# SPDX-License-Identifier: Apache-2.0
"""Queue offsets at which a rebuild would put the units of a queue's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.queue.unit_placement import believed_bases, first_queue_offset
from store_core.tools.check.queue_units import MissingRecords

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.dispatch_request import DispatchRequests

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

_FEW = 3


class Expected(NamedTuple):
    """Queue offsets of records: as their headers say, corrected; and one after the other."""

    believed: Int64s
    placed: Int64s


class ExpectedOffsets:
    """Follows the records of one queue in log order.

    A record that is out of place, not at the queue offset it says, is either belied by a later one
    that is in place, or was moved because records before it were lost. Which of the two is known
    only at the end.
    """

    def __init__(self) -> None:
        self.belied, self.shifted, self.moving = MissingRecords(), MissingRecords(), 0
        self._next: int | None = None
        self._next_believed: int | None = None
        self._count, self._last = 0, -1

    def begin_again(self) -> None:
        """Note that the queue begins at 0 again."""
        self.shifted = MissingRecords()
        self.moving = self._count = self._next = self._next_believed = 0

    def take(self, rows: DispatchRequests, *, from_zero: bool) -> Expected:
        """Return the expected queue offsets of the next records, at least one."""
        size = np.maximum(rows.batch_size, 1)
        believed = believed_bases(rows.base_queue_offset, size, self._next_believed)
        if self._next is None:
            self._next = 0 if from_zero else first_queue_offset(rows)
        placed = self._next + np.arange(len(rows))
        self._next += len(rows)
        self._next_believed = int((believed[-1:] + size[-1:])[0])  # wraps at absurd offsets
        self._count += len(rows)
        self._last = int(rows.queue_offset[-1])
        return Expected(believed, placed)

    def confirm_place(self) -> None:
        """Note that a record is in place."""
        self.belied.absorb(self.shifted)
        self.moving = 0

    def note(self, rows: DispatchRequests, placed: Int64s, stands: Bools) -> None:
        """Note records of a queue with one unit a message, and which have a unit at ``placed``."""
        differs = rows.queue_offset != placed
        in_place = np.flatnonzero(~differs)
        trusted = int(in_place[-1]) + 1 if len(in_place) else 0
        if trusted:
            self.confirm_place()
        after = differs & (np.arange(len(rows)) >= trusted)
        self.shifted.add(rows.take(after & stands))
        self.moving += int(np.count_nonzero(after & ~stands))
        self.belied.add(rows.take(differs & ~after & stands))

    def is_last_alone(self, *, has_gaps: bool) -> bool:
        """Return whether only the last record is out of place, and those before it belie it.

        If it says 0 and has no unit in its place, it may be the first of a recreated topic.
        """
        if has_gaps or self._count == 1 or self.shifted.count + self.moving != 1:
            return False
        return self.moving == 0 or (self._count >= _FEW and self._last != 0)
