"""What a running service knows of the half messages from its offset on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from store_core.transaction.open_halves import HalfPlace

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from store_core.transaction.open_halves import OpenHalves

    Int64s = npt.NDArray[np.int64]


class HalfTable:
    """Which queue offsets are done, and the newest copy of transactions that have several.

    Not locked: who changes it, or decides by it, holds ``lock`` meanwhile.

    Attributes
    ----------
    lock
        One answer, or one step of a check, at a time.
    half_offset, op_offset
        Offsets of group ``CID_RMQ_SYS_TRANS``: what lies before is done.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.half_offset = self.op_offset = 0
        self._ended: set[int] = set()
        self._superseded: set[int] = set()
        self._newer: dict[HalfPlace, HalfPlace] = {}

    def fill(self, halves: OpenHalves, half_offset: int, op_offset: int) -> None:
        """Begin with what the store holds."""
        self.half_offset, self.op_offset = half_offset, op_offset
        self._ended = {*halves.ended.tolist(), *halves.without_op.tolist()}
        self._superseded = set(halves.superseded.tolist())
        self._newer = dict(halves.newer)

    def newest(self, place: HalfPlace) -> HalfPlace:
        """Return the newest copy of the half message of which one lies here; it may be this one."""
        while place in self._newer:
            place = self._newer[place]
        return place

    def is_ended(self, queue_offset: int) -> bool:
        """Say whether a copy was answered, and is not passed yet."""
        return queue_offset in self._ended

    def is_done(self, queue_offset: int) -> bool:
        """Say whether nothing is to be done for a copy: answered, or a newer one follows."""
        return queue_offset in self._ended or queue_offset in self._superseded

    def not_done(self, queue_offsets: Int64s) -> npt.NDArray[np.bool_]:
        """Return the same of many, turned round."""
        done = np.fromiter((*self._ended, *self._superseded), np.int64)
        found: npt.NDArray[np.bool_] = ~np.isin(queue_offsets, done)
        return found & (queue_offsets >= self.half_offset)

    def end(self, queue_offsets: Iterable[int]) -> None:
        """Note that copies were answered."""
        self._ended.update(queue_offsets)

    def supersede(self, before: HalfPlace, after: HalfPlace) -> None:
        """Note that a copy has a newer one."""
        self._superseded.add(before.queue_offset)
        self._newer[before] = after

    def give_up(self, queue_offset: int) -> None:
        """Note that a copy was checked too often; an answer for it still counts."""
        self._superseded.add(queue_offset)

    def advance(self, half_offset: int, op_offset: int, named: Int64s) -> None:
        """Forget what lies before the offsets; another check may have gone further already.

        What was answered stays until its op message can be read: ``named`` are those that could.
        """
        half_offset = max(half_offset, self.half_offset)
        self.half_offset, self.op_offset = half_offset, max(op_offset, self.op_offset)
        read = set(named[named < half_offset].tolist())
        self._ended -= read
        self._superseded = {offset for offset in self._superseded if offset >= half_offset}
        # Straight to the newest: copies between them are forgotten, answers for old ones come.
        newest = {place: self.newest(place) for place in self._newer}
        self._newer = {
            place: after
            for place, after in newest.items()
            if after.queue_offset >= half_offset or after.queue_offset in self._ended
        }
