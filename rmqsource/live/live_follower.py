# SPDX-License-Identifier: Apache-2.0
"""All queues of a stream: where the next batch ends, within its limits."""

from __future__ import annotations

import enum
import logging
import time
from typing import TYPE_CHECKING, Callable, NamedTuple

from rmqnet.errors import BrokerError, ClientError, RemotingError, TopicNotFoundError
from rmqsource.errors import StreamDataLossError
from rmqsource.live.cluster import Cluster, Patience, may_pass
from rmqsource.live.cluster_survey import (
    gather,
    queue_kinds,
    readable_queues,
    store_of,
    topic_names,
)
from rmqsource.live.errors import LiveDataLossError
from rmqsource.live.live_offset import LiveOffset, live_selection
from rmqsource.live.live_planner import selects_queue
from rmqsource.live.live_queues import UNKNOWN, LiveQueue, QueueSlice, QueueState
from rmqsource.live.queue_facts import first_offset_at
from rmqsource.options.offsets import LATEST
from rmqsource.scan.predicate import from_options
from rmqsource.stream.batch_cut import shares
from rmqsource.stream.stream_offset import check_selection

if TYPE_CHECKING:
    from rmqnet.client.topic_route import TopicRoute
    from rmqsource.live.live_options import LiveOptions
    from rmqsource.scan.predicate import ScanPredicate

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
"""Least time between requests to brokers; Spark asks every 10 ms while nothing is new."""
_ROUTE_SECONDS = 10.0
"""New queues and brokers are seen after this time, or when a broker stops answering."""


class _Waiting(NamedTuple):
    """Messages of a queue that may be read: ``[start, end)``."""

    queue: LiveQueue
    start: int
    end: int


class Start(enum.Enum):
    """Which queues must have been seen before a stream starts."""

    ANY = enum.auto()
    """None of them; this object begins queues of brokers that answer later as at the start."""
    ALL_IF_BOUNDED = enum.auto()
    """All queues, if the options say where they begin."""
    ALL = enum.auto()
    """All queues, as an apparent start may be a restart."""


class LiveFollower:
    """Follows queues; not thread-safe."""

    def __init__(
        self,
        options: LiveOptions,
        clock: Callable[[], float] = time.monotonic,
        *,
        start: Start = Start.ALL_IF_BOUNDED,
    ) -> None:
        self._options, self._clock = options, clock
        reading = options.reading
        is_bounded = (reading.starting_timestamp_ms, reading.starting_offsets) != (None, None)
        self._needs_all = start is Start.ALL or (start is Start.ALL_IF_BOUNDED and is_bounded)
        self._silent: frozenset[LiveQueue] = frozenset()
        self._selection = live_selection(options)
        self._cluster_: Cluster | None = None
        self._queues_: QueueMembership | None = None
        self._ends: dict[LiveQueue, int] = {}
        self._target: dict[LiveQueue, int] | None = None
        self._last_batch: float | None = None
        self._last_look: float | None = None
        self._reached: LiveOffset | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._cluster_ is not None:
            self._cluster_.shutdown()
        self._cluster_ = self._queues_ = None

    @property
    def initial(self) -> LiveOffset:
        """The offset before the first batch, whose end says where the queues begin."""
        return LiveOffset({}, self._selection, is_initial=True)

    def pin_target(self, *, named: bool = True) -> None:
        """Let the stream end where the queues end now (``Trigger.AvailableNow``).

        With ``named``, an unknown topic given by name is an error, as at a start.
        """
        seen = self._look(named=named)
        self._target = {queue.state.queue: queue.state.max_offset for queue in seen}

    def is_idle(self) -> bool:
        """Return whether brokers were asked too recently to ask again."""
        return self._last_look is not None and self._clock() - self._last_look < _LOOK_SECONDS

    def next_offset(self, start: LiveOffset, *, limited: bool) -> LiveOffset:
        """Return where the next batch ends; ``start`` itself if there is no batch."""
        check_selection(start, self._selection)  # type: ignore[arg-type]  # it has a selection
        waiting = self._waiting(start)
        self._reached = start
        if limited and not self._is_due(start, waiting):
            return start
        most = self._options.reading.max_offsets_per_trigger if limited else None
        counts = [part.end - part.start for part in waiting]
        ends = {
            part.queue: part.end if share is None else min(part.start + share, part.end)
            for part, share in zip(waiting, shares(most, counts))
        }
        if all(start.queues.get(queue) == end for queue, end in ends.items()):
            return start
        self._last_batch = self._clock()
        begin = {p.queue: p.start for p in waiting if p.queue not in start.queues}
        resumed = {p.queue: p.start for p in waiting if p.start != start.queues.get(p.queue)}
        for queue in begin:
            del resumed[queue]
        self._reached = LiveOffset({**start.queues, **ends}, self._selection, begin, resumed)
        return self._reached

    def reported(self) -> LiveOffset | None:
        """Return how far the queues go, with the number of messages past the last batch."""
        if self._reached is None or self._reached.is_initial:
            return None
        read = self._reached.queues
        ends = {**read, **{q: end for q, end in self._ends.items() if q in read}}
        waiting = sum(max(ends[queue] - offset, 0) for queue, offset in read.items())
        return LiveOffset(ends, self._selection, waiting=waiting)

    def ranges(self, start: LiveOffset, end: LiveOffset) -> list[QueueSlice]:
        """Return the parts of queues that a batch has.

        Spark 4.0 and 4.1 do not pass a query's offset, so `end` may have been computed as if
        nothing had been read; `start` has the offsets read.

        Raises
        ------
        StreamDataLossError
            A queue ends before the offset read, and ``failOnDataLoss`` is true.
        """
        for offset in (start, end):
            check_selection(offset, self._selection)  # type: ignore[arg-type]  # see above
        found = []
        for queue, stop in sorted(end.queues.items()):
            read = start.queues.get(queue, end.begin.get(queue, stop))
            first = end.resumed.get(queue, read)
            if first < stop:
                found.append((queue, first, stop))
            elif first > stop:
                self._lose(queue, f"{queue.broker_name}@", *_shrunk(first, stop))
        if found and self._last_look is None:  # a batch that is repeated after a restart
            self._look(named=False)
        queues = self._queues
        return [QueueSlice(q, queues.store_of(q), a, b, queues.kind_of(q)) for q, a, b in found]

    def commit(self, end: LiveOffset) -> None:
        """Commit the consumer group's offsets to brokers; a later commit makes up for failures."""
        cluster = self._cluster

        async def note() -> None:
            for queue, offset in end.queues.items():
                await _note(cluster, queue, offset)

        cluster.call(note())

    @property
    def _cluster(self) -> Cluster:
        if self._cluster_ is None:
            self._cluster_ = Cluster(self._options.connection).start()
        return self._cluster_

    @property
    def _queues(self) -> QueueMembership:
        if self._queues_ is None:
            predicate = from_options(self._options.reading)
            self._queues_ = QueueMembership(self._cluster, predicate, self._clock)
        return self._queues_

    def _look(self, *, named: bool, whole: bool = False) -> list[SeenQueue]:
        seen = self._cluster.call(self._queues.look(named=named, whole=whole))
        self._last_look = self._clock()
        self._ends.update((queue.state.queue, queue.state.max_offset) for queue in seen)
        return seen

    def _waiting(self, start: LiveOffset) -> list[_Waiting]:
        found = []
        whole = start.is_initial and self._needs_all
        found_now = self._look(named=start.is_initial, whole=whole)
        if start.is_initial:
            self._silent = self._queues.silent
        for seen in found_now:
            state = seen.state
            read = start.queues.get(state.queue)
            is_late = self._target is not None and state.queue not in self._target
            if read is None and is_late and not start.is_initial:
                continue  # added after the query began
            if read is not None and read > state.max_offset and seen.by_slave:
                continue
            is_initial = start.is_initial or state.queue in self._silent
            begin = self._begin(state, read, is_initial=is_initial)
            end = max(begin, state.max_offset)
            if self._target is not None:
                end = max(begin, min(end, self._target.get(state.queue, begin)))
            found.append(_Waiting(state.queue, begin, end))
        return found

    def _begin(self, state: QueueState, read: int | None, *, is_initial: bool) -> int:
        """Return where to continue in a queue.

        Raises
        ------
        StreamDataLossError
            The next messages are gone, and ``failOnDataLoss`` is true.
        """
        if read is None:
            return self._first(state) if is_initial else state.min_offset
        if state.min_offset <= read <= state.max_offset:
            return read
        if read < state.min_offset:
            reason = f"offsets {read} to {state.min_offset - 1} expired before they were read"
            instead = f"it continues at offset {state.min_offset}"
            begin = state.min_offset
        else:
            reason, instead = _shrunk(read, state.max_offset)
            begin = state.max_offset
        self._lose(state.queue, state.store, reason, instead)
        return begin

    def _lose(self, queue: LiveQueue, store: str, reason: str, instead: str) -> None:
        """Raise an error for a loss, or warn of it."""
        if self._options.reading.fail_on_data_loss:
            raise StreamDataLossError(store, f"{queue}: {reason}", instead)
        logger.warning("%s: %s; %s", queue, reason, instead)

    def _first(self, state: QueueState) -> int:
        """Return where the first batch begins in a queue."""
        reading = self._options.reading
        if reading.starting_timestamp_ms is not None:
            first = first_offset_at(self._cluster, state, reading.starting_timestamp_ms)
            return self._cluster.call(first)
        bound = reading.starting_offsets
        if bound is None:
            return state.min_offset
        key = (state.queue.topic, state.queue.queue_id)
        if bound.kind == LATEST or key in bound.latest:
            return state.max_offset
        wanted = bound.offset_of(*key)
        if wanted is None or state.min_offset <= wanted <= state.max_offset:
            return state.min_offset if wanted is None else wanted
        reason = (
            f"offset {wanted} of {state.queue}, where startingOffsets begins, does not exist; "
            f"the queue has offsets {state.min_offset} to {state.max_offset - 1}"
        )
        if reading.fail_on_data_loss:
            raise LiveDataLossError(state.store, reason)
        logger.warning("%s", reason)
        return min(max(wanted, state.min_offset), state.max_offset)

    def _is_due(self, start: LiveOffset, waiting: list[_Waiting]) -> bool:
        """Return whether enough messages wait for a batch, or the trigger delay is over."""
        least = self._options.reading.min_offsets_per_trigger
        if least is None or self._target is not None or start.is_initial:
            return True
        if self._last_batch is None:
            self._last_batch = self._clock()
        waited_ms = (self._clock() - self._last_batch) * 1000
        if waited_ms >= self._options.reading.max_trigger_delay_ms:
            return True
        return sum(part.end - part.start for part in waiting) >= least


def _shrunk(read: int, end: int) -> tuple[str, str]:
    """Describe a queue that ends before the offset read, and how the stream continues."""
    reason = (
        f"it was read up to offset {read - 1} but ends at {end}: the broker crashed and lost "
        "messages, or the topic was recreated"
    )
    return reason, f"it continues at offset {end}, with the messages that arrive from now on"


async def _note(cluster: Cluster, queue: LiveQueue, offset: int) -> None:
    from rmqnet.client.message_queue import MessageQueue  # noqa: PLC0415 (its only use)
    from rmqnet.errors import BrokerError, ClientError, RemotingError  # noqa: PLC0415

    group = cluster.connection.consumer_group
    try:
        address = await cluster.address_of(queue.topic, queue.broker_name)
        await cluster.brokers.update_consumer_offset(address, group, MessageQueue(*queue), offset)
    except (BrokerError, ClientError, RemotingError) as err:
        logger.warning("offset %d of %s was not committed for %s: %s", offset, queue, group, err)


class SeenQueue(NamedTuple):
    """A queue and its ends; ``by_slave`` if a slave reported them, which may lag."""

    state: QueueState
    by_slave: bool


class QueueMembership:
    """Tracks the queues of the selected topics."""

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

        Raises
        ------
        ClientError
            With ``whole``, a broker has not answered within ``retryTimeout``.
        """
        patience = Patience(self._cluster.connection.retry_timeout_ms)
        while True:
            found = await self._look_once(named=named)
            if not whole or not self.silent:
                return found
            queue = min(self.silent)
            reason = f"{queue.broker_name} does not report where {queue} begins and ends"
            await patience.pause(
                reason, ClientError(f"{reason}: start the query when it answers again")
            )

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
        """Return the kind of a queue's offsets; `UNKNOWN` if its broker did not report it."""
        return self._kinds.get((queue.topic, queue.broker_name), UNKNOWN)

    def store_of(self, queue: LiveQueue) -> str:
        """Return the value of column ``store`` for a queue."""
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
        """Warn once that a server does not answer, until it answers again."""
        if what not in self._away:
            self._away.add(what)
            logger.warning("%s: no answer at present, the stream waits for it: %s", what, error)


def _unknown_kind(route: TopicRoute, kinds: dict[tuple[str, str], str]) -> bool:
    return any((q.topic, q.broker_name) not in kinds for q in readable_queues(route))
