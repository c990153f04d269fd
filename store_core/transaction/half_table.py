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
    held
        Keys of the transactions whose blocks are open in this process: nobody is asked for them.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.half_offset = self.op_offset = 0
        self.held: set[str] = set()
        self._ended: set[int] = set()
        self._superseded: set[int] = set()
        self._newest: dict[str, HalfPlace] = {}

    def fill(self, halves: OpenHalves, half_offset: int, op_offset: int) -> None:
        """Begin with what the store holds."""
        self.half_offset, self.op_offset = half_offset, op_offset
        self._ended = {*halves.ended.tolist(), *halves.without_op.tolist()}
        self._superseded = set(halves.superseded.tolist())
        self._newest = dict(halves.newest)

    def newest(self, key: str | None, place: HalfPlace) -> HalfPlace:
        """Return the newest copy of a half message, which may be this one."""
        return self._newest.get(_unkeyed(place) if key is None else key, place)

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

    def supersede(self, key: str | None, before: HalfPlace, after: HalfPlace) -> None:
        """Note that a copy has a newer one."""
        self._superseded.add(before.queue_offset)
        if key is not None:
            self._newest[key] = after
            return
        self._newest[_unkeyed(before)] = after
        self._newest.update({k: after for k, place in self._newest.items() if place == before})

    def advance(self, half_offset: int, op_offset: int) -> None:
        """Forget what lies before the offsets."""
        self.half_offset, self.op_offset = half_offset, op_offset
        self._ended = {offset for offset in self._ended if offset >= half_offset}
        self._superseded = {offset for offset in self._superseded if offset >= half_offset}
        self._newest = {
            key: place for key, place in self._newest.items() if place.queue_offset >= half_offset
        }


def _unkeyed(place: HalfPlace) -> str:
    """Return what a copy without a key is known by: its own place, which no key looks like."""
    return f"@{place.commit_log_offset}"
