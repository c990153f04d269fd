"""One pull from a queue, with RocketMQ's limits (``DefaultMessageStore.getMessage``, 5.3.3)."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from store_core.codec.properties import string_to_properties
from store_core.errors import CorruptRecordError
from store_core.results import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
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
    """Read messages of a queue from an offset on; None is a queue that does not exist.

    Raises
    ------
    CorruptRecordError
        A unit points at bytes that are no record of its size.
    CorruptBodyError
        A body cannot be inflated.
    """
    if queue is None:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    outside = _outside(queue, queue_offset)
    if outside:
        return GetMessageResult(*outside, queue.min_offset, queue.max_offset)
    pull = _Pull(queue, reader, config, queue_offset, max_msg_nums, message_filter)
    return pull.run()


def _outside(queue: ReadableQueue, offset: int) -> tuple[GetMessageStatus, int] | None:
    """Return status and next offset when there is nothing to scan."""
    if queue.max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < queue.min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL, queue.min_offset
    if offset == queue.max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > queue.max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, queue.max_offset
    return None


class _Pull:
    """The scan, and what it has collected."""

    def __init__(
        self,
        queue: ReadableQueue,
        reader: RecordReader,
        config: MessageStoreConfig,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> None:
        self._queue, self._reader, self._config = queue, reader, config
        self._begin = self._next = queue_offset
        self._max_msg_nums = max_msg_nums
        self._filter = message_filter
        wanted = max_msg_nums * queue.unit_bytes
        self._filter_bytes = max(config.max_filter_message_size, wanted)
        self._memory_bytes = _memory_bytes() * config.access_message_in_memory_max_ratio // 100
        self._status = GetMessageStatus.NO_MATCHED_MESSAGE
        self._messages: list[Message] = []
        self._message_count = 0
        self._bytes = 0

    def run(self) -> GetMessageResult:
        for _ in range(self._config.travel_cq_file_num_when_get_message):
            if self._bytes or self._next >= self._queue.max_offset:
                break
            run = self._queue.units_from(
                self._next,
                self._filter_bytes // self._queue.unit_bytes + 1,
                bitmap_bytes=0 if self._filter is None else self._filter.bitmap_bytes,
            )
            if run is None:
                self._status = GetMessageStatus.OFFSET_FOUND_NULL
                self._next = self._queue.roll_next_file(self._next)
                break
            self._scan(run)
        return GetMessageResult(
            self._status,
            self._next,
            self._queue.min_offset,
            self._queue.max_offset,
            tuple(self._messages),
            self._bytes,
        )

    def _scan(self, run: UnitRun) -> None:
        matched = None
        if self._filter is not None:
            matched = self._filter.matches_units(run.tags_code, run.ext)
        next_file_start = -1  # records below it are known to be gone
        columns = (run.queue_offset, run.batch_size, run.commit_log_offset, run.message_size)
        for row, (queue_offset, count, start, size) in enumerate(zip(*columns)):
            if (queue_offset - self._begin) * self._queue.unit_bytes >= self._filter_bytes:
                break
            if self._next >= self._queue.max_offset or self._is_full(start, size, count):
                break
            self._next = queue_offset + count
            if start < next_file_start:
                continue
            if matched is not None and not matched[row]:
                self._note(GetMessageStatus.NO_MATCHED_MESSAGE)
            elif not self._reader.holds(start, size):
                self._note(GetMessageStatus.MESSAGE_WAS_REMOVING)
                file_size = self._reader.log.segments.file_size
                next_file_start = start + file_size - start % file_size
            elif self._collect(start, size, count):
                next_file_start = -1
            else:
                self._note(GetMessageStatus.NO_MATCHED_MESSAGE)

    def _note(self, status: GetMessageStatus) -> None:
        if not self._bytes:
            self._status = status

    def _collect(self, start: int, size: int, count: int) -> bool:
        """Take a record; return False for one that the filter does not want."""
        record = self._reader.read(start)
        if record.total_size != size:
            raise CorruptRecordError(
                f"the record at offset {start} of the log has {record.total_size} bytes, "
                f"its consume queue says {size}",
                self._reader.path_of(start),
                start % self._reader.log.segments.file_size,
            )
        if self._filter is not None and self._filter.reads_properties:
            properties = string_to_properties(record.properties_raw)
            if not self._filter.matches_properties(properties):
                return False
        self._messages += self._reader.messages_of(record)
        self._message_count += count
        self._bytes += size
        self._status = GetMessageStatus.FOUND
        return True

    def _is_full(self, start: int, size: int, count: int) -> bool:
        """``isTheBatchFull``: never before the first message."""
        if not self._bytes:
            return False
        if self._message_count + count > self._max_msg_nums:
            return True
        config, total = self._config, self._bytes + size
        if total > MAX_PULL_MESSAGE_BYTES:
            return True
        if self._reader.end_offset - start <= self._memory_bytes:
            max_bytes = config.max_transfer_bytes_on_message_in_memory
            max_count = config.max_transfer_count_on_message_in_memory
        else:
            max_bytes = config.max_transfer_bytes_on_message_in_disk
            max_count = config.max_transfer_count_on_message_in_disk
        return total > max_bytes or self._message_count > max_count - 1


@lru_cache(maxsize=1)
def _memory_bytes() -> int:
    """Return the machine's memory; where it is not known, as if everything fitted."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62
