# SPDX-License-Identifier: Apache-2.0
"""Messages that were pulled from one queue and are not consumed yet.

Source: RocketMQ ``ProcessQueue``, ``DefaultMQPushConsumerImpl.pullMessage`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from operator import lt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Callable

    from rmqnet.client.message_queue import MessageQueue
    from store_core.message import Message

LOCK_TRUSTED_MS = 30_000
"""A lock that the broker has not renewed for this long is not trusted."""

NO_OFFSET = -1


@dataclass(frozen=True)
class CacheLimits:
    """How much of one queue may wait for its listener before pulling stops.

    Parameters
    ----------
    size_bytes
        Most bytes of the waiting messages' bodies.
    span
        Largest distance between their first and last offsets; no limit if None. The limit bounds
        how many messages after a slow one are consumed, and again after a crash.
    """

    messages: int = 1000
    size_bytes: int = 100 << 20
    span: int | None = 2000


class ProcessQueue:
    """Messages of one queue on their way to the listener; any thread may use it.

    The offset to commit is that of the first message not consumed yet, so a crash repeats
    messages and never loses one.

    Parameters
    ----------
    now_ms
        The time, milliseconds since the epoch.

    Attributes
    ----------
    locked : bool
        Whether the broker gave this client the queue's lock.
    last_lock_ms, last_pull_ms, last_consume_ms : int
        Times of the last lock renewal, the last pull, and the last message taken or consumed.
    """

    def __init__(self, queue: MessageQueue, limits: CacheLimits, now_ms: Callable[[], int]) -> None:
        self.queue = queue
        self.dropped = False
        self.locked = False
        self.unlock_attempts = 0
        self.last_lock_ms = self.last_pull_ms = self.last_consume_ms = now_ms()
        self._limits = limits
        self._now_ms = now_ms
        self._guard = threading.Lock()
        self._waiting: dict[int, Message] = {}
        self._offsets: deque[int] = deque()  # ascending; consumed ones stay until they are first
        self._taken: list[Message] = []
        self._largest = NO_OFFSET
        self._size_bytes = 0
        self._has_consumer = False
        self._on_room: Callable[[], object] | None = None

    @property
    def count(self) -> int:
        """Number of messages that are not consumed yet."""
        return len(self._waiting) + len(self._taken)

    @property
    def size_bytes(self) -> int:
        """Bytes of the bodies of these messages."""
        return self._size_bytes

    @property
    def span(self) -> int:
        """Distance between the first and last offsets of waiting messages."""
        with self._guard:
            return self._span()

    @property
    def is_lock_expired(self) -> bool:
        """Whether the lock was not renewed lately, so another member may have the queue."""
        return self._now_ms() - self.last_lock_ms > LOCK_TRUSTED_MS

    def set_locked(self, locked: bool) -> None:
        """Record whether the broker granted the lock."""
        self.locked = locked
        if locked:
            self.last_lock_ms = self._now_ms()

    def put(self, messages: Sequence[Message]) -> bool:
        """Add pulled messages in offset order; return whether the queue needs a consumer."""
        offsets = [message.queue_offset for message in messages]
        with self._guard:
            if offsets and offsets[0] > self._largest and _ascend(offsets):
                self._waiting.update(zip(offsets, messages))
                self._offsets.extend(offsets)
                self._largest = offsets[-1]
                self._size_bytes += sum(map(_body_bytes, messages))
            else:
                for message in messages:
                    self._add(message)
            needs_consumer = bool(self._waiting) and not self._has_consumer
            self._has_consumer |= needs_consumer
        return needs_consumer

    def remove(self, messages: Sequence[Message]) -> int:
        """Remove consumed messages, in any order; return the offset to commit or `NO_OFFSET`."""
        with self._guard:
            waiting = self._waiting
            if not waiting:
                return NO_OFFSET
            self.last_consume_ms = self._now_ms()
            for message in messages:
                if waiting.pop(message.queue_offset, None) is not None:
                    self._size_bytes -= _body_bytes(message)
            if not waiting:
                self._size_bytes = 0  # a listener may have changed a body
            offset = self._first_offset()
            wake = None if self._on_room is None else self._take_wake()
        if wake is not None:
            wake()
        return offset

    def contains(self, message: Message) -> bool:
        """Return whether a message still waits: not consumed, nor taken in order."""
        return message.queue_offset in self._waiting

    def take(self, count: int) -> list[Message]:
        """Take the first messages for an orderly listener.

        After an empty list the caller stops; the next `put` requests a consumer again.
        """
        with self._guard:
            self.last_consume_ms = self._now_ms()
            offsets = [self._offsets.popleft() for _ in range(min(count, len(self._offsets)))]
            self._taken = [self._waiting.pop(offset) for offset in offsets]
            if not offsets:
                self._has_consumer = False
            return list(self._taken)

    def commit(self) -> int:
        """Finish the taken messages; return the offset to commit or `NO_OFFSET`."""
        with self._guard:
            taken, self._taken = self._taken, []
            self._size_bytes -= sum(map(_body_bytes, taken))
            if not self._waiting:
                self._size_bytes = 0  # a listener may have changed a body
            wake = None if self._on_room is None else self._take_wake()
        if wake is not None:
            wake()
        return taken[-1].queue_offset + 1 if taken else NO_OFFSET

    def give_back(self) -> None:
        """Put the taken messages back at the front."""
        with self._guard:
            for message in reversed(self._taken):
                self._waiting[message.queue_offset] = message
                self._offsets.appendleft(message.queue_offset)
            self._taken = []

    def clear(self) -> None:
        """Remove all messages."""
        with self._guard:
            self._waiting.clear()
            self._offsets.clear()
            self._taken = []
            self._size_bytes = 0
            self._largest = NO_OFFSET

    def fullness(self) -> str | None:
        """Return a description of the exceeded limit; None if pulling may go on."""
        with self._guard:
            return self._fullness()

    def when_room(self, wake: Callable[[], object]) -> bool:
        """Arrange one call of a function, in any thread, once no limit is exceeded.

        Return False if none is exceeded now.
        """
        with self._guard:
            if self._fullness() is None:
                return False
            self._on_room = wake
            return True

    def describe(self) -> dict[str, int | bool]:
        """Return RocketMQ's ``ProcessQueueInfo`` as JSON values, without the offset."""
        with self._guard:
            offsets, taken = sorted(self._waiting), [each.queue_offset for each in self._taken]
            return {
                "cachedMsgMinOffset": offsets[0] if offsets else 0,
                "cachedMsgMaxOffset": offsets[-1] if offsets else 0,
                "cachedMsgCount": len(offsets),
                "cachedMsgSizeInMiB": self._size_bytes >> 20,
                "transactionMsgMinOffset": taken[0] if taken else 0,
                "transactionMsgMaxOffset": taken[-1] if taken else 0,
                "transactionMsgCount": len(taken),
                "locked": self.locked,
                "tryUnlockTimes": self.unlock_attempts,
                "lastLockTimestamp": self.last_lock_ms,
                "droped": self.dropped,
                "lastPullTimestamp": self.last_pull_ms,
                "lastConsumeTimestamp": self.last_consume_ms,
            }

    def _add(self, message: Message) -> None:
        offset = message.queue_offset
        known = self._waiting.get(offset)
        self._waiting[offset] = message
        self._size_bytes += _body_bytes(message)
        if known is not None:
            self._size_bytes -= _body_bytes(known)
            return
        if offset > self._largest:
            self._offsets.append(offset)
            self._largest = offset
        else:  # the broker's log was truncated and has grown again
            self._offsets = deque(sorted({*self._waiting}))

    def _first_offset(self) -> int:
        offsets, waiting = self._offsets, self._waiting
        while offsets and offsets[0] not in waiting:
            offsets.popleft()
        return offsets[0] if offsets else self._largest + 1

    def _span(self) -> int:
        if not self._waiting:
            return 0
        while self._offsets[-1] not in self._waiting:
            self._offsets.pop()
        return self._offsets[-1] - self._first_offset()

    def _fullness(self) -> str | None:
        limits = self._limits
        if self.count > limits.messages:
            return f"{self.count} messages wait, more than {limits.messages}"
        if self._size_bytes > limits.size_bytes:
            return f"{self._size_bytes} bytes wait, more than {limits.size_bytes}"
        if limits.span is not None and self._span() > limits.span:
            return f"offsets over a span of {self._span()} wait, more than {limits.span}"
        return None

    def _take_wake(self) -> Callable[[], object] | None:
        if self._fullness() is not None:
            return None
        wake, self._on_room = self._on_room, None
        return wake


def _body_bytes(message: Message) -> int:
    try:
        return len(message.body)
    except TypeError:  # a listener may have replaced a body with any object
        return 0


def _ascend(offsets: list[int]) -> bool:
    return all(map(lt, offsets, offsets[1:]))
