# SPDX-License-Identifier: Apache-2.0
"""Logging of server outages that limits repeated warnings."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable

from rmqnet.errors import BrokerError

_INTERVAL_S = 60.0
_MOST_KEYS = 1000


class OutageLog:
    """Logs a server's first failure as a warning and repeats within a minute as debug.

    All parts of a client share one: 250 queues of a broker that is down cause one warning a
    minute. Any thread may use it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._warned: dict[object, float] = {}

    def report(self, logger: logging.Logger, err: Exception, text: str, *values: object) -> None:
        """Log a failure with the given text and values."""
        level = logging.WARNING if self._is_first(_cause(err)) else logging.DEBUG
        logger.log(level, text, *values)

    def _is_first(self, cause: object) -> bool:
        now = self._clock()
        with self._guard:
            if now - self._warned.get(cause, -_INTERVAL_S) < _INTERVAL_S:
                return False
            if len(self._warned) >= _MOST_KEYS:
                fresh = (each for each in self._warned.items() if now - each[1] < _INTERVAL_S)
                self._warned = dict(fresh)
            self._warned[cause] = now
            return True


def _cause(err: Exception) -> object:
    """Return a key that is equal for failures that should be logged as one.

    An unreachable server fails the same way for all requests; a refusal may concern one queue.
    """
    if isinstance(err, BrokerError):
        return str(err)
    return getattr(err, "address", "") or str(err)
