# SPDX-License-Identifier: Apache-2.0
"""Table ``delayed``: one row per message of the delay levels' queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.columns import nullable, table_part
from rmqsource.metadata.damage import skip_damaged, until_damage
from rmqsource.metadata.queue_units import unit_chunks
from rmqsource.metadata.selection import SelectedQueue
from rmqsource.scan.read_columns import columns_of_snapshot
from store_core.arrow import pa
from store_core.config.config_files import load_delay_offsets
from store_core.layout import MAX_EXT_ADDRESS
from store_core.topics import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    numbers_of,
    property_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Table
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Int64s = npt.NDArray[np.int64]

_COLUMNS = (
    *("queue_id", "queue_offset", "commit_log_offset", "unique_key", "properties"),
    *("reconsume_times", "store_timestamp"),
)
_UNKNOWN_LEVEL_MS = 1000
"""Delay that ``ScheduleMessageService.computeDeliverTimestamp`` adds for an unknown level."""


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the messages of ``SCHEDULE_TOPIC_XXXX``: waiting ones, and delivered ones in the log.

    ``deliver_timestamp`` is the time in the queue's unit; if the unit has none (extension
    addresses, lost queues), it is the store time plus the level's delay in ``messageDelayLevel``.
    Messages from the level's offset in ``config/delayOffset.json`` on are pending. Without an entry
    all messages of the level are, as a broker would deliver them (again). Messages of the timer
    wheel are in table ``timers``.
    """
    pending_from: dict[int, int] = {}
    with skip_damaged("config/delayOffset.json", options):
        pending_from = load_delay_offsets(snapshot.directory) or {}
    due = _DueTimes(snapshot, options)
    selection = {"topics": (SCHEDULE_TOPIC,)}
    for batch in columns_of_snapshot(snapshot, options, _COLUMNS, **selection):
        queue_id = batch["queue_id"].to_numpy().astype(np.int64)
        queue_offset = batch["queue_offset"].to_numpy()
        stored = _milliseconds(batch["store_timestamp"])
        limits = np.array([pending_from.get(int(q) + 1, 0) for q in queue_id], np.int64)
        real_queue = numbers_of(property_of(batch["properties"], REAL_QUEUE_ID))
        state = np.where(queue_offset >= limits, "pending", "delivered")
        yield table_part(
            "delayed",
            snapshot.directory.uri,
            len(queue_id),
            level=(queue_id + 1).astype(np.int32),
            queue_offset=queue_offset,
            commit_log_offset=batch["commit_log_offset"],
            unique_key=batch["unique_key"],
            real_topic=property_of(batch["properties"], REAL_TOPIC),
            real_queue_id=nullable(real_queue.astype(np.int32), real_queue < 0),
            reconsume_times=batch["reconsume_times"],
            store_timestamp=batch["store_timestamp"],
            deliver_timestamp=due.of_messages(queue_id, queue_offset, stored),
            state=pa.array(state.tolist(), pa.string()),
        )


def due_time(snapshot: StoreSnapshot, queue_id: int, queue_offset: int, stored_ms: int) -> int:
    """Return when one message of ``SCHEDULE_TOPIC_XXXX`` is due, in ms; reads one unit."""
    queue = snapshot.consume_queue(SCHEDULE_TOPIC, queue_id)
    held = snapshot.queue_range(SCHEDULE_TOPIC, queue_id)
    if queue is not None and held.min_offset <= queue_offset < held.max_offset:
        unit = queue.read_units(queue_offset, queue_offset + 1)
        if len(unit) and unit["tags_code"][0] > MAX_EXT_ADDRESS:
            return int(unit["tags_code"][0])
    return stored_ms + level_delay_ms(snapshot, queue_id)


def level_delay_ms(snapshot: StoreSnapshot, queue_id: int) -> int:
    """Return the delay of the level whose queue this is, in ms."""
    levels = snapshot.config.delay_levels_ms
    return levels[queue_id] if 0 <= queue_id < len(levels) else _UNKNOWN_LEVEL_MS


class _DueTimes:
    """Times at which messages are due, from their units; each queue is read once."""

    def __init__(self, snapshot: StoreSnapshot, options: SourceOptions) -> None:
        self._snapshot = snapshot
        self._options = options
        self._units: dict[int, tuple[Int64s, Int64s]] = {}

    def of_messages(self, queue_id: Int64s, queue_offset: Int64s, stored_ms: Int64s) -> Int64s:
        due = stored_ms.copy()
        for queue in np.unique(queue_id).tolist():
            rows = np.flatnonzero(queue_id == queue)
            due[rows] += level_delay_ms(self._snapshot, queue)
            offsets, codes = self._queue(queue)
            at = np.searchsorted(offsets, queue_offset[rows])
            at = np.minimum(at, max(len(offsets) - 1, 0))
            if len(offsets) == 0:
                continue
            usable = (offsets[at] == queue_offset[rows]) & (codes[at] > MAX_EXT_ADDRESS)
            due[rows] = np.where(usable, codes[at], due[rows])
        return due

    def _queue(self, queue_id: int) -> tuple[Int64s, Int64s]:
        if queue_id not in self._units:
            key = SelectedQueue(SCHEDULE_TOPIC, queue_id, is_batch=False)
            chunks = list(until_damage(unit_chunks(self._snapshot, key), str(key), self._options))
            none = np.empty(0, np.int64)
            offsets = np.concatenate([none, *(chunk.queue_offset for chunk in chunks)])
            codes = np.concatenate([none, *(chunk.units["tags_code"] for chunk in chunks)])
            self._units[queue_id] = (offsets, codes.astype(np.int64))
        return self._units[queue_id]


def _milliseconds(timestamps: Array) -> Int64s:
    values: Int64s = timestamps.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return values // 1000
