"""The batch writer that Spark talks to: a thin adapter over `rmqsource.sink`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqsource.sink.committing import commit_parts, discard
from rmqsource.sink.task import stage_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.sink.write_plan import SinkPlan
    from store_core.arrow_types import RecordBatch
    from store_core.staged_commit.staged_part import StagedPart


@dataclass
class PartMessage(WriterCommitMessage):
    """What a task tells the driver."""

    part: StagedPart
    query_id: str | None = None


class StoreWriter(DataSourceArrowWriter):
    """Appends a DataFrame to a store, all of it or nothing."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[RecordBatch]) -> PartMessage:
        """Stage the rows of a partition."""
        return PartMessage(stage_part(iterator, self._plan, _partition_id()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what all tasks staged."""
        options = self._plan.options
        commit_parts(
            self._plan,
            [message.part for message in part_messages(messages)],
            application=options.txn_app_id,
            version=options.txn_version,
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what was staged; what is committed stays."""
        discard([self._plan.job_directory])


def part_messages(messages: list[WriterCommitMessage | None]) -> list[PartMessage]:
    """Return the messages of the tasks that did not fail."""
    return [message for message in messages if isinstance(message, PartMessage)]


def _partition_id() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
