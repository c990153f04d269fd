# SPDX-License-Identifier: Apache-2.0
"""Compressed message bodies.

Source: RocketMQ ``CompressionType``, ``ZlibCompressor``, ``Lz4Compressor``, ``ZstdCompressor``
(release 5.3.3): a zlib stream, LZ4 frames or ZSTD frames, none with the content's length.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa
from store_core.errors import StoreError
from store_core.layout import (
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_DECODED_BYTES = 16 << 20
"""Default limit for an inflated body; a longer one counts as damaged.

RocketMQ's clients and brokers refuse larger messages on the wire (``NettyDecoder``,
``com.rocketmq.remoting.frameMaxLength``); producers send at most 4 MiB before compression unless
their ``maxMessageSize`` is raised.
"""

_ARROW_CODECS = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}
_ZLIB_TYPES = (COMPRESSION_LEGACY_ZLIB, COMPRESSION_ZLIB)
_FIRST_READ_BYTES = 1 << 10
"""Plus four times the stored length. Small because Arrow allocates all of it: a first read of
64 KiB doubles the 35 us that a body of 1 KiB takes."""

# Frame header as lz4-java writes it: independent blocks of at most 4 MiB, no checksums of content
# or blocks, and the check byte of these flags.
_LZ4_HEADER = bytes.fromhex("04224d18 6070 73")
_LZ4_MAGIC = int.from_bytes(_LZ4_HEADER[:4], "big")
_ZSTD_MAGIC = 0x28B52FFD
_LZ4_BLOCK_BYTES = 4 << 20
_LZ4_STORED = 1 << 31


class CorruptBodyError(StoreError, ValueError):
    """A body cannot be inflated, or an inner batch cannot be unpacked; the text says why."""


def inflate(body: bytes, sys_flag: int, limit: int = MAX_DECODED_BYTES) -> bytes:
    """Inflate a body whose sys flag has the compressed bit.

    Parameters
    ----------
    body
        Stored bytes.
    limit
        Most bytes to return; inflating stops one byte past it.

    Raises
    ------
    CorruptBodyError
        Malformed or truncated input, unknown type bits, or more than ``limit`` bytes.
    """
    if not body:  # MessageDecoder passes no empty body to a decompressor
        return b""
    kind = sys_flag & COMPRESSION_TYPE_MASK
    if kind in _ZLIB_TYPES:
        return _inflate_zlib(body, limit)
    codec = _ARROW_CODECS.get(kind)
    if codec is None:
        raise CorruptBodyError(f"unknown compression type {kind >> 8} in sys flag {sys_flag:#x}")
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            return _read_all(stream, _FIRST_READ_BYTES + 4 * len(body), limit)
    except (OSError, pa.ArrowInvalid) as err:
        raise CorruptBodyError(f"the {codec} body of {len(body)} bytes is damaged: {err}") from err


def begins_compressed(
    first_bytes: npt.NDArray[np.uint8], sys_flag: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Return whether each body begins as the type bits of its sys flag require.

    Parameters
    ----------
    first_bytes
        Shape (n, 4); of a shorter body, including the bytes after it.
    """
    first, kind = first_bytes.view(">u4").ravel(), sys_flag & COMPRESSION_TYPE_MASK
    zlib_head = first >> 16  # RFC 1950: method 8, and a multiple of 31
    is_zlib = ((zlib_head >> 8 & 0xF) == zlib.DEFLATED) & (zlib_head % 31 == 0)
    return np.select(
        [np.isin(kind, _ZLIB_TYPES), kind == COMPRESSION_LZ4, kind == COMPRESSION_ZSTD],
        [is_zlib, first == _LZ4_MAGIC, first == _ZSTD_MAGIC],
        default=False,
    )


def deflate(body: bytes, sys_flag: int, level: int = 5) -> bytes:
    """Compress a body in the format that the type bits of ``sys_flag`` name.

    ``level`` applies to zlib and ZSTD. The bytes differ from a Java client's; each side reads the
    other's. ValueError for type bits that RocketMQ does not know.
    """
    kind = sys_flag & COMPRESSION_TYPE_MASK
    if kind in _ZLIB_TYPES:
        return zlib.compress(body, level)
    if kind == COMPRESSION_LZ4:
        return _lz4_frame(body)
    if kind != COMPRESSION_ZSTD:
        raise ValueError(f"unknown compression type {kind >> 8} in sys flag {sys_flag:#x}")
    packed: bytes = pa.Codec("zstd", level).compress(body, asbytes=True)
    return packed


def _lz4_frame(body: bytes) -> bytes:
    # Arrow's own LZ4 frames have linked blocks, which lz4-java refuses.
    packer = pa.Codec("lz4_raw")
    parts = [_LZ4_HEADER]
    for start in range(0, len(body), _LZ4_BLOCK_BYTES):
        block = body[start : start + _LZ4_BLOCK_BYTES]
        packed = packer.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(len(block) | _LZ4_STORED).to_bytes(4, "little"), block]
    return b"".join([*parts, bytes(4)])


def _inflate_zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(body, limit + 1)
    except zlib.error as err:
        raise CorruptBodyError(f"the zlib body of {len(body)} bytes is damaged: {err}") from err
    if len(inflated) > limit:
        raise _too_long(limit)
    if not stream.eof:
        raise CorruptBodyError(f"the zlib body of {len(body)} bytes is truncated")
    return inflated


def _read_all(stream: Any, first_read: int, limit: int) -> bytes:
    parts = []
    total, length = 0, first_read
    while True:
        length = min(length, limit + 1 - total)
        part = stream.read(length)
        parts.append(part)
        total += len(part)
        if total > limit:
            raise _too_long(limit)
        if len(part) < length:  # Arrow returns less only at the end: no second call needed
            return parts[0] if len(parts) == 1 else b"".join(parts)
        length *= 2


def _too_long(limit: int) -> CorruptBodyError:
    return CorruptBodyError(f"the body inflates to more than {limit} bytes (maxDecodedBytes)")
