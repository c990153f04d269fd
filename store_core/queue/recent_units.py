"""Units that were read last, of all queues of a store: consumers read on where they stopped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from store_core.layout.consume_queue import CQ_UNIT
from store_core.queue.consume_queue import NATIVE_CQ_UNIT

if TYPE_CHECKING:
    from collections.abc import Hashable

    from store_core.queue.consume_queue import Units

_BLOCKS = 256  # of at most 40 KB


class UnitBlock(NamedTuple):
    """Units of one queue that follow each other.

    Attributes
    ----------
    version
        Of the queue, as it was before they were read: they are of no use in a later one.
    start
        Queue offset of the first.
    units
        Not to be written to.
    """

    version: int
    start: int
    units: Units

    def part(self, version: int, start: int, stop: int) -> Units | None:
        """Return the units ``[start, stop)``, if they are all there, and of this version."""
        at, end = start - self.start, stop - self.start
        is_here = version == self.version and 0 <= at <= end <= len(self.units)
        return self.units[at:end] if is_here else None


class NewestUnits(NamedTuple):
    """Units that were appended last, as they are stored: nearly all of them nobody asks for.

    Attributes
    ----------
    version, start
        As of a `UnitBlock`.
    data
        Their bytes.
    """

    version: int
    start: int
    data: bytes

    def part(self, version: int, start: int, stop: int) -> Units | None:
        """Return the units ``[start, stop)``, as `UnitBlock.part` does."""
        at, end = start - self.start, stop - self.start
        if version != self.version or not 0 <= at <= end <= len(self.data) // CQ_UNIT.size:
            return None
        units = CQ_UNIT.table(self.data, at * CQ_UNIT.size, end - at).astype(NATIVE_CQ_UNIT)
        units.flags.writeable = False
        return units


class RecentUnits:
    """One block a queue, and the newest blocks only; for any thread."""

    def __init__(self) -> None:
        self._blocks: dict[Hashable, UnitBlock] = {}
        self._lock = threading.Lock()

    def find(self, queue: Hashable) -> UnitBlock | None:
        """Return the block of a queue."""
        return self._blocks.get(queue)

    def keep(self, queue: Hashable, block: UnitBlock) -> None:
        """Take a block in the place of the one that the queue had, or that is oldest."""
        block.units.flags.writeable = False
        with self._lock:
            self._blocks.pop(queue, None)
            if len(self._blocks) >= _BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[queue] = block

    def forget(self, queue: Hashable) -> None:
        """Drop the block of a queue that is deleted."""
        with self._lock:
            self._blocks.pop(queue, None)
