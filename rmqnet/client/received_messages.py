"""Messages in the body of a broker's answer: records, one after the other, as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.errors import RemotingFormatError
from store_core.codec.compression import CorruptBodyError
from store_core.codec.message_codec import decode_message
from store_core.errors import CorruptRecordError
from store_core.layout.message import COMMIT_LOG_OFFSET_AT, HEADER_IPV4
from store_core.message import messages_from_record

if TYPE_CHECKING:
    from store_core.codec.message_codec import StoredRecord
    from store_core.message import Message

_OFFSET_BYTES = 8


def messages_from_body(body: bytes, store: str, asked_for: str = "") -> list[Message]:
    """Return the messages of an answer: bodies inflated, batches divided.

    Parameters
    ----------
    body
        Records of version 1 or 2, hosts of IPv4 or IPv6.
    store
        ``broker@host:port``, for column ``store`` and for errors.
    asked_for
        Queue and offset, or key, that the broker was asked for; for errors.

    Raises
    ------
    RemotingFormatError
        A record is damaged; the text says whose it is and where it lies.
    """
    messages: list[Message] = []
    position = 0
    try:
        while position < len(body):
            record = _record_at(body, position, store)
            messages += messages_from_record(record, store)
            position += record.total_size
    except (CorruptRecordError, CorruptBodyError) as err:
        reason = err.reason if isinstance(err, CorruptRecordError) else str(err)
        raise RemotingFormatError(
            _damage(store, asked_for, len(messages), position, reason)
        ) from err
    return messages


def _record_at(body: bytes, position: int, store: str) -> StoredRecord:
    if position + HEADER_IPV4.size > len(body):
        left = len(body) - position
        raise CorruptRecordError(f"only {left} bytes are left for a record", store, position)
    # Only the broker knows where the record lies in its log: its own word is taken.
    at = position + COMMIT_LOG_OFFSET_AT
    commit_log_offset = int.from_bytes(body[at : at + _OFFSET_BYTES], "big", signed=True)
    return decode_message(body, position, commit_log_offset, store)


def _damage(store: str, asked_for: str, before: int, position: int, reason: str) -> str:
    return (
        f"{store}: its answer{f' for {asked_for}' if asked_for else ''} holds a damaged record at "
        f"byte {position}, after {before} messages: {reason}"
    )
