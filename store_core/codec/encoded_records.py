"""Encoded records and what the append fills in: places, store times, the property CRC.

Source: RocketMQ ``MessageExtEncoder``, ``CommitLog``, ``MessageDecoder.createCrc32`` (release
5.3.3).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.crc32 import crc32, crc32_ranges
from store_core.codec.properties import crc_digits
from store_core.layout.message import (
    BORNHOST_V6_FLAG,
    CRC32_PROPERTY_BYTES,
    HEADER_IPV4,
    HEADERS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_CRC32,
    PROPERTY_SEPARATOR,
    SYS_FLAG_AT,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

# Queue offset and physical offset lie side by side; of the flags the last byte is looked at.
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


@dataclass(frozen=True)
class EncodedRecords:
    """Records back to back, finished but for what the append knows.

    Attributes
    ----------
    block
        The bytes; writable.
    starts, sizes
        Where each record begins in the block, and its bytes.
    property_crc
        The last 20 bytes of every record are kept for ``__CRC32#``.
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
        """Return the bytes of the records ``[first, stop)``, not copied."""
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
        """Fill in what the append knows, then the property CRC.

        Parameters
        ----------
        queue_offsets, commit_log_offsets, store_timestamps
            One number a row, for the rows from ``first`` on; one time may stand for all.
        """
        stop = first + len(queue_offsets)
        if first == stop:
            return
        # An array of overlapping numbers, one at every byte, as in RecordLayout.gather.
        longs = np.ndarray((len(self.block) - 7,), ">i8", self.block, strides=(1,))
        starts = self.starts[first:stop]
        longs[starts + HEADER_IPV4.at("queue_offset")] = queue_offsets
        longs[starts + HEADER_IPV4.at("commit_log_offset")] = commit_log_offsets
        longs[self.store_timestamp_at[first:stop]] = store_timestamps
        if self.property_crc:
            self._patch_crc(starts, self.sizes[first:stop])

    def _patch_crc(self, starts: Int64s, sizes: Int64s) -> None:
        ends = starts + sizes - CRC32_PROPERTY_BYTES
        crcs = crc32_ranges(self.block, starts, ends).astype(np.int64)
        digits = crcs[:, None] // _POWERS_OF_TEN % 10 + ord("0")
        self.block[(ends + _CRC_DIGITS_AT)[:, None] + np.arange(10)] = digits


def without_stored_crc(properties_raw: bytes) -> bytes:
    """Return properties without the CRC of another record at their end.

    It says what that record's bytes were: beside others everybody takes the record for damaged.
    """
    if properties_raw[-CRC32_PROPERTY_BYTES:_CRC_NAME_STOP] != CRC_NAME:
        return properties_raw
    return CRC_ENTRY.sub(b"", properties_raw)


def reserve_property_crc(properties_raw: bytes) -> bytes:
    """Return properties that end with room for the CRC, as `patch_record` wants them.

    A ``__CRC32#`` that came along is removed, a missing separator before the new one is added.
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
    """Fill in what the append knows of one encoded record."""
    _OFFSETS.pack_into(record, _OFFSETS_AT, queue_offset, commit_log_offset)
    time_at = _STORE_TIMESTAMP_AT[record[_LOW_FLAGS_AT] & BORNHOST_V6_FLAG != 0]
    _TIME.pack_into(record, time_at, store_timestamp)
    if property_crc:
        end = len(record) - CRC32_PROPERTY_BYTES
        digits = crc_digits(crc32(memoryview(record)[:end]) & 0x7FFFFFFF)
        record[end + _CRC_DIGITS_AT : -1] = digits
