"""The queues of a stream as they are now: routes looked up again, brokers that may be away."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Callable, NamedTuple

from rmqnet.errors import BrokerError, ClientError, RemotingError, TopicNotFoundError
from rmqsource.live.cluster import Patience, may_pass
from rmqsource.live.cluster_survey import (
    gather,
    queue_kinds,
    readable_queues,
    store_of,
    topic_names,
)
from rmqsource.live.live_planner import selects_queue
from rmqsource.live.live_queues import UNKNOWN, LiveQueue, QueueState

if TYPE_CHECKING:
    from rmqnet.client.topic_route import TopicRoute
    from rmqsource.live.cluster import Cluster
    from rmqsource.scan.predicate import ScanPredicate

logger = logging.getLogger(__name__)

_ROUTE_SECONDS = 10.0
"""New queues and brokers are seen after this time, or when a broker stops answering."""


class SeenQueue(NamedTuple):
    """A queue and its ends; ``by_slave``: a slave told them, which may lag behind."""

    state: QueueState
    by_slave: bool


class StreamQueues:
    """Looks at the queues of the selected topics again and again.

    Parameters
    ----------
    cluster
        Open.
    predicate
        Names topics, or has a pattern.
    clock
        Seconds.

    Attributes
    ----------
    silent
        Queues of brokers that did not answer when it was looked last.
    """

    def __init__(
        self,
        cluster: Cluster,
        predicate: ScanPredicate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._predicate, self._clock = cluster, predicate, clock
        self._routes: dict[str, TopicRoute] = {}
        self._kinds: dict[tuple[str, str], str] = {}
        self._looked_at: float | None = None
        self._away: set[str] = set()
        self.silent: frozenset[LiveQueue] = frozenset()

    async def look(self, *, named: bool = False, whole: bool = False) -> list[SeenQueue]:
        """Return the queues of the brokers that answer now.

        Parameters
        ----------
        named
            A topic that is named and unknown is an error, as at the first start; else it may come
            back, as when its broker starts again.
        whole
            Wait for brokers that do not answer, as long as ``retryTimeout``.

        Raises
        ------
        ClientError
            A broker has not answered for so long.
        """
        patience = Patience(self._cluster.connection.retry_timeout_ms)
        while True:
            found = await self._look_once(named=named)
            if not whole or not self.silent:
                return found
            queue = min(self.silent)
            reason = f"{queue.broker_name} does not tell where {queue} begins and ends"
            await patience.pause(reason, ClientError(f"{reason}: start when it answers again"))

    async def _look_once(self, *, named: bool) -> list[SeenQueue]:
        await self._look_up(named=named)
        found = [
            (queue, store_of(route, queue.broker_name))
            for route in self._routes.values()
            for queue in readable_queues(route)
            if selects_queue(self._predicate, queue.queue_id)
        ]

        async def ends(item: tuple[LiveQueue, str]) -> SeenQueue | None:
            return await self._ends(*item)

        seen = await gather(found, ends)
        silent = [queue for (queue, _), told in zip(found, seen) if told is None]
        if silent:
            self._looked_at = None
        self.silent = frozenset(silent)
        return sorted(queue for queue in seen if queue is not None)

    def kind_of(self, queue: LiveQueue) -> str:
        """Return what the offsets of a queue's records are, as far as its broker told."""
        return self._kinds.get((queue.topic, queue.broker_name), UNKNOWN)

    def store_of(self, queue: LiveQueue) -> str:
        """Return what column ``store`` says of a queue."""
        route = self._routes.get(queue.topic)
        return f"{queue.broker_name}@" if route is None else store_of(route, queue.broker_name)

    async def _look_up(self, *, named: bool) -> None:
        now = self._clock()
        if self._looked_at is not None and now - self._looked_at < _ROUTE_SECONDS:
            return
        try:
            names = await topic_names(self._cluster, self._predicate)
        except RemotingError as err:
            self._tell("name servers", err)
            return
        await gather(names, lambda name: self._refresh(str(name), named=named))
        fresh = [r for r in self._routes.values() if _unknown_kind(r, self._kinds)]
        self._kinds.update(await queue_kinds(self._cluster, fresh, patient=False))
        self._looked_at = now

    async def _refresh(self, topic: str, *, named: bool) -> None:
        try:
            self._routes[topic] = await self._cluster.routes.refresh(topic)
            self._away.discard(topic)
        except TopicNotFoundError as err:
            if named and self._predicate.topics is not None:
                raise
            self._tell(topic, err)
        except (RemotingError, ClientError) as err:
            self._tell(topic, err)

    async def _ends(self, queue: LiveQueue, store: str) -> SeenQueue | None:
        from rmqnet.client.message_queue import MessageQueue  # noqa: PLC0415 (its only use)

        brokers = self._cluster.brokers
        try:
            place = self._cluster.routes.find_broker(queue.broker_name, only_this_broker=False)
            low = await brokers.min_offset(place.address, MessageQueue(*queue))
            high = await brokers.max_offset(place.address, MessageQueue(*queue))
        except (RemotingError, ClientError, BrokerError) as err:
            if not may_pass(err):
                raise
            self._tell(queue.broker_name, err)
            return None
        self._away.discard(queue.broker_name)
        low, high = max(min(low, high), 0), max(high, 0)
        state = QueueState(queue, store, low, high, self.kind_of(queue))
        return SeenQueue(state, place.is_slave)

    def _tell(self, what: str, error: Exception) -> None:
        """Warn once of what does not answer, until it does again."""
        if what not in self._away:
            self._away.add(what)
            logger.warning("%s: no news at present, the stream waits for it: %s", what, error)


def _unknown_kind(route: TopicRoute, kinds: dict[tuple[str, str], str]) -> bool:
    return any((q.topic, q.broker_name) not in kinds for q in readable_queues(route))
