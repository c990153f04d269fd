"""One write to a cluster, without Spark: rows of a partition to brokers, at least once."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rmqsource.live.cluster import Cluster
from rmqsource.live.live_sender import LiveSender
from rmqsource.live.publish_queues import LiveQueueChooser
from rmqsource.live.repeats import repeat_values
from rmqsource.live.send_batches import (
    requests_of,
    too_long,
    with_repeat_property,
    without_transaction,
)
from rmqsource.sink.bad_rows import Check
from rmqsource.sink.local_host import message_ids, now_ms
from rmqsource.sink.rows import RowConverter
from rmqsource.sink.write_plan import SinkPlan
from store_core.arrow import pa
from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout.message import MAX_PROPERTIES_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqsource.live.live_sink_options import LiveSinkOptions
    from rmqsource.sink.columns import SinkColumns
    from rmqsource.sink.rows import RecordRows
    from store_core.arrow_types import RecordBatch

logger = logging.getLogger(__name__)

_SLICE_BYTES = 8 << 20
_NO_HOST = bytes(8)
_ANY_RECORD_BYTES = 1 << 30


@dataclass(frozen=True)
class LiveWritePlan:
    """One write. Plain values only, so that it can be pickled.

    Attributes
    ----------
    options
        What the user gave, checked.
    rows
        How rows become messages.
    job
        Names this write in ``__SPARK_BATCH__``; a stream has its query's id instead.
    """

    options: LiveSinkOptions
    rows: SinkPlan
    job: str


class Sent(NamedTuple):
    """What a task has sent; ``dropped``: rows left out, by the column at fault."""

    messages: int
    dropped: tuple[tuple[str, int], ...] = ()


def plan_live_write(options: LiveSinkOptions, columns: SinkColumns) -> LiveWritePlan:
    """Return the plan of one write; no server is asked."""
    levels = MessageStoreConfig(store_path_root_dir="").delay_levels_ms
    rows = SinkPlan(
        options.sink,
        columns,
        "",
        store_host=_NO_HOST,
        segment_bytes=_ANY_RECORD_BYTES,
        delay_levels_ms=tuple(levels),
        by_broker=True,
    )
    return LiveWritePlan(options, rows, uuid.uuid4().hex)


def send_part(
    batches: Iterable[RecordBatch], plan: LiveWritePlan, partition_id: int, prefix: str
) -> Sent:
    """Send the rows of a partition; all are stored when it returns.

    Parameters
    ----------
    batches
        ``pa.RecordBatch`` as Spark hands them over.
    plan
        The write.
    partition_id
        Of the task.
    prefix
        Of the rows' ``__SPARK_BATCH__``.

    Raises
    ------
    SinkRowError
        A row cannot be a message, and ``badRows`` is ``fail``.
    ClusterError
        A broker did not answer within ``retryTimeout``, or refuses.
    """
    with Cluster(plan.options.connection) as cluster:
        task = _Task(plan, LiveSender(cluster, plan.options.group), partition_id, prefix)
        for batch in _slices(batches):
            task.send(batch)
        return task.finish()


class _Task:
    """Converts and sends the batches of one partition."""

    def __init__(
        self, plan: LiveWritePlan, sender: LiveSender, partition_id: int, prefix: str
    ) -> None:
        self._sender, self._prefix = sender, prefix
        self._most_bytes = plan.options.send_batch_bytes
        chooser = LiveQueueChooser(sender.queues_of, partition_id)
        self._converter = RowConverter(plan.rows, partition_id, message_ids(), now_ms, chooser)
        self._first_row = 0
        self._messages = 0

    def send(self, batch: RecordBatch) -> None:
        rows = self._converter.convert(batch)
        if rows is not None:
            rows = self._sendable(rows)
        if rows is not None:
            self._messages += rows.batch.num_rows
            self._sender.send(list(requests_of(rows, self._most_bytes)))

    def finish(self) -> Sent:
        self._sender.finish()
        return Sent(self._messages, tuple(sorted(self._converter.bad_rows.dropped.items())))

    def _sendable(self, rows: RecordRows) -> RecordRows | None:
        """Return the rows with all their properties, without those that no queue can take."""
        batch = rows.batch
        values = repeat_values(self._prefix, self._first_row, batch.num_rows)
        self._first_row += batch.num_rows
        properties = without_transaction(batch.column("properties_raw"))
        properties = with_repeat_property(properties, values)
        at = batch.schema.get_field_index("properties_raw")
        rows = rows._replace(
            batch=batch.set_column(at, pa.field("properties_raw", pa.binary()), properties)
        )
        good = self._converter.bad_rows.good_rows(self._checks(rows), batch)
        if good is None:
            return rows
        return rows.filter(good) if good.any() else None

    def _checks(self, rows: RecordRows) -> Iterator[Check]:
        counts = [len(self._sender.queues_of(topic)) for topic in rows.topics]
        most = pa.array(counts).take(pa.array(rows.topic_code)).to_numpy()
        yield Check(
            "queue_id",
            rows.queue_id >= most,
            lambda row: (
                f"names no queue of topic {rows.topics[rows.topic_code[row]]!r} that may be written"
            ),
        )
        yield Check(
            "properties",
            too_long(rows.batch.column("properties_raw")),
            lambda _: f"with __SPARK_BATCH__ have more than {MAX_PROPERTIES_BYTES} bytes",
        )


def _slices(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield batches of bounded size: one is encoded while the one before is sent."""
    for batch in batches:
        parts = max(-(-batch.nbytes // _SLICE_BYTES), 1)
        step = max(-(-batch.num_rows // parts), 1)
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)
