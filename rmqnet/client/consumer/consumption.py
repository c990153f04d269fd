"""What calls listeners with the messages of process queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from rmqnet.client.consumer.consume_statistics import ConsumeStatistics
    from rmqnet.client.consumer.listener_threads import ListenerThreads
    from rmqnet.client.consumer.listening import Listener, ListenerAnswer
    from rmqnet.client.consumer.offset_store import OffsetStore
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from rmqnet.client.consumer.push_options import PushConsumerOptions
    from rmqnet.client.consumer.retry_sender import RetrySender
    from store_core.message import Message


class LoopFace(Protocol):
    """The event loop, as listeners' threads use it."""

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine there."""

    def later(self, delay_ms: int, work: Callable[[], object]) -> None:
        """Call a function there after some time; not any more once the loop has ended."""


@dataclass(frozen=True)
class ListenerSide:
    """What both kinds of consumption need.

    Parameters
    ----------
    listener
        The application's.
    options
        Settings of the consumer.
    threads
        Where the listener is called.
    offsets
        How far the group is.
    retries
        Takes messages that are to be tried again.
    statistics
        Counts.
    loop
        For what waits or is due later.
    now_ms
        The time, milliseconds since the epoch.
    """

    listener: Listener
    options: PushConsumerOptions
    threads: ListenerThreads
    offsets: OffsetStore
    retries: RetrySender
    statistics: ConsumeStatistics
    loop: LoopFace
    now_ms: Callable[[], int]


class Consumption(Protocol):
    """Calls a listener in threads."""

    @property
    def orderly(self) -> bool:
        """Messages of a queue are consumed one after the other, and failed ones first again."""

    def submit(
        self, process_queue: ProcessQueue, messages: list[Message], *, needs_consumer: bool
    ) -> None:
        """Have messages consumed that were put into a process queue."""

    def is_consuming(self, process_queue: ProcessQueue) -> bool:
        """Return whether the queue must not be given away just now."""


def directly_result(answer: ListenerAnswer, *, orderly: bool, spent_ms: int) -> dict[str, Any]:
    """Return a listener's answer as RocketMQ's tools show it (``ConsumeMessageDirectlyResult``)."""
    if answer.failure is not None:
        result = "CR_THROW_EXCEPTION"
    else:
        result = "CR_SUCCESS" if answer.is_done else "CR_LATER"
    return {
        "order": orderly,
        "autoCommit": True,
        "consumeResult": result,
        "remark": answer.failure_text or None,
        "spentTimeMills": spent_ms,
    }
