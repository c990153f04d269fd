# SPDX-License-Identifier: Apache-2.0
"""Bounds by queue offset: ``earliest``, ``latest``, or offsets by topic and queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqsource.errors import SourceOptionError
from rmqsource.options.option_values import INT32_MAX, INT64_MAX, load_json, parse_int

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST = "earliest"
LATEST = "latest"
SPECIFIC = "specific"

# Spark's Kafka source uses these numbers for the two words in its JSON.
_LATEST_NUMBER = -1
_EARLIEST_NUMBER = -2
_EXPECTED = 'earliest, latest, or JSON such as {"topic": {"0": 12, "1": 0}}'


@dataclass(frozen=True)
class OffsetBound:
    """One end of a range of queue offsets; the ending one is exclusive.

    Queues that ``offsets`` does not name are unbounded at this end.
    """

    kind: str
    """``earliest``, ``latest`` or ``specific``."""
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict, hash=False)
    """Offset by topic and queue id, not negative; empty unless ``specific``."""
    latest: frozenset[tuple[str, int]] = frozenset()
    """Queues whose end is where a stream starts."""

    def offset_of(self, topic: str, queue_id: int) -> int | None:
        """Return the bound of a queue; None if it is unbounded."""
        return self.offsets.get((topic, queue_id))


def parse_starting_offsets(option: str, text: str) -> OffsetBound:
    """Return where reading starts; ``latest`` (-1) is for streams (see `check_batch_start`)."""
    return _parse(option, text, EARLIEST, _EARLIEST_NUMBER)


def check_batch_start(option: str, starting: OffsetBound) -> None:
    """Raise if a batch would start at the end of all or some queues and so read nothing."""
    if starting.kind == LATEST:
        raise _refused(option, LATEST, EARLIEST)
    for topic, queue_id in sorted(starting.latest):
        raise _refused(option, f"{_LATEST_NUMBER} (topic {topic!r} queue {queue_id})", EARLIEST)


def parse_ending_offsets(option: str, text: str) -> OffsetBound:
    """Return where reading ends, exclusive; ``earliest`` (-2) is refused."""
    return _parse(option, text, LATEST, _LATEST_NUMBER)


def check_order(starting: OffsetBound, ending: OffsetBound) -> None:
    """Raise if a queue starts after its end; equal offsets are an empty range."""
    for (topic, queue_id), start in starting.offsets.items():
        end = ending.offset_of(topic, queue_id)
        if end is not None and start > end:
            raise SourceOptionError(
                "startingOffsets",
                f"topic {topic!r} queue {queue_id} starts at {start}, after {end} where "
                "endingOffsets (exclusive) ends it",
            )


def _parse(option: str, text: str, word: str, number: int) -> OffsetBound:
    stripped = text.strip()
    lowered = stripped.lower()
    if lowered == word or (lowered == LATEST and word == EARLIEST):
        return OffsetBound(lowered)
    if lowered == EARLIEST:
        raise _refused(option, lowered, word)
    if not stripped.startswith("{"):
        raise SourceOptionError(option, f"expected {_EXPECTED}; found {text!r}")
    topics = load_json(option, stripped, _EXPECTED)
    if not topics:
        raise SourceOptionError(option, f"names no topic; expected {_EXPECTED}")
    offsets: dict[tuple[str, int], int] = {}
    for topic, queues in topics.items():
        if not isinstance(queues, dict) or not queues or not topic:
            raise SourceOptionError(
                option,
                f'topic {topic!r} needs offsets by queue such as {{"0": 12}}; found {queues!r}',
            )
        for queue, value in queues.items():
            queue_id = parse_int(option, queue, 0, INT32_MAX)
            if (topic, queue_id) in offsets:
                raise SourceOptionError(option, f"topic {topic!r} queue {queue_id} appears twice")
            offsets[topic, queue_id] = _offset(option, topic, queue_id, value, word)
    at_end = frozenset(q for q, value in offsets.items() if value == _LATEST_NUMBER != number)
    bounded = {q: v for q, v in offsets.items() if v != number and q not in at_end}
    return OffsetBound(SPECIFIC, bounded, at_end)


def _offset(option: str, topic: str, queue_id: int, value: Any, word: str) -> int:
    where = f"topic {topic!r} queue {queue_id}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise SourceOptionError(option, f"{where}: expected an integer; found {value!r}")
    if not _EARLIEST_NUMBER <= value <= INT64_MAX:
        raise SourceOptionError(
            option,
            f"{where}: expected an offset from 0 to {INT64_MAX}, -2 (earliest) or -1 (latest); "
            f"found {value}",
        )
    if value == _EARLIEST_NUMBER and word == LATEST:
        raise _refused(option, f"{value} ({where})", word)
    return value


def _refused(option: str, found: str, word: str) -> SourceOptionError:
    end = "start" if word == EARLIEST else "end"
    return SourceOptionError(
        option,
        f"a batch cannot {end} at {found}, because it would read nothing; use {word} or offsets",
    )
