"""Single records of a log by their physical offsets, as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.codec.message_codec import decode_message
from store_core.errors import CorruptRecordError
from store_core.message import message_from_record, messages_from_record

if TYPE_CHECKING:
    from store_core.codec.message_codec import StoredRecord
    from store_core.log.readable_log import ReadableLog
    from store_core.message import Message


class RecordReader:
    """Reads below the end of a log.

    Parameters
    ----------
    log, end_offset
        The log, and where it ends.
    store
        What messages give as their ``store``.
    """

    def __init__(self, log: ReadableLog, end_offset: int, store: str) -> None:
        self.log = log
        self.end_offset = end_offset
        self.store = store

    def holds(self, commit_log_offset: int, size: int) -> bool:
        """Return whether these bytes are there: in one segment, not expired, below the end."""
        segment = self.log.segments.find(commit_log_offset)
        if segment is None:
            return False
        readable = min(segment.from_offset + segment.size, self.end_offset)
        return commit_log_offset + size <= readable

    def read(self, commit_log_offset: int) -> StoredRecord:
        """Return the record that starts at an offset.

        Raises
        ------
        CorruptRecordError
            There is none.
        """
        segment = self.log.segments.find(commit_log_offset)
        if segment is None:
            path = self.log.uri
            raise CorruptRecordError("no segment holds this offset", path, commit_log_offset)
        position = commit_log_offset - segment.from_offset
        window = self.log.records(segment, self.end_offset).window(position, position + 1)
        at = position - window.start
        return decode_message(
            window.data, at, commit_log_offset, segment.path, file_position=position
        )

    def record_bytes(self, commit_log_offset: int) -> int:
        """Return the size of the record that starts at an offset; 0 if none seems to.

        The record's own numbers are looked at, no checksum.
        """
        segment = self.log.segments.find(commit_log_offset)
        if segment is None:
            return 0
        position = commit_log_offset - segment.from_offset
        return self.log.records(segment, self.end_offset).claimed_bytes(position)

    def raw(self, commit_log_offset: int, size: int) -> bytes:
        """Return bytes of one segment as they are; `holds` has said that they are there."""
        segment = self.log.segments.find(commit_log_offset)
        if segment is None:
            path = self.log.uri
            raise CorruptRecordError("no segment holds this offset", path, commit_log_offset)
        position = commit_log_offset - segment.from_offset
        return self.log.records(segment, self.end_offset).bytes_at(position, size).tobytes()

    def find(self, commit_log_offset: int) -> StoredRecord | None:
        """Return the record that starts at an offset, or None when no whole record does."""
        if commit_log_offset < 0:
            return None
        try:
            return self.read(commit_log_offset)
        except CorruptRecordError:
            return None

    def message_of(self, record: StoredRecord) -> Message:
        """Return a record as a message; an inner batch undivided.

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
            The body cannot be inflated or taken apart.
        """
        return messages_from_record(record, self.store)

    def path_of(self, commit_log_offset: int) -> str:
        """Return the file of an offset, for error texts."""
        segment = self.log.segments.find(commit_log_offset)
        return self.log.uri if segment is None else segment.path
