# SPDX-License-Identifier: Apache-2.0
"""One commit log record: bytes to fields and back.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``MessageExtEncoder.encode``,
``MessageDecoder`` (release 5.3.3). ``message_batch_codec`` decodes many records together.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from store_core.codec.crc32 import crc32
from store_core.codec.java_string import decode_utf8
from store_core.errors import CorruptRecordError
from store_core.layout import (
    BLANK_MAGIC_CODE,
    BLANK_RECORD_BYTES,
    BORNHOST_V6_FLAG,
    CRC32_PROPERTY_BYTES,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    KEY_SEPARATOR,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH_BYTES,
    PROPERTY_CRC32,
    PROPERTY_SEPARATOR,
    RECORD_PREFIX,
    STOREHOST_V6_FLAG,
    SYS_FLAG_AT,
    header_layout,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_TOPIC_LENGTHS = {MESSAGE_MAGIC_CODE: struct.Struct(">b"), MESSAGE_MAGIC_CODE_V2: _SHORT}
_HOST_FLAGS = {IPV4_HOST_BYTES: 0, IPV6_HOST_BYTES: 1}
_NAME_VALUE = bytes([NAME_VALUE_SEPARATOR])
_SEPARATOR = bytes([PROPERTY_SEPARATOR])
# A properties length below 256 has a zero byte, which this tail has not, so a match is wholly
# inside the properties. Before it comes a separator or the length (20) of the properties.
_CRC_TAIL = re.compile(
    b"(?:"
    + _SEPARATOR
    + b"|\\x00"
    + bytes([CRC32_PROPERTY_BYTES])
    + b")"
    + re.escape(PROPERTY_CRC32.encode())
    + _NAME_VALUE
    + b"([0-9]{10})"
    + _SEPARATOR
)


@dataclass(frozen=True)
class StoredRecord:
    """Every field of a record as stored.

    Times are ms since the epoch; hosts are 8 (IPv4) or 20 raw bytes; ``body`` may be compressed
    or an inner batch, see ``sys_flag``.
    """

    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic_bytes: bytes
    properties_raw: bytes


class _DamageError(Exception):
    """Reason for a CorruptRecordError, raised where the position is not known."""


def body_crc(body: bytes) -> int:
    """Return the CRC-32 of a stored body as records contain it: with the top bit cleared."""
    return crc32(body) & 0x7FFFFFFF


def decode_message(
    buf: Any,
    position_in_buf: int,
    commit_log_offset: int,
    path: str,
    *,
    check_crc: bool = False,
    end: int | None = None,
    file_position: int | None = None,
) -> StoredRecord:
    """Decode and validate the record at one position.

    Parameters
    ----------
    buf
        Buffer of bytes: a segment, or a piece of one.
    check_crc
        Check the CRC of the body, unless it is empty, as RocketMQ does.
    end
        Where readable bytes end in ``buf``; default: its length.
    file_position
        Byte position in the file, for errors; default: ``position_in_buf``.

    Raises
    ------
    CorruptRecordError
        The bytes are not a message record; a blank record is not one either.
    """
    view = memoryview(buf)
    end = len(view) if end is None else min(end, len(view))
    try:
        record = _decode(view, position_in_buf, end)
        _check(record, commit_log_offset, check_crc)
    except _DamageError as damage:
        position = position_in_buf if file_position is None else file_position
        raise CorruptRecordError(str(damage), path, position) from None
    return record


def queue_of_record(buf: Any, commit_log_offset: int) -> tuple[bytes, int] | None:
    """Return topic and queue id of the record that fills ``buf``; None if it is not a record.

    Makes the checks of `decode_message` without its CRC check.
    """
    view = memoryview(buf)
    try:
        parts = _parts(view, 0, len(view))
    except _DamageError:
        return None
    if parts.stop != len(view) or parts.header.commit_log_offset != commit_log_offset:
        return None
    return view[parts.topic_at : parts.topic_end].tobytes(), parts.header.queue_id


def _check(record: StoredRecord, commit_log_offset: int, check_crc: bool) -> None:
    if record.commit_log_offset != commit_log_offset:
        raise _DamageError(
            f"the record says it is at offset {record.commit_log_offset}, but it is at "
            f"{commit_log_offset}"
        )
    if check_crc and record.body and body_crc(record.body) != record.body_crc:
        raise _DamageError(
            f"the CRC of the body is {body_crc(record.body)}, but the record says {record.body_crc}"
        )


class _Parts(NamedTuple):
    """Header of a record and the positions of its other parts, all inside the record."""

    header: Any
    body_at: int
    body_end: int
    topic_at: int
    topic_end: int
    properties_at: int
    stop: int


def _decode(view: memoryview, at: int, end: int) -> StoredRecord:
    parts = _parts(view, at, end)
    body = view[parts.body_at : parts.body_end].tobytes()
    topic = view[parts.topic_at : parts.topic_end].tobytes()
    # The header fields, except the last (the body's length), are in the order of StoredRecord.
    fields = (*parts.header[:-1], body, topic, view[parts.properties_at : parts.stop].tobytes())
    return StoredRecord(*fields)


def _parts(view: memoryview, at: int, end: int) -> _Parts:
    total_size, topic_length = _frame(view, at, end)
    stop = at + total_size
    layout = header_layout(_INT.unpack_from(view, at + SYS_FLAG_AT)[0])
    body_at = at + layout.size
    if body_at > stop:
        raise _DamageError(f"the header is longer than the record of {total_size} bytes")
    header = layout.unpack(view, at)
    body_end = body_at + header.body_length
    topic_at = body_end + topic_length.size
    if header.body_length < 0 or topic_at > stop:
        raise _DamageError(
            f"invalid body length {header.body_length} in a record of {total_size} bytes"
        )
    (topic_bytes,) = topic_length.unpack_from(view, body_end)
    topic_end = topic_at + topic_bytes
    properties_at = topic_end + PROPERTIES_LENGTH_BYTES
    if topic_bytes < 0 or properties_at > stop:
        raise _DamageError(f"invalid topic length {topic_bytes} in a record of {total_size} bytes")
    (properties_bytes,) = _SHORT.unpack_from(view, topic_end)
    if properties_bytes < 0 or properties_at + properties_bytes != stop:
        raise _DamageError(
            f"invalid properties length {properties_bytes} in a record of {total_size} bytes: "
            f"{stop - properties_at} are left for them"
        )
    return _Parts(header, body_at, body_end, topic_at, topic_end, properties_at, stop)


def _frame(view: memoryview, at: int, end: int) -> tuple[int, struct.Struct]:
    """Check size and magic code; return the size and the format of the topic length."""
    if at < 0 or at + RECORD_PREFIX.size > end:
        raise _DamageError(
            f"no record begins here: only {max(end - at, 0)} readable bytes are left"
        )
    total_size, magic_code = RECORD_PREFIX.struct.unpack_from(view, at)
    topic_length = _TOPIC_LENGTHS.get(magic_code)
    if topic_length is None:
        if magic_code == BLANK_MAGIC_CODE:
            raise _DamageError("a blank record: the rest of the segment is unused")
        raise _DamageError(f"magic code {magic_code & 0xFFFFFFFF:#010x} is not that of a record")
    if total_size < MIN_RECORD_BYTES:
        raise _DamageError(
            f"a record of {total_size} bytes: the smallest possible one has {MIN_RECORD_BYTES}"
        )
    if at + total_size > end:
        raise _DamageError(f"a record of {total_size} bytes, of which only {end - at} are readable")
    return total_size, topic_length


def encode_message(  # noqa: PLR0913 (one parameter a field)
    *,
    topic: bytes,
    body: bytes,
    properties_raw: bytes,
    commit_log_offset: int,
    queue_offset: int,
    queue_id: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    magic_code: int | None = None,
    stored_body_crc: int | None = None,
) -> bytes:
    """Return the bytes of a record; topic, body and properties are stored as given.

    Parameters
    ----------
    born_host, store_host
        8 or 20 raw bytes; the two IPv6 bits of the sys flag are set accordingly.
    magic_code
        Version; default: V1 if the topic's length fits its one (signed) length byte, else V2.
    stored_body_crc
        Default: the CRC of ``body``, 0 for an empty one.

    Raises
    ------
    ValueError
        A host has another length; the topic or the properties are too long.
    """
    magic_code = _version(topic, magic_code)
    tail = _tail(topic, magic_code, properties_raw)
    sys_flag = _with_host_flags(sys_flag, born_host, store_host)
    layout = header_layout(sys_flag)
    size = layout.size + len(body) + len(tail)
    crc = body_crc(body) if stored_body_crc is None else stored_body_crc
    header = layout.pack(
        total_size=size, magic_code=magic_code, body_crc=crc, queue_id=queue_id, flag=flag,
        queue_offset=queue_offset, commit_log_offset=commit_log_offset, sys_flag=sys_flag,
        born_timestamp=born_timestamp, born_host=born_host, store_timestamp=store_timestamp,
        store_host=store_host, reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset, body_length=len(body),
    )  # fmt: skip
    return header + body + tail


def encode_record(record: StoredRecord) -> bytes:
    """Return the bytes that `decode_message` decoded to ``record``."""
    return encode_message(
        topic=record.topic_bytes,
        body=record.body,
        properties_raw=record.properties_raw,
        commit_log_offset=record.commit_log_offset,
        queue_offset=record.queue_offset,
        queue_id=record.queue_id,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        magic_code=record.magic_code,
        stored_body_crc=record.body_crc,
    )


def encode_blank(size: int) -> bytes:
    """Return the 8 bytes that mark ``size`` bytes, up to the end of the segment, as unused."""
    if size < BLANK_RECORD_BYTES:
        raise ValueError(f"a blank record has at least {BLANK_RECORD_BYTES} bytes, not {size}")
    return RECORD_PREFIX.pack(total_size=size, magic_code=BLANK_MAGIC_CODE)


def _version(topic: bytes, magic_code: int | None) -> int:
    """Return the magic code; if None, that of the first version that fits the topic."""
    if magic_code is None:
        long_topic = len(topic) > MAX_TOPIC_BYTES_V1
        return MESSAGE_MAGIC_CODE_V2 if long_topic else MESSAGE_MAGIC_CODE
    if len(topic) > MAX_TOPIC_BYTES_V1 and magic_code == MESSAGE_MAGIC_CODE:
        raise ValueError(f"a topic of {len(topic)} bytes does not fit a record of version 1")
    return magic_code


def _tail(topic: bytes, magic_code: int, properties_raw: bytes) -> bytes:
    """Return topic and properties, each preceded by its length."""
    if len(topic) > MAX_PROPERTIES_BYTES or len(properties_raw) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"topic or properties are longer than {MAX_PROPERTIES_BYTES} bytes")
    counted_topic = _TOPIC_LENGTHS[magic_code].pack(len(topic)) + topic
    return counted_topic + _SHORT.pack(len(properties_raw)) + properties_raw


def _with_host_flags(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    for host in (born_host, store_host):
        if len(host) not in _HOST_FLAGS:
            raise ValueError(f"a host has 8 or 20 bytes, not {len(host)}")
    sys_flag &= ~(BORNHOST_V6_FLAG | STOREHOST_V6_FLAG)
    return (
        sys_flag
        | _HOST_FLAGS[len(born_host)] * BORNHOST_V6_FLAG
        | _HOST_FLAGS[len(store_host)] * STOREHOST_V6_FLAG
    )


# Source: RocketMQ ``MessageDecoder.string2messageProperties``, ``messageProperties2String``,
# ``createCrc32``, ``IndexService.buildIndex`` (release 5.3.3).
def split_properties(data: bytes) -> list[tuple[str, str]]:
    """Return the names and values that RocketMQ accepts, in stored order, with repeats.

    Entries without a separator, a name or a value are dropped; a value may contain more U+0001.
    Both separators are ASCII, so splitting the bytes equals splitting the decoded text.
    """
    pairs = []
    for entry in data.split(_SEPARATOR):
        name, _, value = entry.partition(_NAME_VALUE)
        if name and value:
            pairs.append((decode_utf8(name), decode_utf8(value)))
    return pairs


def string_to_properties(data: bytes) -> dict[str, str]:
    """Return the properties as RocketMQ decodes them: the last value of a repeated name wins."""
    return dict(split_properties(data))


def properties_to_bytes(pairs: Iterable[tuple[str, str]], closing_separator: bool = True) -> bytes:
    """Encode names and values in the given order.

    Releases 4.9.1 to 5.1.x omit the closing separator; readers accept both.
    Lone surrogates become ``?``, as in Java.
    """
    data = _SEPARATOR.join(
        name.encode(errors="replace") + _NAME_VALUE + value.encode(errors="replace")
        for name, value in pairs
    )
    return data + _SEPARATOR if data and closing_separator else data


def split_keys(value: str) -> list[str]:
    """Return the words of a KEYS value as the index splits them: in order, with repeats."""
    return [word for word in value.split(KEY_SEPARATOR) if word]


def crc_digits(crc: int) -> bytes:
    """Return a CRC as the ten digits of ``__CRC32#``: the least significant digit first."""
    return f"{crc:010d}"[::-1].encode()


def verify_property_crc(record: bytes) -> bool | None:
    """Compare the ``__CRC32#`` tail of a whole record with the bytes before it.

    Returns
    -------
    good
        None if the record has no such tail.
    """
    tail_at = len(record) - CRC32_PROPERTY_BYTES
    match = _CRC_TAIL.search(record, max(tail_at - 2, 0))
    if match is None or match.end() != len(record):
        return None
    return match.group(1) == crc_digits(crc32(record[:tail_at]) & 0x7FFFFFFF)
