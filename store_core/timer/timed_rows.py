# SPDX-License-Identifier: Apache-2.0
"""Convert records of the timer's topic into the messages that are put when their time comes.

Source: RocketMQ ``TimerMessageStore.convert``, ``convertMessage``, ``doPut``,
``TimerDequeueGetMessageService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.arrow import binary_parts, pa, pc
from store_core.codec.java_hash_map import hash_map_strings
from store_core.codec.java_string import java_integer, string_hashes
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.property_columns import PropertyColumns
from store_core.codec.record_encoder import column_without_stored_crc
from store_core.delivered_rows import DeliveredRows, delivered_rows
from store_core.layout import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SEPARATOR,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_KEY,
    TIMER_LOG_UNIT,
    TIMER_MAGIC_DEFAULT,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
)
from store_core.results import PutMessageStatus
from store_core.topics import TIMER_TOPIC, numbers_of

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from store_core.arrow_types import Array, RecordBatch, Scalar
    from store_core.codec.record_frames import RecordFrames
    from store_core.message_store import MessageStore
    from store_core.timer.timer_log import Units

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

NEVER_ENQUEUED_MS = 2**63 - 1
"""``TIMER_ENQUEUE_MS`` of messages that were due before they were enqueued."""
_KEY_SEPARATOR = "+"
_ROLL_BITS = 32
_NAME_VALUE, _SEPARATOR = bytes([NAME_VALUE_SEPARATOR]), bytes([PROPERTY_SEPARATOR])
_NO_TIME = -1
logger = logging.getLogger(__name__)
_NEVER_TAKEN = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class DueRecords(NamedTuple):
    """Records whose time has come, one row each."""

    frames: RecordFrames
    enqueue_ms: Int64s
    is_roll: Bools


def timed_rows(due: DueRecords, deleted: Collection[str], now: int) -> DeliveredRows:
    """Return the messages to put for records whose time has come.

    As in RocketMQ, rows are left out if they have no record, real topic or real queue, if they were
    deleted, and if they delete others, unless they roll.

    Parameters
    ----------
    now
        ``TIMER_DEQUEUE_MS``, ms.
    """
    batch, rows = delivered_rows(due.frames)
    properties = PropertyColumns(batch.column("properties_raw"))
    is_roll = due.is_roll[rows]
    is_kept = is_roll | properties.values_of(PROPERTY_TIMER_DEL_UNIQKEY).is_null().to_numpy(
        zero_copy_only=False
    )
    if deleted:
        is_kept &= ~_are_in(_delete_keys(properties), deleted)
    if not is_kept.all():
        batch, rows, is_roll = batch.filter(pa.array(is_kept)), rows[is_kept], is_roll[is_kept]
    return DeliveredRows(_timed_batch(batch, is_roll, due.enqueue_ms[rows], now), rows)


def deleted_keys(frames: RecordFrames) -> set[str]:
    """Return the keys that deleting messages delete: real topic, +, unique key."""
    batch, _ = delivered_rows(frames)
    properties = PropertyColumns(batch.column("properties_raw"))
    return set(properties.values_of(PROPERTY_TIMER_DEL_UNIQKEY).drop_null().to_pylist())


def _delete_keys(properties: PropertyColumns) -> Array:
    """Return the key by which each message can be deleted; null without a unique key."""
    return pc.binary_join_element_wise(
        properties.values_of(PROPERTY_REAL_TOPIC),
        properties.values_of(PROPERTY_UNIQ_KEY),
        _KEY_SEPARATOR,
    )


def _are_in(texts: Array, wanted: Collection[str]) -> Bools:
    found: Bools = pc.is_in(texts, pa.array(sorted(wanted), pa.string())).to_numpy(
        zero_copy_only=False
    )
    return found


def _timed_batch(batch: RecordBatch, is_roll: Bools, enqueue_ms: Int64s, now: int) -> RecordBatch:
    raw = column_without_stored_crc(batch.column("properties_raw"))
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["properties_raw"] = _properties(raw, is_roll, enqueue_ms, now)
    if is_roll.any():
        rolls = pa.array(is_roll)
        columns["topic"] = pc.if_else(rolls, TIMER_TOPIC, columns["topic"])
        columns["queue_id"] = pc.if_else(rolls, 0, columns["queue_id"])
    return pa.record_batch(columns)


def _properties(raw: Array, is_roll: Bools, enqueue_ms: Int64s, now: int) -> Array:
    """Return property strings with the timer's properties; new values come last, and so win."""
    offsets, data = binary_parts(raw)
    is_closed = data[offsets[1:] - 1] == PROPERTY_SEPARATOR  # none is empty: it has a real topic
    joined = pc.binary_join_element_wise(
        raw,
        pc.if_else(pa.array(is_closed), _empty(), pa.scalar(_SEPARATOR, pa.binary())),
        _name(PROPERTY_TIMER_ENQUEUE_MS),
        pa.array(enqueue_ms).cast(pa.string()).cast(pa.binary()),
        pa.scalar(_SEPARATOR, pa.binary()),
        _roll_entries(raw, is_roll),
        _name(PROPERTY_TIMER_DEQUEUE_MS),
        pa.scalar(str(now).encode() + _SEPARATOR, pa.binary()),
        _empty(),
    )
    return hash_map_strings(joined)


def _roll_entries(raw: Array, is_roll: Bools) -> Array:
    """Return property TIMER_ROLL_TIMES, one more than before, for rows that roll."""
    if not is_roll.any():
        return pa.repeat(_empty(), len(raw))
    times = PropertyColumns(raw).values_of(PROPERTY_TIMER_ROLL_TIMES).dictionary_encode()
    more = [(java_integer(text, _ROLL_BITS) or 0) + 1 for text in times.dictionary.to_pylist()]
    entries = [_entry(PROPERTY_TIMER_ROLL_TIMES, str(number)) for number in more]
    first = _entry(PROPERTY_TIMER_ROLL_TIMES, "1")
    found = pa.array(entries, pa.binary()).take(times.indices).fill_null(first)
    return pc.if_else(pa.array(is_roll), found, _empty())


def _name(name: str) -> Array:
    return pa.scalar(_entry(name, "")[:-1], pa.binary())


def _entry(name: str, value: str) -> bytes:
    return name.encode() + _NAME_VALUE + value.encode() + _SEPARATOR


def _empty() -> Scalar:
    return pa.scalar(b"", pa.binary())


# Source: RocketMQ ``TimerMessageStore.doEnqueue``, ``hashTopicForMetrics`` (release 5.3.3).
class RollRule:
    """Chooses an earlier slot for messages that wait longer than the roll window."""

    def __init__(self, steps: int, precision_ms: int) -> None:
        self.window_ms = steps * precision_ms
        self._near_ms = steps // 3 * precision_ms
        self._half_ms = steps // 2 * precision_ms

    def delays(self, wanted: Int64s) -> tuple[Int64s, Bools]:
        """Return how long messages with these delays (ms) wait in their slot, and which roll."""
        is_roll = wanted >= self.window_ms
        # A delay just above the window waits half of it, so that the last round is long enough.
        rolled = np.where(wanted - self.window_ms < self._near_ms, self._half_ms, self.window_ms)
        return np.where(is_roll, rolled, wanted), is_roll


def out_times(frames: RecordFrames) -> Int64s:
    """Return the step of each message (``TIMER_OUT_MS``); -1 without a record or a number.

    RocketMQ stops at a message without a number, unless ``timerSkipUnknownError`` is set.
    """
    times = np.full(len(frames), _NO_TIME, np.int64)
    rows = np.flatnonzero(frames.ok)
    if len(rows):
        texts = MessageColumns(frames.take(rows)).property_values(PROPERTY_TIMER_OUT_MS)
        times[rows] = numbers_of(texts, _NO_TIME)
    return times


def new_units(
    frames: RecordFrames, slot_ms: Int64s, write_ms: int | Int64s, roll: RollRule
) -> Units:
    """Return units that are not linked to others yet."""
    columns = MessageColumns(frames)
    delay, is_roll = roll.delays(slot_ms - write_ms)
    is_delete = columns.property_values(PROPERTY_TIMER_DEL_UNIQKEY).is_valid()
    units = np.zeros(len(frames), TIMER_LOG_UNIT.dtype)
    units["size"] = TIMER_LOG_UNIT.size
    units["magic"] = (
        TIMER_MAGIC_DEFAULT
        + TIMER_MAGIC_ROLL * is_roll
        + TIMER_MAGIC_DELETE * is_delete.to_numpy(zero_copy_only=False)
    )
    units["write_time"] = write_ms
    units["delay"] = delay
    units["commit_log_offset"] = frames.column("commit_log_offset")
    units["message_size"] = frames.column("total_size")
    units["topic_hash"] = string_hashes(columns.property_values(PROPERTY_REAL_TOPIC))
    return units


# Source: RocketMQ ``TimerMessageStore.doPut`` (release 5.3.3).
class DuePutter:
    """Puts batches; if the store refuses a row for now, only the rows before it."""

    def __init__(self, store: MessageStore) -> None:
        self.delivered = self.rolled = self.passed_over = 0
        self.refusal = ""
        self._store = store

    def put(self, due: DueRecords, deleted: Collection[str], now: int) -> int:
        """Put records whose time has come; return how many are done, counted from the first.

        All are, unless there is a `refusal`.
        """
        wanted = timed_rows(due, deleted, now)
        refusal, taken = self._put_rows(wanted)
        done = int(wanted.rows[len(taken)]) if refusal else len(due.frames)
        rolled = int(np.count_nonzero(due.is_roll[wanted.rows[: len(taken)][taken]]))
        put = int(np.count_nonzero(taken))
        self.delivered += put - rolled
        self.rolled += rolled
        self.passed_over += done - put
        self._note_refusal(refusal)
        return done

    def _put_rows(self, wanted: DeliveredRows) -> tuple[str, Bools]:
        """Put rows until one is refused that the store may take later.

        A row that the store never takes is skipped, as in RocketMQ.
        """
        left, taken = wanted.batch, []
        while left.num_rows:
            put, status, refusal = self._put_some(left)
            taken += [True] * put
            left = left.slice(put)
            if not left.num_rows:
                break
            if status not in _NEVER_TAKEN:
                return refusal, np.array(taken, bool)
            logger.warning("skipping a due timer message, which the store refuses: %s", refusal)
            taken.append(False)
            left = left.slice(1)
        return "", np.array(taken, bool)

    def _put_some(self, batch: RecordBatch) -> tuple[int, PutMessageStatus, str]:
        """Put all rows, or those before the first refused one; return how many, and why it was."""
        result = self._store.raw_append_batch(batch)
        status, refusal = result.status, f"{result.status.name}: {result.reason}"
        if result.row > 0:  # one refused row refuses the whole batch
            result = self._store.raw_append_batch(batch.slice(0, result.row))
        return result.rows, status, refusal

    def _note_refusal(self, refusal: str) -> None:
        if refusal and refusal != self.refusal:
            logger.warning("timer messages wait: the next one is refused: %s", refusal)
        self.refusal = refusal
