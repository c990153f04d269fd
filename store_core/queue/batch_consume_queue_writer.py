"""Write batch consume queues: one unit a record, which may hold several messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.layout.consume_queue import BATCH_CQ_UNIT
from store_core.queue.consume_queue_writer import Appended

if TYPE_CHECKING:
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_files import QueueFiles

_NOT_COMPACTED = -1


class BatchConsumeQueueWriter:
    """Appends units to one queue (RocketMQ ``BatchConsumeQueue``, release 5.3.3).

    Parameters
    ----------
    files
        Where the units go; ``file_size`` is a multiple of 46.
    wrote_position
        Byte behind the last unit, in the queue.
    max_physic_offset
        Start of the last record that is in the queue; -1 for none.
    """

    def __init__(
        self, files: QueueFiles, *, wrote_position: int = 0, max_physic_offset: int = -1
    ) -> None:
        self._files = files
        self.wrote_position = wrote_position
        self.max_physic_offset = max_physic_offset

    def append(self, requests: DispatchRequests) -> Appended:
        """Append a unit for each row, in the order of the log.

        Skipped are rows whose record starts at or before ``max_physic_offset``, and those that no
        reader would take for a unit: without messages, or with a negative queue offset.

        Raises
        ------
        OSError
            A file cannot be created or written; the call may be repeated.
        """
        start = requests.commit_log_offset
        before = np.maximum.accumulate(np.concatenate([[self.max_physic_offset], start]))[:-1]
        fresh = start > before
        rows = requests.take(fresh & (requests.base_queue_offset >= 0) & (requests.batch_size > 0))
        known = len(requests) - int(fresh.sum())
        if len(rows):
            self._write(rows)
            self.max_physic_offset = int(rows.commit_log_offset[-1])
        return Appended(len(rows), known, len(requests) - known - len(rows))

    def flush(self) -> None:
        """Make what was written survive a loss of power."""
        self._files.flush()

    def _write(self, rows: DispatchRequests) -> None:
        units = np.zeros(len(rows), BATCH_CQ_UNIT.dtype)
        units["commit_log_offset"] = rows.commit_log_offset
        units["message_size"] = rows.message_size
        units["tags_code"] = rows.tags_code
        units["store_timestamp"] = rows.store_timestamp
        units["base_queue_offset"] = rows.base_queue_offset
        units["batch_size"] = rows.batch_size
        units["compacted_offset"] = _NOT_COMPACTED
        self._files.write(self.wrote_position, units.view(np.uint8), continues=True)
        self.wrote_position += units.nbytes
