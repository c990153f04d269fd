"""How many messages may be on their way at once, and how many bytes."""

from __future__ import annotations

import threading
from typing import Callable


class InFlightLimit:
    """A bound on messages whose outcome is not known yet. Thread-safe.

    Parameters
    ----------
    most_messages, most_bytes
        At most so many; one message alone is let pass however long it is.
    """

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self.most_messages = most_messages
        self.most_bytes = most_bytes
        self._messages = 0
        self._bytes = 0
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0

    @property
    def messages(self) -> int:
        """How many are on their way."""
        return self._messages

    def acquire(self, size: int, timeout_s: float) -> bool:
        """Wait until there is room for so many bytes; False if there is none in time."""
        with self._changed:
            if self._has_room(size) or self._wait(lambda: self._has_room(size), timeout_s):
                self._messages += 1
                self._bytes += size
                return True
        return False

    def release(self, size: int) -> None:
        """Note that the outcome of a message is known."""
        with self._changed:
            self._messages -= 1
            self._bytes -= size
            if self._waiting:
                self._changed.notify_all()

    def wait_until_none(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is on its way; False if there still is, in time."""
        with self._changed:
            return self._messages == 0 or self._wait(lambda: self._messages == 0, timeout_s)

    def _has_room(self, size: int) -> bool:
        if self._messages == 0:
            return True
        return self._messages < self.most_messages and self._bytes + size <= self.most_bytes

    def _wait(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        self._waiting += 1
        try:
            return self._changed.wait_for(is_so, timeout_s)
        finally:
            self._waiting -= 1
