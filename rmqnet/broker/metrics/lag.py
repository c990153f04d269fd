"""How far groups are behind.

Source: RocketMQ ``ConsumerLagCalculator`` (release 5.3.3). It looks at the topics that members want
now; here also at those of groups whose members are all gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqnet.broker.state.consumer_offset_manager import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqnet.broker.broker import Broker


class Lag(NamedTuple):
    """How far one group is behind in one topic.

    Attributes
    ----------
    group, topic
        Whose, of what.
    behind
        Messages that it is not done with.
    inflight
        Those of them that it has got.
    latency_ms, queueing_ms
        Ages of the oldest message that it is not done with, and of the oldest that it has not got;
        0: there is none.
    """

    group: str
    topic: str
    behind: int
    inflight: int
    latency_ms: int
    queueing_ms: int


def lags(broker: Broker) -> Iterator[Lag]:
    """Return how far each group is behind in each topic that it reads."""
    for group in sorted(broker.groups.all()):
        noted = broker.offsets.topics_of(group)
        info = broker.consumers.group_info(group)
        if info is not None:
            if info.is_broadcasting:  # each member is somewhere else
                continue
            noted = {topic for topic in noted if not broker.consumers.is_unsubscribed(group, topic)}
            noted |= info.subscriptions.keys()
        for topic in sorted(noted):
            if broker.topics.select(topic) is not None:
                yield _lag(broker, group, topic)


def _lag(broker: Broker, group: str, topic: str) -> Lag:
    config = broker.topics.select(topic)
    behind = inflight = latency = queueing = 0
    for queue_id in range(0 if config is None else config.read_queue_nums):
        end = broker.store.get_max_offset_in_queue(topic, queue_id)
        first = broker.store.get_min_offset_in_queue(topic, queue_id)
        noted = broker.offsets.query(group, topic, queue_id)
        done = end if noted == NO_OFFSET else max(noted, first)
        got = min(max(broker.offsets.query_pull(group, topic, queue_id), done), end)
        behind += max(end - done, 0)
        inflight += max(got - done, 0)
        latency = max(latency, _age(broker, topic, queue_id, done))
        queueing = max(queueing, _age(broker, topic, queue_id, got))
    return Lag(group, topic, behind, inflight, latency, queueing)


def _age(broker: Broker, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return the ms since a message was stored; 0 where there is none."""
    stored = broker.store.get_message_store_timestamp(topic, queue_id, queue_offset)
    return max(broker.clock() - stored, 0) if stored > 0 else 0
