"""What ``topics`` and ``lag`` tell of a running cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqnet.client.broker_admin_client import BrokerAdminClient
from rmqnet.client.request_calls import BrokerCalls
from rmqnet.errors import BrokerError, RemotingError, TopicNotFoundError
from rmqsource.cli.metadata import columns_of
from rmqsource.cli.output import Shape, row_writer
from rmqsource.cli.report import scan_progress
from rmqsource.live.cluster import Cluster
from rmqsource.live.cluster_survey import gather, topic_names
from rmqsource.live.live_tables import read_table
from rmqsource.options.option_values import did_you_mean
from rmqsource.scan.predicate import from_options
from store_core.arrow import pa
from store_core.config.config_files import TopicConfig
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.client.admin_results import QueueStats
    from rmqnet.client.topic_route import TopicRoute
    from rmqsource.cli.output import Display
    from rmqsource.cli.report import Report, ScanProgress
    from rmqsource.live.live_options import LiveOptions
    from store_core.arrow_types import Table

_TOPICS = Shape(
    (
        *("topic", "kind", "queues", "messages", "min_offset", "max_offset"),
        *("max_store_timestamp", "brokers"),
    ),
    drop=("min_offset", "max_offset", "brokers", "queues", "max_store_timestamp", "kind"),
)


def only_known(options: LiveOptions, report: Report) -> LiveOptions | None:
    """Return options that name known topics only, and tell of the others; None: none is left.

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
    """Say which topics no broker has, each with the nearest that one has."""
    names = set(known)
    for topic in asked:
        if topic not in names:
            hint = did_you_mean(topic, names)
            report.missing(f"cluster {namesrv_addr} knows no topic {topic!r}{hint}")


class _Asked(NamedTuple):
    """A topic, and what those of its brokers told that answered."""

    route: TopicRoute
    queues: list[QueueStats]


def show_cluster_topics(options: LiveOptions, display: Display, limit: int, report: Report) -> None:
    """Write a row for each topic, over all brokers; those with the most messages first."""
    writer = row_writer(display, _TOPICS)
    known = only_known(options, report)
    rows: list[dict[str, Any]] = []
    if known is not None:
        with scan_progress() as progress, Cluster(known.connection) as cluster:
            predicate = from_options(known.reading)
            names = cluster.call(topic_names(cluster, predicate, all_topics=True))
            asked = cluster.call(_ask(cluster, names, report, progress))
        rows = [_topic_row(found) for found in asked]
    rows.sort(key=lambda row: (-row["messages"], row["topic"]))
    for row in rows[: limit or None]:
        writer.write(row)
    writer.close()
    report.rows = len(rows)
    report.nothing("no topic")


async def _ask(
    cluster: Cluster, names: list[str], report: Report, progress: ScanProgress
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
        "max_store_timestamp": _moment(newest),
        "brokers": sorted(route.brokers),
    }


def _moment(milliseconds: int) -> datetime | None:
    if milliseconds <= 0:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def cluster_lag(options: LiveOptions, report: Report) -> Table:
    """Return how far consumer groups are, a row for each queue; topics that are not are told."""
    known = only_known(options, report)
    parts = [] if known is None else [pa.table(batch) for batch in read_table(known)]
    if parts:
        return pa.concat_tables(parts)
    return pa.table({column: pa.nulls(0) for column in columns_of("consumer_offsets")})
