# SPDX-License-Identifier: Apache-2.0
"""Mark messages that a Spark write may send more than once, and drop their repeats.

``__SPARK_BATCH__`` is ``<job>:<batch>:<partition>:<row>``. The job is the id of the streaming
query, or one made for a batch write; rows are counted within the partition. A task that runs again
assigns the same values if it gets the same rows in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.codec.inner_columns import UnwrappedRows
    from store_core.codec.message_batch_codec import MessageColumns

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

PROPERTY_SPARK_BATCH = "__SPARK_BATCH__"

_VALUE = r"^(?P<prefix>[0-9A-Za-z-]{1,64}:[0-9]{1,18}:[0-9]{1,9}):(?P<row>[0-9]{1,9})$"


def job_prefix(job: str, batch: int, partition: int) -> str:
    """Return the part of the values that a task's rows share."""
    return f"{job}:{batch}:{partition}"


def repeat_values(prefix: str, first_row: int, count: int) -> Array:
    """Return the values of consecutive rows as a ``pa.BinaryArray``."""
    rows = pa.array(np.arange(first_row, first_row + count)).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(f"{prefix}:"), rows, "").cast(pa.binary())


class RepeatFilter:
    """Remembers which rows have been read, one byte for each."""

    def __init__(self) -> None:
        self._seen: dict[str, Bools] = {}

    def of_matching(self, columns: MessageColumns | UnwrappedRows, found: Bools) -> Bools:
        """Return which of the matching messages are not repeats.

        If the first copy does not match, for example by its time, the repeat is not dropped.
        """
        rows = np.flatnonzero(found)
        values = columns.property_values(PROPERTY_SPARK_BATCH).take(pa.array(rows))
        kept = np.zeros(len(found), np.bool_)
        kept[rows[self.first_ones(values)]] = True
        return kept

    def first_ones(self, values: Array) -> Bools:
        """Return which messages are not repeats; messages without a value all stay."""
        keep = np.ones(len(values), np.bool_)
        parts = pc.extract_regex(values, _VALUE)
        ours = np.flatnonzero(parts.is_valid().to_numpy(zero_copy_only=False))
        if len(ours) == 0:
            return keep
        found = parts.take(pa.array(ours))
        prefixes = found.field("prefix").dictionary_encode()
        rows = found.field("row").cast(pa.int64()).to_numpy(zero_copy_only=False)
        codes = prefixes.indices.to_numpy(zero_copy_only=False)
        for code, prefix in enumerate(prefixes.dictionary.to_pylist()):
            here = np.flatnonzero(codes == code)
            keep[ours[here]] = self._first_of_task(prefix, rows[here])
        return keep

    def _first_of_task(self, prefix: str, rows: Int64s) -> Bools:
        seen = self._reaching(prefix, int(rows.max()))
        first = np.zeros(len(rows), np.bool_)
        first[np.unique(rows, return_index=True)[1]] = True
        first &= ~seen[rows]
        seen[rows] = True
        return first

    def _reaching(self, prefix: str, row: int) -> Any:
        seen = self._seen.get(prefix)
        if seen is None or row >= len(seen):
            longer = np.zeros(max(2 * row, 1024), np.bool_)
            if seen is not None:
                longer[: len(seen)] = seen
            seen = self._seen[prefix] = longer
        return seen
