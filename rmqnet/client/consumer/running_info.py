"""What RocketMQ's tools show of a consumer that runs (``ConsumerRunningInfo``)."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.consume_statistics import ConsumeStatistics
    from rmqnet.client.consumer.offset_store import OffsetStore
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from rmqnet.client.consumer.push_options import PushConsumerOptions
    from rmqnet.client.heartbeat_data import ConsumerData

_VERSION = "V5_3_3"
_NO_OFFSET = -1


def running_properties(
    client: ClientInstance, options: PushConsumerOptions, *, orderly: bool, start_ms: int
) -> dict[str, str]:
    """Return the settings of a consumer, as texts."""
    settings = {each.name: _text(getattr(options, each.name)) for each in fields(options)}
    return {
        **settings,
        "PROP_NAMESERVER_ADDR": "".join(f"{each};" for each in client.config.name_servers),
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CLIENT_VERSION": _VERSION,
        "PROP_CONSUMEORDERLY": _text(orderly),
        "PROP_THREADPOOL_CORE_SIZE": str(options.consume_thread_count),
        "PROP_CONSUMER_START_TIMESTAMP": str(start_ms),
    }


def running_info(
    properties: dict[str, str],
    data: ConsumerData,
    process_queues: Iterable[ProcessQueue],
    offsets: OffsetStore,
    statistics: ConsumeStatistics,
) -> dict[str, Any]:
    """Return all that is shown; the keys of ``mqTable`` are queues."""
    queues = {}
    for each in sorted(process_queues, key=lambda each: each.queue):
        offset = offsets.get(each.queue)
        commit_offset = _NO_OFFSET if offset is None else offset
        queues[each.queue] = {"commitOffset": commit_offset, **each.describe()}
    topics = sorted(subscription.topic for subscription in data.subscriptions)
    return {
        "properties": properties,
        "subscriptionSet": [each.to_json() for each in data.subscriptions],
        "mqTable": queues,
        "mqPopTable": {},
        "statusTable": {topic: statistics.status(topic) for topic in topics},
        "userConsumerInfo": {},
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, Enum) else value)
