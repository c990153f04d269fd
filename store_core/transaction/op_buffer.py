"""Half messages that were answered and have no op message yet.

Source: RocketMQ ``TransactionalMessageServiceImpl.deletePrepareMessage``, ``batchSendOpMessage``,
``MessageQueueOpContext`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.transaction_forms import op_batch, op_bodies, op_message

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.message_store import MessageStore

_QUEUE_ID = 0
_RELEASE_4 = 4
_POWERS_OF_TEN = 10 ** np.arange(1, 19, dtype=np.int64)


class OpBuffer:
    """Collects queue offsets and writes them as op messages; for any number of threads.

    RocketMQ takes offsets out before it puts their message, and forgets them when that fails: their
    messages are checked, and perhaps committed, again. Here they stay until they are in the log.

    Parameters
    ----------
    store
        Takes the op messages.
    clock
        Returns ms since the epoch.
    on_full
        Called when there is so much that nobody should wait.
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
        """Take half messages that were answered."""
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
        """Write what is due, or all; return how many offsets got their op message.

        What cannot be put stays for the next call.
        """
        with self._writing:
            with self._lock:
                waited_ms = self._clock() - self._oldest_ms
                # A clock that was set back must not keep them waiting.
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
        """Say whether a whole op message waits; release 4 lets none wait."""
        return self._characters >= self._max_size or self._waits_for_none

    def _put(self, bodies: list[bytes]) -> int:
        """Put op messages; return how many are in the log."""
        now = self._clock()
        if len(bodies) == 1:
            message = op_message(bodies[0], _QUEUE_ID, now, self._release)
            return int(self._store.put_message_as_given(message).is_appended)
        batch = op_batch(bodies, _QUEUE_ID, now, self._release)
        return self._store.append_batch_as_given(batch).rows


def _characters(queue_offsets: npt.NDArray[np.int64]) -> int:
    """Return the characters of numbers, each with a comma after it."""
    # 7, 42 and 1000 lie after 0, 1 and 3 of the powers 10, 100, 1000, …: 2 + 3 + 5 characters.
    above = np.searchsorted(_POWERS_OF_TEN, queue_offsets, side="right")
    return int(above.sum()) + 2 * len(queue_offsets)
