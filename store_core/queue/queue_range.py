# SPDX-License-Identifier: Apache-2.0
"""The proved range of a consume queue: the queue offsets whose records are before the log's end.

Cutting a log erases nothing in its queues: old units may follow the units of live records, and
after more appends they can even point below the end of the log, into the middle of new records
(phantom units). A unit counts if it points at a whole record of its topic, queue and size; phantoms
come only after all units that count, so a bisection finds the first one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.codec.java_string import is_name
from store_core.codec.message_codec import queue_of_record
from store_core.errors import StoreError
from store_core.layout import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.log.commit_log import CommitLog, ReadableLog
    from store_core.queue.queue_database import StoredUnits

    QueueKey = tuple[str, int]

QUEUES_AT_ONCE = 8
_MOST_AHEAD = 1 << 24  # units, of 20 bytes
"""Queues of at most this many units are read ahead whole and cached: 6 MB a file by default."""


class QueueRange(NamedTuple):
    """Queue offsets ``[min_offset, max_offset)``; both are equal if no unit is left.

    ``last_start`` and ``last_end`` are the last unit's record's; -1 and 0 if there is none.
    """

    min_offset: int
    max_offset: int
    last_start: int = -1
    last_end: int = 0


def queue_range(queue: StoredUnits, log: ReadableLog, end_offset: int) -> QueueRange:
    """Return the range of a queue whose units point before the end of the log.

    Reads the tail of the queue's last files and, usually, one record.
    """
    with queue.held_open() as held:
        return _range(held, log, end_offset)


def _range(queue: StoredUnits, log: ReadableLog, end_offset: int) -> QueueRange:
    max_offset = proved_end(queue, log, end_offset, queue.end_of_units())
    first = queue.first_unit_offset()
    if max_offset <= first:
        return QueueRange(max_offset, max_offset) if max_offset else QueueRange(0, 0)
    start, size = queue.place_of(max_offset - 1)
    min_offset = queue.correct_min_offset(max(log.min_offset, 0), max_offset)
    return QueueRange(min_offset, max_offset, start, start + size)


def proved_end(queue: StoredUnits, log: ReadableLog, end_offset: int, high: int) -> int:
    """Return the queue offset after the last unit below ``high`` that counts."""
    low, key = queue.first_unit_offset(), (queue.topic, queue.queue_id)
    place_of = queue.place_of
    return end_of_counting(
        low, high, place_of, lambda at: points_at_record(log, key, *place_of(at), end_offset)
    )


def end_of_counting(
    low: int, high: int, place_of: Callable[[int], tuple[int, int]], counts: Callable[[int], bool]
) -> int:
    """Return the place after the last unit of ``[low, high)`` that counts; ``low`` if none does.

    Units of damaged records do not count either, but units after them may: a search in growing
    steps looks for units that count and point further into the log than those before.
    """
    if high <= low or counts(high - 1):
        return high
    end = _bisected_end(low, high, counts)
    while True:
        before = place_of(end - 1)[0] if end > low else -1
        steps = (end + (1 << step) for step in range((high - end).bit_length()))
        later = [at for at in steps if at < high and place_of(at)[0] > before and counts(at)]
        if not later:
            return end
        end = _bisected_end(later[-1] + 1, high, counts)


def _bisected_end(low: int, high: int, counts: Callable[[int], bool]) -> int:
    while low < high:
        middle = (low + high) // 2
        if counts(middle):
            low = middle + 1
        else:
            high = middle
    return low


def points_at_record(
    log: ReadableLog, queue: tuple[str, int], start: int, size: int, end_offset: int
) -> bool:
    """Return whether a record of a queue (topic, queue id) is there, or was and has expired."""
    if start < 0 or size <= 0 or start + size > end_offset:
        return False
    if start < log.min_offset:
        return True
    segment = log.segments.find(start)
    if segment is not None and start + size > segment.from_offset + log.segments.file_size:
        return False  # no record continues in the next segment
    if segment is None or start + size > segment.from_offset + segment.size:
        return True  # a lost segment does not disprove the unit
    data = log.source(segment).view(start - segment.from_offset, size)
    found = queue_of_record(data, start)
    if found is None:
        return False
    topic, queue_id = queue
    return topic.startswith(LMQ_PREFIX) or (found[1] == queue_id and is_name(found[0], topic))


def prefetched_queues(
    keys: Iterable[QueueKey],
    open_queue: Callable[[str, int], StoredUnits | None],
    log: CommitLog,
    end_offset: int,
    *,
    units: bool = False,
    whole: bool = False,
) -> Iterator[QueueKey]:
    """Yield the keys of queues, after reading the queues of a remote store in parallel.

    Reading them again costs no request: bytes of a remote store are cached for a while.
    """
    wanted = list(keys)
    if log.directory.is_local:
        yield from wanted
        return
    from store_core.files.remote_requests import at_once  # noqa: PLC0415 (starts threads)

    def look(key: QueueKey) -> None:
        with suppress(StoreError):  # the actual read reports it
            queue = open_queue(*key)
            if queue is not None:
                _read(queue, log.twin(), end_offset, units=units, whole=whole)

    for at in range(0, len(wanted), QUEUES_AT_ONCE):
        some: Sequence[QueueKey] = wanted[at : at + QUEUES_AT_ONCE]
        at_once(look, some)
        yield from some


def _read(queue: StoredUnits, log: CommitLog, end_offset: int, *, units: bool, whole: bool) -> None:
    begin, end = min(queue.file_boundaries(), default=0), queue.stored_end()
    if (
        whole and end - begin <= _MOST_AHEAD
    ):  # instead of a chain of requests that searches for the end
        queue.read_units(begin, end)
    held = queue_range(queue, log, end_offset)
    if not (units or whole) or held.max_offset <= held.min_offset:
        return
    found = queue.read_units(held.min_offset, held.max_offset)
    for offset in (int(found["commit_log_offset"][row]) for row in (0, -1)):
        segment = log.segments.find(offset)
        if segment is not None:
            log.frames_at(segment, np.array([offset]), end_offset)
