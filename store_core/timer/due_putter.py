"""Puts messages whose time has come, and counts what becomes of them.

Source: RocketMQ ``TimerMessageStore.doPut`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from store_core.results import PutMessageStatus
from store_core.timer.timed_rows import timed_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from store_core.arrow_types import RecordBatch
    from store_core.delivered_rows import DeliveredRows
    from store_core.message_store import MessageStore
    from store_core.timer.timed_rows import DueRecords

    Bools = npt.NDArray[np.bool_]

logger = logging.getLogger(__name__)

_NEVER_TAKEN = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class DuePutter:
    """Puts batches; of one that the store does not take now, what comes before the refused row."""

    def __init__(self, store: MessageStore) -> None:
        self.delivered = self.rolled = self.passed_over = 0
        self.refusal = ""
        self._store = store

    def put(self, due: DueRecords, deleted: Collection[str], now: int) -> int:
        """Put records whose time has come; return how many are done, from the first on.

        All, unless there is a `refusal`.
        """
        wanted = timed_rows(due, deleted, now)
        refusal, taken = self._put_rows(wanted)
        done = int(wanted.rows[len(taken)]) if refusal else len(due.frames)
        rolled = int(np.count_nonzero(due.is_roll[wanted.rows[: len(taken)][taken]]))
        put = int(np.count_nonzero(taken))
        self.delivered += put - rolled
        self.rolled += rolled
        self.passed_over += done - put
        self._note_refusal(refusal)
        return done

    def _put_rows(self, wanted: DeliveredRows) -> tuple[str, Bools]:
        """Put rows until one is refused that may be taken later.

        A row that the store never takes is passed over, as by RocketMQ.

        Returns
        -------
        refusal, taken
            Why it ended; of the rows before which were put.
        """
        left, taken = wanted.batch, []
        while left.num_rows:
            put, status, refusal = self._put_some(left)
            taken += [True] * put
            left = left.slice(put)
            if not left.num_rows:
                break
            if status not in _NEVER_TAKEN:
                return refusal, np.array(taken, bool)
            logger.warning("a message whose time has come is passed over: %s", refusal)
            taken.append(False)
            left = left.slice(1)
        return "", np.array(taken, bool)

    def _put_some(self, batch: RecordBatch) -> tuple[int, PutMessageStatus, str]:
        """Put all rows, or those before the first that is refused; return how many, and why."""
        result = self._store.raw_append_batch(batch)
        status, refusal = result.status, f"{result.status.name}: {result.reason}"
        if result.row > 0:  # none is put when one is refused
            result = self._store.raw_append_batch(batch.slice(0, result.row))
        return result.rows, status, refusal

    def _note_refusal(self, refusal: str) -> None:
        if refusal and refusal != self.refusal:
            logger.warning("timer messages wait, the next one is refused: %s", refusal)
        self.refusal = refusal
