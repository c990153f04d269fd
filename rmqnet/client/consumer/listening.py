# SPDX-License-Identifier: Apache-2.0
"""Calling a listener and interpreting its answer."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.client.message_queue import MessageQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)
MessageListener = Callable[[list["Message"], "ConsumeContext"], Any]
"""Called with messages and a `ConsumeContext`.

Returns None or True if the messages are consumed; returns False or raises to have them retried."""
Task = Callable[[], None]


class ConsumeContext:
    """Information for a listener about its messages, and its options for their retries.

    Attributes
    ----------
    message_queue : MessageQueue
        The queue the messages were pulled from; for retried messages, a queue of
        ``%RETRY%group``.
    ack_index : int or None
        Concurrent listeners: index of the last consumed message; later messages are retried
        even if the listener returns success. If None, all are consumed.
    delay_level_when_next_consume : int
        Concurrent listeners: the broker's delay level for retrying failed messages. 0 lets the
        broker choose a delay that grows with each retry; -1 sends them to the dead letters
        immediately.
    suspend_current_queue_time_ms : int
        Orderly listeners: pause of the queue if they fail; -1 means the consumer's setting.
    """

    # Class attributes, as each call creates a context and few listeners set them.
    ack_index: int | None = None
    delay_level_when_next_consume: int = 0
    suspend_current_queue_time_ms: int = -1

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue


class ListenerAnswer(NamedTuple):
    """Result of a listener's call."""

    is_done: bool
    failure: BaseException | None = None
    """The exception that it raised."""

    @property
    def failure_text(self) -> str:
        """Return the failure as RocketMQ's tools show it; empty if the listener did not raise."""
        return "" if self.failure is None else f"{type(self.failure).__name__}: {self.failure}"


_DONE, _LATER = ListenerAnswer(True), ListenerAnswer(False)


def ask_listener(
    listener: MessageListener, messages: list[Message], context: ConsumeContext
) -> ListenerAnswer:
    """Call a listener and return its answer, whatever it raises or returns."""
    try:
        answer = listener(messages[:], context)  # a copy: the listener may change the list
    except BaseException as err:  # sys.exit() too: the messages are not consumed
        logger.warning(
            "the listener failed with %d messages of %s, from offset %d on",
            len(messages),
            context.message_queue,
            messages[0].queue_offset,
            exc_info=True,
        )
        return ListenerAnswer(False, err)
    if answer is None or answer is True:
        return _DONE
    if answer is not False:
        logger.error(
            "the listener returned %r: expected None or True for consumed messages, False for "
            "messages to retry; these messages are retried",
            answer,
        )
    return _LATER


class ListenerThreads:
    """Runs tasks in a few threads, in the order of submission.

    Unlike ``ThreadPoolExecutor``, it accepts many tasks in one call, and each thread wakes the
    next: if listeners do very little, one thread finishes all tasks before a second one runs.

    Parameters
    ----------
    name
        Prefix of the threads' names.
    count
        Most threads; they start when there is work for them.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._changed = threading.Condition(threading.Lock())
        self._tasks: deque[Task] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._is_waking = False
        self._stopped = False

    @property
    def count(self) -> int:
        """Largest number of threads."""
        return self._count

    @property
    def stopped(self) -> bool:
        """Whether it was shut down, so no more tasks start."""
        return self._stopped

    def submit(self, tasks: Iterable[Task]) -> None:
        """Run tasks in the threads; tasks are dropped after `shutdown`."""
        with self._changed:
            if self._stopped:
                return
            self._tasks.extend(tasks)
            self._wake_one()

    def shutdown(self, timeout_s: float) -> bool:
        """Start no more tasks and wait for running ones; True if all have ended.

        A task that takes longer goes on in its thread, which then ends. The caller's own task is
        not waited for.
        """
        with self._changed:
            self._stopped = True
            self._tasks.clear()
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_s
        others = [each for each in self._threads if each is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        running = sum(thread.is_alive() for thread in others)
        if running:
            logger.warning(
                "%s: %d listeners still run after %.1f s", self._name, running, timeout_s
            )
        return running == 0

    def _wake_one(self) -> None:
        if not self._tasks or self._is_waking:
            return
        if self._idle:
            self._is_waking = True
            self._changed.notify()
        elif len(self._threads) < self._count:
            self._start_one()

    def _start_one(self) -> None:
        name = f"{self._name}_{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as err:  # the system cannot start more threads
            if not self._threads:
                raise
            logger.warning("%s continues with %d threads: %s", self._name, len(self._threads), err)
            return
        self._threads.append(thread)
        self._is_waking = True

    def _work(self) -> None:
        with self._changed:
            self._is_waking = False
        while True:
            task = self._next()
            if task is None:
                return
            try:
                task()
            except Exception:
                logger.exception("%s: a task failed", self._name)

    def _next(self) -> Task | None:
        while True:
            # Without the lock while there is work: contention for it and for the interpreter costs
            # more than very small tasks.
            try:
                task = self._tasks.popleft()
            except IndexError:
                if not self._wait():
                    return None
                continue
            if self._tasks and not self._is_waking:
                with self._changed:
                    self._wake_one()
            return task

    def _wait(self) -> bool:
        """Wait for work; False if there will be none."""
        with self._changed:
            while not self._tasks:
                if self._stopped:
                    return False
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
                self._is_waking = False
        return True
