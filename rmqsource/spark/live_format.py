# SPDX-License-Identifier: Apache-2.0
"""The format ``rocketmq``: topics of a running cluster.

Imports are deferred until planning or a task needs them: Spark starts a Python process for each.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rmqsource.live.live_options import parse_live_options, parse_live_sink_options
from rmqsource.spark.data_source import SparkSource
from rmqsource.spark.formats import BatchRead, PlannedWrite, StreamRead
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.live.errors import ClusterError
    from rmqsource.live.live_follower import LiveFollower
    from rmqsource.live.live_offset import LiveOffset
    from rmqsource.live.live_options import LiveOptions, LiveSinkOptions
    from rmqsource.live.live_queues import LiveSplit
    from rmqsource.live.live_read import AnySplit
    from rmqsource.live.live_write import LiveWritePlan, Sent
    from rmqsource.options.source_options import SourceOptions
    from rmqsource.sink.columns import SinkColumns
    from rmqsource.spark.formats import QueryBatch
    from store_core.arrow_types import Columns, RecordBatch

logger = logging.getLogger(__name__)
_MESSAGES = "messages"


class LiveRead(BatchRead):
    """Reads one table of a cluster; only messages are split, up to the queues' present ends."""

    def __init__(self, options: LiveOptions) -> None:
        self._options = options

    def splits(self) -> list[AnySplit]:
        from rmqsource.live.live_read import plan_live_read

        return plan_live_read(self._options) if self._options.table == _MESSAGES else []

    def columns(self, split: AnySplit | None, names: tuple[str, ...]) -> Iterable[Columns]:
        if self._options.table != _MESSAGES:
            from rmqsource.live.live_tables import read_live_table

            return read_live_table(self._options)
        from rmqsource.live.live_read import read_live_split

        return [] if split is None else read_live_split(split, self._options, names)


class LiveStream(StreamRead):
    """Follows topics of a cluster."""

    def __init__(self, options: LiveOptions) -> None:
        self._options, self.reading = options, options.reading

    @cached_property
    def follower(self) -> LiveFollower:
        from rmqsource.live.live_follower import LiveFollower, Start

        # In releases of Spark that pass no start, every start of a query looks like the first.
        start = Start.ALL_IF_BOUNDED if STREAM_READER_GETS_LIMITS else Start.ALL
        return LiveFollower(self._options, start=start)

    def offset_of(self, found: dict[str, Any]) -> LiveOffset:
        from rmqsource.live.live_offset import LiveOffset

        return LiveOffset.from_json(found)

    def splits(self, start: LiveOffset, end: LiveOffset) -> Sequence[LiveSplit | None]:
        from rmqsource.live.live_read import split_ranges

        return split_ranges(self._options, self.follower.ranges(start, end)) or [None]

    def columns(self, split: LiveSplit, names: tuple[str, ...]) -> Iterator[Columns]:
        from rmqsource.live.live_read import read_live_split

        reading = replace(self.reading, starting_timestamp_ms=None, starting_offsets=None)
        return read_live_split(split, replace(self._options, reading=reading), names)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offsets to the brokers if ``commitOffsets`` is set."""
        if self._options.commit_offsets:
            self.follower.commit(self.offset_of(end))

    def close(self) -> None:
        self.follower.close()


class LiveWrite(PlannedWrite):
    """Sends every row to topics at least once; a repeated micro-batch repeats `__SPARK_BATCH__`."""

    def __init__(self, plan: LiveWritePlan) -> None:
        self._plan = plan

    def write(self, rows: Iterator[RecordBatch], partition: int, batch: QueryBatch | None) -> Sent:
        from rmqsource.live.duplicates import job_prefix
        from rmqsource.live.live_write import send_part

        job, number = (self._plan.job, 0) if batch is None else batch
        if job is None or number is None:
            raise self.error(
                "Spark does not say which batch of which query this is, so a batch cannot be "
                "told from its repetition; nothing was written"
            )
        return send_part(rows, self._plan, partition, job_prefix(job, number, partition))

    def commit(self, parts: list[Sent], batch: QueryBatch | None) -> None:
        """Log how many messages were sent; brokers have already stored them."""
        del batch
        dropped = sum(count for part in parts for _, count in part.dropped)
        total = sum(part.messages for part in parts)
        if dropped:
            logger.warning("sent %d messages; %d rows were skipped", total, dropped)
        else:
            logger.info("sent %d messages", total)

    def abort(self, parts: list[Sent]) -> None:
        """Log how many messages were sent before the write failed; they cannot be withdrawn."""
        self.commit(parts, None)

    def error(self, reason: str) -> ClusterError:
        from rmqsource.live.errors import ClusterError

        return ClusterError(self._plan.options.connection.namesrv_addr, reason)


class RocketMQDataSource(SparkSource):
    """Topics of a running RocketMQ cluster."""

    parse, read, stream = staticmethod(parse_live_options), LiveRead, LiveStream
    target = "topics"

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq"

    def _reading(self, options: LiveOptions) -> SourceOptions:
        return options.reading

    def _with_mode(self, options: LiveOptions, mode: str) -> LiveOptions:
        return replace(options, reading=replace(options.reading, mode=mode))

    def _parse_write(self) -> LiveSinkOptions:
        return parse_live_sink_options(self.options)

    def _plan_write(self, options: LiveSinkOptions, columns: SinkColumns) -> LiveWrite:
        from rmqsource.live.live_write import plan_live_write

        return LiveWrite(plan_live_write(options, columns))
