"""Messages of a queue to a listener one after the other.

Source: RocketMQ ``ConsumeMessageOrderlyService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Callable

from rmqnet.client.consumer.listening import ConsumeContext, ask_listener

if TYPE_CHECKING:
    from rmqnet.client.consumer.consumption import ListenerSide
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from rmqnet.client.consumer.queue_locks import QueueLocks
    from rmqnet.client.message_queue import MessageQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)

_MAX_TURN_MS = 60_000
"""After so long another queue may have the thread."""
_NEXT_TURN_MS = 10
_LOCK_SOON_MS, _LOCK_FAILED_MS = 10, 3000
_MIN_SUSPEND_MS, _MAX_SUSPEND_MS = 10, 30_000
ENDLESS = (1 << 31) - 1


class OrderlyConsumption:
    """Calls the listener with the first messages of each queue, then with those after them.

    What fails is first again after a while, and the queue waits for it. Where members share the
    messages, a queue is consumed only while the broker's lock is this member's.

    Parameters
    ----------
    side
        Listener, threads and the like.
    locks
        Locks of the brokers; None: each member consumes all queues.
    on_released
        Called, in a listener's thread, when a listener has ended whose queue was dropped meanwhile.
    """

    orderly = True

    def __init__(
        self, side: ListenerSide, locks: QueueLocks | None, on_released: Callable[[], object]
    ) -> None:
        self._side = side
        self._locks = locks
        self._on_released = on_released
        # One a queue and not one a process queue: a queue that was lost and came back has a new
        # process queue while the listener may still have messages of the old one.
        self._turns: defaultdict[MessageQueue, threading.Lock] = defaultdict(threading.Lock)

    def submit(
        self, process_queue: ProcessQueue, messages: list[Message], *, needs_consumer: bool
    ) -> None:
        """Have messages consumed; see `Consumption`."""
        del messages
        if needs_consumer:
            self._side.threads.submit([partial(self._take_turn, process_queue)])

    def is_consuming(self, process_queue: ProcessQueue) -> bool:
        """Return whether the listener has messages of the queue just now."""
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
        # No warning: what keeps it from being locked makes one, for all queues of a broker.
        logger.info("%s is not locked (any more): it is consumed later", process_queue.queue)
        self._side.loop.later(
            _LOCK_SOON_MS, lambda: self._side.loop.submit(self._lock_and_go_on(process_queue))
        )
        return False

    async def _lock_and_go_on(self, process_queue: ProcessQueue) -> None:
        if process_queue.dropped:  # the lock is another member's now
            return
        is_locked = self._locks is None or await self._locks.lock(process_queue)
        self._again_later(process_queue, _NEXT_TURN_MS if is_locked else _LOCK_FAILED_MS)

    def _again_later(self, process_queue: ProcessQueue, delay_ms: int) -> None:
        again = partial(self.submit, process_queue, [], needs_consumer=True)
        self._side.loop.later(delay_ms, again)

    def _consume_safely(self, process_queue: ProcessQueue) -> bool:
        """Do as `_consume_next`; what should not happen is tried again, or the queue would stop."""
        try:
            return self._consume_next(process_queue)
        except Exception:
            logger.exception("%s: its first messages are tried again", process_queue.queue)
            process_queue.give_back()
            self._again_later(process_queue, self._side.options.suspend_current_queue_time_ms)
            return False

    def _consume_next(self, process_queue: ProcessQueue) -> bool:
        """Call the listener once; return whether the next messages may follow at once."""
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
        # A queue that is to be given away still is this member's while it has the lock.
        if offset >= 0 and (process_queue.locked or not process_queue.dropped):
            side.offsets.update(process_queue.queue, offset, only_forward=False)
        return True

    def _try_again(self, messages: list[Message]) -> bool:
        """Count a failure; return whether the messages must be tried again here.

        They need not once all of them went to the dead letters.
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
