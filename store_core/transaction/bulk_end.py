# SPDX-License-Identifier: Apache-2.0
"""End many transactions in one call, in columns; a property test proves it equal to one by one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa
from store_core.codec.java_string import java_integer
from store_core.layout import PROPERTY_DELAY
from store_core.services.transaction_block import put_commit
from store_core.topics import HALF_TOPIC, REAL_TOPIC
from store_core.transaction_forms import TransactionState, commit_batch

if TYPE_CHECKING:
    from typing import Callable

    import numpy.typing as npt

    from store_core.codec.message_batch_codec import MessageColumns
    from store_core.message_store import MessageStore

    Int64s = npt.NDArray[np.int64]

_QUEUE_ID = 0
_INT_BITS = 32
_ROWS_AFTER_REFUSAL = 256


class BulkEnder:
    """Ends half messages of one store.

    Attributes
    ----------
    refused
        Queue offset -> why its commit was refused.
    """

    def __init__(self, store: MessageStore, on_end: Callable[[list[int]], object]) -> None:
        self._store, self._on_end = store, on_end
        self.ended = 0
        self.topics: Counter[str] = Counter()
        self.seen: list[Int64s] = []
        self.refused: dict[int, str] = {}

    def end(self, queue_offsets: Int64s, state: TransactionState) -> None:
        """End open half messages.

        Parameters
        ----------
        queue_offsets
            Ascending and distinct; neither ended nor superseded. Offsets without a message are
            skipped.
        """
        if len(queue_offsets) == 0:
            return
        first, stop = int(queue_offsets[0]), int(queue_offsets[-1]) + 1
        for columns in self._store.queue_columns(HALF_TOPIC, _QUEUE_ID, first, stop):
            rows = np.flatnonzero(np.isin(columns.frames.column("queue_offset"), queue_offsets))
            if len(rows) == 0:
                continue
            found = columns if len(rows) == len(columns.frames) else columns.of_rows(rows)
            self.seen.append(found.frames.column("queue_offset"))
            if state is TransactionState.COMMIT_MESSAGE:
                self._commit(found)
            else:
                self._note(found, np.arange(len(rows)))

    def _commit(self, columns: MessageColumns) -> None:
        delayed = _is_delayed(columns)
        self._append(columns, np.flatnonzero(~delayed))
        for row in np.flatnonzero(delayed).tolist():
            self._commit_delayed(columns, row)

    def _append(self, columns: MessageColumns, rows: npt.NDArray[np.intp]) -> None:
        """Append the commits of rows; note refused ones and leave them out."""
        batch, most = commit_batch(columns), len(rows)
        while len(rows):
            taken = rows[:most]
            part = batch if len(taken) == batch.num_rows else batch.take(pa.array(taken))
            result = self._store.raw_append_batch(part)
            self._note(columns, rows[: result.rows])
            if result.row >= 0:
                self._refuse(columns, rows[[result.row]], result.reason)
                rows = np.delete(rows, result.row)
                most = _ROWS_AFTER_REFUSAL  # each refusal checks all rows of a batch again
            elif result.rows == part.num_rows:
                rows = rows[result.rows :]
            else:
                self._refuse(columns, rows[result.rows :], result.reason)
                return

    def _commit_delayed(self, columns: MessageColumns, row: int) -> None:
        place = int(columns.frames.column("commit_log_offset")[row])
        half = self._store.look_stored_message(place)
        result = None if half is None else put_commit(self._store.putter, half)
        at = np.array([row])
        if result is not None and result.is_appended:
            self._note(columns, at)
        else:
            self._refuse(columns, at, "its record is gone" if result is None else result.reason)

    def _note(self, columns: MessageColumns, rows: npt.NDArray[np.intp]) -> None:
        if len(rows) == 0:
            return
        topics = columns.property_values(REAL_TOPIC).take(pa.array(rows))
        for item in topics.value_counts().to_pylist():
            if item["values"] is not None:
                self.topics[item["values"]] += item["counts"]
        self.ended += len(rows)
        self._on_end(columns.frames.column("queue_offset")[rows].tolist())

    def _refuse(self, columns: MessageColumns, rows: npt.NDArray[np.intp], reason: str) -> None:
        offsets = columns.frames.column("queue_offset")[rows].tolist()
        self.refused.update(dict.fromkeys(offsets, reason))


def _is_delayed(columns: MessageColumns) -> npt.NDArray[np.bool_]:
    if not columns.has_property(PROPERTY_DELAY):
        return np.zeros(len(columns.frames), bool)
    encoded = columns.property_values(PROPERTY_DELAY).dictionary_encode()
    levels = [java_integer(text, _INT_BITS) or 0 for text in encoded.dictionary.to_pylist()]
    code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.bool_] = np.array([*levels, 0])[code] > 0
    return found
