# SPDX-License-Identifier: Apache-2.0
"""Settings of push and pull consumers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from rmqnet.client.consumer.allocation import AllocateAveragely
from rmqnet.client.consumer.process_queue import CacheLimits
from rmqnet.client.heartbeat_data import ConsumeFromWhere, MessageModel
from rmqnet.errors import ClientError
from store_core.config.config_checks import Settings

if TYPE_CHECKING:
    from rmqnet.client.consumer.allocation import AllocationStrategy

_PUSH_BOUNDS = {
    "consume_thread_count": (1, 1000),
    "consume_concurrently_max_span": (1, 65535),
    "pull_threshold_for_queue": (1, 65535),
    "pull_threshold_size_for_queue_bytes": (1 << 20, 1 << 30),
    "pull_interval_ms": (0, 65535),
    "consume_message_batch_max_size": (1, 1024),
    "pull_batch_size": (1, 1024),
    "pull_batch_size_bytes": (1, (1 << 31) - 1),
    "pull_retry_delay_ms": (1, 3_600_000),
    "max_reconsume_times": (-1, (1 << 31) - 1),
    "suspend_current_queue_time_ms": (10, 30_000),
    "consume_timeout_ms": (1, 86_400_000),
    "rebalance_interval_ms": (1, 3_600_000),
    "await_termination_s": (0, inf),
}
_PULL_BOUNDS = {
    "pull_batch_size": (1, inf),
    "pull_batch_size_bytes": (1, inf),
    "pull_retry_delay_ms": (1, inf),
    "read_ahead_messages": (0, inf),
    "read_ahead_bytes": (0, inf),
}
_ANY = (-inf, inf)


@dataclass(frozen=True)
class PushConsumerOptions:
    """Settings of a `PushConsumer`; names and defaults follow RocketMQ 5.3.3.

    Parameters
    ----------
    message_model
        CLUSTERING: the members of the group share the messages. BROADCASTING: each member gets
        all messages.
    consume_from_where
        Where a group starts in a queue without a committed offset. Brokers return offset 0 for
        queues whose first message is still in memory, so this affects only older queues.
    consume_timestamp_ms
        For CONSUME_FROM_TIMESTAMP, ms; half an hour before the start if None.
    allocation
        How members divide queues; all members must use the same strategy.
    consume_thread_count
        Number of threads that call the listener; an orderly listener gets messages of at most
        this many queues at a time.
    consume_message_batch_max_size
        Most messages in one call of the listener.
    pull_batch_size, pull_batch_size_bytes
        Most messages and bytes that a pull requests; brokers cap them at 32 and 256 KB.
    pull_interval_ms
        Pause after each pull that returned messages.
    pull_retry_delay_ms
        Pause after a failed pull.
    pull_threshold_for_queue, pull_threshold_size_for_queue_bytes, consume_concurrently_max_span
        Limits on one queue's messages that wait for the listener, on the bytes of their bodies,
        and (concurrent listeners) on the span of their offsets; pulling stops while one is
        exceeded.
    max_reconsume_times
        How often a message is retried before it goes to the group's dead letters ``%DLQ%``. -1
        means 16 times, or without limit for an orderly listener.
    suspend_current_queue_time_ms
        Pause of a queue after its orderly listener failed; a `ConsumeContext` may override it.
    consume_timeout_ms
        Longest call of a concurrent listener; after it, its messages are sent back for a retry.
    post_subscription_when_pull
        Send the tag expression with each pull, not only with heartbeats.
    offset_directory
        Directory in which a broadcasting consumer stores its offsets, in RocketMQ's file format;
        a string or a path.
    rebalance_interval_ms
        Interval between rebalances if no broker reports a change of members.
    await_termination_s
        Longest time that `PushConsumer.shutdown` waits for running listeners.

    Raises
    ------
    ClientError
        A value is out of range; the text names it.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None
    allocation: AllocationStrategy = field(default_factory=AllocateAveragely)
    consume_thread_count: int = 20
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = 32
    pull_batch_size_bytes: int = 256 << 10
    pull_interval_ms: int = 0
    pull_retry_delay_ms: int = 3000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue_bytes: int = 100 << 20
    consume_concurrently_max_span: int = 2000
    max_reconsume_times: int = -1
    suspend_current_queue_time_ms: int = 1000
    consume_timeout_ms: int = 15 * 60_000
    post_subscription_when_pull: bool = False
    offset_directory: str | Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")
    rebalance_interval_ms: int = 20_000
    await_termination_s: float = 10.0

    def __post_init__(self) -> None:
        given = dict(vars(self))
        if isinstance(self.offset_directory, Path):
            given["offset_directory"] = str(self.offset_directory)
        _PUSH_SETTINGS.check(given)

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model is MessageModel.BROADCASTING

    def limits(self, *, orderly: bool) -> CacheLimits:
        """Return how much of a queue may wait for the listener."""
        return CacheLimits(
            self.pull_threshold_for_queue,
            self.pull_threshold_size_for_queue_bytes,
            None if orderly else self.consume_concurrently_max_span,
        )


@dataclass(frozen=True)
class PullConsumerOptions:
    """Settings of a `PullConsumer`.

    Parameters
    ----------
    consume_from_where
        Where the group starts in a queue without a committed offset.
    consume_timestamp_ms
        For CONSUME_FROM_TIMESTAMP, ms; half an hour before the start if None.
    pull_batch_size, pull_batch_size_bytes
        Most messages and bytes that a pull requests; brokers cap them at 32 and 256 KB.
    pull_retry_delay_ms
        Pause after a failed pull.
    read_ahead_messages, read_ahead_bytes
        Limits on one queue's messages that wait for `PullConsumer.poll`, and on the bytes of
        their bodies; pulling stops while one is exceeded.

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
        _PULL_SETTINGS.check(vars(self))


_PUSH_SETTINGS = Settings(PushConsumerOptions, _PUSH_BOUNDS, _ANY, keys=str, error=ClientError)
_PULL_SETTINGS = Settings(PullConsumerOptions, _PULL_BOUNDS, _ANY, keys=str, error=ClientError)
