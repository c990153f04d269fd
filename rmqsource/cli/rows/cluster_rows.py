# SPDX-License-Identifier: Apache-2.0
"""Rows of a running cluster: messages pulled from its queues or found by id, topics, offsets."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime, timezone
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqnet.client.broker_admin_client import BrokerAdminClient
from rmqnet.client.request_calls import BrokerCalls
from rmqnet.errors import BrokerError, RemotingError, TopicNotFoundError
from rmqsource.cli.metadata import columns_of
from rmqsource.cli.output import Shape, row_writer
from rmqsource.cli.read import WrongUseError
from rmqsource.cli.report import progress_bars, stop_signals
from rmqsource.cli.row_source import SHAPE, FoundMessages, RowSource
from rmqsource.cli.times import now_ms
from rmqsource.live.cluster import Cluster
from rmqsource.live.cluster_survey import gather, topic_names
from rmqsource.live.errors import ClusterError
from rmqsource.live.live_follower import LiveFollower, Start
from rmqsource.live.live_queues import LiveSplit
from rmqsource.live.live_read import (
    KeySplit,
    plan_live_read,
    read_live_split,
    read_ranges,
    read_request,
)
from rmqsource.live.live_tables import read_live_table
from rmqsource.live.queue_pulls import BadPull, frames_of_bodies
from rmqsource.options.option_values import did_you_mean
from rmqsource.scan.message_batches import MessageBatches
from rmqsource.scan.predicate import from_options
from rmqsource.scan.splits import SegmentPositions
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa
from store_core.codec.message_id import format_host, parse_message_id
from store_core.config.config_files import TopicConfig
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
    from threading import Event

    from rmqnet.client.admin_results import QueueStats
    from rmqnet.client.topic_route import TopicRoute
    from rmqsource.cli.output import Display, RowWriter
    from rmqsource.cli.report import ProgressBars, Report
    from rmqsource.cli.row_source import MessageChoice
    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.live_queues import LiveQueue, QueueSlice
    from store_core.arrow_types import Columns, Table

    Row = dict[str, Any]
    Rows = Iterator[Row]

_MOST_MERGED = 64
"""Queues that are read side by side, each with prefetched messages."""
_LEAST_ROWS = 32
_NEVER = datetime.min.replace(tzinfo=timezone.utc)
_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 1.0
_TOPICS = Shape(
    (
        *("topic", "kind", "queues", "messages", "min_offset", "max_offset"),
        *("max_store_timestamp", "brokers"),
    ),
    drop=("min_offset", "max_offset", "brokers", "queues", "max_store_timestamp", "kind"),
)


class ClusterRows(RowSource):
    """Rows of the cluster that options name; reading reports topics that it does not have."""

    def __init__(self, options: LiveOptions, report: Report) -> None:
        self._options, self._report = options, report

    def check(self, wanted: MessageChoice) -> None:
        """Raise `WrongUseError` for a choice that clusters do not support; see `RowSource`."""
        if wanted.last is not None and not wanted.follow:
            raise WrongUseError(
                "--last: applies only to files; for a cluster use --since 5m or rocketmq-store tail"
            )

    def messages(
        self, wanted: MessageChoice, found: FoundMessages, limit: int, progress: ProgressBars
    ) -> Generator[Row, None, None]:
        """Yield messages, oldest first, or those with the ids; see `RowSource`."""
        known = only_known(self._options, self._report)
        if known is None:
            return
        if wanted.ids:
            yield from _rows_of_ids(wanted.ids, known, found, self._report)
            return
        with ExitStack() as stack:
            yield from _rows(known, found, limit, progress, stack)

    def follow(self, wanted: MessageChoice, writer: RowWriter) -> None:
        """Raise `WrongUseError`: the command tail follows clusters."""
        raise WrongUseError(
            "--follow: applies only to files; for a cluster use rocketmq-store tail --namesrv …"
        )

    def table(self, name: str, shape: Shape) -> tuple[Table, Shape]:
        """Return the table that the options name; see `RowSource`."""
        known = only_known(self._options, self._report)
        parts = [] if known is None else [pa.table(batch) for batch in read_live_table(known)]
        table = pa.table({column: pa.nulls(0) for column in columns_of(name)})
        if parts:
            table = pa.concat_tables(parts)
        several = len(set(table["store"].to_pylist())) > 1
        return table, shape._replace(shown=(*shape.shown, "store")) if several else shape

    def show_topics(self, display: Display, limit: int) -> None:
        """Write a row for each topic, over all brokers, the one with the most messages first."""
        writer = row_writer(display, _TOPICS)
        known = only_known(self._options, self._report)
        rows: list[Row] = []
        if known is not None:
            with progress_bars() as progress, Cluster(known.connection) as cluster:
                predicate = from_options(known.reading)
                names = cluster.call(topic_names(cluster, predicate, all_topics=True))
                asked = cluster.call(_ask(cluster, names, self._report, progress))
            rows = [_topic_row(found) for found in asked]
        rows.sort(key=lambda row: (-row["messages"], row["topic"]))
        for row in rows[: limit or None]:
            writer.write(row)
        writer.close()
        self._report.rows = len(rows)

    def tell_missing(self, seen: Collection[str] = ()) -> None:
        """Do nothing: `messages` and `table` have reported missing topics."""


def _rows(
    options: LiveOptions,
    found: FoundMessages,
    limit: int,
    progress: ProgressBars,
    stack: ExitStack,
) -> Rows:
    """Return rows in order of their store times; if there are many queues, queue by queue."""
    splits = plan_live_read(options)
    ranges = [part for s in splits if isinstance(s, LiveSplit) for part in s.ranges]
    read = _in_small_batches(options, limit) if limit else options
    keyed: list[dict[str, Any]] = []
    for split in splits:
        if isinstance(split, KeySplit):
            keyed += found.rows(read_live_split(split, options, _columns(options, found)))
    cluster = stack.enter_context(Cluster(options.connection))
    bar = _Bar(progress, ranges)
    queues = [
        stack.enter_context(closing(_rows_of_queue(cluster, parts, read, found, bar)))
        for parts in _by_queue(ranges)
    ]
    keyed.sort(key=_age)
    if len(queues) > _MOST_MERGED:
        return chain(keyed, *queues)
    return merge(keyed, *queues, key=_age)


def _in_small_batches(options: LiveOptions, limit: int) -> LiveOptions:
    """Return options with small batches, so that the first rows come soon."""
    rows = min(options.reading.batch_rows, max(limit + 1, _LEAST_ROWS))
    return replace(options, reading=replace(options.reading, batch_rows=rows))


def _by_queue(ranges: list[QueueSlice]) -> list[LiveSplit]:
    queues: dict[LiveQueue, list[QueueSlice]] = {}
    for part in ranges:
        queues.setdefault(part.queue, []).append(part)
    return [LiveSplit(tuple(parts)) for parts in queues.values()]


def _rows_of_queue(
    cluster: Cluster, split: LiveSplit, options: LiveOptions, found: FoundMessages, bar: _Bar
) -> Generator[dict[str, Any], None, None]:
    batches = read_ranges(cluster, split, options, read_request(options, _columns(options, found)))
    with closing(batches):
        for row in found.rows(batches):
            bar.reach(split.ranges[0], row["queue_offset"])
            yield row


def _columns(options: LiveOptions, found: FoundMessages) -> tuple[str, ...]:
    is_permissive = options.reading.mode == "PERMISSIVE"
    return (*found.columns, CORRUPT_RECORD.name) if is_permissive else found.columns


class _Bar:
    """Shows how much of all queues has been read, including rows that filters drop."""

    def __init__(self, progress: ProgressBars, ranges: list[QueueSlice]) -> None:
        self._progress = progress
        self._total = sum(part.messages for part in ranges)
        self._reached: dict[LiveQueue, int] = {}
        self._done = 0

    def reach(self, first: QueueSlice, offset: int) -> None:
        """Record that a queue, whose first range is given, was read up to an offset."""
        done = offset + 1 - first.start
        self._done += done - self._reached.get(first.queue, 0)
        self._reached[first.queue] = done
        self._progress.splits(self._done, self._total)


def _age(row: dict[str, Any]) -> datetime:
    moment: datetime | None = row["store_timestamp"]
    return _NEVER if moment is None else moment


def _rows_of_ids(
    ids: Sequence[str], options: LiveOptions, found: FoundMessages, report: Report
) -> Rows:
    """Yield the messages of each id; report ids without messages."""
    for text in ids:
        kind, rows = _rows_of_id(text, options, found)
        if rows:
            which = f"id {text!r}: " if len(ids) > 1 else ""
            report.note(f"{which}found by {kind}")
            yield from rows
        elif options.reading.topics is None:
            report.missing(
                f"id {text!r} names no message of this cluster; to find a client message id, "
                "give --topic"
            )
        else:
            report.missing(
                f"id {text!r} was not found, neither as unique key nor as offset message id"
            )


def _rows_of_id(
    text: str, options: LiveOptions, found: FoundMessages
) -> tuple[str, list[dict[str, Any]]]:
    rows = list(found.rows(_batches_of_place(text, options, found)))
    if rows or options.reading.topics is None:
        return "offset message id", rows
    by_key = replace(options, reading=replace(options.reading, unique_keys=(text,)))
    columns = _columns(options, found)
    for split in plan_live_read(by_key):
        rows += found.rows(read_live_split(split, by_key, columns))
    return "unique key", sorted(rows, key=_age)


def _batches_of_place(text: str, options: LiveOptions, found: FoundMessages) -> Iterator[Columns]:
    """Yield the record that an offset message id names, if it names a broker of the cluster."""
    try:
        host, commit_log_offset = parse_message_id(text)
    except ValueError:
        return
    with Cluster(options.connection) as cluster:
        answer = cluster.call(_record(cluster, format_host(host), commit_log_offset, options))
        if answer is None:
            return
        store, body = answer
        frames = frames_of_bodies([body])
        if not isinstance(frames, BadPull):
            batches = MessageBatches(store, read_request(options, _columns(options, found)))
            yield from batches.of_frames(frames, SegmentPositions("its log", 0, 0, 0, b""))
            batches.report()


async def _record(
    cluster: Cluster, address: str, commit_log_offset: int, options: LiveOptions
) -> tuple[str, bytes] | None:
    """Return a record's store and bytes; None if no broker has the address or the record."""
    info = await cluster.name_servers.cluster_info()
    names = {at: name for name, places in info.brokers.items() for at in places.values()}
    if address not in names:
        return None
    topic = next(iter(options.reading.topics or ()), "")
    try:
        body = await cluster.brokers.view_message(address, topic, commit_log_offset)
    except BrokerError:  # no record begins there
        return None
    return f"{names[address]}@{address}", body


class Tail(NamedTuple):
    """Limits at which a tail ends, besides a signal."""

    end_ms: int | None = None
    """Messages stored at this time or later are not shown."""
    limit: int | None = None


def follow(options: LiveOptions, tail: Tail, display: Display, report: Report) -> None:
    """Write messages as they come.

    Raises
    ------
    ClusterError
        The cluster cannot be reached at the start, or refuses the request.
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
                    follower.pin_target(named=False)  # new messages may arrive without end
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
            report.nothing("no message arrived")


class _Batches:
    """New messages, in parts whose size the options limit."""

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
        # The ranges determine where the read begins.
        reading = replace(options.reading, starting_timestamp_ms=None, starting_offsets=None)
        self._options = replace(options, reading=reading)

    def next(self, stop: Event) -> list[dict[str, Any]] | None:
        """Return new messages, oldest first; None if there are none, or a signal came."""
        end = self._follower.next_offset(self._reached, limited=True)
        if end == self._reached:
            return None
        ranges = self._follower.ranges(self._reached, end)
        rows = self._read(ranges, stop)
        if rows is not None:
            self._reached = end
        return rows

    def _read(self, ranges: list[QueueSlice], stop: Event) -> list[dict[str, Any]] | None:
        """Read a whole batch before any of it is shown; if that fails, read it again."""
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

    def _rows(self, ranges: list[QueueSlice]) -> list[dict[str, Any]]:
        if not ranges:
            return []
        request = read_request(self._options, self._found.columns)
        split = LiveSplit(tuple(ranges))
        with closing(read_ranges(self._cluster, split, self._options, request)) as batches:
            rows = list(self._found.rows(batches))
        return sorted(rows, key=lambda row: row["store_timestamp"] or _NEVER)


def _follower(options: LiveOptions) -> LiveFollower:
    return LiveFollower(options, start=Start.ANY)  # an absent broker does not delay the others


def _wanted(rows: list[dict[str, Any]], tail: Tail, shown: int) -> list[dict[str, Any]]:
    end = _moment(tail.end_ms)
    if end is not None:
        rows = [row for row in rows if row["store_timestamp"] < end]
    return rows if tail.limit is None else rows[: tail.limit - shown]


def _moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def only_known(options: LiveOptions, report: Report) -> LiveOptions | None:
    """Return options with the known topics only, and report the others; None if none is left.

    Raises
    ------
    ClusterError
        No name server answers.
    """
    asked = options.reading.topics
    if not asked:
        return options
    with Cluster(options.connection) as cluster:
        known = cluster.call(cluster.name_servers.topics())
    tell_unknown_topics(asked, known, options.connection.namesrv_addr, report)
    left = tuple(topic for topic in asked if topic in known)
    return replace(options, reading=replace(options.reading, topics=left)) if left else None


def tell_unknown_topics(
    asked: Iterable[str], known: Iterable[str], namesrv_addr: str, report: Report
) -> None:
    """Report the topics that no broker has, each with the most similar known name."""
    names = set(known)
    for topic in asked:
        if topic not in names:
            hint = did_you_mean(topic, names)
            report.missing(f"cluster {namesrv_addr} knows no topic {topic!r}{hint}")


class _Asked(NamedTuple):
    """A topic's route, and the queues reported by those of its brokers that answered."""

    route: TopicRoute
    queues: list[QueueStats]


async def _ask(
    cluster: Cluster, names: list[str], report: Report, progress: ProgressBars
) -> list[_Asked]:
    calls = BrokerCalls(cluster.remoting, cluster.timeout_s, cluster.routes.describe)
    brokers = BrokerAdminClient(calls)
    done = 0

    async def ask(topic: object) -> _Asked | None:
        nonlocal done
        try:
            route = await cluster.routes.route(str(topic))
        except TopicNotFoundError:  # deleted since the names were listed
            return None
        queues: list[QueueStats] = []
        for name in sorted(route.brokers):
            address = cluster.routes.find_broker(name, only_this_broker=False).address
            try:
                queues += (await brokers.topic_stats(address, route.topic)).values()
            except (BrokerError, RemotingError) as err:
                report.not_read(f"topic {route.topic!r} on broker {name}: {err}")
        done += 1
        progress.splits(done, len(names))
        return _Asked(route, queues)

    return [found for found in await gather(names, ask) if found is not None]


def _topic_row(found: _Asked) -> dict[str, Any]:
    route, queues = found
    perm = route.queue_datas[0].perm if route.queue_datas else 0
    newest = max((queue.last_update_timestamp for queue in queues), default=0)
    return {
        "topic": route.topic,
        "kind": topic_kind(route.topic, TopicConfig(route.topic, perm=perm)),
        "queues": len(queues),
        "messages": sum(max(queue.max_offset - queue.min_offset, 0) for queue in queues),
        "min_offset": min((queue.min_offset for queue in queues), default=None),
        "max_offset": max((queue.max_offset for queue in queues), default=None),
        "max_store_timestamp": _shown_time(newest),
        "brokers": sorted(route.brokers),
    }


def _shown_time(milliseconds: int) -> datetime | None:
    if milliseconds <= 0:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
