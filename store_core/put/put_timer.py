"""Timer messages at the put: those that name the time of their delivery go to the timer's topic.

Source: RocketMQ ``HookUtils.handleScheduleMessage``, ``checkIfTimerMessage``,
``transformTimerMessage``, ``TimerMessageStore.isReject`` (release 5.3.3; 4.x has no such messages).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.gather import binary_parts, replace_rows
from store_core.message import Message
from store_core.put.put_checks import Refusal
from store_core.put.put_columns import number_of
from store_core.put.put_schedule import rows_with_hooks
from store_core.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.arrow_types import RecordBatch
    from store_core.put.put_context import PutContext

TIMER_MARK = b"TIMER_DEL"
"""What every property string holds that names a time of delivery."""


"""Property -> ms of its unit, and whether it counts from now; the first that is there is taken."""


def timed_batch(batch: RecordBatch, context: PutContext) -> tuple[RecordBatch, dict[int, Refusal]]:
    """Return a `uniform_batch` with its timer messages as they are stored until they are due.

    Only rows that name a time are looked at, one by one. Rows that are refused for their topic or
    queue stay as they are, to be refused.
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
