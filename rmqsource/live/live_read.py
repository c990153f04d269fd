# SPDX-License-Identifier: Apache-2.0
"""Batch reads of messages without Spark: plan, pull, decode and filter."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from rmqnet.remoting.headers import QueryMessageRequestHeader
from rmqsource.live.cluster import Cluster
from rmqsource.live.cluster_survey import (
    asked,
    gather,
    queue_kinds,
    selected_routes,
    store_of,
    survey_cluster,
)
from rmqsource.live.duplicates import RepeatFilter
from rmqsource.live.errors import ClusterError, KeyLookupError, LiveDataLossError
from rmqsource.live.live_options import subscription_of
from rmqsource.live.live_planner import plan_ranges, plan_splits
from rmqsource.live.live_queues import BATCH, LiveQueue, LiveSplit
from rmqsource.live.queue_pulls import BadPull, QueuePulls, frames_of_bodies
from rmqsource.options.offsets import SPECIFIC, OffsetBound
from rmqsource.scan.message_batches import MessageBatches, ReadRequest
from rmqsource.scan.predicate import ANY, from_options
from rmqsource.scan.splits import SegmentPositions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.live_queues import QueueSlice
    from rmqsource.live.queue_pulls import Pulled
    from rmqsource.scan.predicate import ScanPredicate
    from store_core.arrow_types import Columns
    from store_core.codec.record_frames import RecordFrames

logger = logging.getLogger(__name__)
_LAST_MS = (1 << 62) - 1
_MOST = 64
"""Limit of messages in a broker's answer (``maxMsgsNumBatch``), whatever is requested."""
_FIRST = 3
"""As many messages of the largest size that brokers accept (4 MB) fit into an answer."""
_ANSWER_BYTES = 12 << 20
"""A frame has at most 16 MB; later messages may be longer than those seen so far."""
SECOND_MS = 1000
"""The index stores times in whole seconds after the first time of a file."""


@dataclass(frozen=True)
class KeySplit:
    """A topic on a broker whose index is queried."""

    place: KeyPlace


AnySplit = Union[LiveSplit, KeySplit]


def plan_live_read(options: LiveOptions) -> list[AnySplit]:
    """Ask the cluster where the messages are, and return the splits for the tasks.

    Raises
    ------
    ClusterError
        The cluster cannot be reached, or does not know a topic.
    LiveDataLossError
        Selected offsets are gone, and ``failOnDataLoss`` is true.
    """
    predicate = from_options(options.reading)
    if predicate.is_empty:
        return []
    places: list[KeyPlace] = []
    with Cluster(options.connection) as cluster:
        if options.by_index:
            places, pulled = cluster.call(_key_places(cluster, predicate))
            predicate = replace(predicate, topics=frozenset(pulled))
        states = cluster.call(
            survey_cluster(cluster, predicate, options.reading.store_time_slack_ms)
        )
    ranges, missing = plan_ranges(states, predicate)
    if missing and options.reading.fail_on_data_loss:
        raise LiveDataLossError(missing[0].store, str(missing[0]))
    for lost in missing:
        logger.warning("%s: skipped, because they are gone", lost)
    return [*map(KeySplit, places), *split_ranges(options, ranges)]


def split_ranges(options: LiveOptions, ranges: list[QueueSlice]) -> list[LiveSplit]:
    """Divide ranges into splits as the options say."""
    return plan_splits(
        ranges,
        parallelism=os.cpu_count() or 1,
        min_splits=options.reading.min_partitions,
        max_splits=options.reading.max_partitions,
        whole_queues=options.dedupe,
    )


async def _key_places(
    cluster: Cluster, predicate: ScanPredicate
) -> tuple[list[KeyPlace], set[str]]:
    """Return where to query keys, and the topics whose messages the index does not cover.

    The index has the keys of records, but inner messages have keys of their own.
    """
    routes = await selected_routes(cluster, predicate)
    kinds = await queue_kinds(cluster, routes)
    pulled = {topic for (topic, _), kind in kinds.items() if kind == BATCH}
    stores = {route.topic: route for route in routes}
    places = [
        KeyPlace(topic, broker_name, store_of(stores[topic], broker_name))
        for topic, broker_name in kinds
        if topic not in pulled
    ]
    return places, pulled


def read_live_split(
    split: AnySplit, options: LiveOptions, columns: tuple[str, ...]
) -> Iterator[Columns]:
    """Yield batches of the requested columns of one split, by canonical name.

    Raises
    ------
    ClusterError
        A broker did not answer within ``retryTimeout``, or refused a request.
    LiveDataLossError
        Messages were lost since planning, and ``failOnDataLoss`` is true.
    """
    request = read_request(options, columns)
    with Cluster(options.connection) as cluster:
        if isinstance(split, KeySplit):
            repeats = RepeatFilter() if options.dedupe else None
            yield from _read_keys(cluster, split.place, request, repeats)
            return
        yield from read_ranges(cluster, split, options, request)


def read_ranges(
    cluster: Cluster, split: LiveSplit, options: LiveOptions, request: ReadRequest
) -> Generator[Columns, None, None]:
    """Yield batches of the requested columns of a split's ranges."""
    subscription = subscription_of(options.reading)
    pulls = QueuePulls(cluster, subscription, options.max_messages_per_pull).begin(split.ranges)
    # Only the selected topics and queues are pulled.
    predicate = replace(
        request.predicate, topics=None, topic_pattern=None, queue_ids=None, queue_id_range=ANY
    )
    batches = LiveBatches(
        replace(request, predicate=predicate), split.ranges, dedupe=options.dedupe
    )
    try:
        with cluster.explained():
            yield from batches.of_pulls(pulls)
    finally:
        pulls.shutdown()


def _read_keys(
    cluster: Cluster, place: KeyPlace, request: ReadRequest, repeats: RepeatFilter | None
) -> Iterator[Columns]:
    wanted = request.predicate
    keys = [*(wanted.keys or ()), *(wanted.unique_keys or ())]
    times = wanted.store_time_ms
    question = KeyQuestion(
        tuple(sorted(set(keys))),
        0 if times.start is None else max(times.start - SECOND_MS, 0),
        _LAST_MS if times.stop is None else times.stop,
    )
    frames = cluster.call(frames_of_keys(cluster, place, question))
    if frames is None:
        return
    last_filter = None if repeats is None else repeats.of_matching
    batches = MessageBatches(place.store, request, last_filter)
    yield from batches.of_frames(frames, SegmentPositions("its log", 0, 0, 0, b""))
    batches.report()


def read_request(options: LiveOptions, columns: tuple[str, ...]) -> ReadRequest:
    """Return the request that these options make."""
    return ReadRequest.from_options(options.reading, from_options(options.reading), columns)


class KeyPlace(NamedTuple):
    """Where keys are queried: a topic on a broker."""

    topic: str
    broker_name: str
    store: str


class KeyQuestion(NamedTuple):
    """Keys, and the store times ``[begin_ms, end_ms]`` of the messages to return."""

    keys: tuple[str, ...]
    begin_ms: int
    end_ms: int


async def frames_of_keys(
    cluster: Cluster, place: KeyPlace, question: KeyQuestion
) -> RecordFrames | None:
    """Return the records that a broker's index leads to, each once; None if there are none.

    The index has hashes of topic and key, so records with other keys may be among them.

    Raises
    ------
    KeyLookupError
        The index has more messages of a key within a second than the broker returns in one answer.
    """

    async def find(key: object) -> list[bytes]:
        return await _find(cluster, place, str(key), question)

    bodies = [body for found in await gather(question.keys, find) for body in found if body]
    if not bodies:
        return None
    frames = frames_of_bodies(bodies)
    if isinstance(frames, BadPull):
        raise ClusterError(place.store, f"its answer to a query by key: {frames.reason}")
    _, first = np.unique(frames.column("commit_log_offset"), return_index=True)
    return frames.take(np.sort(first))


async def _find(cluster: Cluster, place: KeyPlace, key: str, question: KeyQuestion) -> list[bytes]:
    """Return the answers for a span of time, halving a span that has too many messages.

    The first request asks for few messages, which show how many fit into an answer.
    """
    found: list[bytes] = []
    spans, most = [(question.begin_ms, question.end_ms)], _FIRST
    while spans:
        begin, end = spans.pop()
        body = await _query(cluster, place, key, (begin, end), most)
        sizes = _record_sizes(body)
        fit = int(np.clip(_ANSWER_BYTES // sizes.max(initial=1), _FIRST, _MOST))
        if len(sizes) < most:
            found.append(body)
            most = min(most, fit)
            continue
        asked_for, most = most, fit
        if asked_for < most:
            spans.append((begin, end))
        elif end - begin < SECOND_MS:
            raise KeyLookupError(
                place.store,
                f"its index has {asked_for} or more messages of topic {place.topic!r} for key "
                f"{key!r} within a second ({begin} ms since the epoch), and an answer has no "
                f"room for more messages of up to {sizes.max():,} bytes, and never for more "
                f"than {_MOST}",
            )
        else:
            middle = (begin + end) // 2
            spans += [(begin, middle), (middle + 1, end)]
    return found


async def _query(
    cluster: Cluster, place: KeyPlace, key: str, span: tuple[int, int], most: int
) -> bytes:
    header = QueryMessageRequestHeader(
        topic=place.topic,
        key=key,
        max_num=most,
        begin_timestamp=span[0],
        end_timestamp=span[1],
        unique_key_query=False,
        bname=place.broker_name,
    )

    async def ask(address: str) -> bytes:
        return (await cluster.brokers.query_message(address, header)).body

    return await asked(cluster, LiveQueue(place.topic, place.broker_name, 0), ask)


def _record_sizes(body: bytes) -> Any:
    """Return the length of each record in an answer; none if it does not consist of records."""
    frames = frames_of_bodies([body]) if body else None
    if frames is None or isinstance(frames, BadPull):
        return np.empty(0, np.int64)
    return frames.column("total_size")


class LiveBatches:
    """Decodes the answers to one task's pulls."""

    def __init__(
        self, request: ReadRequest, ranges: Sequence[QueueSlice], *, dedupe: bool = False
    ) -> None:
        self._request = request
        repeats = RepeatFilter() if dedupe else None
        self._stores = {
            store: _StoreBatches(
                store, request, [part for part in ranges if part.store == store], repeats
            )
            for store in {part.store for part in ranges}
        }
        self._lost: dict[LiveQueue, list[int]] = {}

    def of_pulls(self, pulls: Iterable[Sequence[Pulled]]) -> Iterator[Columns]:
        """Yield the matching messages of answers, in order within each queue."""
        for chunk in pulls:
            for pulled in chunk:
                store = self._stores[pulled.part.store]
                if pulled.is_lost:
                    self._lose(pulled, pulled.start, pulled.stop)
                if pulled.body:
                    store.add(pulled)
                if store.is_full:
                    yield from self._decoded(store)
        for store in self._stores.values():
            yield from self._decoded(store)
        self._report()

    def _decoded(self, store: _StoreBatches) -> Iterator[Columns]:
        answers = store.take()
        if not answers:
            return
        frames = frames_of_bodies([pulled.body for pulled in answers])
        if isinstance(frames, BadPull):
            raise ClusterError(store.name, f"{_place(answers, frames.position)}: {frames.reason}")
        self._check_gaps(answers, frames)
        yield from store.batches.of_frames(frames, store.place)

    def _check_gaps(self, answers: Sequence[Pulled], frames: RecordFrames) -> None:
        """Look for offsets missing from complete answers; one comparison covers all answers."""
        whole = [pulled for pulled in answers if pulled.is_complete]
        if not whole:
            return
        expected = np.concatenate([np.arange(p.start, p.stop, dtype=np.int64) for p in whole])
        found = frames.column("queue_offset")
        if len(whole) == len(answers) and np.array_equal(expected, found):
            return
        sizes = np.cumsum([len(pulled.body) for pulled in answers])
        answer = np.searchsorted(sizes, frames.position, "right")
        for number, pulled in enumerate(answers):
            if pulled.is_complete:
                self._check_answer(pulled, found[answer == number].tolist())

    def _check_answer(self, pulled: Pulled, offsets: list[int]) -> None:
        at = pulled.start
        for offset in [*offsets, pulled.stop]:
            if offset < at:
                raise ClusterError(
                    pulled.part.store,
                    f"{pulled.part.queue} answered a pull of offset {at} with a message of offset "
                    f"{offset}",
                )
            if offset > at:
                self._lose(pulled, at, offset)
            at = offset + 1

    def _lose(self, pulled: Pulled, start: int, stop: int) -> None:
        """Raise an error for lost messages, or count them for a warning at the end."""
        queue = pulled.part.queue
        if self._request.fail_on_data_loss:
            raise LiveDataLossError(
                pulled.part.store,
                f"offsets {start} to {stop - 1} of {queue} are gone since the read was planned: "
                "expired, or lost when the broker crashed",
            )
        self._lost.setdefault(queue, [start, 0])[1] += stop - start

    def _report(self) -> None:
        for queue, (first, count) in self._lost.items():
            logger.warning(
                "%s: %d messages are gone and skipped, from offset %d on", queue, count, first
            )
        for store in self._stores.values():
            store.batches.report()


class _StoreBatches:
    """Answers of one broker that wait to be decoded together."""

    def __init__(
        self,
        store: str,
        request: ReadRequest,
        parts: Sequence[QueueSlice],
        repeats: RepeatFilter | None,
    ) -> None:
        self.name = store
        predicate = _bounded(request.predicate, parts)
        self.batches = MessageBatches(
            store,
            replace(request, predicate=predicate),
            None if repeats is None else repeats.of_matching,
        )
        self.place = SegmentPositions("its log", 0, 0, 0, b"")
        self._rows, self._bytes = request.batch_rows, request.batch_bytes
        self._waiting: list[Pulled] = []
        self._offsets = self._size = 0

    @property
    def is_full(self) -> bool:
        return self._offsets >= self._rows or self._size >= self._bytes

    def add(self, pulled: Pulled) -> None:
        self._waiting.append(pulled)
        self._offsets += pulled.stop - pulled.start if pulled.is_complete else 1
        self._size += len(pulled.body)

    def take(self) -> list[Pulled]:
        found, self._waiting = self._waiting, []
        self._offsets = self._size = 0
        return found


def _bounded(predicate: ScanPredicate, parts: Sequence[QueueSlice]) -> ScanPredicate:
    """Return a predicate that is true for the rows of these parts only.

    Only inner messages need bounds, as a pulled inner batch may reach beyond a part.
    """
    bounded = [part for part in parts if part.kind == BATCH]
    if not bounded:
        return replace(predicate, starting_offsets=None, ending_offsets=None)
    starts = {(part.queue.topic, part.queue.queue_id): part.start for part in reversed(bounded)}
    ends = {(part.queue.topic, part.queue.queue_id): part.end for part in bounded}
    return replace(
        predicate,
        starting_offsets=OffsetBound(SPECIFIC, starts),
        ending_offsets=OffsetBound(SPECIFIC, ends),
    )


def _place(answers: Sequence[Pulled], position: int) -> str:
    """Describe which answer contains a byte of the joined bodies."""
    for pulled in answers:
        if position < len(pulled.body):
            return f"byte {position} of the answer to a pull of {pulled.part.queue}"
        position -= len(pulled.body)
    return "the last answer"
