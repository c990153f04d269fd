# SPDX-License-Identifier: Apache-2.0
"""A consumer's rates of pulling and consuming over the last minute.

Source: RocketMQ ``ConsumerStatsManager``, ``ConsumeStatus`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import astuple, dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Callable

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.consumer_options import PushConsumerOptions
    from rmqnet.client.consumer.offset_store import OffsetStore
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from rmqnet.client.heartbeat_data import ConsumerData

SAMPLE_INTERVAL_S = 10.0
_SAMPLES = 7  # a minute from the first to the last
_EPSILON = 1e-9
_VERSION = "V5_3_3"
_NO_OFFSET = -1


@dataclass
class _Totals:
    consumed: int = 0
    failed: int = 0
    listener_calls: int = 0
    listener_s: float = 0.0
    pulled: int = 0
    pulls: int = 0
    pull_s: float = 0.0


class ConsumeStatistics:
    """Counters by topic; any thread may use them."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now = monotonic_s
        self._guard = threading.Lock()
        self._totals: dict[str, _Totals] = {}
        self._samples: deque[tuple[float, dict[str, _Totals]]] = deque(maxlen=_SAMPLES)
        self._samples.append((monotonic_s(), {}))

    def consumed(self, topic: str, done: int, failed: int, seconds: float) -> None:
        """Count one call of the listener."""
        with self._guard:
            totals = self._totals.get(topic) or self._of(topic)
            totals.consumed += done
            totals.failed += failed
            totals.listener_calls += 1
            totals.listener_s += seconds

    def pulled(self, topic: str, messages: int, seconds: float) -> None:
        """Count one pull that returned messages."""
        with self._guard:
            totals = self._of(topic)
            totals.pulled += messages
            totals.pulls += 1
            totals.pull_s += seconds

    def sample(self) -> None:
        """Record the current counts; the caller does this each `SAMPLE_INTERVAL_S`."""
        with self._guard:
            counts = {topic: _Totals(*astuple(each)) for topic, each in self._totals.items()}
            self._samples.append((self._now(), counts))

    def status(self, topic: str) -> dict[str, float | int]:
        """Return rates per second and times in ms, as RocketMQ's tools show them."""
        with self._guard:
            begun, counts = self._samples[0]
            before = counts.get(topic, _Totals())
            now = _Totals(*astuple(self._of(topic)))
            seconds = max(self._now() - begun, _EPSILON)
        calls, pulls = now.listener_calls - before.listener_calls, now.pulls - before.pulls
        return {
            "pullRT": 1000 * (now.pull_s - before.pull_s) / max(pulls, 1),
            "pullTPS": (now.pulled - before.pulled) / seconds,
            "consumeRT": 1000 * (now.listener_s - before.listener_s) / max(calls, 1),
            "consumeOKTPS": (now.consumed - before.consumed) / seconds,
            "consumeFailedTPS": (now.failed - before.failed) / seconds,
            "consumeFailedMsgs": now.failed - before.failed,
        }

    def _of(self, topic: str) -> _Totals:
        totals = self._totals.get(topic)
        if totals is None:
            totals = self._totals[topic] = _Totals()
        return totals


def running_properties(
    client: ClientInstance, options: PushConsumerOptions, *, orderly: bool, start_ms: int
) -> dict[str, str]:
    """Return a consumer's settings as strings."""
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
    """Return ``ConsumerRunningInfo`` as JSON values; the keys of ``mqTable`` are queues."""
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
