# SPDX-License-Identifier: Apache-2.0
"""A running service's state of the half messages from its offset on, and its op messages."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.transaction.open_halves import HalfPlace
from store_core.transaction_forms import op_batch, op_bodies, op_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from store_core.message_store import MessageStore
    from store_core.transaction.open_halves import OpenHalves

    Int64s = npt.NDArray[np.int64]

_QUEUE_ID = 0
_RELEASE_4 = 4
_POWERS_OF_TEN = 10 ** np.arange(1, 19, dtype=np.int64)


class HalfTable:
    """Records which queue offsets are done, and the newest copy of each transaction.

    Methods do not lock: a caller that changes it, or decides by it, holds ``lock`` meanwhile.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.half_offset = self.op_offset = 0
        self._ended: set[int] = set()
        self._superseded: set[int] = set()
        self._newer: dict[HalfPlace, HalfPlace] = {}

    def fill(self, halves: OpenHalves, half_offset: int, op_offset: int) -> None:
        """Start with the state that was read from the store."""
        self.half_offset, self.op_offset = half_offset, op_offset
        self._ended = {*halves.ended.tolist(), *halves.without_op.tolist()}
        self._superseded = set(halves.superseded.tolist())
        self._newer = dict(halves.newer)

    def newest(self, place: HalfPlace) -> HalfPlace:
        """Return the newest copy of the half message that has a copy at ``place``."""
        while place in self._newer:
            place = self._newer[place]
        return place

    def is_ended(self, queue_offset: int) -> bool:
        """Return whether a copy was answered and `advance` has not forgotten it."""
        return queue_offset in self._ended

    def is_done(self, queue_offset: int) -> bool:
        """Return whether a copy needs no check: it was answered, superseded or given up."""
        return queue_offset in self._ended or queue_offset in self._superseded

    def not_done(self, queue_offsets: Int64s) -> npt.NDArray[np.bool_]:
        """Return which copies are not done and not before ``half_offset``."""
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
        """Move the offsets and forget copies before them; another check may have moved further.

        An answered copy stays until its op message can be read; ``named`` has those whose could.
        """
        half_offset = max(half_offset, self.half_offset)
        self.half_offset, self.op_offset = half_offset, max(op_offset, self.op_offset)
        read = set(named[named < half_offset].tolist())
        self._ended -= read
        self._superseded = {offset for offset in self._superseded if offset >= half_offset}
        # Link directly to the newest: copies in between are forgotten, old ones may get answers.
        newest = {place: self.newest(place) for place in self._newer}
        self._newer = {
            place: after
            for place, after in newest.items()
            if after.queue_offset >= half_offset or after.queue_offset in self._ended
        }


# Source: RocketMQ ``TransactionalMessageServiceImpl.deletePrepareMessage``, ``batchSendOpMessage``,
# ``MessageQueueOpContext`` (release 5.3.3).
class OpBuffer:
    """Collects queue offsets and writes them as op messages; safe for any thread.

    RocketMQ removes offsets before it puts their op message, and forgets them if that fails: their
    half messages are checked, and perhaps committed, again. Here they stay until they are in the
    log.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    """

    def __init__(
        self, store: MessageStore, clock: Callable[[], int], on_full: Callable[[], object]
    ) -> None:
        self._store, self._clock, self._on_full = store, clock, on_full
        self._release = store.config.transaction_op_format
        self._waits_for_none = self._release == _RELEASE_4
        self._max_size = store.config.transaction_op_msg_max_size
        self._interval_ms = store.config.transaction_op_batch_interval
        self._waiting = np.empty(0, np.int64)
        self._characters = 0
        self._oldest_ms = 0
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, queue_offsets: npt.ArrayLike) -> None:
        """Add the queue offsets of answered half messages."""
        added = np.asarray(queue_offsets, np.int64)
        if not len(added):
            return
        with self._lock:
            if not len(self._waiting):
                self._oldest_ms = self._clock()
            self._waiting = np.append(self._waiting, added)
            self._characters += _characters(added)
            is_full = self._is_full()
        if is_full:
            self._on_full()

    def write(self, *, everything: bool = False) -> int:
        """Write the op messages that are due, or all; return how many offsets were written.

        Offsets whose op message cannot be put stay for the next call.
        """
        with self._writing:
            with self._lock:
                waited_ms = self._clock() - self._oldest_ms
                # A clock that was set back must not delay them.
                is_due = everything or not 0 <= waited_ms < self._interval_ms
                offsets = self._waiting
                if not len(offsets) or not (is_due or self._is_full()):
                    return 0
            bodies, counts = op_bodies(offsets, self._max_size, self._release)
            if not is_due and not self._waits_for_none and len(bodies[-1]) < self._max_size:
                bodies, counts = bodies[:-1], counts[:-1]
            done = int(counts[: self._put(bodies)].sum())
            with self._lock:
                self._waiting = self._waiting[done:]
                self._characters -= _characters(offsets[:done])
                self._oldest_ms = self._clock()
            return done

    def _is_full(self) -> bool:
        """Return whether a full op message waits; in release 4's format, offsets never wait."""
        return self._characters >= self._max_size or self._waits_for_none

    def _put(self, bodies: list[bytes]) -> int:
        """Put op messages; return how many are in the log."""
        now = self._clock()
        if len(bodies) == 1:
            message = op_message(bodies[0], _QUEUE_ID, now, self._release)
            return int(self._store.raw_put_message(message).is_appended)
        batch = op_batch(bodies, _QUEUE_ID, now, self._release)
        return self._store.raw_append_batch(batch).rows


def _characters(queue_offsets: npt.NDArray[np.int64]) -> int:
    """Return the number of characters of the numbers, each with a comma after it."""
    # 7, 42 and 1000 are after 0, 1 and 3 of the powers 10, 100, 1000, …: 2 + 3 + 5 characters.
    above = np.searchsorted(_POWERS_OF_TEN, queue_offsets, side="right")
    return int(above.sum()) + 2 * len(queue_offsets)
