"""The newest message of each key, as a broker that compacts a topic keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc
from store_core.layout.message import PROPERTY_KEYS

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.message_batch_codec import MessageColumns

_ROWS_AT_ONCE = 1 << 20


class NewestOfKeys:
    """Takes messages of one queue in any order, and tells the newest of each key.

    A key is the whole text of ``KEYS``; messages without one are passed over, as a broker keeps
    none in a compacted log. Memory: the keys, twice, and those of a million messages.

    Source: RocketMQ ``CompactionLog.getOffsetMap``, ``shouldRetainMsg`` (release 5.3.3).
    """

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._rows, self._limit = 0, _ROWS_AT_ONCE

    def add(self, columns: MessageColumns) -> None:
        """Take messages; the same ones may come again."""
        frames, keys = columns.frames, columns.property_values(PROPERTY_KEYS)
        has_key = pc.greater(pc.binary_length(pc.utf8_trim_whitespace(keys)), 0)
        # Both in one number, so that the largest of a key tells whether the newest has a body.
        number = frames.column("queue_offset") << 1 | (frames.column("body_length") > 0)
        table = pa.table({"key": keys, "number": pa.array(number.astype(np.int64))})
        self._held.append(table.filter(has_key))
        self._rows += len(self._held[-1])
        if self._rows > self._limit:
            self._fold()
            self._limit = self._rows + max(self._rows, _ROWS_AT_ONCE)

    def kept_offsets(self) -> npt.NDArray[np.int64]:
        """Return the queue offsets of the newest messages, ascending.

        Those without a body are left out: a broker drops them with all that their keys had.
        """
        if not self._held:
            return np.empty(0, np.int64)
        self._fold()
        numbers = self._held[0].column("number").to_numpy()
        offsets: npt.NDArray[np.int64] = np.sort(numbers[numbers & 1 == 1] >> 1)
        return offsets

    def _fold(self) -> None:
        """Keep one row a key."""
        groups = pa.concat_tables(self._held).group_by("key", use_threads=False)
        newest = groups.aggregate([("number", "max")])
        self._held = [newest.select(["key", "number_max"]).rename_columns(["key", "number"])]
        self._rows = len(newest)
