# SPDX-License-Identifier: Apache-2.0
"""The end of a writable commit log: appends records and closes segments.

Source: RocketMQ ``CommitLog.asyncPutMessage``, ``asyncPutMessages``,
``DefaultAppendMessageCallback.doAppend`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.codec.message_codec import encode_blank
from store_core.codec.record_encoder import EncodedRecords, patch_record
from store_core.errors import StoreWriteError
from store_core.layout import BLANK_RECORD_BYTES

if TYPE_CHECKING:
    from typing import Union

    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue

    Int64s = npt.NDArray[np.int64]
    Buffer = Union[bytes, bytearray, memoryview]


class SegmentNotMadeError(StoreWriteError):
    """The next segment cannot be made; the log is unchanged."""


class LogClosedError(StoreWriteError):
    """The log was closed before the append."""


class AppendedRecord(NamedTuple):
    """Where and when (ms) a record was appended; ``size`` in bytes."""

    commit_log_offset: int
    size: int
    store_timestamp: int


class AppendedRecords(NamedTuple):
    """Rows ``[first, stop)`` of a block were appended, all in one segment.

    ``store_timestamp`` (ms) is that of the last one, and of all if the caller gave none.
    """

    first: int
    stop: int
    commit_log_offsets: Int64s
    store_timestamp: int


class CommitLogAppender:
    """Appends encoded records; one lock makes offsets and store times grow together.

    A record never spans segments, and at least eight bytes remain after it for the blank record
    that closes the segment. The caller has assigned the queue offsets; a refused append leaves the
    log unchanged, or has only closed its last segment.

    Parameters
    ----------
    clock
        Returns ms since the epoch; called once per append, inside the lock.

    Attributes
    ----------
    begin_time_in_lock
        Time (ms) at which the running append began; 0 while there is none.
    """

    def __init__(self, queue: MappedFileQueue, clock: Callable[[], int]) -> None:
        self._queue, self._clock = queue, clock
        self._lock = threading.Lock()
        self._is_closed = False
        self.begin_time_in_lock = 0

    def close(self) -> None:
        """Wait for the running append, and refuse later ones."""
        with self._lock:
            self._is_closed = True

    def append(
        self, record: bytearray, queue_offset: int, *, property_crc: bool = False
    ) -> AppendedRecord:
        """Append one record of ``encode_message``, overwriting its offsets and store time.

        Parameters
        ----------
        queue_offset
            0 for prepared and rollback records.

        Raises
        ------
        ValueError
            It does not fit an empty segment.
        SegmentNotMadeError, StoreWriteError
            A segment cannot be made, or written.
        """
        size = len(record)
        with self._lock:
            self.begin_time_in_lock = store_timestamp = self._clock()
            try:
                files = self._queue.mapped_files
                file = files[-1] if files and not self._is_closed else None
                if file is None or file.wrote_position + size + BLANK_RECORD_BYTES > file.file_size:
                    file = self._file_with_room(size)
                offset = file.file_from_offset + file.wrote_position
                patch_record(record, queue_offset, offset, store_timestamp, property_crc)
                file.append(record)
                file.store_timestamp = store_timestamp
            finally:
                self.begin_time_in_lock = 0
        # Runs for every put: the class's own constructor is one more Python call.
        return tuple.__new__(AppendedRecord, (offset, size, store_timestamp))

    def append_records(
        self,
        records: EncodedRecords,
        queue_offsets: Int64s,
        *,
        first: int = 0,
        one_segment: bool = False,
        store_timestamps: Int64s | None = None,
    ) -> AppendedRecords:
        """Append rows of a block from ``first`` on, as many as fit one segment.

        Call again with ``first`` = ``stop`` for the rest: each call is all or nothing, so the
        caller always knows which queue offsets are used.

        Raises
        ------
        ValueError
            The first record, or all of them with ``one_segment``, do not fit an empty segment; or
            there is not one queue offset per row.
        SegmentNotMadeError, StoreWriteError
            A segment cannot be made, or written.
        """
        if len(queue_offsets) != len(records):
            raise ValueError(f"{len(queue_offsets)} queue offsets for {len(records)} records")
        if first == len(records):
            return AppendedRecords(first, first, np.empty(0, np.int64), 0)
        begin = int(records.starts[first])
        ends = records.starts[first:] + records.sizes[first:] - begin
        together = int(ends[-1] if one_segment else ends[0])
        with self._lock:
            self.begin_time_in_lock = store_timestamp = self._clock()
            try:
                file = self._file_with_room(together)
                room = file.file_size - file.wrote_position - BLANK_RECORD_BYTES
                stop = first + int(np.searchsorted(ends, room, "right"))
                here = file.file_from_offset + file.wrote_position
                offsets = here - begin + records.starts[first:stop]
                times: Int64s | int = store_timestamp
                if store_timestamps is not None:
                    times = store_timestamps[first:stop]
                    store_timestamp = int(times[-1])
                records.patch(queue_offsets[first:stop], offsets, times, first=first)
                file.append(records.rows(first, stop))
                file.store_timestamp = store_timestamp
            finally:
                self.begin_time_in_lock = 0
        return AppendedRecords(first, stop, offsets, store_timestamp)

    def append_data(self, offset: int, data: Buffer) -> None:
        """Append unchanged bytes of another store's log, all of one segment.

        They may begin and end anywhere, also within a record.

        Parameters
        ----------
        offset
            Their offset: the end of the log, or the beginning of any segment while the log is
            empty.
        data
            Any buffer of single bytes.

        Raises
        ------
        ValueError
            The offset is another one, or the bytes go past the end of their segment.
        SegmentNotMadeError, StoreWriteError
            A segment cannot be made, or written; nothing was appended.
        """
        size = self._queue.file_size
        with self._lock:
            if self._is_closed:
                raise self._closed()
            last = self._queue.last
            end = self._queue.max_wrote_offset if last is not None else offset - offset % size
            if offset != end:
                raise ValueError(
                    f"the data begins at offset {offset}, but the log continues at {end}"
                )
            if offset % size + len(data) > size:
                raise ValueError(
                    f"{len(data)} bytes at offset {offset} go past the end of their segment of "
                    f"{size} bytes"
                )
            file = last if last is not None and not last.is_full else self._next_file(offset)
            file.append(data)

    def close_segment(self) -> None:
        """Close the last segment with a blank record, unless it is empty or full.

        The next append begins a new one.
        """
        with self._lock:
            file = self._queue.last
            if file is not None and file.wrote_position and not file.is_full:
                self._close(file)

    @property
    def max_record_bytes(self) -> int:
        """Most bytes of a record: those of a segment minus its blank record."""
        return self._queue.file_size - BLANK_RECORD_BYTES

    def _file_with_room(self, size: int) -> MappedFile:
        if self._is_closed:
            raise self._closed()
        if size > self.max_record_bytes:
            text = (
                f"{size} bytes do not fit in a segment, which takes at most {self.max_record_bytes}"
            )
            raise ValueError(text)
        file = self._queue.last or self._next_file()
        left = file.file_size - file.wrote_position
        if size + BLANK_RECORD_BYTES <= left:
            return file
        if left:
            self._close(file)
        return self._next_file()

    @staticmethod
    def _close(file: MappedFile) -> None:
        file.append_last(encode_blank(file.file_size - file.wrote_position))

    def _closed(self) -> LogClosedError:
        return LogClosedError("the store was shut down meanwhile", self._queue.directories[0])

    def _next_file(self, start_offset: int = 0) -> MappedFile:
        try:
            return self._queue.writable_file(start_offset)
        except StoreWriteError as err:
            raise SegmentNotMadeError(err.reason, err.path) from err
