"""``messages`` of a running cluster: pulled from its queues, or found by key or id."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime, timezone
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, Any

from rmqnet.errors import BrokerError
from rmqsource.cli.cluster_tables import only_known
from rmqsource.cli.messages import FoundMessages, MessageWriter
from rmqsource.cli.read import WrongUseError
from rmqsource.cli.report import scan_progress
from rmqsource.live.cluster import Cluster
from rmqsource.live.live_queues import LiveSplit
from rmqsource.live.live_read import (
    KeySplit,
    plan_live_read,
    read_live_split,
    read_ranges,
    read_request,
)
from rmqsource.live.pulled_frames import BadPull, frames_of_bodies
from rmqsource.scan.message_batches import MessageBatches
from rmqsource.scan.splits import SegmentPositions
from rmqsource.tables import CORRUPT_RECORD
from store_core.codec.hosts import format_host
from store_core.codec.message_id import parse_message_id

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from rmqsource.cli.messages import Wanted
    from rmqsource.cli.output import Display
    from rmqsource.cli.report import Report, ScanProgress
    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.live_queues import LiveQueue, QueueRange
    from store_core.arrow_types import Columns

    Rows = Iterator[dict[str, Any]]

_MOST_MERGED = 64
"""Queues that are read side by side, each with messages that were pulled ahead."""
_LEAST_ROWS = 32
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


def show_cluster_messages(
    options: LiveOptions, wanted: Wanted, display: Display, limit: int, report: Report
) -> None:
    """Write the messages that the options select, oldest first; see `MessageWriter`.

    Raises
    ------
    WrongUseError
        What is wanted is not told by a cluster.
    ClusterError
        The cluster cannot be reached, or refuses.
    """
    _check(wanted)
    writer = MessageWriter(display, limit, report, in_full=bool(wanted.ids))
    found = FoundMessages(writer.rows.columns, report, wanted.grep)
    known = only_known(options, report)
    with ExitStack() as stack:
        progress = stack.enter_context(scan_progress())
        if known is not None and wanted.ids:
            writer.write(_rows_of_ids(wanted.ids, known, found, report), progress)
        elif known is not None:
            writer.write(_rows(known, found, limit, progress, stack), progress)
    writer.close()


def _check(wanted: Wanted) -> None:
    if wanted.follow:
        raise WrongUseError("--follow: of a cluster that is rocketmq-store tail --namesrv …")
    if wanted.last is not None:
        raise WrongUseError(
            "--last: is for files; of a cluster take --since 5m, or rocketmq-store tail"
        )


def _rows(
    options: LiveOptions,
    found: FoundMessages,
    limit: int,
    progress: ScanProgress,
    stack: ExitStack,
) -> Rows:
    """Return rows in order of their store times; of many queues, queue by queue."""
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
    """Return options with which the first rows come soon."""
    rows = min(options.reading.batch_rows, max(limit + 1, _LEAST_ROWS))
    return replace(options, reading=replace(options.reading, batch_rows=rows))


def _by_queue(ranges: list[QueueRange]) -> list[LiveSplit]:
    queues: dict[LiveQueue, list[QueueRange]] = {}
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
    """Tells how much of all queues was read; rows that no filter lets through count too."""

    def __init__(self, progress: ScanProgress, ranges: list[QueueRange]) -> None:
        self._progress = progress
        self._total = sum(part.messages for part in ranges)
        self._reached: dict[LiveQueue, int] = {}
        self._done = 0

    def reach(self, first: QueueRange, offset: int) -> None:
        """Note that a queue, which begins with a range, was read to an offset."""
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
    """Yield the messages of each id; what no id leads to is told."""
    for text in ids:
        kind, rows = _rows_of_id(text, options, found)
        if rows:
            which = f"id {text!r}: " if len(ids) > 1 else ""
            report.note(f"{which}found by {kind}")
            yield from rows
        elif options.reading.topics is None:
            report.missing(
                f"id {text!r} names no message of this cluster; a client's id is found with --topic"
            )
        else:
            report.missing(
                f"id {text!r} was not found: neither as unique key nor as offset message id"
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
    """Return the store and the bytes of a record; None: no broker has that address or place."""
    info = await cluster.name_servers.cluster_info()
    names = {at: name for name, places in info.brokers.items() for at in places.values()}
    if address not in names:
        return None
    topic = next(iter(options.reading.topics or ()), "")
    try:
        body = await cluster.brokers.view_message(address, topic, commit_log_offset)
    except BrokerError:  # nothing begins there
        return None
    return f"{names[address]}@{address}", body
