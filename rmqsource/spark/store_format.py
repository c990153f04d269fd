# SPDX-License-Identifier: Apache-2.0
"""The format ``rocketmq-store``: a broker's own files.

Imports are deferred until planning or a task needs them: Spark starts a Python process for each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqsource.options.source_options import parse_options
from rmqsource.scan.predicate import from_options, with_filters
from rmqsource.spark.data_source import SparkSource
from rmqsource.spark.formats import BatchRead, PlannedWrite, StreamRead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.predicate import ScanPredicate
    from rmqsource.scan.splits import Split
    from rmqsource.sink.columns import SinkColumns
    from rmqsource.sink.errors import SinkCommitError
    from rmqsource.sink.options import SinkOptions
    from rmqsource.sink.write_plan import SinkPlan
    from rmqsource.spark.formats import QueryBatch
    from rmqsource.stream.stream_follower import StreamFollower
    from rmqsource.stream.stream_offset import StreamOffset
    from rmqsource.stream.stream_plan import StreamSplit
    from store_core.arrow_types import Columns, RecordBatch
    from store_core.staged_commit.staged_part import StagedPart

_MESSAGE_TABLES = frozenset({"messages", "keys"})


class StoreRead(BatchRead):
    """Reads one table of one or more stores; only tables of messages are split."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = replace(options, working_directory=str(Path.cwd()))
        self._predicate = from_options(self._options)

    def splits(self) -> list[Split]:
        from rmqsource.scan.read_columns import plan_read

        if self._options.table not in _MESSAGE_TABLES:
            return []
        plans = plan_read(self._options, self._predicate)
        return [split for plan in plans for split in plan.splits]

    def columns(self, split: Split | None, names: tuple[str, ...]) -> Iterable[Columns]:
        if self._options.table not in _MESSAGE_TABLES:
            return self._whole_table()
        return [] if split is None else _messages(split, self._options, self._predicate, names)

    def push_filters(self, filters: list[Any]) -> Iterable[Any]:
        table = self._options.table
        self._predicate, residual = with_filters(self._predicate, filters, table)
        return residual

    def _whole_table(self) -> Iterator[Columns]:
        if self._options.table == "plan":
            from rmqsource.scan.read_columns import plan_columns, plan_read

            yield plan_columns(plan_read(self._options, self._predicate))
            return
        from rmqsource.metadata import read_metadata
        from rmqsource.scan.store_versions import open_snapshots

        for snapshot in open_snapshots(self._options):
            with snapshot:
                yield from read_metadata(self._options.table, snapshot, self._options)


class StoreStream(StreamRead):
    """Follows one or more stores."""

    def __init__(self, options: SourceOptions) -> None:
        self.reading = options
        # Only the first batch needs the start of the stream.
        without_start = replace(options, starting_timestamp_ms=None, starting_offsets=None)
        self._predicate = from_options(without_start)

    @cached_property
    def follower(self) -> StreamFollower:
        from rmqsource.stream.stream_follower import StreamFollower

        return StreamFollower(self.reading)

    def offset_of(self, found: dict[str, Any]) -> StreamOffset:
        from rmqsource.stream.stream_offset import StreamOffset

        return StreamOffset.from_json(found)

    def splits(self, start: StreamOffset, end: StreamOffset) -> list[StreamSplit]:
        from rmqsource.stream.stream_plan import plan_batch

        return plan_batch(self.reading, self._predicate, start, end)

    def columns(self, split: StreamSplit, names: tuple[str, ...]) -> Iterator[Columns]:
        return _messages(split.split, self.reading, split.predicate(self._predicate), names)


def _messages(
    split: Split, options: SourceOptions, predicate: ScanPredicate, names: tuple[str, ...]
) -> Iterator[Columns]:
    from rmqsource.scan.message_batches import ReadRequest
    from rmqsource.scan.message_reader import read_split

    return read_split(split, ReadRequest.from_options(options, predicate, names))


class StoreWrite(PlannedWrite):
    """Appends rows to a store, all of them or none, and each micro-batch once.

    Spark makes one object for the tasks of a micro-batch and another for its commit, so the parts
    carry all that the commit needs.
    """

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(
        self, rows: Iterator[RecordBatch], partition: int, batch: QueryBatch | None
    ) -> StagedPart:
        from rmqsource.sink.task import stage_part

        del batch
        return stage_part(rows, self._plan, partition)

    def commit(self, parts: list[StagedPart], batch: QueryBatch | None) -> None:
        from rmqsource.sink.committing import commit_parts

        options = self._plan.options
        application, version = options.txn_app_id, options.txn_version
        if batch is not None:
            if batch.query is None and parts:
                raise self.error(
                    "Spark does not say which streaming query this is, so a batch cannot be "
                    "told from its repetition; nothing was written"
                )
            application, version = None, None
            if batch.query is not None:
                application, version = f"streaming query {batch.query}", batch.number
        commit_parts(self._plan, parts, application=application, version=version)

    def abort(self, parts: list[StagedPart]) -> None:
        from rmqsource.sink.committing import discard

        discard([self._plan.job_directory, *(part.directory for part in parts)])

    def error(self, reason: str) -> SinkCommitError:
        from rmqsource.sink.errors import SinkCommitError

        return SinkCommitError(self._plan.options.path, reason)


class RocketMQStoreDataSource(SparkSource):
    """The files of a RocketMQ broker as tables, read and written without a broker."""

    parse, read, stream = staticmethod(parse_options), StoreRead, StoreStream
    target = "a store"

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq-store"

    def _check_paths(self, options: SourceOptions) -> None:
        from rmqsource.scan.store_versions import open_snapshots
        from store_core.errors import StoreNotFoundError

        try:
            for snapshot in open_snapshots(options):
                snapshot.close()
        except StoreNotFoundError:
            if options.fail_on_data_loss:  # if false, a stream goes on without a store that is gone
                raise

    def _parse_write(self) -> SinkOptions:
        from rmqsource.sink.options import parse_sink_options

        return parse_sink_options(self.options)

    def _plan_write(self, options: SinkOptions, columns: SinkColumns) -> StoreWrite:
        from rmqsource.sink.committing import refuse_open_store
        from rmqsource.sink.prepared_write import plan_write

        plan = plan_write(options, columns)
        refuse_open_store(options.path)
        return StoreWrite(plan)
