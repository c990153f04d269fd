# SPDX-License-Identifier: Apache-2.0
"""An asyncio event loop in its own thread, so that no caller's thread waits for a socket."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines for other threads; it ends with `shutdown`, or with the process.

    In a forked child it does not run: the thread is the parent's.

    Parameters
    ----------
    name
        Name of the thread.
    new_loop
        Returns the event loop to run.
    """

    def __init__(
        self,
        name: str,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._name = name
        self._new_loop = new_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    @property
    def is_running(self) -> bool:
        """Whether it accepts coroutines."""
        return self._running_loop() is not None

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._running_loop() is not None:
            return
        loop = self._new_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name=self._name, daemon=True
        )
        self._loop, self._process = loop, os.getpid()
        self._thread.start()

    def shutdown(self) -> None:
        """Cancel running coroutines, wait until they have ended, and end the thread."""
        loop = self._running_loop()
        thread, self._thread = self._thread, None
        self._loop = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine; the future may be waited for, or cancelled, in any other thread.

        Raises
        ------
        RuntimeError
            The loop does not run.
        """
        loop = self._running_loop()
        if loop is None:
            work.close()
            raise RuntimeError(f"{self._name} is not running")
        return asyncio.run_coroutine_threadsafe(work, loop)

    def call(self, function: Callable[..., object], *args: object) -> bool:
        """Have the loop call a function soon; False if it does not run (any more)."""
        loop = self._running_loop()
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # closed meanwhile
            return False
        return True

    def _running_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop; None in a forked child, where waking it would wake the parent's."""
        return self._loop if self._process == os.getpid() else None

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
