# SPDX-License-Identifier: Apache-2.0
"""Events of a message's life, from its records: sent, half, committed, delayed, retried, and more.

A broker moves a message by storing it again under another topic; the copies share UNIQ_KEY, KEYS
and body. Source: ``HookUtils``, ``ScheduleMessageService``, ``TransactionalMessageBridge``,
``AbstractSendMessageProcessor`` (RocketMQ 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from store_core.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from store_core.topics import (
    CHECK_TIMES,
    DELAY_LEVEL,
    DISCARD_TOPIC,
    DLQ_PREFIX,
    HALF_TOPICS,
    ORIGIN_MESSAGE_ID,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_PREFIX,
    RETRY_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_OUT_MS,
    TIMER_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SENT, STORED, HALF, CHECKED = "sent", "stored", "half", "checked"
COMMITTED, ROLLED_BACK, GIVEN_UP = "committed", "rolled_back", "given_up"
DELAYED, DELIVERED, RETRIED, DEAD_LETTERED = "delayed", "delivered", "retried", "dead_lettered"
EVENTS = (
    *(SENT, STORED, HALF, CHECKED, COMMITTED, ROLLED_BACK, GIVEN_UP),
    *(DELAYED, DELIVERED, RETRIED, DEAD_LETTERED),
)
"""Every event, roughly in the order in which they happen."""

_UNDECIDED = frozenset({HALF, CHECKED})
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class TraceEvent:
    """One step of a message's life.

    Attributes
    ----------
    at_ms
        Store time, or the producer's born time for ``sent``; ms since the epoch.
    wait_ms
        Time since the previous event; below 0 if clocks differ. None for the first.
    """

    at_ms: int
    event: str
    topic: str
    queue_id: int | None = None
    queue_offset: int | None = None
    commit_log_offset: int | None = None
    message_id: str | None = None
    detail: str = ""
    passed_by: tuple[str, ...] = ()
    ahead_of: tuple[str, ...] = ()
    store: tuple[str, ...] = ()
    wait_ms: int | None = None


@dataclass(frozen=True)
class Life:
    """Everything the stores still contain of one message, in order of time."""

    unique_key: str | None
    keys: tuple[str, ...]
    tags: str | None
    topic: str
    """The topic to which its producer sent it."""
    events: tuple[TraceEvent, ...]

    @property
    def state(self) -> str:
        """The outcome: readable, delayed, undecided, rolled_back, given_up, dead_lettered."""
        kinds = {event.event for event in self.events}
        for kind in (ROLLED_BACK, GIVEN_UP, DEAD_LETTERED):
            if kind in kinds:
                return kind
        last = self.events[-1].event
        if last == DELAYED:
            return DELAYED
        return "undecided" if last in _UNDECIDED else "readable"

    def has_id(self, text: str) -> bool:
        """Return whether ``text`` is the message's UNIQ_KEY or the id of one of its records."""
        return text == self.unique_key or text.upper() in {e.message_id for e in self.events}

    @property
    def took_ms(self) -> int:
        """Time from the first to the last event."""
        return self.events[-1].at_ms - self.events[0].at_ms


def event_of(record: Mapping[str, Any], due_ms: int | None) -> tuple[str, str]:
    """Return the event that a record represents, and its detail."""
    properties = record["properties"]
    topic = record["topic"]
    target = f"{properties.get(REAL_TOPIC, '?')}/{properties.get(REAL_QUEUE_ID, '?')}"
    if topic in HALF_TOPICS:
        return _half(properties, target)
    if topic == DISCARD_TOPIC:
        checks = properties.get(CHECK_TIMES, "?")
        return GIVEN_UP, f"no answer after {checks} checks; would have gone to {target}"
    if topic in {SCHEDULE_TOPIC, TIMER_TOPIC}:
        return DELAYED, _delay(record, due_ms, target)
    if topic.startswith(DLQ_PREFIX):
        return DEAD_LETTERED, _dead(record, properties)
    if topic.startswith(RETRY_PREFIX):
        group = topic[len(RETRY_PREFIX) :]
        return RETRIED, f"try {record['reconsume_times'] + 1} for group {group}"
    if record["sys_flag"] & TRANSACTION_MASK == TRANSACTION_COMMIT_TYPE:
        place = record["prepared_transaction_offset"]
        return COMMITTED, f"half message at {place:,}"
    if properties.get(REAL_TOPIC) == topic and (
        DELAY_LEVEL in properties or TIMER_OUT_MS in properties
    ):
        return DELIVERED, "after its delay"
    return STORED, ""


def _half(properties: Mapping[str, str], target: str) -> tuple[str, str]:
    checks = properties.get(CHECK_TIMES)
    group = properties.get(PRODUCER_GROUP, "?")
    if checks is None:
        return HALF, f"for {target}, producer group {group}"
    return CHECKED, f"check {checks}: asked producer group {group}"


def _delay(record: Mapping[str, Any], due_ms: int | None, target: str) -> str:
    if record["topic"] == TIMER_TOPIC:
        return f"timer, to {target}{_due(due_ms)}"
    return f"level {record['queue_id'] + 1}, to {target}{_due(due_ms)}"


def _due(due_ms: int | None) -> str:
    return "" if due_ms is None else f", due {moment(due_ms)} UTC"


def _dead(record: Mapping[str, Any], properties: Mapping[str, str]) -> str:
    group = record["topic"][len(DLQ_PREFIX) :]
    tries = record["reconsume_times"]
    first = properties.get(RETRY_TOPIC, "?")
    origin = properties.get(ORIGIN_MESSAGE_ID)
    text = f"group {group} failed {tries} times on a message of {first}"
    return f"{text}, first stored as {origin}" if origin else text


def moment(milliseconds: int) -> str:
    """Return an instant as text, UTC, with ms; the number itself if no date can represent it."""
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return at.replace(tzinfo=None).isoformat(" ", "milliseconds")


def with_waits(events: Sequence[TraceEvent]) -> tuple[TraceEvent, ...]:
    """Return the events, each with the time since the previous one."""
    waits = [None, *(b.at_ms - a.at_ms for a, b in zip(events, events[1:]))]
    return tuple(replace(event, wait_ms=wait) for event, wait in zip(events, waits))
