# SPDX-License-Identifier: Apache-2.0
"""Single records of a log by their physical offsets, as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.codec.message_codec import decode_message
from store_core.errors import CorruptRecordError
from store_core.message import message_from_record, messages_from_record

if TYPE_CHECKING:
    from store_core.codec.message_codec import StoredRecord
    from store_core.log.commit_log import ReadableLog
    from store_core.log.log_scan import SegmentRecords
    from store_core.message import Message


class RecordReader:
    """Reads records before the end of a log, for one query.

    The methods that a pull calls for each record (`holds`, `record_bytes`, `raw`) reuse the last
    segment; the caller reads no other one meanwhile, as the log may then close it.
    """

    def __init__(self, log: ReadableLog, end_offset: int, store: str) -> None:
        self.log = log
        self.end_offset = end_offset
        self.store = store
        self._records: SegmentRecords | None = None
        self._begin = self._stop = 0  # of the readable bytes of that segment

    def holds(self, commit_log_offset: int, size: int) -> bool:
        """Return whether these bytes exist: in one segment, not expired, before the end."""
        records = self._records_at(commit_log_offset)
        return records is not None and commit_log_offset + size <= self._stop

    def read(self, commit_log_offset: int) -> StoredRecord:
        """Return the record that starts at an offset.

        Raises
        ------
        CorruptRecordError
            There is none.
        """
        segment = self.log.segments.find(commit_log_offset)
        if segment is None:
            raise self._nothing_at(commit_log_offset)
        position = commit_log_offset - segment.from_offset
        records = self.log.records(segment, self.end_offset)
        window = records.window(max(position - records.header_bytes, 0), position + 1)
        at = position - window.start
        return decode_message(
            window.data, at, commit_log_offset, segment.path, file_position=position
        )

    def record_bytes(self, commit_log_offset: int) -> int:
        """Return the size of the record that starts at an offset; 0 if none seems to.

        It checks the record's own numbers, but no checksum.
        """
        records = self._records_at(commit_log_offset)
        if records is None:
            return 0
        return records.claimed_bytes(commit_log_offset - self._begin)

    def raw(self, commit_log_offset: int, size: int) -> bytes:
        """Return bytes of one segment as they are; they exist according to `holds`."""
        records = self._records_at(commit_log_offset)
        if records is None:
            raise self._nothing_at(commit_log_offset)
        return records.bytes_at(commit_log_offset - self._begin, size).tobytes()

    def find(self, commit_log_offset: int) -> StoredRecord | None:
        """Return the record that starts at an offset, or None if no whole record does."""
        if commit_log_offset < 0:
            return None
        try:
            return self.read(commit_log_offset)
        except CorruptRecordError:
            return None

    def message_of(self, record: StoredRecord) -> Message:
        """Return a record as one message, even if it is an inner batch.

        Raises
        ------
        CorruptBodyError
            The body cannot be inflated.
        """
        return message_from_record(record, self.store)

    def messages_of(self, record: StoredRecord) -> list[Message]:
        """Return the messages of a record: several for an inner batch.

        Raises
        ------
        CorruptBodyError
            The body cannot be inflated or unpacked.
        """
        return messages_from_record(record, self.store)

    def path_of(self, commit_log_offset: int) -> str:
        """Return the file of an offset, for error texts."""
        segment = self.log.segments.find(commit_log_offset)
        return self.log.uri if segment is None else segment.path

    def _records_at(self, commit_log_offset: int) -> SegmentRecords | None:
        """Return access to the records of the segment that contains an offset, and cache it."""
        if self._begin <= commit_log_offset < self._stop:
            return self._records
        segment = self.log.segments.find(commit_log_offset)
        if segment is None:
            return None
        self._begin = segment.from_offset
        self._stop = min(segment.from_offset + segment.size, self.end_offset)
        self._records = self.log.records(segment, self.end_offset)
        return self._records

    def _nothing_at(self, commit_log_offset: int) -> CorruptRecordError:
        text = "no segment holds this offset"
        return CorruptRecordError(text, self.log.uri, commit_log_offset)
