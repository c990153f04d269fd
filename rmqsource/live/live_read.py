"""A batch read of messages, without Spark: planned, pulled, decoded, filtered."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Union

from rmqsource.live.cluster import Cluster
from rmqsource.live.cluster_survey import queue_kinds, selected_routes, store_of, survey
from rmqsource.live.errors import LiveDataLossError
from rmqsource.live.key_queries import SECOND_MS, KeyPlace, KeyQuestion, frames_of_keys
from rmqsource.live.live_batches import LiveBatches
from rmqsource.live.live_planner import plan_ranges, plan_splits
from rmqsource.live.live_queues import BATCH, LiveSplit
from rmqsource.live.queue_pulls import QueuePulls
from rmqsource.live.repeats import RepeatFilter
from rmqsource.live.subscription import subscription_of
from rmqsource.scan.message_batches import MessageBatches
from rmqsource.scan.predicate import ANY, from_options
from rmqsource.scan.read_request import ReadRequest
from rmqsource.scan.splits import SegmentPositions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.live_queues import QueueRange
    from rmqsource.scan.predicate import ScanPredicate
    from store_core.arrow_types import Columns

logger = logging.getLogger(__name__)

_LAST_MS = (1 << 62) - 1


@dataclass(frozen=True)
class KeySplit:
    """A broker whose index is asked."""

    place: KeyPlace


AnySplit = Union[LiveSplit, KeySplit]


def plan_live_read(options: LiveOptions) -> list[AnySplit]:
    """Ask the cluster where the messages are, and return what tasks are to read.

    Raises
    ------
    ClusterError
        The cluster cannot be reached, or does not know a topic.
    LiveDataLossError
        Offsets that were asked for are gone, and ``failOnDataLoss`` is true.
    """
    predicate = from_options(options.reading)
    if predicate.is_empty:
        return []
    places: list[KeyPlace] = []
    with Cluster(options.connection) as cluster:
        if options.by_index:
            places, pulled = cluster.call(_key_places(cluster, predicate))
            predicate = replace(predicate, topics=frozenset(pulled))
        states = cluster.call(survey(cluster, predicate, options.reading.store_time_slack_ms))
    ranges, missing = plan_ranges(states, predicate)
    if missing and options.reading.fail_on_data_loss:
        raise LiveDataLossError(missing[0].store, str(missing[0]))
    for lost in missing:
        logger.warning("%s: left out, as they are gone", lost)
    return [*map(KeySplit, places), *split_ranges(options, ranges)]


def split_ranges(options: LiveOptions, ranges: list[QueueRange]) -> list[LiveSplit]:
    """Share ranges out as the options say."""
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
    """Return where keys are asked for, and topics of which the index does not tell all.

    It has the keys of records, and inner messages have keys of their own.
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
    """Yield batches of the asked-for columns of one split, by canonical name.

    Raises
    ------
    ClusterError
        A broker did not answer within ``retryTimeout``, or refused.
    LiveDataLossError
        Messages are gone since planning, and ``failOnDataLoss`` is true.
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
    """Yield batches of the asked-for columns of some ranges."""
    subscription = subscription_of(options.reading)
    pulls = QueuePulls(cluster, subscription, options.max_messages_per_pull).of(split.ranges)
    # What topics and queues are asked for is what is pulled.
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
        pulls.stop()


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
    """Return what these options ask of a task."""
    return ReadRequest.of(options.reading, from_options(options.reading), columns)
