"""The streaming writer that Spark talks to: a thin adapter over `rmqsource.sink`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from rmqsource.sink.committing import commit_parts, discard
from rmqsource.sink.errors import SinkCommitError
from rmqsource.sink.row_batches import batches_of_rows
from rmqsource.sink.task import stage_part
from rmqsource.spark_compat import STREAM_WRITER, STREAM_WRITER_GETS_BATCHES
from rmqsource.writer import PartMessage, part_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from rmqsource.sink.write_plan import SinkPlan

_QUERY_ID = "sql.streaming.queryId"
APPLICATION_PREFIX = "streaming query "


class StoreStreamWriter(STREAM_WRITER):  # type: ignore[misc]  # differs between releases
    """Appends each micro-batch to a store, all of it or nothing, and once.

    Spark makes one object for the tasks of a batch and another for its end: what the end must know
    comes with the messages of the tasks.
    """

    def __init__(self, plan: SinkPlan, schema: StructType) -> None:
        self._plan, self._schema = plan, schema

    def write(self, iterator: Iterator[Any]) -> PartMessage:
        """Stage the rows of a partition."""
        batches = iterator
        if not STREAM_WRITER_GETS_BATCHES:
            batches = batches_of_rows(iterator, self._schema)
        context = TaskContext.get()
        if context is None:
            raise SinkCommitError(self._plan.options.path, "a task without a Spark context")
        part = stage_part(batches, self._plan, context.partitionId())
        return PartMessage(part, context.getLocalProperty(_QUERY_ID))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Append what the tasks of a batch staged, unless it was appended before."""
        found = part_messages(messages)
        query_id = next((message.query_id for message in found if message.query_id), None)
        if query_id is None and found:
            raise SinkCommitError(
                self._plan.options.path,
                "Spark does not say which streaming query this is, so that nothing tells a batch "
                "from its repetition; nothing was written",
            )
        commit_parts(
            self._plan,
            [message.part for message in found],
            application=f"{APPLICATION_PREFIX}{query_id}" if query_id else None,
            version=batchId if query_id else None,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what was staged; what is committed stays."""
        discard([message.part.directory for message in part_messages(messages)])
