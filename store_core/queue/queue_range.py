"""What a consume queue holds of a log that ends somewhere: its proved range of queue offsets.

Cutting a log erases nothing in its queues: old units may lie after the units of live records, and
after more appends they can even point below the end of the log, into the middle of new records
(phantom units). A unit counts when a whole record of its topic, queue and size lies where it
points; phantoms only lie after all units that count, so their place is bisected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

from store_core.codec.java_string import is_name
from store_core.codec.message_codec import queue_of_record
from store_core.layout.message import LMQ_PREFIX

if TYPE_CHECKING:
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.stored_units import StoredUnits


class QueueRange(NamedTuple):
    """Queue offsets ``[min_offset, max_offset)``; both are equal when nothing is left.

    ``last_start`` and ``last_end`` are those of the record of the last unit; -1 and 0 if none.
    """

    min_offset: int
    max_offset: int
    last_start: int = -1
    last_end: int = 0


def queue_range(queue: StoredUnits, log: ReadableLog, end_offset: int) -> QueueRange:
    """Return the range of a queue whose units point below the end of the log.

    Reads the tail of the queue's last files and as a rule one record.
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

    Units of damaged records do not count either: where one is found, some that follow it may, and
    are looked for in growing steps. Those point further into the log than all before.
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
    """Return whether a record of a queue (topic, queue id) lies there, or lay there and is gone."""
    if start < 0 or size <= 0 or start + size > end_offset:
        return False
    if start < log.min_offset:
        return True
    segment = log.segments.find(start)
    if segment is not None and start + size > segment.from_offset + log.segments.file_size:
        return False  # no record goes on in the next segment
    if segment is None or start + size > segment.from_offset + segment.size:
        return True  # a lost segment says nothing against the unit
    data = log.source(segment).view(start - segment.from_offset, size)
    found = queue_of_record(data, start)
    if found is None:
        return False
    topic, queue_id = queue
    return topic.startswith(LMQ_PREFIX) or (found[1] == queue_id and is_name(found[0], topic))
