# SPDX-License-Identifier: Apache-2.0
"""Ask a cluster what planning needs: topics, queues, their ends, and offsets of times."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, TypeVar

from rmqnet.errors import BrokerError, ClientError, RemotingError, TopicNotFoundError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import GetTopicConfigRequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqsource.live.live_planner import selects_queue
from rmqsource.live.live_queues import BATCH, PLAIN, SPARSE, UNKNOWN, LiveQueue, QueueState
from store_core.config.lenient_json import parse_lenient_json
from store_core.layout import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.topic_route import TopicRoute
    from rmqsource.live.cluster import Cluster
    from rmqsource.scan.predicate import ScanPredicate

logger = logging.getLogger(__name__)

T = TypeVar("T")

_AT_ONCE = 64


async def selected_routes(
    cluster: Cluster, predicate: ScanPredicate, *, all_topics: bool = False
) -> list[TopicRoute]:
    """Return the routes of the selected topics, in order of their names.

    Raises
    ------
    TopicNotFoundError
        No name server knows a topic given by name.
    """
    named = predicate.topics

    async def list_names() -> list[str]:
        return await topic_names(cluster, predicate, all_topics=all_topics)

    names = await cluster.patiently("topics", "", list_names)

    async def route_of(topic: str) -> TopicRoute | None:
        async def ask() -> TopicRoute:
            return await cluster.routes.route(topic)

        try:
            return await cluster.patiently(f"route of topic {topic!r}", topic, ask)
        except TopicNotFoundError:
            if named is None:  # deleted since the names were listed
                logger.info("topic %s no longer has a route", topic)
                return None
            raise

    return [route for route in await gather(names, route_of) if route is not None]


async def topic_names(
    cluster: Cluster, predicate: ScanPredicate, *, all_topics: bool = False
) -> list[str]:
    """Return the names of the selected topics; named ones need not exist."""
    if predicate.topics is not None:
        return sorted(predicate.topics)
    if predicate.topic_pattern is None and not all_topics:
        return []
    pattern = re.compile(predicate.topic_pattern or ".*")
    known = await cluster.name_servers.topics()
    return [t for t in known if pattern.fullmatch(t) and not t.startswith(LMQ_PREFIX)]


async def gather(
    items: Iterable[object], work: Callable[..., Awaitable[T]], at_once: int = _AT_ONCE
) -> list[T]:
    """Do work for all items, ``at_once`` at a time, and return the results in order."""
    limit = asyncio.Semaphore(at_once)

    async def one(item: object) -> T:
        async with limit:
            return await work(item)

    return list(await asyncio.gather(*(one(item) for item in items)))


def readable_queues(route: TopicRoute) -> list[LiveQueue]:
    """Return the readable queues of a topic."""
    return [LiveQueue(*queue) for queue in route.subscribe_queues()]


def store_of(route: TopicRoute, broker_name: str) -> str:
    """Return the value of column ``store``: ``brokerName@address``, of the master if it has one."""
    addresses = route.brokers.get(broker_name, {})
    return f"{broker_name}@{addresses[min(addresses)]}" if addresses else f"{broker_name}@"


async def survey_cluster(
    cluster: Cluster,
    predicate: ScanPredicate,
    slack_ms: int = 0,
    *,
    all_topics: bool = False,
) -> list[QueueState]:
    """Return the queues of the selected topics, with their first and last offsets."""
    routes = await selected_routes(cluster, predicate, all_topics=all_topics)
    kinds = await queue_kinds(cluster, routes)
    found = [
        (queue, store_of(route, queue.broker_name), kinds[queue.topic, queue.broker_name])
        for route in routes
        for queue in readable_queues(route)
        if selects_queue(predicate, queue.queue_id)
    ]

    async def look(item: tuple[LiveQueue, str, str]) -> QueueState:
        queue, store, kind = item
        return await _state(cluster, QueueState(queue, store, 0, 0, kind), predicate, slack_ms)

    return await gather(found, look)


async def _state(
    cluster: Cluster, state: QueueState, predicate: ScanPredicate, slack_ms: int
) -> QueueState:
    low, high = await queue_ends(cluster, state.queue)
    wanted = predicate.store_time_ms
    start = stop = None
    if wanted.start is not None and low < high:
        # Brokers of 4.x return any message of a millisecond, so ask for the previous millisecond.
        start = await offset_of_time(cluster, state.queue, wanted.start - slack_ms - 1)
    if wanted.stop is not None and low < high:
        # Brokers of 4.x may return the previous message, which may still match.
        stop = 1 + await offset_of_time(cluster, state.queue, wanted.stop + slack_ms)
    return state._replace(min_offset=low, max_offset=high, from_time=start, to_time=stop)


async def queue_ends(cluster: Cluster, queue: LiveQueue, *, named: bool = False) -> tuple[int, int]:
    """Return the first offset of a queue and its end; `named` as in `asked`."""

    async def ask(address: str) -> tuple[int, int]:
        low, high = await asyncio.gather(
            cluster.brokers.min_offset(address, _as_named(queue)),
            cluster.brokers.max_offset(address, _as_named(queue)),
        )
        return min(max(low, 0), max(high, 0)), max(high, 0)

    return await asked(cluster, queue, ask, named=named)


async def offset_of_time(cluster: Cluster, queue: LiveQueue, timestamp_ms: int) -> int:
    """Return the offset that a broker has for a store time; it may be one message too early."""

    async def ask(address: str) -> int:
        return await cluster.brokers.search_offset(
            address, _as_named(queue), max(timestamp_ms, 0), boundary_type="LOWER"
        )

    return await asked(cluster, queue, ask)


async def asked(
    cluster: Cluster, queue: LiveQueue, ask: Callable[[str], Awaitable[T]], *, named: bool = False
) -> T:
    """Return the answer of a queue's broker, with retries.

    The topic existed a moment ago, so if no name server knows it now, it may come back; with
    ``named`` that is an error.
    """

    async def attempt() -> T:
        return await ask(await cluster.address_of(queue.topic, queue.broker_name))

    return await cluster.patiently(str(queue), queue.topic, attempt, named=named)


def _as_named(queue: LiveQueue) -> MessageQueue:
    from rmqnet.client.message_queue import MessageQueue  # noqa: PLC0415 (its only use)

    return MessageQueue(*queue)


async def queue_kinds(
    cluster: Cluster, routes: Iterable[TopicRoute], *, patient: bool = True
) -> dict[tuple[str, str], str]:
    """Return the kinds of queue offsets, by topic and broker.

    Without ``patient``, brokers that do not answer are omitted.
    """
    pairs = sorted(
        {(queue.topic, queue.broker_name) for route in routes for queue in readable_queues(route)}
    )

    async def kind_of(pair: tuple[str, str]) -> str | None:
        return await _queue_kind(cluster, *pair, patient=patient)

    kinds = zip(pairs, await gather(pairs, kind_of))
    return {pair: kind for pair, kind in kinds if kind is not None}


async def _queue_kind(
    cluster: Cluster, topic: str, broker_name: str, *, patient: bool
) -> str | None:
    queue = LiveQueue(topic, broker_name, 0)

    async def ask(address: str) -> bytes:
        header = GetTopicConfigRequestHeader(topic=topic, lo=True, bname=broker_name)
        answer = await cluster.remoting.invoke(
            address, RemotingCommand.request(header), cluster.timeout_s
        )
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # 4.x: plain queues only
            return b"{}"
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark or "", address, "GET_TOPIC_CONFIG")
        return answer.body

    try:
        if patient:
            body = await asked(cluster, queue, ask)
        else:
            body = await ask(await cluster.address_of(topic, broker_name))
        found = parse_lenient_json(body.decode())
    except (RemotingError, ClientError):
        if patient:
            raise
        return None
    except (BrokerError, ValueError) as err:
        logger.info("%s does not report the kind of its queues of %s: %s", broker_name, topic, err)
        return UNKNOWN
    return _kind_of_config(found)


def _kind_of_config(config: object) -> str:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    told = json.dumps(attributes) if attributes else ""
    if "BatchCQ" in told:
        return BATCH
    return SPARSE if "COMPACTION" in told else PLAIN
