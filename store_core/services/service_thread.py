# SPDX-License-Identifier: Apache-2.0
"""Services that run repeatedly in their own threads.

Source: RocketMQ ``ServiceThread`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
import weakref
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable

from store_core.errors import StoreLockedError
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

logger = logging.getLogger(__name__)
_REST_AFTER_ERROR_S = 1.0


class ServiceThread(ShuttingDown, ABC):
    """Calls `run_once` from a thread; tests call it directly.

    An exception of `run_once` is logged and stored in `last_error`, and the service tries again a
    second later or after its interval if that is longer: a full disk must not end dispatch for
    good. Repeats of the same error are logged as DEBUG.
    """

    repeats_while_busy = False

    def __init__(self, interval_ms: int, *, first_delay_ms: int = 0, wakeable: bool = True) -> None:
        self.last_error: Exception | None = None
        self._interval_s, self._first_delay_s = interval_ms / 1000, first_delay_ms / 1000
        self._wakeable = wakeable
        self.is_failing = False
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._pauses: threading.Event | None = None

    @property
    def name(self) -> str:
        """Name of the service and its thread."""
        return type(self).__name__

    @property
    def is_running(self) -> bool:
        """Whether the service was started and not shut down."""
        return self._thread is not None

    @abstractmethod
    def run_once(self) -> bool:
        """Do the work that is due; return whether there was any."""

    def finish(self) -> None:
        """Do the remaining work; called at the end of `shutdown`."""

    def wakeup(self) -> None:
        """Start the next run immediately."""
        if self._wakeable and not self._wake.is_set():  # most of many calls cost nothing
            self._wake.set()

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is None:
            self._wake.clear()
            self._stop.clear()
            self._let_pause(self._stop)
            # A daemon: a program that does not shut down its store still ends.
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()

    def shutdown(self) -> None:
        """End the thread after its current run, then `finish`; nothing if it was not started."""
        thread = self._thread
        if thread is None:
            return
        self._stop.set()
        self._wake.set()
        thread.join()
        self._thread = None
        self._let_pause(None)
        self._guarded(self.finish)

    def shutdown_or_finish(self) -> None:
        """Shut down; if the service is not started, only call `finish`."""
        if self._thread is None:
            self._guarded(self.finish)
        else:
            self.shutdown()

    def pause(self, milliseconds: float, *, wakeable: bool = False) -> None:
        """Pause within a run, unless it runs without the thread or the service is stopping."""
        if self._pauses is not None:
            (self._wake if wakeable else self._pauses).wait(milliseconds / 1000)

    def _let_pause(self, stop: threading.Event | None) -> None:
        self._pauses = stop

    def _run(self) -> None:
        self._stop.wait(self._first_delay_s)
        while not self._stop.is_set():
            was_busy = self._guarded(self.run_once)
            if self.is_failing:
                self._rest(max(self._interval_s, _REST_AFTER_ERROR_S))
            elif not (was_busy and self.repeats_while_busy):
                self._rest(self._interval_s)
            self._wake.clear()

    def _rest(self, seconds: float) -> None:
        (self._wake if self._wakeable else self._stop).wait(seconds)

    def _guarded(self, work: Callable[[], bool | None]) -> bool:
        try:
            was_busy = bool(work())
        except Exception as err:  # the service goes on after any error
            repeated = self.is_failing and str(err) == str(self.last_error)
            level = logging.DEBUG if repeated else logging.ERROR
            logger.log(level, "%s failed and continues: %s", self.name, err, exc_info=True)
            self.last_error, self.is_failing = err, True
            return False
        self.is_failing = False
        return was_busy


class ServicesInTurn(ServiceThread):
    """Runs several services one after another in one thread, like RocketMQ's cleaners."""

    def __init__(
        self, services: Sequence[ServiceThread], interval_ms: int, *, first_delay_ms: int = 0
    ) -> None:
        super().__init__(interval_ms, first_delay_ms=first_delay_ms)
        self.services = tuple(services)

    def run_once(self) -> bool:
        """Run each once; a failure of one does not stop the others."""
        return any([service._guarded(service.run_once) for service in self.services])

    def _let_pause(self, stop: threading.Event | None) -> None:
        for service in self.services:
            service._let_pause(stop)


class RepeatedService(ServiceThread):
    """Calls a function at an interval.

    Parameters
    ----------
    name
        Name of the service and its thread.
    """

    def __init__(
        self, name: str, work: Callable[[], bool], interval_ms: int, *, is_late: bool = False
    ) -> None:
        super().__init__(interval_ms, first_delay_ms=interval_ms if is_late else 0)
        self._name, self._work = name, work

    @property
    def name(self) -> str:
        """Name of the service and its thread."""
        return self._name

    def run_once(self) -> bool:
        """Call the function once."""
        return self._work()


class OnePerStore:
    """Ensures that at most one service of a kind runs for each store of this process."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._services: weakref.WeakKeyDictionary[object, weakref.ref[ServiceThread]] = (
            weakref.WeakKeyDictionary()
        )

    @contextmanager
    def starting(self, store: object, root: str, service: ServiceThread) -> Iterator[None]:
        """Let the block start a service while no other can start; it may be running already.

        Raises
        ------
        StoreLockedError
            Another service runs: everything would be done twice.
        """
        with self._lock:
            other = self._services.get(store, lambda: None)()
            if other is not None and other is not service and other.is_running:
                raise StoreLockedError(
                    f"another service of this process {self._work}: stop that one first", root
                )
            yield
            self._services[store] = weakref.ref(service)
