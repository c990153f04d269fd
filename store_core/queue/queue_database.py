# SPDX-License-Identifier: Apache-2.0
"""Read queues that a store has in a RocksDB database (``storeType=defaultRocksDB``).

A broker writes units and the ends of their queues in one batch, and flushes both together
(``setAtomicFlush``), so the database's content is of one moment. Until then they are only in the
broker's memory: while a store is being written, its database lacks the newest units.

Source: RocketMQ ``RocksDBConsumeQueueStore``, ``RocksDBConsumeQueue`` (release 5.3.3).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Union

import numpy as np

from store_core.codec.java_string import decode_utf8
from store_core.database.read_only_database import ReadOnlyDatabase
from store_core.database.rocksdb_layout import (
    DEFAULT_FAMILY,
    DISPATCHED_TOPIC,
    OFFSET_FAMILY,
    OFFSET_KEY_BYTES,
    QUEUE_DATABASE_UNIT,
    QUEUE_END,
    end_key,
    queue_of_end_key,
    queue_offset_of,
    unit_key,
    unit_prefix,
)
from store_core.errors import StoreFormatError
from store_core.queue.consume_queue import NATIVE_CQ_UNIT, ConsumeQueue

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from store_core.files.store_directory import StoreDirectory
    from store_core.queue.consume_queue import Units

    Int64s = npt.NDArray[np.int64]

_FIELDS = ("commit_log_offset", "message_size", "tags_code")
_PAIRS_AT_ONCE = 1 << 18  # 40 MB of Python's objects


class QueueDatabase:
    """All queues of a store, as they were when the database was opened.

    Raises
    ------
    StoreFormatError
        The database cannot be opened, or is not one of queues.
    StoreReadError
        A file cannot be read.
    """

    def __init__(self, directory: StoreDirectory, path: str) -> None:
        self.path = path
        self._last_records: dict[tuple[str, int], int] | None = None
        self._database = ReadOnlyDatabase(directory, path)
        if not self._database.has_family(OFFSET_FAMILY):
            self._database.close()
            text = (
                "the RocksDB database contains no queues: it has no column family "
                f"{OFFSET_FAMILY!r}"
            )
            raise StoreFormatError(text, path)

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and queue id of all queues that have, or had, a unit."""
        return sorted(self._ends())

    def dispatched_offset(self) -> int:
        """Return a log offset below which every record has its unit here; 0 if unknown.

        Units are written in log order, in batches of records, so all units before the last record
        of any queue are there. The offset that the broker notes may be lower.
        """
        value = self._database.get(OFFSET_FAMILY, end_key(DISPATCHED_TOPIC.encode(), 0))
        is_offset = value is not None and len(value) == OFFSET_KEY_BYTES
        noted = int.from_bytes(value or b"", "big", signed=True) if is_offset else 0
        return max([0, noted, *self._ends().values()])

    def _ends(self) -> dict[tuple[str, int], int]:
        """Return the start of each queue's last record, as the database gives it."""
        if self._last_records is None:
            self._last_records = {}
            for key, value in self._database.items(OFFSET_FAMILY):
                queue = queue_of_end_key(key)
                if queue is not None and len(value) == QUEUE_END.size and queue[1] >= 0:
                    start = int(QUEUE_END.unpack(value).commit_log_offset)
                    self._last_records[decode_utf8(queue[0]), queue[1]] = start
        return self._last_records

    def queue(self, topic: str, queue_id: int) -> DatabaseQueue:
        """Return one queue; it may have no units."""
        return DatabaseQueue(self._database, topic, queue_id)

    def close(self) -> None:
        """Close the database; its queues cannot be read any more."""
        self._database.close()


class DatabaseQueue:
    """The units of one queue of a database; has the reading methods of `ConsumeQueue`."""

    units_per_file = 0

    def __init__(self, database: ReadOnlyDatabase, topic: str, queue_id: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        self._database = database
        self._topic = topic.encode()
        self._prefix = unit_prefix(self._topic, queue_id)
        self._bounds: tuple[int, int] | None = None

    def held_open(self) -> AbstractContextManager[DatabaseQueue]:
        """Yield the queue itself, as the database is already open."""
        return nullcontext(self)

    def read_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)`` as a native array, clipped to the queue's range.

        Row 0 is queue offset ``max(start, first_unit_offset())``. Units missing between others are
        zeros.

        Raises
        ------
        StoreFormatError
            A table of the database is damaged, or a value is not a unit.
        """
        first, end = self._held()
        start, stop = max(start_queue_offset, first), min(stop_queue_offset, end)
        units = np.zeros(max(stop - start, 0), NATIVE_CQ_UNIT)
        at = start
        while at < stop:
            most = min(stop - at, _PAIRS_AT_ONCE)
            numbers, found = self._found(at, most)
            for field in _FIELDS:
                units[field][numbers - start] = found[field]
            at += most
        return units

    def place_of(self, queue_offset: int) -> tuple[int, int]:
        """Return log offset and size of one unit in range; zeros if it is missing."""
        (unit,) = self.read_units(queue_offset, queue_offset + 1)
        return int(unit["commit_log_offset"]), int(unit["message_size"])

    def exact_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)``, which the caller knows to exist, without clipping.

        Raises
        ------
        StoreFormatError
            As `read_units`, or a unit is missing.
        """
        units = self.read_units(start_queue_offset, stop_queue_offset)
        missing = np.flatnonzero(units["message_size"] == 0)
        if len(units) < stop_queue_offset - start_queue_offset or len(missing):
            at = start_queue_offset + (int(missing[0]) if len(missing) else len(units))
            text = f"the unit of queue offset {at} of {self.topic}/{self.queue_id} is missing"
            raise StoreFormatError(text, self._database.path)
        return units

    def end_of_units(self) -> int:
        """Return the queue offset after the last unit, limited by the queue's recorded end.

        After the log was cut, units of records that are gone may follow that end.
        """
        return self._held()[1]

    def stored_end(self) -> int:
        """Return `end_of_units`: there is no space without units."""
        return self._held()[1]

    def first_unit_offset(self) -> int:
        """Return the queue offset of the first unit that is not deleted yet."""
        return self._held()[0]

    def correct_min_offset(self, min_phy_offset: int, max_queue_offset: int) -> int:
        """Return the first queue offset whose record is at or after ``min_phy_offset``.

        ``max_queue_offset`` if none is left.
        """
        low, high = min(self.first_unit_offset(), max_queue_offset), max_queue_offset
        while low < high:
            middle = low if low == self._held()[0] else (low + high) // 2
            if self._starts_before(middle, min_phy_offset):
                low = middle + 1
            else:
                high = middle
        return low

    def file_stop(self, queue_offset: int) -> int | None:
        """Return the end of the queue, as if it were one file."""
        first, end = self._held()
        return end if first <= queue_offset < end else None

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the end of the queue."""
        return max(self._held()[1], queue_offset + 1)

    def file_boundaries(self) -> tuple[int, ...]:
        """Return the first queue offset, as if it were one file."""
        first, end = self._held()
        return (first,) if first < end else ()

    def _held(self) -> tuple[int, int]:
        if self._bounds is None:
            self._bounds = self._find_bounds()
        return self._bounds

    def _find_bounds(self) -> tuple[int, int]:
        first = self._database.first_key(DEFAULT_FAMILY, self._prefix)
        last = self._database.last_key(DEFAULT_FAMILY, self._prefix)
        value = self._database.get(OFFSET_FAMILY, end_key(self._topic, self.queue_id))
        end = 0
        if value is not None and len(value) == QUEUE_END.size:
            end = int(QUEUE_END.unpack(value).queue_offset) + 1
        if first is None or last is None:
            return end, end
        begin = queue_offset_of(first)
        return begin, max(min(queue_offset_of(last) + 1, end or queue_offset_of(last) + 1), begin)

    def _found(self, start: int, most: int) -> tuple[Int64s, Units]:
        """Return the units with queue offsets in ``[start, start + most)``, and their offsets."""
        pairs = self._database.pairs_from(DEFAULT_FAMILY, unit_key(self._prefix, start), most)
        keys = [key for key, _ in pairs]
        while keys and not keys[-1].startswith(self._prefix):  # of other queues, after a gap
            keys.pop()
        values = [value for _, value in pairs[: len(keys)]]
        size, width = len(self._prefix) + OFFSET_KEY_BYTES, QUEUE_DATABASE_UNIT.size
        joined, data = b"".join(keys), b"".join(values)
        if len(joined) != size * len(keys) or len(data) != width * len(keys):
            text = (
                f"units of {self.topic}/{self.queue_id} from {start} on have an unexpected length"
            )
            raise StoreFormatError(text, self._database.path)
        raw = np.frombuffer(joined, np.uint8).reshape(-1, size)[:, len(self._prefix) :]
        numbers = np.ascontiguousarray(raw).view(">i8").ravel().astype(np.int64)
        inside = numbers < start + most
        return numbers[inside], QUEUE_DATABASE_UNIT.table(data)[inside]

    def _starts_before(self, queue_offset: int, commit_log_offset: int) -> bool:
        value = self._database.get(DEFAULT_FAMILY, unit_key(self._prefix, queue_offset))
        if value is None or len(value) != QUEUE_DATABASE_UNIT.size:
            return True  # deleted, as are those before it
        return bool(QUEUE_DATABASE_UNIT.unpack(value).commit_log_offset < commit_log_offset)


StoredUnits = Union[ConsumeQueue, DatabaseQueue]
"""The units of one topic and queue id, one per message, in files or in a database."""
