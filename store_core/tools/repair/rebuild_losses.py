# SPDX-License-Identifier: Apache-2.0
"""Messages that consumers would lose through rebuilt queues, by comparison with the old ones."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.files.store_directory import StoreDirectory
from store_core.queue.batch_consume_queue import read_batch_units
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE, list_consume_queues

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.queue.queue_database import StoredUnits
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.repair.rebuild_consume_queue import RebuildResult

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]
    QueueKey = tuple[str, int]
    Units = npt.NDArray[np.void]

_BLOCK_UNITS = 1 << 16
_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)


class QueueLoss(NamedTuple):
    """Counts of messages that consumers of a rebuilt queue lose, or find moved.

    Attributes
    ----------
    earlier
        Messages from before the queue began at 0 again: the topic was deleted and recreated, or the
        queue was lost.
    """

    lost: int = 0
    earlier: int = 0
    moved: int = 0


def rebuild_losses(
    view: StoreSnapshot, new_root: Path, result: RebuildResult
) -> dict[QueueKey, QueueLoss]:
    """Compare new queues with the old ones; return those that lose or move messages."""
    comparison = _Comparison(view, StoreDirectory(str(new_root)))
    keys = {*view.queue_paths, *view.batch_queue_paths, *result.moved_from, *result.earlier}
    found = {}
    for key in sorted(keys):
        lost, moved = comparison.lost_and_moved(key, result.moved_from.get(key))
        found[key] = QueueLoss(lost, max(result.earlier.get(key, 0) - lost, 0), moved)
    return {key: loss for key, loss in found.items() if loss != QueueLoss()}


class _Comparison:
    """Compares the old queues of a store with the new ones."""

    def __init__(self, view: StoreSnapshot, directory: StoreDirectory) -> None:
        self._view, self._directory = view, directory
        simple = list_consume_queues(directory).queues.items()
        batch = list_consume_queues(directory, BATCH_CONSUME_QUEUE).queues.items()
        self._new = {key: ConsumeQueue.open(directory, *key, path, None) for key, path in simple}
        self._new_batch = {
            key: BATCH_CONSUME_QUEUE.segments(directory, path, None) for key, path in batch
        }

    def lost_and_moved(self, key: QueueKey, moved_from: int | None) -> tuple[int, int]:
        """Return how many messages a queue loses, and how many are moved."""
        new = self._new.get(key)
        moved = 0 if new is None or moved_from is None else new.end_of_units() - moved_from
        with suppress(*_DAMAGED):
            if key in self._view.queue_paths:
                old = self._view.open_queue(*key, self._view.queue_paths[key])
                if new is not None and moved_from is not None:
                    moved = _moved(old, new, moved_from)
                return self._lost(key, old), moved
            units = self._view.batch_units(*key)
            if units is not None:
                return self._lost_of_batches(key, units), moved
        return 0, moved

    def _lost(self, key: QueueKey, old: StoredUnits) -> int:
        begin, end, new = old.first_unit_offset(), old.end_of_units(), self._new.get(key)
        lost = 0
        for at in range(begin, end, _BLOCK_UNITS):
            units = old.read_units(at, min(at + _BLOCK_UNITS, end))
            rows = np.flatnonzero(_differ(units, new, at))
            lost += self._count_lost(key, units[rows], at + rows)
        return lost

    def _lost_of_batches(self, key: QueueKey, units: Units) -> int:
        if key in self._new_batch:
            units = units[~np.isin(units["commit_log_offset"], self._new_batch_places(key))]
        return self._count_lost(key, units, units["base_queue_offset"].astype(np.int64))

    def _count_lost(self, key: QueueKey, units: Units, numbers: Int64s) -> int:
        """Return how many units have a record that is nowhere in the new queue.

        If a record names another queue and has its unit there, at its queue offset, it belongs to
        that queue: the unit in this one was garbage.
        """
        start, size = units["commit_log_offset"], units["message_size"]
        good = (size > 0) & (start >= max(self._view.min_phy_offset, 0))
        rows = np.flatnonzero(good & (start + size <= self._view.end_offset))
        rows = rows[np.argsort(start[rows], kind="stable")]
        new, lost = self._new.get(key), 0
        if new is not None and len(rows):
            rows = rows[~_has(new, start[rows])]
        for row, own in self._named(start[rows], size[rows], numbers[rows]):
            number, at = int(numbers[rows[row]]), int(start[rows[row]])
            lost += own == key or not self._is_placed(own, number, at)
        return lost

    def _named(
        self, start: Int64s, size: Int64s, numbers: Int64s
    ) -> Iterator[tuple[int, QueueKey]]:
        """Yield (row, queue) of records with the given place (ascending), size and queue offset."""
        log, end, at = self._view.log, self._view.end_offset, 0
        while at < len(start):
            segment, first = log.segments.find(int(start[at])), at
            at += 1
            if segment is None:
                continue
            limit = segment.from_offset + log.segments.file_size
            at = max(int(np.searchsorted(start, limit)), at)
            part = slice(first, at)
            frames = log.frames_at(segment, start[part].astype(np.int64), end)
            same = frames.ok & (frames.column("total_size") == size[part])
            same &= frames.column("queue_offset") == numbers[part]
            for row in np.flatnonzero(same).tolist():
                begin = int(frames.topic_start[row])
                topic = frames.data[begin : begin + int(frames.topic_length[row])].tobytes()
                yield first + row, (os.fsdecode(topic), int(frames.column("queue_id")[row]))

    def _is_placed(self, key: QueueKey, number: int, start: int) -> bool:
        """Return whether a queue that existed before now has a record at its queue offset."""
        if key in self._view.queue_paths and key in self._new:
            units = self._new[key].read_units(number, number + 1)
            return len(units) == 1 and int(units["commit_log_offset"][0]) == start
        if key in self._view.batch_queue_paths and key in self._new_batch:
            return bool((self._new_batch_places(key) == start).any())
        return False

    def _new_batch_places(self, key: QueueKey) -> Int64s:
        units = read_batch_units(self._directory, self._new_batch[key])
        return units["commit_log_offset"].astype(np.int64)


def _moved(old: StoredUnits, new: StoredUnits, start: int) -> int:
    """Return how many units from ``start`` on are not at the offset that consumers know."""
    begin, end, stop = old.first_unit_offset(), old.end_of_units(), new.end_of_units()
    moved = max(min(begin, stop) - start, 0) + max(stop - max(end, start), 0)
    for at in range(max(start, begin), min(end, stop), _BLOCK_UNITS):
        upto = min(at + _BLOCK_UNITS, end, stop)
        moved += int(np.count_nonzero(_differ(old.read_units(at, upto), new, at)))
    return moved


def _differ(units: Units, new: StoredUnits | None, at: int) -> Bools:
    """Return which units, of queue offsets from ``at`` on, a new queue does not have there."""
    differs = np.ones(len(units), bool)
    if new is None:
        return differs
    begin, stop = max(at, new.first_unit_offset()), min(at + len(units), new.end_of_units())
    if begin < stop:
        other, part = new.read_units(begin, stop), units[begin - at : stop - at]
        same = part["commit_log_offset"] == other["commit_log_offset"]
        same &= part["message_size"] == other["message_size"]
        differs[begin - at : stop - at] = ~same
    return differs


def _has(queue: StoredUnits, starts: Int64s) -> Bools:
    """Return which records, given by their starts (ascending), a queue in log order has."""
    end = queue.end_of_units()
    first = queue.correct_min_offset(int(starts[0]), end)
    stop = queue.correct_min_offset(int(starts[-1]) + 1, end)
    return np.isin(starts, queue.read_units(first, max(stop, first))["commit_log_offset"])
