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
    topic_code, topics
        Each record's index into the topics as stored, which are listed as they appear.
    tags_code
        Java's hash of TAGS; 0 without.
    kinds
        Bits: IS_REFUSED (left to NumPy: no hash and no entries here), HAS_INNER_NUM,
        HAS_FURTHER_QUEUES.
    entry_hash, entry_row, entry_is_tag
        Of each entry: its hash as stored, its record's row, whether it is that of the tags.
    """

    topic_code: Int32s
    topics: list[bytes]
    tags_code: Int32s
    kinds: npt.NDArray[np.uint8]
    entry_hash: Int32s
    entry_row: Int32s
    entry_is_tag: npt.NDArray[np.bool_]

    @property
    def refused(self) -> Int64s:
        """Rows, ascending, that are left to NumPy."""
        return np.flatnonzero(self.kinds & IS_REFUSED)

    def rows(self, first: int, stop: int) -> DispatchColumns:
        """Return the columns of the rows ``[first, stop)``."""
        low, high = np.searchsorted(self.entry_row, (first, stop)).tolist()
        return DispatchColumns(
            self.topic_code[first:stop],
            self.topics,
            self.tags_code[first:stop],
            self.kinds[first:stop],
            self.entry_hash[low:high],
            self.entry_row[low:high] - np.int32(first),
            self.entry_is_tag[low:high],
        )


def dispatch_columns(
    data: npt.NDArray[np.uint8], position: Int64s, parts: Int64s
) -> DispatchColumns | None:
    """Return what queues and index need of whole records; None if too many topics have one hash.

    Parameters
    ----------
    parts
        As `RecordFrames.parts`.
    """
    rows = len(position)
    found, numbering = _columns(rows, int(parts[-1].sum())), _numbering(rows)
    topic_hash = np.empty(rows, np.int64)
    entries, distinct = native.kernel.dispatch(
        data, position, parts, *found, *numbering, topic_hash
    )
    if distinct < 0:
        return None
    code, first_row, _ = numbering
    topics = _topics(data, parts, first_row[:distinct])
    return DispatchColumns(code, topics, *found[:2], *(column[:entries] for column in found[2:]))


def encoded_dispatch_columns(
    properties: tuple[Int32s, npt.NDArray[np.uint8]],
    topic_code: Int32s,
    topics: list[bytes],
    topic_hash: npt.NDArray[np.uint32],
    sys_flag: Int32s,
) -> DispatchColumns:
    """Return the columns of records that are about to be stored.

    Parameters
    ----------
    properties
        Offsets and data of the column, as Arrow has them.
    topic_hash
        Java's hash of each topic.
    """
    offsets, data = properties
    found = _columns(len(topic_code), int(offsets[-1]) - int(offsets[0]))
    entries = native.kernel.dispatch_properties(
        offsets, data, topic_hash[topic_code], sys_flag, *found
    )
    # Copies, as these columns may wait, and there was room for many more.
    return DispatchColumns(
        topic_code, topics, *found[:2], *(column[:entries].copy() for column in found[2:])
    )


def known_dispatch_columns(
    topic_code: Int32s,
    topics: list[bytes],
    topic_hash: npt.NDArray[np.uint32],
    sys_flag: Int32s,
    values: Sequence[Array | None],
) -> DispatchColumns:
    """Return what `encoded_dispatch_columns` does, from columns of properties.

    Parameters
    ----------
    values
        Unique keys, keys and tags: arrays of strings, each null where a record has none; None if no
        record has one.
    """
    rows = len(topic_code)
    used = [binary_parts(column)[0] for column in values if column is not None]
    found = _columns(rows, rows + sum(int(np.ptp(offsets[[0, -1]])) for offsets in used))
    given = [part for column in values for part in nullable_parts(column)]
    entries = native.kernel.dispatch_values(topic_hash[topic_code], sys_flag, *given, *found)
    return DispatchColumns(
        topic_code, topics, *found[:2], *(column[:entries] for column in found[2:])
    )


def joined_dispatch(parts: Sequence[DispatchColumns]) -> DispatchColumns:
    """Return the columns of records that follow each other (at least one part) as one."""
    topics = [topic for part in parts for topic in part.topics]  # some of them may be repeated
    first_topic = _begins([len(part.topics) for part in parts])
    first_row = _begins([len(part.tags_code) for part in parts])
    return DispatchColumns(
        np.concatenate([part.topic_code + first for part, first in zip(parts, first_topic)]),
        topics,
        np.concatenate([part.tags_code for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.entry_hash for part in parts]),
        np.concatenate([part.entry_row + first for part, first in zip(parts, first_row)]),
        np.concatenate([part.entry_is_tag for part in parts]),
    )


def _begins(lengths: list[int]) -> Int32s:
    return np.cumsum([0, *lengths], dtype=np.int32)[:-1]


def topic_numbers(
    data: npt.NDArray[np.uint8], position: Int64s, parts: Int64s
) -> tuple[Int32s, list[bytes]] | None:
    """Return a number for each record's topic, counted from 0 as topics appear, and the topics.

    None if too many topics have one hash.
    """
    code, first_row, table = _numbering(len(position))
    count = native.kernel.number_topics(data, position, parts, code, first_row, table)
    return None if count < 0 else (code, _topics(data, parts, first_row[:count]))


def _columns(rows: int, properties_bytes: int) -> tuple[Any, ...]:
    """Return room for tags code and kind of each row, then for its entries."""
    most = properties_bytes // 2 + 2 * rows  # an entry takes two bytes or more
    kinds = (np.int32, np.int32, np.bool_)
    return (np.empty(rows, np.int32), np.empty(rows, np.uint8), *(np.empty(most, k) for k in kinds))


def _numbering(rows: int) -> tuple[Int32s, Int32s, Int32s]:
    code, first_row = np.empty((2, rows), np.int32)
    return code, first_row, np.empty(1 << rows.bit_length(), np.int32)


def _topics(data: npt.NDArray[np.uint8], parts: Int64s, first_row: Int32s) -> list[bytes]:
    topics = []
    for row in first_row.tolist():
        start = int(parts[2, row])
        topics.append(data[start : start + int(parts[3, row])].tobytes())
    return topics
