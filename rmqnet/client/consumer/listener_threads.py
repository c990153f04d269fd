"""Threads that call listeners."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)

Task = Callable[[], None]


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

    def stop(self, timeout_s: float) -> bool:
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
