# SPDX-License-Identifier: Apache-2.0
"""Delays at the put: a message with property DELAY above 0 goes to the schedule topic.

Source: RocketMQ ``HookUtils.handleScheduleMessage``, ``transformDelayLevelMessage`` (release
5.3.3; 4.9.7 does the same in ``CommitLog.asyncPutMessage``, with its own order of properties).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import any_row_holds, binary_parts, pa, pc, replace_rows
from store_core.codec.java_hash_map import hash_map_string, hash_map_strings
from store_core.codec.java_string import decode_utf8
from store_core.codec.message_codec import string_to_properties
from store_core.codec.property_columns import PropertyColumns
from store_core.layout import (
    NAME_VALUE_SEPARATOR,
    NOT_QUEUED_BIT,
    PROPERTY_DELAY,
    PROPERTY_REAL_QID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SEPARATOR,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    SCHEDULE_TOPIC,
)
from store_core.message import Message
from store_core.put.put_checks import Refusal, illegal
from store_core.put.put_columns import number_of
from store_core.put.put_properties import delay_level
from store_core.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from store_core.arrow_types import Array, RecordBatch
    from store_core.put.put_context import PutContext

    Int64s = npt.NDArray[np.int64]

_NAME_VALUE, _SEPARATOR = bytes([NAME_VALUE_SEPARATOR]), bytes([PROPERTY_SEPARATOR])
DELAY_MARK = PROPERTY_DELAY.encode() + _NAME_VALUE
"""Contained in every property string with a delay level."""
_TIMER = (PROPERTY_TIMER_DELIVER_MS, PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS)
_MAX_QUEUE_ID = 2**31 - 1
TIMER_MARK = b"TIMER_DEL"
"""Contained in every property string that names a delivery time."""


def scheduled_message(
    message: Message, properties_raw: bytes, max_level: int
) -> Message | Refusal | None:
    """Return the message in the form stored until it is due; None if it is not delayed."""
    if message.topic == SCHEDULE_TOPIC or message.sys_flag & NOT_QUEUED_BIT:
        return None
    properties = string_to_properties(properties_raw)
    level, fault = delay_level(properties.get(PROPERTY_DELAY))
    if fault is not None:
        return illegal(fault)
    if level <= 0:
        return None
    for name in _TIMER:
        properties.pop(name, None)
    if level > max_level:
        level = max_level
        properties[PROPERTY_DELAY] = str(level)
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QID] = str(message.queue_id)
    found = copy(message)
    found.topic, found.queue_id = SCHEDULE_TOPIC, level - 1
    found.properties_raw = hash_map_string(properties)
    return found


def scheduled_batch(
    batch: RecordBatch, context: PutContext
) -> tuple[RecordBatch, dict[int, Refusal]]:
    """Return a `uniform_batch` with its delayed rows in the form stored until they are due.

    Rows whose topic or queue will be refused later stay unchanged.
    """
    column = batch.column("properties_raw")
    if not any_row_holds(column, DELAY_MARK, b"L"):
        return batch, {}
    rows = np.flatnonzero(pc.match_substring(column, DELAY_MARK).to_numpy(zero_copy_only=False))
    rows = rows[rows_with_hooks(batch, context)[rows]]
    raw = column.take(pa.array(rows))
    levels, faults = _levels(raw)
    refused = {int(rows[at]): illegal(fault) for at, fault in faults.items()}
    delayed = np.flatnonzero(levels > 0)
    if not len(delayed):
        return batch, refused
    at, levels = rows[delayed], levels[delayed]
    taken = pa.array(at)
    queue_id = number_of(batch, "queue_id")
    properties = _properties(
        raw.take(pa.array(delayed)),
        batch.column("topic").take(taken),
        queue_id[at],
        levels,
        context.max_delay_level,
    )
    queue_id = queue_id.copy()
    queue_id[at] = np.minimum(levels, context.max_delay_level) - 1
    topic = pa.repeat(pa.scalar(SCHEDULE_TOPIC.encode(), pa.binary()), len(at))
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["topic"] = replace_rows(batch.column("topic"), at, topic)
    columns["queue_id"] = pa.array(queue_id)
    columns["properties_raw"] = replace_rows(column, at, properties)
    return pa.record_batch(columns), refused


def rows_with_hooks(batch: RecordBatch, context: PutContext) -> npt.NDArray[np.bool_]:
    """Return which rows are queued, have a valid topic and queue, and so may be delayed."""
    topics = batch.column("topic").dictionary_encode()
    stored = topics.dictionary.to_pylist()
    names = [decode_utf8(topic) for topic in stored]
    good = [
        name.encode() == topic and name != SCHEDULE_TOPIC and context.facts_of(name).refusal is None
        for name, topic in zip(names, stored)
    ]
    code = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    queue_id, sys_flag = number_of(batch, "queue_id"), number_of(batch, "sys_flag")
    found: npt.NDArray[np.bool_] = (
        np.array([*good, False])[code]
        & (queue_id >= 0)
        & (queue_id <= _MAX_QUEUE_ID)
        & (sys_flag & NOT_QUEUED_BIT == 0)
    )
    return found


def _levels(properties_raw: Array) -> tuple[Int64s, dict[int, str]]:
    """Return each row's level (0 without one), and what is wrong with invalid ones, by row."""
    encoded = PropertyColumns(properties_raw).values_of(PROPERTY_DELAY).dictionary_encode()
    found = [delay_level(text) for text in encoded.dictionary.to_pylist()]
    code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    levels = np.array([*(level for level, _ in found), 0], np.int64)[code]
    bad = np.array([*(fault is not None for _, fault in found), False])[code]
    return levels, {row: found[code[row]][1] or "" for row in np.flatnonzero(bad).tolist()}


def _properties(
    raw: Array, topic: Array, queue_id: npt.NDArray[np.int32], levels: Int64s, max_level: int
) -> Array:
    """Return the property strings of delayed rows; new values are appended last, so they win."""
    clamped = _SEPARATOR.join((_entry(PROPERTY_DELAY, str(max_level)), b""))
    offsets, data = binary_parts(raw)
    is_closed = data[offsets[1:] - 1] == PROPERTY_SEPARATOR  # no row is empty, as each has a level
    empty = pa.scalar(b"", pa.binary())
    joined = pc.binary_join_element_wise(
        raw,
        pc.if_else(pa.array(is_closed), empty, pa.scalar(_SEPARATOR, pa.binary())),
        pc.if_else(pa.array(levels > max_level), pa.scalar(clamped, pa.binary()), empty),
        pa.scalar(_entry(PROPERTY_REAL_TOPIC), pa.binary()),
        topic,
        pa.scalar(_SEPARATOR + _entry(PROPERTY_REAL_QID), pa.binary()),
        pa.array(queue_id).cast(pa.string()).cast(pa.binary()),
        pa.scalar(_SEPARATOR, pa.binary()),
        empty,
    )
    return hash_map_strings(joined, _TIMER)


def _entry(name: str, value: str = "") -> bytes:
    return name.encode() + _NAME_VALUE + value.encode()


# Source: RocketMQ ``HookUtils.handleScheduleMessage``, ``checkIfTimerMessage``,
# ``transformTimerMessage``, ``TimerMessageStore.isReject`` (release 5.3.3; 4.x has no such
# messages).
def timed_batch(batch: RecordBatch, context: PutContext) -> tuple[RecordBatch, dict[int, Refusal]]:
    """Return a `uniform_batch` with its timer messages in the form stored until they are due.

    Only rows that name a time are checked, one by one. Rows whose topic or queue will be refused
    later stay unchanged.
    """
    column, rules = batch.column("properties_raw"), context.timer_rules
    offsets, data = binary_parts(column)
    if rules is None or TIMER_MARK not in data[offsets[0] : offsets[-1]].tobytes():
        return batch, {}
    rows = np.flatnonzero(pc.match_substring(column, TIMER_MARK).to_numpy(zero_copy_only=False))
    rows = rows[rows_with_hooks(batch, context)[rows]]
    queue_id, sys_flag = number_of(batch, "queue_id"), number_of(batch, "sys_flag")
    topics, changed, refused = batch.column("topic"), {}, {}
    for row in rows.tolist():
        message = Message(
            topics[row].as_py().decode(),
            b"",
            queue_id=int(queue_id[row]),
            sys_flag=int(sys_flag[row]),
        )
        found = rules.timed_message(message, column[row].as_py())
        if isinstance(found, Refusal):
            refused[row] = found
        elif found is not None:
            changed[row] = found.properties_raw
    return _with_timer_rows(batch, changed), refused


def _with_timer_rows(batch: RecordBatch, properties: Mapping[int, bytes | None]) -> RecordBatch:
    if not properties:
        return batch
    at = np.array(list(properties), np.int64)
    queue_id = number_of(batch, "queue_id").copy()
    queue_id[at] = 0
    topic = pa.repeat(pa.scalar(TIMER_TOPIC.encode(), pa.binary()), len(at))
    values = pa.array(list(properties.values()), pa.binary())
    columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
    columns["topic"] = replace_rows(batch.column("topic"), at, topic)
    columns["queue_id"] = pa.array(queue_id)
    columns["properties_raw"] = replace_rows(batch.column("properties_raw"), at, values)
    return pa.record_batch(columns)
