# SPDX-License-Identifier: Apache-2.0
"""One pull from a queue, with RocketMQ's limits (``DefaultMessageStore.getMessage``, 5.3.3)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from store_core.codec.message_codec import string_to_properties
from store_core.errors import CorruptRecordError
from store_core.results import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from store_core.codec.message_codec import StoredRecord
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.filter.message_filter import MessageFilter
    from store_core.log.record_reader import RecordReader
    from store_core.message import Message
    from store_core.queue.readable_queue import ReadableQueue, UnitRun

MAX_PULL_MESSAGE_BYTES = 128 << 20


def get_message(
    queue: ReadableQueue | None,
    reader: RecordReader,
    config: MessageStoreConfig,
    queue_offset: int,
    max_msg_nums: int,
    message_filter: MessageFilter | None,
) -> GetMessageResult:
    """Read messages of a queue from an offset on; ``queue`` is None if it does not exist.

    Raises
    ------
    CorruptRecordError
        A unit points at bytes that are not a record of its size.
    CorruptBodyError
        A body cannot be inflated.
    """
    if queue is None:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    outside = outside_of_queue(queue, queue_offset)
    if outside:
        return GetMessageResult(*outside, queue.min_offset, queue.max_offset)
    pull = _MessagePull(queue, reader, config, queue_offset, max_msg_nums, message_filter)
    pull.run()
    return GetMessageResult(
        pull.status,
        pull.next_offset,
        queue.min_offset,
        queue.max_offset,
        tuple(pull.messages),
        pull.found_bytes,
        pull.suggests_slave,
    )


def outside_of_queue(queue: ReadableQueue, offset: int) -> tuple[GetMessageStatus, int] | None:
    """Return status and next offset if there is nothing to scan, else None."""
    if queue.max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < queue.min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL, queue.min_offset
    if offset == queue.max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > queue.max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, queue.max_offset
    return None


class Pull(ABC):
    """The scan of a pull, which passes records one by one to `take`."""

    def __init__(
        self,
        queue: ReadableQueue,
        reader: RecordReader,
        config: MessageStoreConfig,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
        max_bytes: int = MAX_PULL_MESSAGE_BYTES,
    ) -> None:
        self._queue, self._reader, self._config = queue, reader, config
        self._begin = self.next_offset = queue_offset
        self._max_bytes = min(max_bytes, MAX_PULL_MESSAGE_BYTES)
        self._max_msg_nums = max_msg_nums
        self._filter = message_filter
        wanted = max_msg_nums * queue.unit_bytes
        self._filter_bytes = max(config.max_filter_message_size, wanted)
        self._memory_from = reader.end_offset - _bytes_in_memory(config)
        self._looked_at = 0
        self.status = GetMessageStatus.NO_MATCHED_MESSAGE
        self.message_count = 0
        self.found_bytes = 0

    @property
    def suggests_slave(self) -> bool:
        """Whether the last record scanned is probably no longer in this machine's memory."""
        return self._looked_at < self._memory_from

    @abstractmethod
    def take(self, start: int, size: int) -> bool:
        """Add a record to the result; return False if the filter rejects it.

        Raises
        ------
        CorruptRecordError
            There is no record of that size.
        """

    def run(self) -> None:
        """Scan runs of units until one yields records, the queue ends, or the run limit is met."""
        for _ in range(self._config.travel_cq_file_num_when_get_message):
            if self.found_bytes or self.next_offset >= self._queue.max_offset:
                break
            run = self._queue.units_from(
                self.next_offset,
                self._filter_bytes // self._queue.unit_bytes + 1,
            )
            if run is None:
                self.status = GetMessageStatus.OFFSET_FOUND_NULL
                self.next_offset = self._queue.roll_next_file(self.next_offset)
                break
            self._scan(run)

    def _scan(self, run: UnitRun) -> None:
        matched = None
        if self._filter is not None:
            matched = self._filter.matches_units(run.tags_code)
        max_offset, holds = self._queue.max_offset, self._reader.holds
        stop = self._begin - (-self._filter_bytes // self._queue.unit_bytes)
        next_file_start = -1  # records before it are known to be gone
        for row, (queue_offset, count, start, size) in enumerate(run.rows()):
            if queue_offset >= stop or self.next_offset >= max_offset:
                break
            if self.found_bytes and self._is_full(start, size, count):
                break
            self.next_offset, self._looked_at = queue_offset + count, start
            if start < next_file_start:
                continue
            if matched is not None and not matched[row]:
                self._note(GetMessageStatus.NO_MATCHED_MESSAGE)
            elif not holds(start, size):
                self._note(GetMessageStatus.MESSAGE_WAS_REMOVING)
                file_size = self._reader.log.segments.file_size
                next_file_start = start + file_size - start % file_size
            elif self.take(start, size):
                next_file_start = -1
                self.message_count += count
                self.found_bytes += size
                self.status = GetMessageStatus.FOUND
            else:
                self._note(GetMessageStatus.NO_MATCHED_MESSAGE)

    def _note(self, status: GetMessageStatus) -> None:
        if not self.found_bytes:
            self.status = status

    def _wants(self, record: StoredRecord) -> bool:
        if self._filter is None or not self._filter.reads_properties:
            return True
        properties = string_to_properties(record.properties_raw)
        return self._filter.matches_properties(properties)

    def _is_full(self, start: int, size: int, count: int) -> bool:
        """Return whether the limits exclude the next record; asked after the first message.

        Source: RocketMQ ``isTheBatchFull``.
        """
        if self.message_count + count > self._max_msg_nums:
            return True
        config, total = self._config, self.found_bytes + size
        if total > self._max_bytes:
            return True
        if start >= self._memory_from:
            max_bytes = config.max_transfer_bytes_on_message_in_memory
            max_count = config.max_transfer_count_on_message_in_memory
        else:
            max_bytes = config.max_transfer_bytes_on_message_in_disk
            max_count = config.max_transfer_count_on_message_in_disk
        return total > max_bytes or self.message_count > max_count - 1


class _MessagePull(Pull):
    """Decodes the records into messages."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.messages: list[Message] = []

    def take(self, start: int, size: int) -> bool:
        record = self._reader.read(start)
        if record.total_size != size:
            raise wrong_size(self._reader, start, size, record.total_size)
        if not self._wants(record):
            return False
        self.messages += self._reader.messages_of(record)
        return True


def wrong_size(reader: RecordReader, start: int, size: int, found: int) -> CorruptRecordError:
    """Return the error for a unit whose size is not its record's."""
    return CorruptRecordError(
        f"the record at offset {start} of the log has {found} bytes, but its consume queue says "
        f"{size}",
        reader.path_of(start),
        start % reader.log.segments.file_size,
    )


def _bytes_in_memory(config: MessageStoreConfig) -> int:
    """Return how many of a log's newest bytes are assumed to be in memory."""
    return _memory_bytes() * config.access_message_in_memory_max_ratio // 100


@lru_cache(maxsize=1)
def _memory_bytes() -> int:
    """Return the machine's memory in bytes; if unknown, a size that everything fits in."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62
