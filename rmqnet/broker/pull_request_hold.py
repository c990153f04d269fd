"""Pulls that wait until messages come.

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
"""Who has got what it waited for as a rule asks for more before that."""

Queue = tuple[str, int]


class HeldPull(Protocol):
    """A pull that found nothing yet."""

    @property
    def queue(self) -> Queue:
        """Topic and queue id."""

    @property
    def connection(self) -> ServerConnection:
        """Who asked."""

    @property
    def deadline_ms(self) -> int:
        """When it is answered in any case, ms since the epoch."""


class PullRequestHold(ServiceThread):
    """Keeps pulls, and has them run again when their queue grows or their time is over.

    Parameters
    ----------
    resume
        Has pulls, at least one, run again; returns at once.
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
        """How many pulls wait."""
        return self._count

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Whether a pull waits for the next message of a queue, or one that did has just gone."""
        queue = (topic, queue_id)
        return queue in self._held or (
            time.monotonic() - self._answered.get(queue, 0.0) < _COMES_BACK_S
        )

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull; False where too many wait."""
        with self._lock:
            if self._count >= self._capacity:
                return False
            self._held.setdefault(pull.queue, []).append(pull)
            self._count += 1
        return True

    def notify(self, queue: Queue) -> None:
        """Have the pulls of a queue run again: it has grown."""
        self._resume_all(self._taken(queue))

    def dispatched(self, frames: RecordFrames) -> None:
        """Take note of records that queues have got; a dispatcher of the store."""
        if not self._count:
            return
        requests = self._decoder.outline(frames)
        codes = requests.topic_code.astype(np.int64) << 32 | requests.queue_id
        taken: list[HeldPull] = []
        for code in set(codes.tolist()):
            taken += self._taken((requests.topics[code >> 32], code & 0xFFFFFFFF))
        self._resume_all(taken)

    def drop(self, connection: ServerConnection) -> list[HeldPull]:
        """Forget the pulls of a client that is gone, and return them."""
        return self._take(lambda pull: pull.connection is connection) if self._count else []

    def run_once(self) -> bool:
        """Have the pulls run again whose time is over."""
        self._forget_answered()
        now = self._clock()
        late = self._take(lambda pull: pull.deadline_ms <= now)
        self._resume_all(late)
        return bool(late)

    def release_all(self) -> None:
        """Have all pulls run again: the broker stops, or may be read now."""
        self._resume_all(self._take(lambda _: True))

    def _forget_answered(self) -> None:
        end = time.monotonic() - _COMES_BACK_S
        with self._lock:
            self._answered = {queue: at for queue, at in self._answered.items() if at > end}

    def _taken(self, queue: Queue) -> list[HeldPull]:
        if queue not in self._held:  # nearly always, and then no lock is needed
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
