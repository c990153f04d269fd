"""A service that does somebody's work again and again."""

from __future__ import annotations

from typing import Callable

from store_core.services.service_thread import ServiceThread


class RepeatedService(ServiceThread):
    """Calls a function from time to time.

    Parameters
    ----------
    name
        Of the service and its thread.
    work
        Returns whether there was anything to do.
    interval_ms
        Rest between two calls.
    is_late
        The first call comes after an interval, too.
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
        """Do it once."""
        return self._work()
