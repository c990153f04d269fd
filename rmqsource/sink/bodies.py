"""Bodies as they are stored: compressed as a producer would, or already so.

Source: RocketMQ ``DefaultMQProducerImpl.tryToCompressMessage`` (release 5.3.3).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.arrow import pa
from store_core.codec.compression import deflate
from store_core.codec.gather import binary_parts, replace_rows
from store_core.layout.message import (
    COMPRESSED_FLAG,
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.sink.options import SinkOptions
    from store_core.arrow_types import Array

    Int32s = npt.NDArray[np.int32]
    Bools = npt.NDArray[np.bool_]

_TYPES = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}
_MAGIC = {COMPRESSION_LZ4: bytes.fromhex("04224d18"), COMPRESSION_ZSTD: bytes.fromhex("28b52ffd")}
_ZLIB_METHOD = 8  # low four bits of the first byte of every zlib stream
_ZLIB_CHECK = 31  # divides its first two bytes
_COMPRESSION_BITS = COMPRESSED_FLAG | COMPRESSION_TYPE_MASK
_FIRST_WITH_TYPES = 5


class StoredBodies(NamedTuple):
    """``body`` (``pa.BinaryArray``) and the compression bits of each row's sys flag."""

    body: Array
    sys_flag: Int32s


def raw_rows(body: Array, sys_flag: Array | None, body_crc: Array | None) -> npt.NDArray[np.int64]:
    """Return the rows whose body is compressed already.

    The flag alone does not tell: a row that was read has the stored flag and the inflated body.
    The stored CRC does where there is one, else the first bytes of the format.

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
    """Return which of the rows with raw bodies have a format that 4.x does not know."""
    newer = np.zeros(count, bool)
    if len(raw):
        kinds = sys_flag.fill_null(0).to_numpy(zero_copy_only=False)[raw] & COMPRESSION_TYPE_MASK
        newer[raw] = (kinds != COMPRESSION_LEGACY_ZLIB) & (kinds != COMPRESSION_ZLIB)
    return newer


def stored_bodies(
    body: Array, raw: npt.NDArray[np.int64], sys_flag: Array | None, options: SinkOptions
) -> StoredBodies:
    """Compress what a producer would.

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
