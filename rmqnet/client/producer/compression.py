"""Bodies are compressed by the producer.

Source: RocketMQ ``DefaultMQProducerImpl.tryToCompressMessage``, ``CompressionType`` (release
5.3.3).
"""

from __future__ import annotations

from typing import NamedTuple

from rmqnet.errors import ClientError
from store_core.codec.compression import deflate
from store_core.layout.message import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

COMPRESSION_TYPES = {
    "ZLIB": COMPRESSION_ZLIB,
    "LZ4": COMPRESSION_LZ4,
    "ZSTD": COMPRESSION_ZSTD,
}
"""Names of RocketMQ's ``CompressionType``; clients before 5.0 know ZLIB only."""

_LEVELS = range(10)


class Compression(NamedTuple):
    """When and how bodies are compressed.

    Parameters
    ----------
    over_bytes
        Bodies of at least so many bytes (``compressMsgBodyOverHowmuch``).
    kind
        ``ZLIB``, ``LZ4`` or ``ZSTD``.
    level
        Of ZLIB and ZSTD, 0 to 9.
    """

    over_bytes: int = 4096
    kind: str = "ZLIB"
    level: int = 5

    def check(self) -> None:
        """Refuse settings that mean nothing.

        Raises
        ------
        ClientError
            Names the setting.
        """
        if self.kind not in COMPRESSION_TYPES:
            raise ClientError(f"compress_type is {self.kind!r}, not {', '.join(COMPRESSION_TYPES)}")
        if self.level not in _LEVELS:
            raise ClientError(f"compress_level is {self.level}, not 0 to 9")

    def compressed(self, body: bytes) -> tuple[bytes, int]:
        """Return the body and its sys flag; as it was, and 0, where that is shorter."""
        if len(body) < self.over_bytes:
            return body, 0
        sys_flag = COMPRESSED_FLAG | COMPRESSION_TYPES[self.kind]
        packed = deflate(body, sys_flag, self.level)
        return (packed, sys_flag) if len(packed) < len(body) else (body, 0)
