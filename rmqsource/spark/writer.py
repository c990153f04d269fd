# SPDX-License-Identifier: Apache-2.0
"""The writers that Spark calls; they pass rows and the tasks' parts to the format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqsource.spark.formats import QueryBatch
from rmqsource.spark_compat import STREAM_WRITER, STREAM_WRITER_GETS_BATCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from rmqsource.spark.formats import PlannedWrite
    from store_core.arrow_types import RecordBatch

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class PartMessage(WriterCommitMessage):
    """The message of a task to the driver."""

    part: Any
    query: str | None = None
    """Id of the streaming query; None outside streaming."""


class SparkWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: PlannedWrite) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[RecordBatch]) -> PartMessage:
        """Write the rows of a partition."""
        partition = _task(self._plan).partitionId()
        return PartMessage(self._plan.write(iterator, partition, None))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Complete the write with the parts of all tasks."""
        self._plan.commit([message.part for message in _of_tasks(messages)], None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote; committed messages stay."""
        self._plan.abort([message.part for message in _of_tasks(messages)])


class SparkStreamWriter(STREAM_WRITER):  # type: ignore[misc]  # differs between releases
    """Writes each micro-batch."""

    def __init__(self, plan: PlannedWrite, schema: StructType) -> None:
        self._plan, self._schema = plan, schema

    def write(self, iterator: Iterator[Any]) -> PartMessage:
        """Write the rows of a partition."""
        batches = iterator
        if not STREAM_WRITER_GETS_BATCHES:
            from rmqsource.spark.row_batches import batches_of_rows  # noqa: PLC0415 (Spark 4.0 only)

            batches = batches_of_rows(iterator, self._schema)
        task = _task(self._plan)
        query, number = (task.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
        batch = QueryBatch(query, None if number is None else int(number))
        return PartMessage(self._plan.write(batches, task.partitionId(), batch), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Complete the batch with the parts of all tasks."""
        found = _of_tasks(messages)
        query = next((message.query for message in found if message.query), None)
        self._plan.commit([message.part for message in found], QueryBatch(query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what tasks wrote; committed messages stay."""
        del batchId
        self._plan.abort([message.part for message in _of_tasks(messages)])


def _of_tasks(messages: list[WriterCommitMessage | None]) -> list[PartMessage]:
    """Return the messages of the tasks that did not fail."""
    return [message for message in messages if isinstance(message, PartMessage)]


def _task(plan: PlannedWrite) -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise plan.error("a task without a Spark context")
    return context
