# SPDX-License-Identifier: Apache-2.0
"""Read units of batch consume queues: one per record, which may contain several messages.

Topics with ``queue.type=BatchCQ`` have such queues; they can be rebuilt from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.errors import CorruptRecordError
from store_core.layout import BATCH_CQ_UNIT
from store_core.queue.consume_queue import FILES_RECOVERED

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.segment_list import Segment, SegmentList
    from store_core.files.store_directory import StoreDirectory

    Units = npt.NDArray[np.void]

NATIVE_BATCH_CQ_UNIT = BATCH_CQ_UNIT.dtype.newbyteorder("=")


def read_batch_units(directory: StoreDirectory, segments: SegmentList) -> Units:
    """Return all valid units of a queue's files as a native array, oldest first.

    They end at the first invalid unit of the last three files, as in ``BatchConsumeQueue.recover``
    (RocketMQ 5.3.3).

    Raises
    ------
    CorruptRecordError
        An older file has an invalid unit, or a file between others is missing or short.
    StoreReadError
        A file cannot be read.
    """
    parts = [np.empty(0, NATIVE_BATCH_CQ_UNIT)]
    expected = segments.min_offset
    for number, segment in enumerate(segments):
        if segment.from_offset != expected:
            text = f"the previous file ends at byte {expected} of the queue, or a file is missing"
            raise CorruptRecordError(text, segment.path, 0)
        units = _file_units(directory, segment, segments.file_size)
        valid = is_valid(units)
        if not valid.all():
            end = int(np.argmin(valid))
            if number < len(segments) - FILES_RECOVERED:
                text = "a unit is invalid, but more files follow"
                raise CorruptRecordError(text, segment.path, end * BATCH_CQ_UNIT.size)
            parts.append(units[:end])
            break
        parts.append(units)
        expected = segment.from_offset + len(units) * BATCH_CQ_UNIT.size
    return np.concatenate(parts)


def _file_units(directory: StoreDirectory, segment: Segment, file_size: int) -> Units:
    with directory.open(segment.path) as source:
        held = min(source.size, file_size) // BATCH_CQ_UNIT.size
        view = source.view(0, held * BATCH_CQ_UNIT.size)
        return BATCH_CQ_UNIT.table(view).astype(NATIVE_BATCH_CQ_UNIT)


def min_queue_offset(units: Units, min_phy_offset: int) -> int:
    """Return the first queue offset whose record is at or after ``min_phy_offset``.

    -1 if the queue has no unit; `max_queue_offset` if all its records are gone.
    """
    if len(units) == 0:
        return -1
    kept = np.flatnonzero(units["commit_log_offset"] >= min_phy_offset)
    return int(units["base_queue_offset"][kept[0]]) if len(kept) else max_queue_offset(units)


def max_queue_offset(units: Units) -> int:
    """Return the queue offset after the last message; 0 if the queue has no unit."""
    if len(units) == 0:
        return 0
    return int(units["base_queue_offset"][-1]) + int(units["batch_size"][-1])


def find_unit(units: Units, queue_offset: int) -> int | None:
    """Return the row of the unit that contains a queue offset; None if it is outside the queue."""
    if queue_offset >= max_queue_offset(units):
        return None
    row = int(np.searchsorted(units["base_queue_offset"], queue_offset, "right")) - 1
    return row if row >= 0 else None


def is_valid(units: Units) -> Any:
    """Return which units are valid; RocketMQ takes the first invalid one as the queue's end."""
    return (
        (units["commit_log_offset"] >= 0)
        & (units["message_size"] > 0)
        & (units["base_queue_offset"] >= 0)
        & (units["batch_size"] > 0)
    )
