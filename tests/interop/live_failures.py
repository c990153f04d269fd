# SPDX-License-Identifier: Apache-2.0
"""Clients in this process whose brokers are killed and stopped."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from rmqnet import (
    BrokerError,
    ClientConfig,
    ClientError,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    RemotingError,
    SendResult,
)
from tests.interop.client_node import ClientNode, Queue, queue_of, wait_until
from tests.interop.live_cluster import LiveCluster, unique

SETTINGS = {"flushDiskType": "SYNC_FLUSH"}
"""Settings of the brokers: a message they acknowledge is on the disk."""

_QUEUES = 4
_BATCH = 5
_SEND_TIMEOUT_S = 10
_PAUSE_S = 0.05
_THINK_S = 0.005
_DEADLINE_S = 90
_FAILURES = (RemotingError, BrokerError, ClientError)


@dataclass(frozen=True)
class Sent:
    """One send: when it began and ended, and its answer unless it failed."""

    key: str
    begin: float
    end: float
    result: SendResult | None


@dataclass(frozen=True)
class Delivery:
    """One call of a listener, for one message."""

    queue: Queue
    queue_offset: int
    key: str


@dataclass
class Outage:
    """The time in which a broker was away; open-ended at first."""

    broker: str
    begin: float
    gone: float = float("inf")
    """When the broker's process had ended."""
    end: float = float("inf")


@dataclass
class Senders:
    """Threads that send messages: some one after the other, one without waiting for answers, and
    one in batches.
    """

    producer: Producer
    topic: str
    threads: int = 2
    in_flight: int = 16
    sent: list[Sent] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _running: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin."""
        for number in range(self.threads):
            self._start(self._send, f"S{number}")
        self._start(self._send_async, "A")
        self._start(self._send_batches, "B")

    def stop(self) -> None:
        """Stop, once every send is answered."""
        self._stop.set()
        for thread in self._running:
            thread.join()

    def acknowledged(self) -> list[Sent]:
        """Return the answered sends, in the order of their answers."""
        return [each for each in list(self.sent) if each.result is not None]

    def wait_for_more(self, count: int, broker: str | None = None) -> None:
        """Wait until so many more messages are acknowledged by one broker, or by any."""
        seen = len(self.sent)

        def is_enough() -> bool:
            more = [each.result for each in list(self.sent)[seen:] if each.result]
            brokers = [result.queue.broker_name for result in more]
            return (len(brokers) if broker is None else brokers.count(broker)) >= count

        assert wait_until(is_enough, _DEADLINE_S), f"not {count} more messages, broker {broker}"

    def _start(self, target: Any, prefix: str) -> None:
        thread = threading.Thread(target=target, args=(prefix,), name=f"sender-{prefix}")
        self._running.append(thread)
        thread.start()

    def _message(self, key: str) -> Message:
        return Message(self.topic, key.encode() * 20, keys=[key])

    def _send(self, prefix: str) -> None:
        number = 0
        while not self._stop.is_set():
            key, begin, result = f"{prefix}-{number}", time.monotonic(), None
            try:
                result = self.producer.send(self._message(key), timeout_s=_SEND_TIMEOUT_S)
            except _FAILURES:
                self._stop.wait(_PAUSE_S)
            self.sent.append(Sent(key, begin, time.monotonic(), result))
            self._stop.wait(_THINK_S)
            number += 1

    def _send_batches(self, prefix: str) -> None:
        number = 0
        while not self._stop.is_set():
            keys = [f"{prefix}-{number}-{item}" for item in range(_BATCH)]
            begin, first = time.monotonic(), None
            with suppress(*_FAILURES):
                batch = [self._message(key) for key in keys]
                first = self.producer.send_batch(batch, timeout_s=_SEND_TIMEOUT_S)
            for item, key in enumerate(keys):
                # The answer has the place of the first message; the others follow it.
                result = first and replace(first, queue_offset=first.queue_offset + item)
                self.sent.append(Sent(key, begin, time.monotonic(), result))
            self._stop.wait(_PAUSE_S)  # the others send enough
            number += 1

    def _send_async(self, prefix: str) -> None:
        room, number = threading.Semaphore(self.in_flight), 0
        while not self._stop.is_set():
            key, begin = f"{prefix}-{number}", time.monotonic()
            room.acquire()

            def note(done: Future[SendResult], key: str = key, begin: float = begin) -> None:
                result = done.result() if done.exception() is None else None
                self.sent.append(Sent(key, begin, time.monotonic(), result))
                room.release()

            try:
                answer = self.producer.send_async(self._message(key), timeout_s=_SEND_TIMEOUT_S)
            except _FAILURES:
                room.release()
                self._stop.wait(_PAUSE_S)
                continue
            answer.add_done_callback(note)
            self._stop.wait(_THINK_S)
            number += 1
        for _ in range(self.in_flight):
            room.acquire()


class Recorder:
    """A listener that records its messages."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def __call__(self, messages: list[Message], context: ConsumeContext) -> None:
        queue = context.message_queue
        named = Queue(queue.topic, queue.broker_name, queue.queue_id)
        for message in messages:
            key = message.properties["KEYS"]
            self.deliveries.append(Delivery(named, message.queue_offset, key))


class FailureRun:
    """Sends to a topic of its own and consumes from it while brokers go and come back.

    Leaving the block stops all clients.

    Parameters
    ----------
    cluster
        Brokers with `SETTINGS`.
    java
        RocketMQ's clients of the cluster, which report what is stored.
    seed
        Seed of the random choices.
    """

    def __init__(self, cluster: LiveCluster, java: ClientNode, seed: int) -> None:
        self.cluster = cluster
        self.outages: list[Outage] = []
        self._java = java
        self._random = random.Random(seed)
        self._topic = unique(f"failures_{seed}")
        self._groups = {False: unique("concurrent"), True: unique("orderly")}
        self.recorders = {orderly: Recorder() for orderly in self._groups}
        self._open = ExitStack()
        self._config = ClientConfig(
            cluster.namesrv_addr,
            poll_name_server_interval_ms=1000,
            heartbeat_broker_interval_ms=1000,
            persist_consumer_offset_interval_ms=1000,
        )

    def __enter__(self) -> FailureRun:
        with ExitStack() as opening:
            self._java.create_topic(self._topic, _QUEUES)
            self.consumers = [
                opening.enter_context(self._consumer(orderly)) for orderly in self._groups
            ]
            producer = opening.enter_context(Producer(unique("senders"), self._config))
            self.senders = Senders(producer, self._topic)
            opening.callback(self.senders.stop)
            self.senders.start()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _consumer(self, orderly: bool) -> PushConsumer:
        options = PushConsumerOptions(
            # The default may leave out the first message of a queue that is empty at first.
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            rebalance_interval_ms=1000,
            consume_thread_count=4,
        )
        consumer = PushConsumer(
            self._groups[orderly],
            self._config,
            self.recorders[orderly],
            orderly=orderly,
            options=options,
        )
        consumer.subscribe(self._topic)
        return consumer

    def break_one(self, *, clean: bool = False) -> None:
        """End a broker during traffic, start it again, and check that it takes messages."""
        broker = self._random.choice(self.cluster.brokers)
        others = len(self.cluster.brokers) > 1
        self.senders.wait_for_more(self._random.randrange(20, 100))
        outage = Outage(broker, time.monotonic())
        self.outages.append(outage)
        (self.cluster.stop_broker if clean else self.cluster.kill_broker)(broker)
        outage.gone = time.monotonic()
        assert (self.cluster.store(broker) / "abort").exists() is not clean
        if others:
            self.senders.wait_for_more(50)
        self.cluster.start_broker(broker)
        self.senders.wait_for_more(50, broker)
        outage.end = time.monotonic()

    def finish(self) -> dict[str, int]:
        """Stop sending, wait for the consumers, and check everything; return counts.

        Raises
        ------
        AssertionError
            A message was lost, or came more often than RocketMQ allows.
        """
        self.senders.stop()
        # Queues grow a moment after the answer.
        wait_until(lambda: self._acknowledged_keys() <= self._stored_keys(), _DEADLINE_S)
        stored = self._java.pull_all(self._topic)
        for orderly, recorder in self.recorders.items():
            wait_until(lambda recorder=recorder: not _missed(stored, recorder), _DEADLINE_S)
            missed = _missed(stored, recorder)
            assert not missed, f"orderly={orderly}: {len(missed)}, {sorted(missed)[:5]}"
        self._open.close()
        self._check_stored(stored)
        for orderly, recorder in self.recorders.items():
            self._check_repeats(recorder)
            self._check_offsets(self._groups[orderly], stored)
        self._check_order(self.recorders[True])
        return self._counts(stored)

    def _acknowledged_keys(self) -> set[str]:
        return {each.key for each in self.senders.acknowledged()}

    def _stored_keys(self) -> set[str]:
        return {row["keys"] for row in self._java.pull_all(self._topic)}

    def _check_stored(self, stored: list[dict[str, Any]]) -> None:
        """Check that each acknowledged message is there, and twice only if sent in an outage."""
        copies = Counter(row["keys"] for row in stored)
        acknowledged = self.senders.acknowledged()
        lost = [each for each in acknowledged if each.key not in copies]
        assert not lost, f"{len(lost)} acknowledged messages are lost: {lost[:3]}"
        places = {(queue_of(row), row["queue_offset"]): row["keys"] for row in stored}
        elsewhere = [each for each in acknowledged if places.get(_place(each)) != each.key]
        assert not elsewhere, f"acknowledged elsewhere than stored: {elsewhere[:3]}"
        sends = {each.key: each for each in self.senders.sent}
        twice = [sends[key] for key, count in copies.items() if count > 1]
        unexplained = [each for each in twice if not self._was_out(each)]
        assert not unexplained, f"stored twice without need: {unexplained[:3]}"

    def _was_out(self, sent: Sent) -> bool:
        return any(sent.begin <= out.end and out.begin <= sent.end for out in self.outages)

    def _check_repeats(self, recorder: Recorder) -> None:
        """Check that only queues of brokers that went away were read again from an older offset."""
        counts = Counter((each.queue, each.queue_offset) for each in recorder.deliveries)
        gone = {outage.broker for outage in self.outages}
        unexplained = [
            place for place, count in counts.items() if count > 1 and place[0].broker not in gone
        ]
        assert not unexplained, f"delivered twice without need: {unexplained[:5]}"

    def _check_offsets(self, group: str, stored: list[dict[str, Any]]) -> None:
        """Check that in the end the brokers know that the group has everything."""
        ends: dict[Queue, int] = {}
        for row in stored:
            ends[queue_of(row)] = max(ends.get(queue_of(row), 0), row["queue_offset"] + 1)
        offsets = self._java.consumer_offsets(group, self._topic)
        assert {queue: offsets.get(queue) for queue in ends} == ends

    def _check_order(self, recorder: Recorder) -> None:
        """Check that an orderly listener never got a message before an earlier one of its queue."""
        reached: dict[Queue, int] = {}
        for each in recorder.deliveries:
            next_offset = reached.get(each.queue, 0)
            assert each.queue_offset <= next_offset, f"{each} came before offset {next_offset}"
            reached[each.queue] = max(next_offset, each.queue_offset + 1)

    def _counts(self, stored: Iterable[dict[str, Any]]) -> dict[str, int]:
        copies = Counter(row["keys"] for row in stored)
        deliveries = [len(recorder.deliveries) for recorder in self.recorders.values()]
        return {
            "outages": len(self.outages),
            "acknowledged": len(self.senders.acknowledged()),
            "failed": len(self.senders.sent) - len(self.senders.acknowledged()),
            "stored": sum(copies.values()),
            "stored twice": sum(count > 1 for count in copies.values()),
            "delivered again": sum(deliveries) - 2 * sum(copies.values()),
        }


def _place(sent: Sent) -> tuple[Queue, int] | None:
    if sent.result is None:
        return None
    queue = sent.result.queue
    return Queue(queue.topic, queue.broker_name, queue.queue_id), sent.result.queue_offset


def _missed(stored: list[dict[str, Any]], recorder: Recorder) -> set[tuple[Queue, int]]:
    seen = {(each.queue, each.queue_offset) for each in list(recorder.deliveries)}
    return {(queue_of(row), row["queue_offset"]) for row in stored} - seen
