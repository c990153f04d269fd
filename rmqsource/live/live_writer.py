"""The writers to clusters that Spark talks to: thin adapters over `live_write`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqsource.live.duplicates import job_prefix
from rmqsource.live.errors import ClusterError
from rmqsource.live.live_write import Sent, send_part
from rmqsource.sink.row_batches import batches_of_rows
from rmqsource.spark_compat import STREAM_WRITER, STREAM_WRITER_GETS_BATCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from rmqsource.live.live_write import LiveWritePlan
    from store_core.arrow_types import RecordBatch

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class SentMessage(WriterCommitMessage):
    """What a task tells the driver."""

    sent: Sent


class LiveWriter(DataSourceArrowWriter):
    """Sends a DataFrame to topics, every row at least once."""

    def __init__(self, plan: LiveWritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[RecordBatch]) -> SentMessage:
        """Send the rows of a partition."""
        partition = _context(self._plan).partitionId()
        prefix = job_prefix(self._plan.job, 0, partition)
        return SentMessage(send_part(iterator, self._plan, partition, prefix))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what was sent; it is stored since."""
        _report(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what was sent before the job failed; nothing of it can be taken back."""
        _report(messages)


class LiveStreamWriter(STREAM_WRITER):  # type: ignore[misc]  # differs between releases
    """Sends each micro-batch, every row at least once; a repeated batch repeats its names."""

    def __init__(self, plan: LiveWritePlan, schema: StructType) -> None:
        self._plan, self._schema = plan, schema

    def write(self, iterator: Iterator[Any]) -> SentMessage:
        """Send the rows of a partition."""
        batches = iterator
        if not STREAM_WRITER_GETS_BATCHES:
            batches = batches_of_rows(iterator, self._schema)
        context = _context(self._plan)
        query, batch = (context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
        if query is None or batch is None:
            raise ClusterError(
                self._plan.options.connection.namesrv_addr,
                "Spark does not say which batch of which query this is, so that nothing tells a "
                "batch from its repetition; nothing was written",
            )
        partition = context.partitionId()
        prefix = job_prefix(query, int(batch), partition)
        return SentMessage(send_part(batches, self._plan, partition, prefix))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what was sent; it is stored since."""
        del batchId
        _report(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what was sent before the batch failed; nothing of it can be taken back."""
        del batchId
        _report(messages)


def _context(plan: LiveWritePlan) -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ClusterError(plan.options.connection.namesrv_addr, "a task without a Spark context")
    return context


def _report(messages: list[WriterCommitMessage | None]) -> None:
    sent = [message.sent for message in messages if isinstance(message, SentMessage)]
    dropped = sum(count for part in sent for _, count in part.dropped)
    total = sum(part.messages for part in sent)
    if dropped:
        logger.warning("sent %d messages; %d rows are left out", total, dropped)
    else:
        logger.info("sent %d messages", total)
