# SPDX-License-Identifier: Apache-2.0
"""The columns of a batch from Spark, in the types that the sink uses."""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.arrow import binary_parts, pa, pc, replace_rows
from store_core.codec.compression import deflate
from store_core.layout import (
    COMPRESSED_FLAG,
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.sink.columns import SinkColumns
    from rmqsource.sink.options import SinkOptions
    from store_core.arrow_types import Array, DataType, RecordBatch

    Bools = npt.NDArray[np.bool_]
    Int32s = npt.NDArray[np.int32]

_TICKS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_TEXT = pa.string()
_WORDS = pa.list_(pa.string())
_MAP = pa.map_(pa.string(), pa.string())
_TYPES = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}
_MAGIC = {COMPRESSION_LZ4: bytes.fromhex("04224d18"), COMPRESSION_ZSTD: bytes.fromhex("28b52ffd")}
_ZLIB_METHOD = 8  # low four bits of the first byte of every zlib stream
_ZLIB_CHECK = 31  # divides its first two bytes
_COMPRESSION_BITS = COMPRESSED_FLAG | COMPRESSION_TYPE_MASK
_FIRST_WITH_TYPES = 5


class SourceColumns:
    """Columns of one batch by canonical name; a missing column is None."""

    def __init__(self, batch: RecordBatch, columns: SinkColumns, default_topic: str | None) -> None:
        self.batch = batch
        self._columns = columns
        self.topic = self._topic(default_topic)
        self.body = self._typed("body", pa.binary())
        self.keys = self._keys()
        self.tags, self.unique_key = self._typed("tags", _TEXT), self._typed("unique_key", _TEXT)
        self.sharding_key = self._typed("sharding_key", _TEXT)
        self.properties = self._typed("properties", _MAP)
        self.properties_raw = self._typed("properties_raw", pa.binary())
        self.born_host = self._typed("born_host", _TEXT)
        self.body_crc = self._typed("body_crc", pa.int32())

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def coded_topic(self) -> Array:
        """Return the topics as a dictionary array."""
        return self.topic.dictionary_encode()

    @cached_property
    def raw_rows(self) -> npt.NDArray[np.int64]:
        """Rows whose body is already compressed."""
        return raw_rows(self.body, self.integers("sys_flag"), self.body_crc)

    def integers(self, name: str) -> Array | None:
        """Return a column of integers with 64 bits; None if it is missing or all null."""
        return self._typed(name, pa.int64())

    def born_timestamps(self, now_ms: int) -> npt.NDArray[np.int64]:
        """Return the born timestamps in ms; ``now_ms`` where none is given."""
        column = self._given("born_timestamp")
        if column is None:
            return np.full(len(self), now_ms, np.int64)
        ticks = column.cast(pa.int64())
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        values = ticks.fill_null(0).to_numpy(zero_copy_only=False)
        return np.where(valid, values // _TICKS_PER_MS[column.type.unit], now_ms).astype(np.int64)

    def _given(self, name: str) -> Array | None:
        """Return a column; None if it is missing or all null."""
        at = self._columns.index.get(name)
        if at is None:
            return None
        column = self.batch.column(at)
        return None if column.null_count == len(column) else column

    def _typed(self, name: str, kind: DataType) -> Array | None:
        column = self._given(name)
        if column is None or column.type == kind:
            return column
        return column.cast(kind)

    def _keys(self) -> Array | None:
        column = self._given("keys")
        if column is None:
            return None
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        return column.cast(_WORDS if is_list else _TEXT)

    def _topic(self, default: str | None) -> Array:
        column = self._typed("topic", _TEXT)
        if column is None:
            return pa.array([default], _TEXT).take(pa.array(np.zeros(len(self), np.int8)))
        return column if default is None else pc.fill_null(column, default)


def is_null(column: Array | None, count: int) -> Bools:
    """Return which rows of a column are null; all if the column is None."""
    if column is None:
        return np.ones(count, bool)
    if column.null_count == 0:
        return np.zeros(count, bool)
    nulls: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


# Source: RocketMQ ``DefaultMQProducerImpl.tryToCompressMessage`` (release 5.3.3).
class StoredBodies(NamedTuple):
    """``body`` (``pa.BinaryArray``) and the compression bits of each row's sys flag."""

    body: Array
    sys_flag: Int32s


def raw_rows(body: Array, sys_flag: Array | None, body_crc: Array | None) -> npt.NDArray[np.int64]:
    """Return the rows whose body is already compressed.

    The flag alone is not enough: a row read from a store has the stored flag and the inflated body.
    The stored CRC decides if there is one, else the first bytes of the format.

    Parameters
    ----------
    sys_flag, body_crc
        ``pa.Int32Array`` with nulls, or None.
    """
    if sys_flag is None:
        return np.empty(0, np.int64)
    flags = sys_flag.fill_null(0).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(flags & COMPRESSED_FLAG)
    if len(rows) == 0:
        return rows
    bodies = body.take(pa.array(rows)).to_pylist()
    crcs = [None] * len(rows) if body_crc is None else body_crc.take(pa.array(rows)).to_pylist()
    found = [
        stored is not None and _is_stored(stored, flag, crc)
        for stored, flag, crc in zip(bodies, flags[rows].tolist(), crcs)
    ]
    compressed: npt.NDArray[np.int64] = rows[np.array(found, bool)]
    return compressed


def _is_stored(body: bytes, sys_flag: int, crc: int | None) -> bool:
    if crc is not None:
        return zlib.crc32(body) & 0x7FFFFFFF == crc
    magic = _MAGIC.get(sys_flag & COMPRESSION_TYPE_MASK)
    if magic is not None:
        return body.startswith(magic)
    head = int.from_bytes(body[:2], "big")
    return len(body) > 1 and body[0] & 0xF == _ZLIB_METHOD and head % _ZLIB_CHECK == 0


def newer_format_rows(count: int, raw: npt.NDArray[np.int64], sys_flag: Array) -> Bools:
    """Return which rows have a raw body in a format unknown to 4.x."""
    newer = np.zeros(count, bool)
    if len(raw):
        kinds = sys_flag.fill_null(0).to_numpy(zero_copy_only=False)[raw] & COMPRESSION_TYPE_MASK
        newer[raw] = (kinds != COMPRESSION_LEGACY_ZLIB) & (kinds != COMPRESSION_ZLIB)
    return newer


def stored_bodies(
    body: Array, raw: npt.NDArray[np.int64], sys_flag: Array | None, options: SinkOptions
) -> StoredBodies:
    """Compress the bodies that a producer would compress.

    Parameters
    ----------
    sys_flag
        ``pa.Int32Array`` or None.
    """
    flags = np.zeros(len(body), np.int32)
    if sys_flag is not None and len(raw):
        given = sys_flag.fill_null(0).to_numpy(zero_copy_only=False)
        flags[raw] = given[raw] & _COMPRESSION_BITS
    if options.compression == "none":
        return StoredBodies(body, flags)
    large = np.diff(binary_parts(body)[0]) >= options.compress_body_over
    large[raw] = False
    rows = np.flatnonzero(large)
    if len(rows) == 0:
        return StoredBodies(body, flags)
    kind = _TYPES[options.compression]
    packed = [deflate(given, kind) for given in body.take(pa.array(rows)).to_pylist()]
    # 4.x knows one format and no type bits.
    bits = kind if options.compatibility >= _FIRST_WITH_TYPES else COMPRESSION_LEGACY_ZLIB
    flags[rows] = COMPRESSED_FLAG | bits
    return StoredBodies(replace_rows(body, rows, pa.array(packed, pa.binary())), flags)
