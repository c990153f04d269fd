# SPDX-License-Identifier: Apache-2.0
"""What the kernel finds for queues and index in one pass over the properties of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core import native
from store_core.arrow import binary_parts, nullable_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

IS_REFUSED, HAS_INNER_NUM, HAS_FURTHER_QUEUES = 1, 2, 4


class DispatchColumns(NamedTuple):
    """Columns of records, and of the entries that the index makes for them.

    Attributes
    ----------
    tags_code
        Java's hash of TAGS; 0 without.
    kinds
        Bits: IS_REFUSED (left to NumPy: no hash and no entries here), HAS_INNER_NUM,
        HAS_FURTHER_QUEUES.
    entry_hash, entry_row, entry_is_tag
        Of each entry: its hash as stored, its record's row, whether it is that of the tags.
    """

    tags_code: Int32s
    kinds: npt.NDArray[np.uint8]
    entry_hash: Int32s
    entry_row: Int32s
    entry_is_tag: npt.NDArray[np.bool_]

    @property
    def refused(self) -> Int64s:
        """Rows, ascending, that are left to NumPy."""
        return np.flatnonzero(self.kinds & IS_REFUSED)


def dispatch_columns(
    data: npt.NDArray[np.uint8], position: Int64s, parts: Int64s
) -> DispatchColumns:
    """Return what queues and index need of whole records.

    Parameters
    ----------
    parts
        As `RecordFrames.parts`.
    """
    rows = len(position)
    most = int(parts[-1].sum()) // 2 + 2 * rows  # an entry takes two bytes or more
    tags_code, kinds = np.empty(rows, np.int32), np.empty(rows, np.uint8)
    entries: Any = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.bool_)
    count = native.kernel.dispatch(data, position, parts, tags_code, kinds, *entries)
    return DispatchColumns(tags_code, kinds, *(column[:count] for column in entries))


def known_dispatch_columns(
    topic_hash: Int32s, sys_flag: Int32s, values: Sequence[Array | None]
) -> DispatchColumns:
    """Return what queues and index need of records whose columns are at hand.

    Parameters
    ----------
    topic_hash
        Java's hash of each record's topic.
    values
        Unique keys, keys and tags: arrays of strings, each null where a record has none; None if no
        record has one.
    """
    rows, most = len(topic_hash), 0
    for column in values:
        most += 0 if column is None else rows + int(np.ptp(binary_parts(column)[0][[0, -1]]))
    tags_code, kinds = np.empty(rows, np.int32), np.empty(rows, np.uint8)
    entries: Any = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.bool_)
    given = [part for column in values for part in nullable_parts(column)]
    count = native.kernel.dispatch_known(topic_hash, sys_flag, *given, tags_code, kinds, *entries)
    return DispatchColumns(tags_code, kinds, *(column[:count] for column in entries))


def topic_numbers(
    data: npt.NDArray[np.uint8], position: Int64s, parts: Int64s
) -> tuple[Int32s, list[bytes]] | None:
    """Return a number for each record's topic, counted from 0 as topics appear, and the topics.

    None if too many topics have one hash.
    """
    rows = len(position)
    code, first_row = np.empty((2, rows), np.int32)
    table = np.empty(1 << rows.bit_length(), np.int32)
    count = native.kernel.number_topics(data, position, parts, code, first_row, table)
    if count < 0:
        return None
    topics = []
    for row in first_row[:count].tolist():
        start = int(parts[2, row])
        topics.append(data[start : start + int(parts[3, row])].tobytes())
    return code, topics
