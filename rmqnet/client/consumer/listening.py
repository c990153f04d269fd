"""Calling a listener, and what its answer means."""

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

Return None or True when they are done with, False or raise when they are to be tried again."""
Task = Callable[[], None]


class ConsumeContext:
    """What a listener may know, and say, of the messages that it gets.

    Attributes
    ----------
    message_queue : MessageQueue
        Where they were pulled from; that of a message which is tried again belongs to
        ``%RETRY%group``.
    ack_index : int or None
        Concurrent listeners: the index of the last message that is done with; those after it are
        tried again although the listener returns success. None: all are done with.
    delay_level_when_next_consume : int
        Concurrent listeners: when what failed is tried again: a delay level of the broker; 0: it
        chooses, longer from time to time; -1: never, it goes to the dead letters at once.
    suspend_current_queue_time_ms : int
        Orderly listeners: how long the queue rests if they fail; -1: as the consumer is set up.
    """

    # Of the class, as one is made for each call and hardly any listener sets them.
    ack_index: int | None = None
    delay_level_when_next_consume: int = 0
    suspend_current_queue_time_ms: int = -1

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue


class ListenerAnswer(NamedTuple):
    """What a listener made of its messages."""

    is_done: bool
    failure: BaseException | None = None
    """What it raised."""

    @property
    def failure_text(self) -> str:
        """Return the failure in words, as RocketMQ's tools show it; empty if it raised nothing."""
        return "" if self.failure is None else f"{type(self.failure).__name__}: {self.failure}"


_DONE, _LATER = ListenerAnswer(True), ListenerAnswer(False)


def ask_listener(
    listener: MessageListener, messages: list[Message], context: ConsumeContext
) -> ListenerAnswer:
    """Call a listener; whatever it raises or returns is taken for an answer."""
    try:
        answer = listener(messages[:], context)  # its own list: it may take messages out of it
    except BaseException as err:  # also of sys.exit(): the messages are still there
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
            "the listener returned %r: None or True is expected for messages that are done with, "
            "False for those to be tried again, which these are now",
            answer,
        )
    return _LATER


class ListenerThreads:
    """Runs tasks in a few threads, in the order in which they came.

    Unlike ``ThreadPoolExecutor``, many tasks are handed over at once, and threads are woken one by
    one, each by the one before: where listeners do next to nothing, one thread does it all before
    the second gets to run.

    Parameters
    ----------
    name
        Of the threads.
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
        """Most threads."""
        return self._count

    @property
    def stopped(self) -> bool:
        """No more tasks begin."""
        return self._stopped

    def submit(self, tasks: Iterable[Task]) -> None:
        """Have tasks run; they are dropped once it is stopped."""
        with self._changed:
            if self._stopped:
                return
            self._tasks.extend(tasks)
            self._wake_one()

    def shutdown(self, timeout_s: float) -> bool:
        """Begin no more tasks, and wait for those that run; True: none runs any more.

        A task that outlasts the time goes on in its thread, which ends after it. The caller's own
        task is not waited for.
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
        except RuntimeError as err:  # the system has no more
            if not self._threads:
                raise
            logger.warning("%s goes on with %d threads: %s", self._name, len(self._threads), err)
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
            # Without the lock while there is work: threads that queue up for it, and for the
            # interpreter, cost more than tasks that do next to nothing.
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
        """Wait for work; False: there will be none."""
        with self._changed:
            while not self._tasks:
                if self._stopped:
                    return False
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
                self._is_waking = False
        return True
