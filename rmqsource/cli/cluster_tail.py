"""How ``tail`` follows topics: it looks for new messages, again and again, and shows them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.cli.cluster_tables import only_known
from rmqsource.cli.interrupt import stop_signals
from rmqsource.cli.messages import SHAPE, FoundMessages
from rmqsource.cli.output import row_writer
from rmqsource.cli.times import now_ms
from rmqsource.live.cluster import Cluster
from rmqsource.live.errors import ClusterError
from rmqsource.live.live_follower import LiveFollower, Start
from rmqsource.live.live_queues import LiveSplit
from rmqsource.live.live_read import read_ranges, read_request

if TYPE_CHECKING:
    from threading import Event

    from rmqsource.cli.output import Display
    from rmqsource.cli.report import Report
    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.live_queues import QueueRange

_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 1.0
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


class Tail(NamedTuple):
    """Where it ends, if not by a signal."""

    end_ms: int | None = None
    """Messages stored then or later are not shown."""
    limit: int | None = None


def follow(options: LiveOptions, tail: Tail, display: Display, report: Report) -> None:
    """Write messages as they come.

    Raises
    ------
    ClusterError
        The cluster cannot be reached at the start, or refuses.
    """
    writer = row_writer(display, SHAPE)
    known = only_known(options, report)
    if known is None:
        return
    found = FoundMessages(writer.columns, report)
    with stop_signals() as stop:
        with Cluster(known.connection) as cluster, closing(_follower(known)) as follower:
            batches = _Batches(known, cluster, follower, found, report)
            is_over = False
            while not stop.is_set():
                if not is_over and tail.end_ms is not None and now_ms() >= tail.end_ms:
                    follower.pin_target(named=False)  # what comes from now on may have no end
                    is_over = True
                rows = batches.next(stop)
                for row in _wanted(rows or [], tail, report.rows):
                    writer.write(row)
                    report.rows += 1
                writer.flush()
                if tail.limit is not None and report.rows >= tail.limit:
                    break
                if rows is None:
                    if is_over:
                        break
                    stop.wait(_LOOK_SECONDS)
        writer.close()
        if not stop.is_set():
            report.nothing("no message came")


class _Batches:
    """What is new, in parts that are no longer than the options allow."""

    def __init__(
        self,
        options: LiveOptions,
        cluster: Cluster,
        follower: LiveFollower,
        found: FoundMessages,
        report: Report,
    ) -> None:
        self._cluster, self._follower, self._found, self._report = cluster, follower, found, report
        self._reached = follower.initial
        # Where it begins is in the ranges.
        reading = replace(options.reading, starting_timestamp_ms=None, starting_offsets=None)
        self._options = replace(options, reading=reading)

    def next(self, stop: Event) -> list[dict[str, Any]] | None:
        """Return new messages, oldest first; None: there are none, or a signal came."""
        end = self._follower.next_offset(self._reached, limited=True)
        if end == self._reached:
            return None
        ranges = self._follower.ranges(self._reached, end)
        rows = self._read(ranges, stop)
        if rows is not None:
            self._reached = end
        return rows

    def _read(self, ranges: list[QueueRange], stop: Event) -> list[dict[str, Any]] | None:
        """Read all of a batch before any of it is shown: where that fails it is read again."""
        is_told = False
        while not stop.is_set():
            try:
                return self._rows(ranges)
            except ClusterError as err:
                if not is_told:
                    self._report.note(f"waiting: {err}")
                is_told = True
                stop.wait(_AGAIN_SECONDS)
        return None

    def _rows(self, ranges: list[QueueRange]) -> list[dict[str, Any]]:
        if not ranges:
            return []
        request = read_request(self._options, self._found.columns)
        split = LiveSplit(tuple(ranges))
        with closing(read_ranges(self._cluster, split, self._options, request)) as batches:
            rows = list(self._found.rows(batches))
        return sorted(rows, key=lambda row: row["store_timestamp"] or _NEVER)


def _follower(options: LiveOptions) -> LiveFollower:
    return LiveFollower(options, start=Start.ANY)  # what other brokers have is shown meanwhile


def _wanted(rows: list[dict[str, Any]], tail: Tail, shown: int) -> list[dict[str, Any]]:
    end = _moment(tail.end_ms)
    if end is not None:
        rows = [row for row in rows if row["store_timestamp"] < end]
    return rows if tail.limit is None else rows[: tail.limit - shown]


def _moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
