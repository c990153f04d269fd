"""Threads that work on one kind of request, so that a slow kind does not stop the others."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Callable

logger = logging.getLogger(__name__)

Task = Callable[[], None]


class WorkerPool:
    """A few threads and a bounded queue of tasks.

    Parameters
    ----------
    name
        Of the kind of work; names the threads and errors.
    threads
        How many tasks run at once.
    capacity
        How many may wait; more are not taken.
    """

    def __init__(self, name: str, threads: int, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._count = threads
        self._waiting: deque[Task] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._is_running = False

    @property
    def waiting(self) -> int:
        """Tasks that wait for a thread."""
        return len(self._waiting)

    def start(self) -> None:
        """Start the threads; a second call does nothing."""
        with self._changed:
            if self._is_running:
                return
            self._is_running = True
        self._threads = [
            threading.Thread(target=self._run, name=f"{self.name}-{number}", daemon=True)
            for number in range(self._count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the tasks that run; those that wait are dropped."""
        with self._changed:
            self._is_running = False
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads = []

    def submit(self, task: Task) -> bool:
        """Have a task run; False where too many wait, or the pool does not run."""
        with self._changed:
            if not self._is_running or len(self._waiting) >= self.capacity:
                return False
            self._waiting.append(task)
            self._changed.notify()
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._is_running and not self._waiting:
                    self._changed.wait()
                if not self._is_running:
                    return
                task = self._waiting.popleft()
            try:
                task()
            except Exception:
                logger.exception("a task of pool %s", self.name)
