"""Where records of a queue have their units, if header fields are followed as a rebuild does."""

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
    """Queue offsets of some records of one queue."""

    believed: Int64s
    placed: Int64s


class ExpectedOffsets:
    """Takes the records of one queue in log order.

    Records that stand elsewhere than they say are either belied by a later one that stands in its
    place, or moved, as records before them were lost: which of both is known at the end.
    """

    def __init__(self) -> None:
        self.belied, self.shifted, self.moving = MissingRecords(), MissingRecords(), 0
        self._next: int | None = None
        self._next_believed: int | None = None
        self._count, self._last = 0, -1

    def begin_again(self) -> None:
        """Take note that the queue begins at 0 again."""
        self.shifted = MissingRecords()
        self.moving = self._count = self._next = self._next_believed = 0

    def take(self, rows: DispatchRequests, *, from_zero: bool) -> Expected:
        """Return what is expected of the next records, at least one."""
        size = np.maximum(rows.batch_size, 1)
        believed = believed_bases(rows.base_queue_offset, size, self._next_believed)
        if self._next is None:
            self._next = 0 if from_zero else first_queue_offset(rows)
        placed = self._next + np.arange(len(rows))
        self._next += len(rows)
        self._next_believed = int((believed[-1:] + size[-1:])[0])  # wraps, whatever a record says
        self._count += len(rows)
        self._last = int(rows.queue_offset[-1])
        return Expected(believed, placed)

    def confirm_place(self) -> None:
        """Take note that a record stands in its place."""
        self.belied.absorb(self.shifted)
        self.moving = 0

    def note(self, rows: DispatchRequests, placed: Int64s, stands: Bools) -> None:
        """Take note of where records stand, of a queue of a unit a message."""
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
        """Return whether only the last record stands elsewhere, which those before it belie.

        One of 0 that does not stand there may be the first of a topic that was made once more.
        """
        if has_gaps or self._count == 1 or self.shifted.count + self.moving != 1:
            return False
        return self.moving == 0 or (self._count >= _FEW and self._last != 0)
