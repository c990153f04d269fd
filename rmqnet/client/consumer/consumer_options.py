"""Settings of a consumer that is called with messages."""

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
    """How a `PushConsumer` behaves; names and defaults are those of RocketMQ's (5.3.3).

    Parameters
    ----------
    message_model
        CLUSTERING: the members of the group share the messages. BROADCASTING: each gets all.
    consume_from_where
        Where a group begins in a queue of which nothing is noted yet. Brokers answer 0 for queues
        that are young enough to be in memory, so that only old ones are begun elsewhere.
    consume_timestamp_ms
        For CONSUME_FROM_TIMESTAMP, ms; None: half an hour before the start.
    allocation
        How members share queues; all members must have the same.
    consume_thread_count
        Threads that call the listener (of an orderly one: most queues at a time).
    consume_message_batch_max_size
        Most messages that the listener gets at once.
    pull_batch_size, pull_batch_size_bytes
        Most messages, and bytes, that a pull asks for; brokers cap them at 32 and 256 KB.
    pull_interval_ms
        Pause after each pull that found messages.
    pull_retry_delay_ms
        Pause after a pull that failed.
    pull_threshold_for_queue, pull_threshold_size_for_queue_bytes, consume_concurrently_max_span
        A queue is not pulled while more than so many of its messages, or bytes of their bodies,
        wait for the listener; or, with a concurrent one, messages over such a span of offsets.
    max_reconsume_times
        How often a message is tried again before it goes to the group's dead letters ``%DLQ%``.
        -1: 16 times; with an orderly listener without end.
    suspend_current_queue_time_ms
        How long a queue rests after its orderly listener failed; a context may say otherwise.
    consume_timeout_ms
        A concurrent listener that takes longer loses its messages: they are tried again elsewhere.
    post_subscription_when_pull
        Send the tag expression with each pull, instead of with heartbeats only.
    offset_directory
        Where a broadcasting consumer keeps its offsets, in RocketMQ's own files; a text or a path.
    rebalance_interval_ms
        Between two looks at who reads which queue, if nobody told of a change.
    await_termination_s
        How long `PushConsumer.shutdown` waits for listeners that run.

    Raises
    ------
    ClientError
        A value is out of its range; the text names it.
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
        """Each member gets all messages."""
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
        _PULL_SETTINGS.check(vars(self))


_PUSH_SETTINGS = Settings(PushConsumerOptions, _PUSH_BOUNDS, _ANY, keys=str, error=ClientError)
_PULL_SETTINGS = Settings(PullConsumerOptions, _PULL_BOUNDS, _ANY, keys=str, error=ClientError)
