# SPDX-License-Identifier: Apache-2.0
"""Settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from rmqnet.client.producer.validation import MAX_MESSAGE_SIZE
from rmqnet.client.route_table import AUTO_CREATE_TOPIC
from rmqnet.errors import ClientError
from store_core.codec.compression import deflate
from store_core.config.config_checks import Settings
from store_core.layout import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

_BOUNDS = {
    "send_msg_timeout_ms": (1, inf),
    "send_msg_max_timeout_per_request_ms": (-1, inf),
    "max_message_size": (1, inf),
    "compress_level": (0, 9),
    "default_topic_queue_nums": (1, inf),
    "back_pressure_for_async_send_num": (1, inf),
    "back_pressure_for_async_send_size": (1, inf),
}
COMPRESSION_TYPES = {
    "ZLIB": COMPRESSION_ZLIB,
    "LZ4": COMPRESSION_LZ4,
    "ZSTD": COMPRESSION_ZSTD,
}
"""Names of RocketMQ's ``CompressionType``; clients before 5.0 support only ZLIB."""


@dataclass(frozen=True)
class ProducerConfig:
    """Settings of a producer; names and defaults follow RocketMQ 5.3.3 ``DefaultMQProducer``.

    Parameters
    ----------
    send_msg_timeout_ms
        Default timeout for sending one message, retries included.
    send_msg_max_timeout_per_request_ms
        Timeout for one try, to leave time for retries; -1 allows all the remaining time.
    retry_times_when_send_failed
        Retries of a synchronous send, on other brokers if there are any.
    retry_times_when_send_async_failed
        Retries of an asynchronous send.
    retry_another_broker_when_not_store_ok
        Retry on another broker if a message was stored less safely than the broker's settings
        require (a status other than ``SEND_OK``).
    max_message_size
        Most bytes of a body before compression and of an encoded batch.
    compress_msg_body_over_howmuch
        Bodies of at least this many bytes are compressed.
    compress_type
        ``ZLIB``, ``LZ4`` or ``ZSTD``. Consumers before RocketMQ 5 read only ZLIB.
    compress_level
        0 to 9.
    create_topic_key
        Topic whose queues a broker copies when it creates a topic on its first message.
    default_topic_queue_nums
        Most queues that such a topic gets on each broker.
    send_latency_fault_enable
        Avoid brokers for a while after slow or failed sends.
    back_pressure_for_async_send_num, back_pressure_for_async_send_size
        Most messages, and bytes of their bodies, that asynchronous and one-way sends may have in
        flight. Further sends wait for room for up to the message's timeout, then fail. The limit
        is always on; a Java client has none unless configured.
    """

    send_msg_timeout_ms: int = 3000
    send_msg_max_timeout_per_request_ms: int = -1
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    max_message_size: int = MAX_MESSAGE_SIZE
    compress_msg_body_over_howmuch: int = 4096
    compress_type: str = "ZLIB"
    compress_level: int = 5
    create_topic_key: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4
    send_latency_fault_enable: bool = False
    back_pressure_for_async_send_num: int = 10_000
    back_pressure_for_async_send_size: int = 100 << 20

    def __post_init__(self) -> None:
        _SETTINGS.check(vars(self))

    @property
    def compression(self) -> Compression:
        """Settings for the compression of bodies."""
        return Compression(
            self.compress_msg_body_over_howmuch, self.compress_type, self.compress_level
        )


_SETTINGS = Settings(
    ProducerConfig,
    _BOUNDS,
    (0, inf),
    choices={"compress_type": COMPRESSION_TYPES},
    keys=str,
    error=ClientError,
)


# Source: RocketMQ ``DefaultMQProducerImpl.tryToCompressMessage``, ``CompressionType`` (release
# 5.3.3).
class Compression(NamedTuple):
    """Settings for the compression of bodies.

    Parameters
    ----------
    over_bytes
        Bodies of at least this many bytes are compressed (``compressMsgBodyOverHowmuch``).
    kind
        ``ZLIB``, ``LZ4`` or ``ZSTD``.
    level
        Level for ZLIB and ZSTD, 0 to 9.
    """

    over_bytes: int = 4096
    kind: str = "ZLIB"
    level: int = 5

    def compressed(self, body: bytes) -> tuple[bytes, int]:
        """Return the body and its sys flag; unchanged and 0 if short or not made shorter."""
        if len(body) < self.over_bytes:
            return body, 0
        sys_flag = COMPRESSED_FLAG | COMPRESSION_TYPES[self.kind]
        packed = deflate(body, sys_flag, self.level)
        return (packed, sys_flag) if len(packed) < len(body) else (body, 0)
