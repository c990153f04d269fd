# SPDX-License-Identifier: Apache-2.0
"""Counters of the messages that a broker stores and sends to consumers.

Source: RocketMQ ``BrokerMetricsManager`` (release 5.3.3), for the counters and their names.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from store_core.layout import (
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)
from store_core.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SIZE_LIMITS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""Bounds of the histogram of message sizes, bytes."""

_SHARDING_KEY = "__SHARDINGKEY"
_DELAYS = (
    "__STARTDELIVERTIME",
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
)


def message_type(properties: Mapping[str, str]) -> str:
    """Return the type of a message with these properties (``TopicMessageType``)."""
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return "transaction"
    if _SHARDING_KEY in properties:
        return "fifo"
    return "normal" if properties.keys().isdisjoint(_DELAYS) else "delay"


class Incoming(NamedTuple):
    """Key of a counter of stored messages."""

    topic: str
    message_type: str


class Outgoing(NamedTuple):
    """Key of a counter of messages of a group."""

    topic: str
    group: str


class Count:
    """Messages and their bytes."""

    __slots__ = ("messages", "size_bytes", "sizes")

    def __init__(self) -> None:
        self.messages = self.size_bytes = 0
        self.sizes = [0] * (len(SIZE_LIMITS) + 1)

    def add(self, messages: int, size_bytes: int) -> None:
        """Add the messages of one call."""
        self.messages += messages
        self.size_bytes += size_bytes
        self.sizes[bisect_left(SIZE_LIMITS, size_bytes // max(messages, 1))] += 1

    def join(self, other: Count) -> None:
        """Add the messages of another count."""
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.sizes = [mine + its for mine, its in zip(self.sizes, other.sizes)]


class Totals(NamedTuple):
    """Messages stored and pulled, in total."""

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int


class _Counts:
    """Counters of one thread."""

    def __init__(self) -> None:
        self.incoming: defaultdict[Incoming, Count] = defaultdict(Count)
        self.outgoing: defaultdict[Outgoing, Count] = defaultdict(Count)
        self.dead: defaultdict[Outgoing, int] = defaultdict(int)
        self.sent_back: defaultdict[Outgoing, int] = defaultdict(int)
        self.commits = self.rollbacks = 0


class Traffic:
    """Counts without a lock: each thread has its own counters, which readers add up."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[_Counts] = []

    def put(self, topic: str, kind: str, messages: int, size_bytes: int) -> None:
        """Count the stored messages of one call; ``kind`` is their `message_type`."""
        self._counts().incoming[Incoming(topic, kind)].add(messages, size_bytes)

    def pulled(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """Count messages of one pull."""
        self._counts().outgoing[Outgoing(topic, group)].add(messages, size_bytes)

    def died(self, topic: str, group: str) -> None:
        """Count a message that a group has given up."""
        self._counts().dead[Outgoing(topic, group)] += 1

    def sent_back_by(self, topic: str, group: str) -> None:
        """Count a message that a group has sent back for a retry."""
        self._counts().sent_back[Outgoing(topic, group)] += 1

    def ended(self, *, is_commit: bool) -> None:
        """Count a transaction that has ended."""
        counts = self._counts()
        if is_commit:
            counts.commits += 1
        else:
            counts.rollbacks += 1

    @property
    def incoming(self) -> dict[Incoming, Count]:
        """Stored messages, by topic and type."""
        found: defaultdict[Incoming, Count] = defaultdict(Count)
        for counts in self._all:
            for key, count in list(counts.incoming.items()):
                found[key].join(count)
        return found

    @property
    def outgoing(self) -> dict[Outgoing, Count]:
        """Pulled messages, by topic and group."""
        found: defaultdict[Outgoing, Count] = defaultdict(Count)
        for counts in self._all:
            for key, count in list(counts.outgoing.items()):
                found[key].join(count)
        return found

    @property
    def dead(self) -> dict[Outgoing, int]:
        """Messages that were given up, by topic and group."""
        return _joined(counts.dead for counts in self._all)

    @property
    def sent_back(self) -> dict[Outgoing, int]:
        """Messages that were sent back, by topic and group."""
        return _joined(counts.sent_back for counts in self._all)

    @property
    def commits(self) -> int:
        """Number of committed transactions."""
        return sum(counts.commits for counts in self._all)

    @property
    def rollbacks(self) -> int:
        """Number of transactions that were rolled back."""
        return sum(counts.rollbacks for counts in self._all)

    def totals(self) -> Totals:
        """Return the totals of stored and pulled messages, including those of retry topics."""
        came, left = list(self.incoming.values()), list(self.outgoing.values())
        return Totals(
            sum(each.messages for each in came),
            sum(each.size_bytes for each in came),
            sum(each.messages for each in left),
            sum(each.size_bytes for each in left),
        )

    def _counts(self) -> _Counts:
        counts: _Counts | None = getattr(self._own, "counts", None)
        if counts is None:
            counts = self._own.counts = _Counts()
            self._all.append(counts)
        return counts


def _joined(parts: Iterable[Mapping[Outgoing, int]]) -> dict[Outgoing, int]:
    found: defaultdict[Outgoing, int] = defaultdict(int)
    for part in parts:
        for key, count in list(part.items()):
            found[key] += count
    return found


def is_retry_or_dlq(topic: str) -> bool:
    """Return whether a topic is for retries or dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
