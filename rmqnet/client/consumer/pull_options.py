"""Settings of a consumer that is asked for messages."""

from __future__ import annotations

from dataclasses import dataclass

from rmqnet.client.heartbeat_data import ConsumeFromWhere
from rmqnet.errors import ClientError

_LEAST = {
    "pull_batch_size": 1,
    "pull_batch_size_bytes": 1,
    "pull_retry_delay_ms": 1,
    "read_ahead_messages": 0,
    "read_ahead_bytes": 0,
}


@dataclass(frozen=True)
class PullConsumerOptions:
    """How a `PullConsumer` behaves.

    Parameters
    ----------
    consume_from_where
        Where a queue begins of which nothing is noted for the group.
    consume_timestamp_ms
        For CONSUME_FROM_TIMESTAMP, ms; None: half an hour before the start.
    pull_batch_size, pull_batch_size_bytes
        Most messages, and bytes, that a pull asks for; brokers cap them at 32 and 256 KB.
    pull_retry_delay_ms
        Pause after a pull that failed.
    read_ahead_messages, read_ahead_bytes
        A queue is not pulled while more messages, or bytes of their bodies, of it wait for
        `PullConsumer.poll`.

    Raises
    ------
    ClientError
        A value is too small; the text names it.
    """

    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None
    pull_batch_size: int = 32
    pull_batch_size_bytes: int = 256 << 10
    pull_retry_delay_ms: int = 1000
    read_ahead_messages: int = 1000
    read_ahead_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ClientError(
                    f"{name}: {least} or more is expected, not {getattr(self, name)!r}"
                )
