# SPDX-License-Identifier: Apache-2.0
"""Pulls that wait for messages.

Source: RocketMQ ``PullRequestHoldService``, ``NotifyMessageArrivingListener`` (release 5.3.3).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable, Protocol

import numpy as np

from store_core.queue.dispatch_request import DispatchDecoder
from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from rmqnet.remoting.server_connection import ServerConnection
    from store_core.codec.record_frames import RecordFrames

_LOOK_MS = 1000
_COMES_BACK_S = 0.1
"""A client that got the messages it waited for usually pulls again within this time."""

Queue = tuple[str, int]


class HeldPull(Protocol):
    """A pull that has found no message yet."""

    @property
    def queue(self) -> Queue:
        """Topic and queue id."""

    @property
    def connection(self) -> ServerConnection:
        """Connection of the client."""

    @property
    def deadline_ms(self) -> int:
        """Time of the answer if no message comes, ms since the epoch."""


class PullRequestHold(ServiceThread):
    """Holds pulls, and runs them again when their queue grows or their time is over.

    Parameters
    ----------
    resume
        Schedules pulls, at least one, to run again; returns immediately.
    clock
        Returns ms since the epoch.
    """

    def __init__(
        self, resume: Callable[[list[HeldPull]], None], clock: Callable[[], int], capacity: int
    ) -> None:
        super().__init__(_LOOK_MS)
        self._resume, self._clock, self._capacity = resume, clock, capacity
        self._held: dict[Queue, list[HeldPull]] = {}
        self._count = 0
        self._answered: dict[Queue, float] = {}
        self._lock = threading.Lock()
        self._decoder = DispatchDecoder(())

    @property
    def waiting(self) -> int:
        """Number of waiting pulls."""
        return self._count

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Return whether a pull waits for a queue's next message, or did a moment ago."""
        queue = (topic, queue_id)
        return queue in self._held or (
            time.monotonic() - self._answered.get(queue, 0.0) < _COMES_BACK_S
        )

    def hold(self, pull: HeldPull) -> bool:
        """Hold a pull; return False if too many wait."""
        with self._lock:
            if self._count >= self._capacity:
                return False
            self._held.setdefault(pull.queue, []).append(pull)
            self._count += 1
        return True

    def notify(self, queue: Queue) -> None:
        """Run the pulls of a queue again, which has grown."""
        self._resume_all(self._taken(queue))

    def dispatched(self, frames: RecordFrames) -> None:
        """Run the pulls of queues that got these records; a dispatcher of the store."""
        if not self._count:
            return
        requests = self._decoder.outline(frames)
        codes = requests.topic_code.astype(np.int64) << 32 | requests.queue_id
        taken: list[HeldPull] = []
        for code in set(codes.tolist()):
            taken += self._taken((requests.topics[code >> 32], code & 0xFFFFFFFF))
        self._resume_all(taken)

    def drop(self, connection: ServerConnection) -> list[HeldPull]:
        """Remove the pulls of a client that is gone, and return them."""
        return self._take(lambda pull: pull.connection is connection) if self._count else []

    def run_once(self) -> bool:
        """Run the pulls again whose time is over."""
        self._forget_answered()
        now = self._clock()
        late = self._take(lambda pull: pull.deadline_ms <= now)
        self._resume_all(late)
        return bool(late)

    def release_all(self) -> None:
        """Run all pulls again, as the broker stops or has become readable."""
        self._resume_all(self._take(lambda _: True))

    def _forget_answered(self) -> None:
        end = time.monotonic() - _COMES_BACK_S
        with self._lock:
            self._answered = {queue: at for queue, at in self._answered.items() if at > end}

    def _taken(self, queue: Queue) -> list[HeldPull]:
        if queue not in self._held:  # nearly always, and without the lock
            return []
        with self._lock:
            pulls = self._held.pop(queue, [])
            self._count -= len(pulls)
            self._answered[queue] = time.monotonic()
        return pulls

    def _take(self, is_meant: Callable[[HeldPull], bool]) -> list[HeldPull]:
        taken: list[HeldPull] = []
        with self._lock:
            for queue, pulls in list(self._held.items()):
                left = [pull for pull in pulls if not is_meant(pull)]
                if len(left) == len(pulls):
                    continue
                taken += (pull for pull in pulls if is_meant(pull))
                if left:
                    self._held[queue] = left
                else:
                    del self._held[queue]
            self._count -= len(taken)
        return taken

    def _resume_all(self, pulls: list[HeldPull]) -> None:
        if pulls:
            self._resume(pulls)
