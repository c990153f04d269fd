# SPDX-License-Identifier: Apache-2.0
"""One pull as a broker answers it: with stored records, not decoded messages.

Source: RocketMQ ``DefaultMessageStore.getMessage``, ``PullMessageProcessor`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from store_core.read.get_message import Pull, outside_of_queue, wrong_size
from store_core.results import GetMessageStatus

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.filter.message_filter import MessageFilter
    from store_core.log.record_reader import RecordReader
    from store_core.queue.readable_queue import ReadableQueue


class PulledRecords(NamedTuple):
    """Answer of ``pull_records``.

    Attributes
    ----------
    min_offset, max_offset
        The queue's range of offsets; max is exclusive.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    messages: int = 0
    suggest_pulling_from_slave: bool = False


def pull_records(
    queue: ReadableQueue | None,
    reader: RecordReader,
    config: MessageStoreConfig,
    queue_offset: int,
    max_msg_nums: int,
    message_filter: MessageFilter | None,
    max_bytes: int,
) -> PulledRecords:
    """Read records of a queue from an offset on; ``queue`` is None if it does not exist.

    Raises
    ------
    CorruptRecordError
        A unit points at bytes that are not a record of its size.
    """
    if queue is None:
        return PulledRecords(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    outside = outside_of_queue(queue, queue_offset)
    if outside:
        return PulledRecords(*outside, queue.min_offset, queue.max_offset)
    pull = _RecordPull(queue, reader, config, queue_offset, max_msg_nums, message_filter, max_bytes)
    pull.run()
    return PulledRecords(
        pull.status,
        pull.next_offset,
        queue.min_offset,
        queue.max_offset,
        pull.body(),
        pull.message_count,
        pull.suggests_slave,
    )


class _RecordPull(Pull):
    """Notes the places of records; adjacent ones are copied in one piece."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._run_end = -1
        self._reads_properties = self._filter is not None and self._filter.reads_properties
        self._file_size = self._reader.log.segments.file_size
        self._runs: list[list[int]] = []  # begin and end in the log

    def take(self, start: int, size: int) -> bool:
        found = self._reader.record_bytes(start)
        if found != size:
            raise wrong_size(self._reader, start, size, found)
        if self._reads_properties and not self._wants(self._reader.read(start)):
            return False
        if self._run_end == start and start % self._file_size:
            self._runs[-1][1] = self._run_end = start + size
        else:
            self._run_end = start + size
            self._runs.append([start, self._run_end])
        return True

    def body(self) -> bytes:
        """Return the bytes of the records."""
        pieces = [self._reader.raw(begin, end - begin) for begin, end in self._runs]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
