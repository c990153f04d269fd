# SPDX-License-Identifier: Apache-2.0
"""Threads for one kind of request, so that a slow kind does not block the others."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Callable

logger = logging.getLogger(__name__)

Task = Callable[[], None]


class WorkerPool:
    """A few threads and a bounded queue of tasks.

    One thread is woken at a time, the one that went idle last. Before it runs its task, it wakes
    the next one if more tasks wait: long tasks thus get a thread each, and of many short ones a
    single thread runs most before the others are awake.

    Parameters
    ----------
    name
        Kind of work, named in threads and errors.
    """

    def __init__(self, name: str, threads: int, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._count = threads
        self._waiting: deque[tuple[float, Task]] = deque()  # with their arrival times
        self._lock = threading.Lock()
        self._idle: list[threading.Lock] = []  # the lock that each idle thread waits for
        self._is_waking = False  # one was woken, but does not run yet
        self._threads: list[threading.Thread] = []
        self._is_running = False

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a thread."""
        return len(self._waiting)

    @property
    def head_wait_ms(self) -> int:
        """How long the next task has waited; 0 if none waits."""
        with self._lock:
            since = self._waiting[0][0] if self._waiting else time.monotonic()
        return int((time.monotonic() - since) * 1000)

    def start(self) -> None:
        """Start the threads; a second call does nothing."""
        with self._lock:
            if self._is_running:
                return
            self._is_running, self._is_waking = True, False
        self._threads = [
            threading.Thread(target=self._run, name=f"{self.name}-{number}", daemon=True)
            for number in range(self._count)
        ]
        for thread in self._threads:
            thread.start()

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """Drop the tasks that wait, and wait for those that run.

        Return False if one still runs after the timeout; it is not waited for again.
        """
        self.end()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                left = None if deadline is None else max(deadline - time.monotonic(), 0)
                thread.join(left)
        is_late = any(each.is_alive() for each in self._threads)
        self._threads = []
        return not is_late

    def end(self) -> None:
        """Start no further task; those that wait are dropped."""
        with self._lock:
            self._is_running = False
            self._waiting.clear()
            while self._idle:
                self._idle.pop().release()

    def submit(self, task: Task) -> bool:
        """Queue a task; return False if too many wait or the pool does not run."""
        with self._lock:
            if not self._is_running or len(self._waiting) >= self.capacity:
                return False
            self._waiting.append((time.monotonic(), task))
            self._wake()
        return True

    def _wake(self) -> None:
        """Wake a thread if one is idle and none is waking; the caller owns the lock."""
        if self._idle and not self._is_waking:
            self._is_waking = True
            self._idle.pop().release()

    def _run(self) -> None:
        bell = threading.Lock()
        bell.acquire()
        while self._is_running:
            task = self._next_task(bell)
            if task is None:
                bell.acquire()
                self._is_waking = False
                continue
            try:
                task()
            except Exception:
                logger.exception("a task of pool %s failed", self.name)

    def _next_task(self, bell: threading.Lock) -> Task | None:
        """Return a task; if None, the bell is released when there is one or the pool stops."""
        with self._lock:
            if self._waiting:
                _, task = self._waiting.popleft()
                if self._waiting:
                    self._wake()
                return task
            if self._is_running:
                self._idle.append(bell)
            else:
                bell.release()
            return None
