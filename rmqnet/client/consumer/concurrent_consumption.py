"""Messages to a listener as they come, in several threads.

Source: RocketMQ ``ConsumeMessageConcurrentlyService``, ``ProcessQueue.cleanExpiredMsg`` (release
5.3.3).
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from rmqnet.client.consumer.listening import ConsumeContext, ask_listener

if TYPE_CHECKING:
    from rmqnet.client.consumer.consumption import ListenerSide
    from rmqnet.client.consumer.listening import ListenerAnswer
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)

_AGAIN_HERE_MS = 5000
_EXPIRED_LEVEL = 3


class ConcurrentConsumption:
    """Calls the listener with any messages that wait, in any order.

    Messages that fail go to the broker, which delivers them again later by the group's retry topic;
    so the queue goes on.

    Parameters
    ----------
    side
        Listener, threads and the like.
    """

    orderly = False

    def __init__(self, side: ListenerSide) -> None:
        self._side = side
        # Listeners that run, by thread: what they have, and since when.
        self._calls: dict[int, tuple[ProcessQueue, list[Message], float]] = {}

    def submit(
        self, process_queue: ProcessQueue, messages: list[Message], *, needs_consumer: bool
    ) -> None:
        """Have messages consumed; see `Consumption`."""
        del needs_consumer
        size = self._side.options.consume_message_batch_max_size
        self._side.threads.submit(
            partial(self._consume, process_queue, messages[first : first + size])
            for first in range(0, len(messages), size)
        )

    def is_consuming(self, process_queue: ProcessQueue) -> bool:
        """Return False: another member may have the queue at any time."""
        del process_queue
        return False

    async def give_up_expired(self) -> None:
        """Send back messages whose listener runs for too long; they are done with here."""
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
            "tried again" if shares else "not waited for any more",
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
            logger.exception("%s: %d messages are tried again", process_queue.queue, len(messages))
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
        """Send back what failed; return what nobody took, to be tried again here."""
        if self._side.options.is_broadcasting:
            logger.warning(
                "%d messages of %s failed, offset %d the first: members of a broadcasting group "
                "try nothing again",
                len(failed),
                process_queue.queue,
                failed[0].queue_offset,
            )
            return []
        kept = []
        for message in failed:
            if not process_queue.contains(message):
                continue  # given up meanwhile
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
