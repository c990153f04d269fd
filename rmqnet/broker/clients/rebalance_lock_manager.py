# SPDX-License-Identifier: Apache-2.0
"""Locks that assign each queue to one member of a group, for ordered consumption.

Source: RocketMQ ``RebalanceLockManager`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.client.message_queue import MessageQueue

logger = logging.getLogger(__name__)

LOCK_MAX_LIVE_MS = 60_000


class _Lock(NamedTuple):
    client_id: str
    since_ms: int


class RebalanceLockManager:
    """Locks of queues, in memory only; any thread may call.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    max_live_ms
        How long a lock lasts without renewal.
    """

    def __init__(self, clock: Callable[[], int], max_live_ms: int = LOCK_MAX_LIVE_MS) -> None:
        self._clock = clock
        self._max_live_ms = max_live_ms
        self._lock = threading.Lock()
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> set[MessageQueue]:
        """Lock queues for a member, or renew its locks; return the queues that it has now."""
        got = set()
        with self._lock:
            locks = self._groups.setdefault(group, {})
            now = self._clock()
            for queue in queues:
                held = locks.get(queue)
                if held is None or held.client_id == client_id or self._is_expired(held, now):
                    locks[queue] = _Lock(client_id, now)
                    got.add(queue)
                else:
                    logger.info("%s is locked by %s of %s", queue, held.client_id, group)
        return got

    def unlock(self, group: str, queues: Iterable[MessageQueue] | None, client_id: str) -> None:
        """Release a member's locks on these queues, or on all queues if None."""
        with self._lock:
            locks = self._groups.get(group, {})
            for queue in list(locks) if queues is None else queues:
                held = locks.get(queue)
                if held is not None and held.client_id == client_id:
                    del locks[queue]
            if not locks:
                self._groups.pop(group, None)

    def is_lock_all_expired(self, group: str) -> bool:
        """Return whether no member has a lock of the group."""
        with self._lock:
            now = self._clock()
            return all(self._is_expired(each, now) for each in self._groups.get(group, {}).values())

    def _is_expired(self, held: _Lock, now: int) -> bool:
        return now - held.since_ms > self._max_live_ms
