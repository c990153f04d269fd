# SPDX-License-Identifier: Apache-2.0
"""Passing the messages of process queues to listeners, concurrently or in order."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Protocol

from rmqnet.client.consumer.listening import ConsumeContext, ask_listener

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from rmqnet.client.consumer.consume_statistics import ConsumeStatistics
    from rmqnet.client.consumer.consumer_options import PushConsumerOptions
    from rmqnet.client.consumer.listening import ListenerAnswer, ListenerThreads, MessageListener
    from rmqnet.client.consumer.offset_store import OffsetStore
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from rmqnet.client.consumer.queue_locks import QueueLocks
    from rmqnet.client.consumer.retry_sender import RetrySender
    from rmqnet.client.message_queue import MessageQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)
_AGAIN_HERE_MS = 5000
_EXPIRED_LEVEL = 3
_MAX_TURN_MS = 60_000
"""Longest turn of a queue before another queue may use the thread."""
_NEXT_TURN_MS = 10
_LOCK_SOON_MS, _LOCK_FAILED_MS = 10, 3000
_MIN_SUSPEND_MS, _MAX_SUSPEND_MS = 10, 30_000
ENDLESS = (1 << 31) - 1


class LoopView(Protocol):
    """The part of the event loop that listeners' threads use."""

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine in the loop."""

    def later(self, delay_ms: int, work: Callable[[], object]) -> None:
        """Call a function in the loop after a delay; not called if the loop has ended."""


@dataclass(frozen=True)
class ListenerSide:
    """The parts that both kinds of consumption share.

    Parameters
    ----------
    now_ms
        The time, milliseconds since the epoch.
    """

    listener: MessageListener
    options: PushConsumerOptions
    threads: ListenerThreads
    offsets: OffsetStore
    retries: RetrySender
    statistics: ConsumeStatistics
    loop: LoopView
    now_ms: Callable[[], int]


class Consumption(Protocol):
    """Calls a listener in threads."""

    @property
    def orderly(self) -> bool:
        """Whether a queue's messages are consumed in order, failed ones again before the next."""

    def submit(
        self, process_queue: ProcessQueue, messages: list[Message], *, needs_consumer: bool
    ) -> None:
        """Schedule consumption of messages that were put into a process queue."""

    def is_consuming(self, process_queue: ProcessQueue) -> bool:
        """Return whether the queue must not be released now."""


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


# Source: RocketMQ ``ConsumeMessageConcurrentlyService``, ``ProcessQueue.cleanExpiredMsg`` (release
# 5.3.3).
class ConcurrentConsumption:
    """Calls the listener with waiting messages in any order.

    Failed messages go back to the broker, which redelivers them later through the group's retry
    topic, so the queue does not wait for them.

    Parameters
    ----------
    side
        Listener, threads and other shared parts.
    """

    orderly = False

    def __init__(self, side: ListenerSide) -> None:
        self._side = side
        # Running listener calls by thread: queue, messages and start time.
        self._calls: dict[int, tuple[ProcessQueue, list[Message], float]] = {}

    def submit(
        self, process_queue: ProcessQueue, messages: list[Message], *, needs_consumer: bool
    ) -> None:
        """Schedule consumption of messages; see `Consumption`."""
        del needs_consumer
        size = self._side.options.consume_message_batch_max_size
        self._side.threads.submit(
            [
                partial(self._consume, process_queue, messages[first : first + size])
                for first in range(0, len(messages), size)
            ]
        )

    def is_consuming(self, process_queue: ProcessQueue) -> bool:
        """Return False: another member may have the queue at any time."""
        del process_queue
        return False

    async def give_up_expired(self) -> None:
        """Send back messages whose listener runs for too long and remove them here."""
        for process_queue, messages, begun_s in list(self._calls.values()):
            if 1000 * (time.monotonic() - begun_s) <= self._side.options.consume_timeout_ms:
                continue
            for message in messages:
                await self._give_up(process_queue, message)

    async def _give_up(self, process_queue: ProcessQueue, message: Message) -> None:
        if process_queue.dropped or not process_queue.contains(message):
            return
        queue = process_queue.queue
        shares = not self._side.options.is_broadcasting
        if shares and not await self._side.retries.send_back(message, _EXPIRED_LEVEL, queue):
            return
        logger.warning(
            "the listener has had offset %d of %s for too long: it is %s",
            message.queue_offset,
            queue,
            "retried" if shares else "no longer waited for",
        )
        self._done_with(process_queue, [message])

    def _consume(self, process_queue: ProcessQueue, messages: list[Message]) -> None:
        if process_queue.dropped:
            return
        side, thread = self._side, threading.get_ident()
        context = ConsumeContext(process_queue.queue)
        begun = time.monotonic()
        self._calls[thread] = process_queue, messages, begun
        answer = ask_listener(side.listener, messages, context)
        del self._calls[thread]
        try:
            done = _count_done(answer, context, len(messages))
            seconds = time.monotonic() - begun
            topic = process_queue.queue.topic
            side.statistics.consumed(topic, done, len(messages) - done, seconds)
            if not process_queue.dropped:
                self._finish(process_queue, messages, done, context)
        except Exception:
            logger.exception("%s: %d messages are retried", process_queue.queue, len(messages))
            left = [each for each in messages if process_queue.contains(each)]
            self._again_here(process_queue, left)

    def _finish(
        self,
        process_queue: ProcessQueue,
        messages: list[Message],
        done: int,
        context: ConsumeContext,
    ) -> None:
        if done < len(messages):
            kept = self._send_back(process_queue, messages[done:], context)
            if kept:
                again_here = {each.queue_offset for each in kept}
                messages = [each for each in messages if each.queue_offset not in again_here]
                self._again_here(process_queue, kept)
        self._done_with(process_queue, messages)

    def _again_here(self, process_queue: ProcessQueue, messages: list[Message]) -> None:
        again = partial(self.submit, process_queue, messages, needs_consumer=False)
        self._side.loop.later(_AGAIN_HERE_MS, again)

    def _done_with(self, process_queue: ProcessQueue, messages: list[Message]) -> None:
        offset = process_queue.remove(messages)
        if offset >= 0 and not process_queue.dropped:
            self._side.offsets.update(process_queue.queue, offset, only_forward=True)

    def _send_back(
        self, process_queue: ProcessQueue, failed: list[Message], context: ConsumeContext
    ) -> list[Message]:
        """Send back failed messages; return those no broker accepted, to be retried here."""
        if self._side.options.is_broadcasting:
            logger.warning(
                "%d messages of %s failed, the first at offset %d: broadcasting does not retry",
                len(failed),
                process_queue.queue,
                failed[0].queue_offset,
            )
            return []
        kept = []
        for message in failed:
            if not process_queue.contains(message):
                continue  # timed out and sent back meanwhile
            level = context.delay_level_when_next_consume
            work = self._side.retries.send_back(message, level, process_queue.queue)
            if not self._side.loop.submit(work).result():
                message.reconsume_times += 1
                kept.append(message)
        return kept


def _count_done(answer: ListenerAnswer, context: ConsumeContext, count: int) -> int:
    if not answer.is_done:
        return 0
    if context.ack_index is None:
        return count
    return min(max(context.ack_index + 1, 0), count)


# Source: RocketMQ ``ConsumeMessageOrderlyService`` (release 5.3.3).
class OrderlyConsumption:
    """Calls the listener with the messages of each queue in order.

    Failed messages are retried after a pause, during which the queue waits. If members share the
    messages, a queue is consumed only while this member has the broker's lock.

    Parameters
    ----------
    side
        Listener, threads and other shared parts.
    locks
        Locks of the brokers; None if each member consumes all queues.
    on_released
        Called in a listener's thread after a call whose queue was dropped meanwhile.
    """

    orderly = True

    def __init__(
        self, side: ListenerSide, locks: QueueLocks | None, on_released: Callable[[], object]
    ) -> None:
        self._side = side
        self._locks = locks
        self._on_released = on_released
        # One per queue, not per process queue: a queue that was lost and assigned again has a new
        # process queue while the listener may still have messages of the old one.
        self._turns: defaultdict[MessageQueue, threading.Lock] = defaultdict(threading.Lock)

    def submit(
        self, process_queue: ProcessQueue, messages: list[Message], *, needs_consumer: bool
    ) -> None:
        """Schedule consumption of messages; see `Consumption`."""
        del messages
        if needs_consumer:
            self._side.threads.submit([partial(self._take_turn, process_queue)])

    def is_consuming(self, process_queue: ProcessQueue) -> bool:
        """Return whether the listener has messages of the queue now."""
        return self._turns[process_queue.queue].locked()

    def _take_turn(self, process_queue: ProcessQueue) -> None:
        end = time.monotonic() + _MAX_TURN_MS / 1000
        while self._may_consume(process_queue):
            if time.monotonic() > end:
                self._again_later(process_queue, _NEXT_TURN_MS)
                return
            with self._turns[process_queue.queue]:
                goes_on = self._consume_safely(process_queue)
            if process_queue.dropped:
                self._on_released()
            if not goes_on:
                return

    def _may_consume(self, process_queue: ProcessQueue) -> bool:
        if process_queue.dropped or self._side.threads.stopped:
            return False
        if self._locks is None or (process_queue.locked and not process_queue.is_lock_expired):
            return True
        # No warning: a failure to lock logs one for all queues of a broker.
        logger.info(
            "%s is not locked, or no longer locked: it is consumed later", process_queue.queue
        )
        self._side.loop.later(
            _LOCK_SOON_MS, lambda: self._side.loop.submit(self._lock_and_go_on(process_queue))
        )
        return False

    async def _lock_and_go_on(self, process_queue: ProcessQueue) -> None:
        if process_queue.dropped:  # another member has the lock now
            return
        is_locked = self._locks is None or await self._locks.lock(process_queue)
        self._again_later(process_queue, _NEXT_TURN_MS if is_locked else _LOCK_FAILED_MS)

    def _again_later(self, process_queue: ProcessQueue, delay_ms: int) -> None:
        again = partial(self.submit, process_queue, [], needs_consumer=True)
        self._side.loop.later(delay_ms, again)

    def _consume_safely(self, process_queue: ProcessQueue) -> bool:
        """Call `_consume_next`; retry after unexpected errors, which would stop the queue."""
        try:
            return self._consume_next(process_queue)
        except Exception:
            logger.exception("%s: its first messages are retried", process_queue.queue)
            process_queue.give_back()
            self._again_later(process_queue, self._side.options.suspend_current_queue_time_ms)
            return False

    def _consume_next(self, process_queue: ProcessQueue) -> bool:
        """Call the listener once; return whether the next messages may follow immediately."""
        if process_queue.dropped:
            return False
        side = self._side
        messages = process_queue.take(side.options.consume_message_batch_max_size)
        if not messages:
            return False
        context = ConsumeContext(process_queue.queue)
        begun = time.monotonic()
        is_done = ask_listener(side.listener, messages, context).is_done
        counts = (len(messages), 0) if is_done else (0, len(messages))
        topic = process_queue.queue.topic
        side.statistics.consumed(topic, *counts, time.monotonic() - begun)
        if not is_done and self._try_again(messages):
            process_queue.give_back()
            self._again_later(process_queue, self._suspend_ms(context))
            return False
        offset = process_queue.commit()
        # A queue that will be released belongs to this member while it has the lock.
        if offset >= 0 and (process_queue.locked or not process_queue.dropped):
            side.offsets.update(process_queue.queue, offset, only_forward=False)
        return True

    def _try_again(self, messages: list[Message]) -> bool:
        """Count a failure; return whether the messages must be retried here.

        They need not be once all of them have gone to the dead letters.
        """
        most = self._side.options.max_reconsume_times
        most = ENDLESS if most < 0 else most
        again = False
        for message in messages:
            if message.reconsume_times < most or not self._put_aside(message):
                message.reconsume_times += 1
                again = True
        return again

    def _put_aside(self, message: Message) -> bool:
        work = self._side.retries.send_anew(message)
        is_sent: bool = self._side.loop.submit(work).result()
        return is_sent

    def _suspend_ms(self, context: ConsumeContext) -> int:
        wanted = context.suspend_current_queue_time_ms
        if wanted == -1:
            wanted = self._side.options.suspend_current_queue_time_ms
        return min(max(wanted, _MIN_SUSPEND_MS), _MAX_SUSPEND_MS)
