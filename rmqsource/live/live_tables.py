# SPDX-License-Identifier: Apache-2.0
"""Tables of a running cluster: topics, queues, offsets of groups, routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqnet.errors import BrokerError, ClientError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqsource.live.cluster import Cluster
from rmqsource.live.cluster_survey import (
    gather,
    queue_ends,
    selected_routes,
    survey_cluster,
)
from rmqsource.live.errors import ClusterError
from rmqsource.live.live_queues import LiveQueue, QueueState
from rmqsource.live.queue_facts import NO_RECORD, NOWHERE, places_of
from rmqsource.metadata import batches_of
from rmqsource.metadata.columns import NO_TIME, nullable, table_part
from rmqsource.metadata.consumer_offsets import lag_and_expired
from rmqsource.metadata.selection import Selection
from rmqsource.scan.predicate import from_options
from store_core.config.config_files import TopicConfig, parse_consumer_offsets
from store_core.config.lenient_json import json_object, parse_lenient_json
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.queue_facts import MessagePlace
    from rmqsource.scan.predicate import ScanPredicate
    from store_core.arrow_types import Columns, Table

    Int64Vector = np.ndarray[tuple[int], np.dtype[np.int64]]

_READ, _WRITE = 4, 2


class _QueueRow(NamedTuple):
    """A queue with its first and last message."""

    state: QueueState
    first: MessagePlace
    last: MessagePlace


def read_live_table(options: LiveOptions) -> Iterator[Columns]:
    """Yield batches of a table, by column.

    Raises
    ------
    ClusterError
        The cluster cannot be reached, or refuses a request.
    """
    with Cluster(options.connection) as cluster:
        parts = cluster.call(_TABLES[options.table](cluster, options))
    yield from batches_of(parts, options.reading.batch_rows)


async def _routes(cluster: Cluster, options: LiveOptions) -> list[Table]:
    """Return a row for each address in a topic's route."""
    parts = []
    for route in await selected_routes(cluster, _predicate(options), all_topics=True):
        rows = [
            (queues, broker_id, address)
            for queues in route.queue_datas
            for broker_id, address in sorted(route.brokers.get(queues.broker_name, {}).items())
        ]
        parts += [
            table_part(
                "routes",
                f"{queues.broker_name}@{address}",
                1,
                topic=route.topic,
                broker_name=queues.broker_name,
                cluster=route.clusters.get(queues.broker_name, ""),
                broker_id=[broker_id],
                address=address,
                read_queues=[queues.read_queue_nums],
                write_queues=[queues.write_queue_nums],
                perm="r" * queues.is_readable + "w" * queues.is_writable,
            )
            for queues, broker_id, address in rows
        ]
    return parts


async def _queues(cluster: Cluster, options: LiveOptions) -> list[Table]:
    """Return a row for each readable queue, including empty ones."""
    rows = await _queue_rows(cluster, _predicate(options))
    return [_queue_part(store, found) for store, found in _by_store(rows)]


def _queue_part(store: str, rows: Sequence[_QueueRow]) -> Table:
    low = _numbers(row.state.min_offset for row in rows)
    high = _numbers(row.state.max_offset for row in rows)
    first = _numbers(row.first.commit_log_offset for row in rows)
    last = _numbers(row.last.commit_log_offset for row in rows)
    return table_part(
        "queues",
        store,
        len(rows),
        topic=[row.state.queue.topic for row in rows],
        queue_id=[row.state.queue.queue_id for row in rows],
        min_offset=low,
        max_offset=high,
        messages=high - low,
        min_commit_log_offset=nullable(first, first == NO_RECORD),
        max_commit_log_offset=nullable(last, last == NO_RECORD),
        min_store_timestamp=_numbers(row.first.store_timestamp for row in rows),
        max_store_timestamp=_numbers(row.last.store_timestamp for row in rows),
        compacted_messages=[None] * len(rows),
        compacted_min_offset=[None] * len(rows),
        compacted_max_offset=[None] * len(rows),
    )


async def _topics(cluster: Cluster, options: LiveOptions) -> list[Table]:
    """Return a row for each topic and broker; brokers do not report the bytes of a topic."""
    rows = await _queue_rows(cluster, _predicate(options))
    parts = []
    for store, found in _by_store(rows):
        topics: dict[str, list[_QueueRow]] = {}
        for row in found:
            topics.setdefault(row.state.queue.topic, []).append(row)
        parts.append(_topic_part(store, topics, await _perms(cluster, topics)))
    return parts


def _topic_part(store: str, topics: dict[str, list[_QueueRow]], perms: dict[str, int]) -> Table:
    bounds = [_time_bounds(rows) for rows in topics.values()]
    return table_part(
        "topics",
        store,
        len(topics),
        topic=list(topics),
        queues=[len(rows) for rows in topics.values()],
        messages=[
            sum(row.state.max_offset - row.state.min_offset for row in rows)
            for rows in topics.values()
        ],
        bytes=[None] * len(topics),
        min_store_timestamp=[low for low, _ in bounds],
        max_store_timestamp=[high for _, high in bounds],
        kind=[topic_kind(name, TopicConfig(name, perm=perms[name])) for name in topics],
        compacted_messages=[None] * len(topics),
    )


def _time_bounds(rows: Iterable[_QueueRow]) -> tuple[int, int]:
    times = [place.store_timestamp for row in rows for place in (row.first, row.last)]
    known = [time for time in times if time != NO_TIME]
    return min(known, default=NO_TIME), max(known, default=NO_TIME)


async def _perms(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    async def perm(topic: str) -> int:
        route = await cluster.routes.route(topic)
        return route.queue_datas[0].perm if route.queue_datas else _READ | _WRITE

    names = list(topics)
    return dict(zip(names, await gather(names, perm)))


async def _consumer_offsets(cluster: Cluster, options: LiveOptions) -> list[Table]:
    """Return the offsets committed to brokers; a queue that a group never committed has no row.

    A queue that no longer exists has ``broker_offset`` 0, as in the table of stores, and no lag.
    """
    info = await cluster.patiently("brokers", "", cluster.name_servers.cluster_info)
    selection = Selection(options.reading)
    parts = []
    for broker_name, address in sorted(info.masters.items()):
        commits = [
            (group, LiveQueue(topic, broker_name, queue_id), offset)
            for (group, topic), offsets in sorted((await _noted(cluster, address)).items())
            for queue_id, offset in sorted(offsets.items())
            if selection.has_queue(topic, queue_id)
        ]
        parts.append(await _commit_part(cluster, f"{broker_name}@{address}", commits))
    return parts


async def _noted(cluster: Cluster, address: str) -> dict[tuple[str, str], dict[int, int]]:
    """Return the next offset by queue id, for each (group, topic)."""
    command = RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET)
    answer = await cluster.remoting.invoke(address, command, cluster.timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark or "", address, "GET_ALL_CONSUMER_OFFSET")
    try:
        data = json_object(parse_lenient_json(answer.body.decode()), "offsets")
        return parse_consumer_offsets(data)
    except ValueError as err:
        raise ClusterError(address, f"its consumer offsets cannot be read: {err}") from err


async def _commit_part(
    cluster: Cluster, store: str, commits: Sequence[tuple[str, LiveQueue, int]]
) -> Table:
    found = await _states_of(cluster, store, {queue for _, queue, _ in commits})
    states = {queue: state or QueueState(queue, store, 0, 0) for queue, state in found.items()}
    behind = {}
    for _, queue, offset in commits:
        state = states[queue]
        at = max(offset, state.min_offset)
        if at < state.max_offset:
            behind[queue, offset] = ((queue, at), (queue, state.max_offset - 1))
    places = await places_of(cluster, states, [item for pair in behind.values() for item in pair])
    consumed = _numbers(offset for _, _, offset in commits)
    broker = _numbers(states[queue].max_offset for _, queue, _ in commits)
    begin = _numbers(states[queue].min_offset for _, queue, _ in commits)
    is_gone = _numbers(found[queue] is None for _, queue, _ in commits)
    lag, expired = lag_and_expired(consumed, begin, broker, is_gone)
    lags = [_lag_ms(behind.get((queue, offset)), places) for _, queue, offset in commits]
    return table_part(
        "consumer_offsets",
        store,
        len(commits),
        group=[group for group, _, _ in commits],
        topic=[queue.topic for _, queue, _ in commits],
        queue_id=[queue.queue_id for _, queue, _ in commits],
        consumer_offset=consumed,
        broker_offset=broker,
        lag=lag,
        expired=expired,
        lag_ms=lags,
    )


def _lag_ms(
    ends: tuple[tuple[LiveQueue, int], tuple[LiveQueue, int]] | None,
    places: dict[tuple[LiveQueue, int], MessagePlace],
) -> int | None:
    """Return the ms from the first unconsumed message to the newest; None if not known."""
    if ends is None:
        return 0
    oldest, newest = (places[end].store_timestamp for end in ends)
    return None if NO_TIME in {oldest, newest} else max(newest - oldest, 0)


async def _states_of(
    cluster: Cluster, store: str, queues: Iterable[LiveQueue]
) -> dict[LiveQueue, QueueState | None]:
    """Return the ends of queues with committed offsets; None for queues that no longer exist."""

    async def state(queue: LiveQueue) -> QueueState | None:
        try:
            return QueueState(queue, store, *(await queue_ends(cluster, queue, named=True)))
        except (BrokerError, ClientError):
            return None

    names = sorted(queues)
    return dict(zip(names, await gather(names, state)))


async def _queue_rows(cluster: Cluster, predicate: ScanPredicate) -> list[_QueueRow]:
    states = {
        state.queue: state for state in await survey_cluster(cluster, predicate, all_topics=True)
    }
    held = [state for state in states.values() if state.min_offset < state.max_offset]
    ends = [(s.queue, offset) for s in held for offset in (s.min_offset, s.max_offset - 1)]
    places = await places_of(cluster, states, ends)
    return [
        _QueueRow(
            state,
            places.get((queue, state.min_offset), NOWHERE),
            places.get((queue, state.max_offset - 1), NOWHERE),
        )
        for queue, state in sorted(states.items())
    ]


def _by_store(rows: Iterable[_QueueRow]) -> list[tuple[str, list[_QueueRow]]]:
    found: dict[str, list[_QueueRow]] = {}
    for row in rows:
        found.setdefault(row.state.store, []).append(row)
    return sorted(found.items())


def _numbers(values: Iterable[int]) -> Int64Vector:
    return np.array(list(values), np.int64)


def _predicate(options: LiveOptions) -> ScanPredicate:
    return from_options(options.reading)


_TABLES: dict[str, Callable[[Cluster, LiveOptions], Coroutine[object, object, list[Table]]]] = {
    "topics": _topics,
    "queues": _queues,
    "consumer_offsets": _consumer_offsets,
    "routes": _routes,
}
