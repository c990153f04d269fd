# SPDX-License-Identifier: Apache-2.0
"""Many commit log records: Arrow columns -> bytes.

Row by row they equal ``message_codec.encode_message``, which a property test checks. Queue offset,
physical offset and store time are known only on append: `EncodedRecords.patch` fills them in.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core import native
from store_core.arrow import binary_parts, pa, pc, replace_rows
from store_core.codec.crc32 import crc32, crc32_ranges
from store_core.codec.message_codec import crc_digits
from store_core.layout import (
    BORNHOST_V6_FLAG,
    CRC32_PROPERTY_BYTES,
    HEADER_IPV4,
    HEADERS,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH,
    PROPERTY_CRC32,
    PROPERTY_SEPARATOR,
    STOREHOST_V6_FLAG,
    SYS_FLAG_AT,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array, RecordBatch, Scalar

    Int64s = npt.NDArray[np.int64]

_MAX_BLOCK_BYTES = 2**31 - 1
_FIXED_BYTES = HEADER_IPV4.size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
_V6_GROWTH = IPV6_HOST_BYTES - IPV4_HOST_BYTES
_NUMBERS = (
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)
# Queue offset and physical offset are adjacent; only the last byte of the flags is read.
_OFFSETS = struct.Struct(">qq")
_OFFSETS_AT = HEADER_IPV4.at("queue_offset")
_TIME = struct.Struct(">q")
_LOW_FLAGS_AT = SYS_FLAG_AT + 3
_STORE_TIMESTAMP_AT = [HEADERS[born_v6, False].at("store_timestamp") for born_v6 in (False, True)]
CRC_NAME = PROPERTY_CRC32.encode() + bytes([NAME_VALUE_SEPARATOR])
_SEPARATOR = bytes([PROPERTY_SEPARATOR])
CRC_TAIL = CRC_NAME + b"0" * 10 + _SEPARATOR
_CRC_DIGITS_AT = len(CRC_NAME)
_CRC_NAME_STOP = _CRC_DIGITS_AT - CRC32_PROPERTY_BYTES
CRC_ENTRY = re.compile(b"(?<![^\\x02])" + re.escape(CRC_NAME) + b"[^\\x02]*(?:\\x02|$)")
_POWERS_OF_TEN = 10 ** np.arange(10, dtype=np.int64)


def encode_records(
    batch: RecordBatch, *, store_host: bytes, property_crc: bool = False
) -> EncodedRecords:
    """Encode the rows of a ``pa.RecordBatch``.

    Parameters
    ----------
    batch
        Columns ``topic``, ``body``, ``properties_raw`` (bytes or strings); optional, default 0:
        ``queue_id``, ``flag``, ``sys_flag``, ``born_timestamp`` (ms), ``reconsume_times``,
        ``prepared_transaction_offset``; optional raw hosts of 8 or 20 bytes: ``born_host``,
        ``store_host``. No nulls. A topic of more than 127 bytes makes a record of version 2; the
        IPv6 bits of the sys flag follow the hosts.
    store_host
        Default of both hosts, if the batch does not have the column.
    property_crc
        End every record with property ``__CRC32#`` (``enabledAppendPropCRC``, since 5.2.0).

    Raises
    ------
    ValueError
        A null, a host of another length, or a topic or properties that are too long (the text names
        the first such row); more than 2 GiB.
    """
    topic, body = _binary(batch, "topic"), _binary(batch, "body")
    properties, tail, properties_bytes = _properties(batch, property_crc)
    topic_bytes, body_bytes = _lengths(topic), _lengths(body)
    _refuse("topic", topic_bytes, MAX_PROPERTIES_BYTES)
    wide_topic = topic_bytes > MAX_TOPIC_BYTES_V1
    hosts = {name: _hosts(batch, name, store_host) for name in ("born_host", "store_host")}
    born_v6, store_v6 = (_lengths(h) == IPV6_HOST_BYTES for h in hosts.values())
    sizes = _FIXED_BYTES + wide_topic + topic_bytes + body_bytes + properties_bytes
    sizes += _V6_GROWTH * (born_v6 + store_v6.astype(np.int64))
    if int(sizes.sum()) > _MAX_BLOCK_BYTES:
        raise ValueError(
            f"the records have {int(sizes.sum())} bytes, more than 2 GiB: encode slices"
        )
    numbers = {name: _numbers(batch, name) for name in _NUMBERS if name in batch.schema.names}
    texts = [topic, body, properties, tail, *hosts.values()]
    if native.kernel is not None and batch.num_rows:
        return _encoded_natively(texts, numbers, sizes, property_crc)
    numbers["total_size"], numbers["body_length"] = sizes, body_bytes
    numbers["body_crc"] = _body_crcs(body)
    numbers["magic_code"] = np.where(wide_topic, MESSAGE_MAGIC_CODE_V2, MESSAGE_MAGIC_CODE)
    columns = [
        _headers(numbers, hosts, born_v6, store_v6),
        body,
        _topic_lengths(topic_bytes, wide_topic),
        topic,
        _fixed(properties_bytes.astype(PROPERTIES_LENGTH.dtype["value"])),
        properties,
        *([tail] if property_crc else []),
    ]
    starts = np.cumsum(sizes) - sizes
    return EncodedRecords(
        block=_joined(columns)[: int(sizes.sum())],
        starts=starts,
        sizes=sizes,
        body_crc=numbers["body_crc"],
        store_timestamp_at=starts + _store_timestamp_at(born_v6),
        property_crc=property_crc,
    )


def _encoded_natively(
    texts: list[Any], numbers: dict[str, npt.NDArray[Any]], sizes: Int64s, property_crc: bool
) -> EncodedRecords:
    """Encode checked columns: topic, body, properties, tail and hosts, and numbers."""
    rows = len(sizes)
    block, starts, time_at = np.empty(int(sizes.sum()), np.uint8), *np.empty((2, rows), np.int64)
    body_crc = np.empty(rows, np.int32)
    parts = [part for text in texts for part in binary_parts(text)]
    given = [numbers.get(name) for name in _NUMBERS]
    native.kernel.encode(block, starts, time_at, body_crc, *parts, *given)
    return EncodedRecords(
        block=block,
        starts=starts,
        sizes=sizes,
        body_crc=body_crc,
        store_timestamp_at=time_at,
        property_crc=property_crc,
    )


def stored_flags(batch: RecordBatch, sys_flag: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return the system flags that records of a batch get: the IPv6 bits follow the hosts."""
    flags = sys_flag.astype(np.int32) & ~np.int32(BORNHOST_V6_FLAG | STOREHOST_V6_FLAG)
    for name, flag in (("born_host", BORNHOST_V6_FLAG), ("store_host", STOREHOST_V6_FLAG)):
        flags |= np.where(_lengths(batch.column(name)) == IPV6_HOST_BYTES, np.int32(flag), 0)
    return flags


def column_without_stored_crc(properties_raw: Array) -> Array:
    """Return `without_stored_crc` of a ``pa.BinaryArray``, checking one byte per row first."""
    offsets, data = binary_parts(properties_raw)
    ends = offsets[1:][np.diff(offsets) >= CRC32_PROPERTY_BYTES]
    if not len(ends) or not (data[ends - CRC32_PROPERTY_BYTES] == CRC_NAME[0]).any():
        return properties_raw
    cleaned = [without_stored_crc(given) for given in properties_raw.to_pylist()]
    return pa.array(cleaned, pa.binary())


def _binary(batch: RecordBatch, name: str) -> Array:
    column = batch.column(name)
    if column.null_count:
        raise ValueError(f"column {name} is null in row {column.is_null().index(True).as_py()}")
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _numbers(batch: RecordBatch, name: str) -> npt.NDArray[Any]:
    column = batch.column(name)
    if column.null_count:
        raise ValueError(f"column {name} is null in row {column.is_null().index(True).as_py()}")
    kind = pa.int32() if HEADER_IPV4.dtype[name].itemsize == 4 else pa.int64()  # noqa: PLR2004
    numbers: npt.NDArray[Any] = column.cast(kind).to_numpy(zero_copy_only=False)
    return np.require(numbers, requirements="A")


def _lengths(array: Array) -> Int64s:
    return np.diff(binary_parts(array)[0]).astype(np.int64)


def _refuse(name: str, lengths: Int64s, most: int) -> None:
    if len(lengths) and int(lengths.max()) > most:
        row = int(np.argmax(lengths > most))
        raise ValueError(f"{name} of row {row} has {lengths[row]} bytes, at most {most} fit")


def _hosts(batch: RecordBatch, name: str, default: bytes) -> Array:
    if name in batch.schema.names:
        hosts = _binary(batch, name)
    else:
        hosts = pa.repeat(pa.scalar(default, pa.binary()), batch.num_rows)
    lengths = _lengths(hosts)
    bad = (lengths != IPV4_HOST_BYTES) & (lengths != IPV6_HOST_BYTES)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{name} of row {row} has {lengths[row]} bytes, not 8 or 20")
    return hosts


def _headers(
    numbers: dict[str, npt.NDArray[Any]],
    hosts: dict[str, Any],
    born_v6: npt.NDArray[np.bool_],
    store_v6: npt.NDArray[np.bool_],
) -> Array:
    """Return the headers as a binary column, built by groups of equal host widths."""
    parts, order = [], []
    for (born, store), layout in HEADERS.items():
        rows = np.flatnonzero((born_v6 == born) & (store_v6 == store))
        if len(rows) == 0:
            continue
        everything = len(rows) == len(born_v6)
        header = np.zeros(len(rows), layout.dtype)
        for name, values in numbers.items():
            header[name] = values if everything else values[rows]
        flags = BORNHOST_V6_FLAG * born | STOREHOST_V6_FLAG * store
        header["sys_flag"] = header["sys_flag"] & ~(BORNHOST_V6_FLAG | STOREHOST_V6_FLAG) | flags
        for name, array in hosts.items():
            group = array if everything else array.take(pa.array(rows))
            offsets, data = binary_parts(group)
            header[name] = data[offsets[0] : offsets[-1]].view(layout.dtype[name])
        parts.append(_fixed(header))
        order.append(rows)
    return _in_order(parts, order)


def _topic_lengths(topic_bytes: Int64s, wide: npt.NDArray[np.bool_]) -> Array:
    groups = [(np.flatnonzero(~wide), TOPIC_LENGTH_V1), (np.flatnonzero(wide), TOPIC_LENGTH_V2)]
    groups = [(rows, layout) for rows, layout in groups if len(rows)]
    parts = [_fixed(topic_bytes[rows].astype(layout.dtype["value"])) for rows, layout in groups]
    return _in_order(parts, [rows for rows, _ in groups])


def _in_order(parts: list[Any], order: list[Int64s]) -> Array:
    if not parts:
        return pa.array([], pa.binary())
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order))))


def _fixed(values: npt.NDArray[Any]) -> Array:
    """Return values of equal width as a binary column, without copying."""
    width = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int64).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _store_timestamp_at(born_v6: npt.NDArray[np.bool_]) -> Int64s:
    narrow, wide = (HEADERS[born, False].at("store_timestamp") for born in (False, True))
    return np.where(born_v6, wide, narrow)


def _body_crcs(body: Array) -> npt.NDArray[np.int32]:
    offsets, data = binary_parts(body)
    bounds = offsets.astype(np.int64)
    return crc32_ranges(data, bounds[:-1], bounds[1:]).astype(np.int32)


def _joined(columns: list[Any]) -> npt.NDArray[np.uint8]:
    joined = binary_parts(pc.binary_join_element_wise(*columns, _empty()))[1]
    # Kernels return memory with no other user; it is copied if an Arrow release makes it read-only.
    return np.require(joined, requirements="W")


def _properties(batch: RecordBatch, property_crc: bool) -> tuple[Any, Any, Int64s]:
    """Return properties, the tail of each, and the length of both together."""
    properties = _binary(batch, "properties_raw")
    tail, tail_bytes = pa.repeat(_empty(), batch.num_rows), np.zeros(batch.num_rows, np.int64)
    if property_crc:
        properties, tail, tail_bytes = _reserve_crc(properties)
    lengths = _lengths(properties) + tail_bytes
    _refuse("properties_raw", lengths, MAX_PROPERTIES_BYTES)
    return properties, tail, lengths


def _reserve_crc(properties: Array) -> tuple[Any, Any, Int64s]:
    """Return properties without a CRC, the tail that closes each, and the tail's length."""
    rows = np.flatnonzero(pc.match_substring(properties, CRC_NAME).to_numpy(zero_copy_only=False))
    if len(rows):
        cleaned = [CRC_ENTRY.sub(b"", p) for p in properties.take(pa.array(rows)).to_pylist()]
        properties = replace_rows(properties, rows, pa.array(cleaned, pa.binary()))
    offsets, data = binary_parts(properties)
    open_end = np.diff(offsets) > 0
    open_end[open_end] = data[offsets[1:][open_end] - 1] != PROPERTY_SEPARATOR
    tails = pa.array([CRC_TAIL, bytes([PROPERTY_SEPARATOR]) + CRC_TAIL], pa.binary())
    return (
        properties,
        tails.take(pa.array(open_end.astype(np.int8))),
        CRC32_PROPERTY_BYTES + open_end,
    )


def _empty() -> Scalar:
    return pa.scalar(b"", pa.binary())


# Source: RocketMQ ``MessageExtEncoder``, ``CommitLog``, ``MessageDecoder.createCrc32`` (release
# 5.3.3).
@dataclass(frozen=True)
class EncodedRecords:
    """Records back to back, complete except for the values known only on append.

    Attributes
    ----------
    block
        The bytes; writable.
    starts, sizes
        Position of each record in the block, and its length in bytes.
    property_crc
        The last 20 bytes of every record are reserved for ``__CRC32#``.
    """

    block: npt.NDArray[np.uint8]
    starts: Int64s
    sizes: Int64s
    body_crc: npt.NDArray[np.int32]
    store_timestamp_at: Int64s
    property_crc: bool

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, first: int, stop: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of the records ``[first, stop)``, without copying."""
        if first == stop:
            return self.block[:0]
        return self.block[
            int(self.starts[first]) : int(self.starts[stop - 1] + self.sizes[stop - 1])
        ]

    def sys_flags(self) -> npt.NDArray[np.int32]:
        """Return the system flag of each record."""
        flags = np.ndarray((len(self.block) - 3,), ">i4", self.block, strides=(1,))
        return flags[self.starts + SYS_FLAG_AT].astype(np.int32)

    def patch(
        self,
        queue_offsets: Int64s,
        commit_log_offsets: Int64s,
        store_timestamps: Int64s | int,
        *,
        first: int = 0,
    ) -> None:
        """Fill in offsets and store times, then the property CRC."""
        stop = first + len(queue_offsets)
        if first == stop:
            return
        starts, time_at = self.starts[first:stop], self.store_timestamp_at[first:stop]
        if native.kernel is not None:
            given: list[Any] = [
                np.ascontiguousarray(values, np.int64)
                for values in (starts, time_at, queue_offsets, commit_log_offsets)
            ]
            one = isinstance(store_timestamps, int)
            times = store_timestamps if one else np.ascontiguousarray(store_timestamps, np.int64)
            native.kernel.patch(self.block, *given, times)
        else:
            # An array of overlapping numbers, one at every byte, as in RecordLayout.gather.
            longs = np.ndarray((len(self.block) - 7,), ">i8", self.block, strides=(1,))
            longs[starts + HEADER_IPV4.at("queue_offset")] = queue_offsets
            longs[starts + HEADER_IPV4.at("commit_log_offset")] = commit_log_offsets
            longs[time_at] = store_timestamps
        if self.property_crc:
            self._patch_crc(starts, self.sizes[first:stop])

    def _patch_crc(self, starts: Int64s, sizes: Int64s) -> None:
        ends = starts + sizes - CRC32_PROPERTY_BYTES
        crcs = crc32_ranges(self.block, starts, ends).astype(np.int64)
        digits = crcs[:, None] // _POWERS_OF_TEN % 10 + ord("0")
        self.block[(ends + _CRC_DIGITS_AT)[:, None] + np.arange(10)] = digits


def without_stored_crc(properties_raw: bytes) -> bytes:
    """Return properties without another record's CRC at their end.

    It does not match the bytes of the new record, which every reader would take for damaged.
    """
    if properties_raw[-CRC32_PROPERTY_BYTES:_CRC_NAME_STOP] != CRC_NAME:
        return properties_raw
    return CRC_ENTRY.sub(b"", properties_raw)


def reserve_property_crc(properties_raw: bytes) -> bytes:
    """Return properties that end with room for the CRC, as `patch_record` needs them.

    An existing ``__CRC32#`` is removed; a missing separator before the new one is added.
    """
    kept = CRC_ENTRY.sub(b"", properties_raw)
    return kept + (_SEPARATOR if kept and kept[-1:] != _SEPARATOR else b"") + CRC_TAIL


def patch_record(
    record: bytearray,
    queue_offset: int,
    commit_log_offset: int,
    store_timestamp: int,
    property_crc: bool = False,
) -> None:
    """Fill in offsets and store time of one encoded record, then the property CRC."""
    values = (queue_offset, commit_log_offset, store_timestamp)
    if native.kernel is None or not native.kernel.patch_put(record, *values):
        _OFFSETS.pack_into(record, _OFFSETS_AT, queue_offset, commit_log_offset)
        time_at = _STORE_TIMESTAMP_AT[record[_LOW_FLAGS_AT] & BORNHOST_V6_FLAG != 0]
        _TIME.pack_into(record, time_at, store_timestamp)
    if property_crc:
        end = len(record) - CRC32_PROPERTY_BYTES
        digits = crc_digits(crc32(memoryview(record)[:end]) & 0x7FFFFFFF)
        record[end + _CRC_DIGITS_AT : -1] = digits
