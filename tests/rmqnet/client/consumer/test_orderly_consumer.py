# SPDX-License-Identifier: Apache-2.0
"""Orderly consumers against a scripted broker; RocketMQ's own brokers are in tests/interop."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

from rmqnet import ConsumeContext, Message, MessageModel, MessageQueue
from rmqnet.client.consumer import (
    consumption,
    process_queue,
    push_consumer,
    queue_locks,
    rebalance,
)
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.client.consumer.scripted_queues import ScriptedQueues
from tests.rmqnet.client.consumer.test_push_consumer import consuming
from tests.rmqnet.scripted_cluster import answer, wait_until

DEADLINE_S = 10.0
RETRIES = MessageQueue("%RETRY%group", "broker-a", 0)


class _Orderly:
    """Records messages in order by queue, -1 for retries; fails each one as often as scripted."""

    def __init__(self, failures: dict[bytes, int] | None = None, suspend_ms: int = 10) -> None:
        self.seen: defaultdict[int, list[bytes]] = defaultdict(list)
        self.failed: list[tuple[bytes, int]] = []
        self.overlaps = 0
        self._failures = failures or {}
        self._suspend_ms = suspend_ms
        self._busy: set[MessageQueue] = set()

    def __call__(self, messages: list[Message], context: ConsumeContext) -> bool | None:
        self.overlaps += context.message_queue in self._busy
        self._busy.add(context.message_queue)
        try:
            return self._consume(messages, context)
        finally:
            self._busy.discard(context.message_queue)

    def _consume(self, messages: list[Message], context: ConsumeContext) -> bool | None:
        message = messages[0]
        if self._failures.get(message.body, 0) > 0:
            self._failures[message.body] -= 1
            self.failed.append((message.body, message.reconsume_times))
            context.suspend_current_queue_time_ms = self._suspend_ms
            return False
        # The retry topic's queue has a number, too, and is ordered separately.
        is_retried = context.message_queue == RETRIES
        self.seen[-1 if is_retried else message.queue_id] += [each.body for each in messages]
        return None

    def wait(self, count: int) -> None:
        wait_until(lambda: sum(map(len, self.seen.values())) >= count, f"{count} messages")


def _numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_in_order_and_what_fails_first_again(broker: ScriptedQueues) -> None:
    others = [b"other %d" % number for number in range(100)]
    broker.put("orders", 0, *_numbers(100))
    broker.put("orders", 1, *others)
    listener = _Orderly({b"7": 3, b"other 40": 1})
    with consuming(broker, listener, orderly=True) as consumer:
        listener.wait(200)
        assert consumer.queues == [RETRIES, *broker.queues("orders", 2)]
        assert set(broker.locks.values()) == {consumer.client_id}
        assert len(broker.locks) == 3
    assert dict(listener.seen) == {0: _numbers(100), 1: others}
    assert listener.overlaps == 0
    assert [times for body, times in listener.failed if body == b"7"] == [0, 1, 2]
    assert broker.committed("group", "orders") == {0: 100, 1: 100}
    assert broker.locks == {}
    assert broker.server.asked(RequestCode.CONSUMER_SEND_MSG_BACK) == []
    unlocks = broker.server.asked(RequestCode.UNLOCK_BATCH_MQ)
    assert not unlocks[-1].is_oneway
    assert len(json.loads(unlocks[-1].body)["mqSet"]) == 3


def test_batches(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(10))
    listener = _Orderly({b"4": 1})
    with consuming(broker, listener, orderly=True, consume_message_batch_max_size=4):
        listener.wait(10)
    assert listener.seen[0] == _numbers(10)


def test_too_often_it_goes_to_the_dead_letters(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(3), properties={"KEYS": "k"})
    listener = _Orderly({b"1": 3})
    with consuming(broker, listener, orderly=True, max_reconsume_times=2):
        (sent,) = broker.server.wait_for(RequestCode.SEND_MESSAGE_V2)
        wait_until(lambda: broker.committed("group", "orders").get(0) == 3, "the offset")
    assert [times for _, times in listener.failed] == [0, 1, 2]
    assert listener.seen[0][:2] == [b"0", b"2"]
    fields = sent.ext_fields
    assert (fields["b"], fields["j"], fields["l"]) == ("%RETRY%group", "3", "2")
    properties = dict(part.split("\x01") for part in fields["i"].split("\x02") if part)
    assert (properties["DELAY"], properties["RECONSUME_TIME"]) == ("5", "3")
    assert (properties["RETRY_TOPIC"], properties["MAX_RECONSUME_TIMES"]) == ("orders", "2")


def test_not_taken_for_the_dead_letters_it_stays_first(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(3))
    good = broker.server.answers[RequestCode.SEND_MESSAGE_V2]
    broker.server.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: answer(
        request, ResponseCode.SYSTEM_BUSY, "no"
    )
    listener = _Orderly({b"1": 100})
    with consuming(broker, listener, orderly=True, max_reconsume_times=0):
        wait_until(lambda: len(listener.failed) >= 2, "a second failure")
        assert listener.seen[0] == [b"0"]
        broker.server.answers[RequestCode.SEND_MESSAGE_V2] = good
        wait_until(lambda: listener.seen[0][:2] == [b"0", b"2"], "the others")


def test_a_queue_that_another_member_has_locked(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalance, "_LOCK_AGAIN_S", 0.02)
    for queue_id in (0, 1):
        broker.put("orders", queue_id, *_numbers(3))
    broker.locks["group", "orders", 1] = "somebody"
    listener = _Orderly()
    with consuming(broker, listener, orderly=True) as consumer:
        listener.wait(3)
        assert broker.queues("orders", 2)[1] not in consumer.queues
        del broker.locks["group", "orders", 1]
        listener.wait(6)
    assert dict(listener.seen) == {0: _numbers(3), 1: _numbers(3)}


def test_a_lock_that_is_lost(broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumption, "_LOCK_FAILED_MS", 20)
    monkeypatch.setattr(queue_locks, "LOCK_INTERVAL_S", 0.02)
    monkeypatch.setattr("rmqnet.client.consumer.push_consumer._FIRST_LOCK_S", 0.02)
    monkeypatch.setattr("rmqnet.client.consumer.push_consumer.LOCK_INTERVAL_S", 0.02)
    listener = _Orderly()
    with consuming(broker, listener, orderly=True) as consumer:
        broker.put("orders", 0, b"before")
        listener.wait(1)
        broker.locks["group", "orders", 0] = "somebody"
        (held,) = [
            each
            for each in consumer._rebalancer.process_queues
            if each.queue == MessageQueue("orders", "broker-a", 0)
        ]
        wait_until(lambda: not held.locked, "the lock to be missed")
        broker.put("orders", 0, b"after")
        wait_until(lambda: held.count == 1, "the message that waits")
        assert listener.seen[0] == [b"before"]
        del broker.locks["group", "orders", 0]
        listener.wait(2)
    assert listener.seen[0] == [b"before", b"after"]


def test_given_away_when_the_listener_is_done(broker: ScriptedQueues) -> None:
    """A queue that moves to another member goes on there, in order and without repeats."""
    for queue_id in (0, 1):
        broker.put("orders", queue_id, *_numbers(20))
    begun, go_on = threading.Event(), threading.Event()
    seen: defaultdict[int, list[bytes]] = defaultdict(list)

    def slow(messages: list[Message], context: ConsumeContext) -> None:
        begun.set()
        go_on.wait(DEADLINE_S)
        seen[messages[0].queue_id].append(messages[0].body)

    with consuming(broker, slow, orderly=True) as first:
        assert begun.wait(DEADLINE_S)
        with consuming(broker, slow, orderly=True) as second:
            wait_until(lambda: len(broker.members["group"]) == 2, "two members")
            moving = [
                each for each in first._rebalancer.process_queues if each.queue.topic == "orders"
            ]
            wait_until(lambda: any(each.unlock_attempts for each in moving), "an attempt")
            assert len(broker.locks) == 3
            assert set(broker.locks.values()) == {first.client_id}
            go_on.set()
            wait_until(lambda: sum(map(len, seen.values())) >= 40, "all messages")
            assert {each.topic for each in second.queues} >= {"orders"}
    codes = [each.code for each in broker.server.requests]
    before = broker.server.requests[: codes.index(RequestCode.UNLOCK_BATCH_MQ)]
    notes = [each for each in before if each.code == RequestCode.UPDATE_CONSUMER_OFFSET]
    assert not notes[-1].is_oneway, "the next member begins where this one ended"
    assert dict(seen) == {0: _numbers(20), 1: _numbers(20)}


def test_broadcasting_needs_no_lock(broker: ScriptedQueues, tmp_path: Path) -> None:
    broker.put("orders", 0, *_numbers(10))
    listener = _Orderly({b"3": 1})
    options = {"message_model": MessageModel.BROADCASTING, "offset_directory": tmp_path}
    with consuming(broker, listener, orderly=True, **options):
        listener.wait(10)
    assert listener.seen[0] == _numbers(10)
    assert broker.server.asked(RequestCode.LOCK_BATCH_MQ) == []
    assert broker.server.asked(RequestCode.UNLOCK_BATCH_MQ) == []


def test_a_broker_that_does_not_lock_is_not_asked_all_the_time(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is away for longer than locks are valid: the queue waits, and asks again later."""
    monkeypatch.setattr(consumption, "_LOCK_FAILED_MS", 200)
    monkeypatch.setattr(process_queue, "LOCK_TRUSTED_MS", 30)
    good = broker.server.answers[RequestCode.LOCK_BATCH_MQ]
    listener = _Orderly()
    with consuming(broker, listener, orderly=True, rebalance_interval_ms=60_000) as consumer:
        wait_until(lambda: len(consumer.queues) == 3, "all queues")
        broker.server.answers[RequestCode.LOCK_BATCH_MQ] = lambda request: answer(
            request, ResponseCode.SYSTEM_ERROR, "no"
        )
        held = consumer._rebalancer.process_queues
        wait_until(lambda: all(each.is_lock_expired for each in held), "the locks to expire")
        before = len(broker.server.asked(RequestCode.LOCK_BATCH_MQ))
        broker.put("orders", 0, b"x")
        broker.server.wait_for(RequestCode.LOCK_BATCH_MQ, before + 2)
        begun = time.monotonic()
        broker.server.wait_for(RequestCode.LOCK_BATCH_MQ, before + 3)
        assert time.monotonic() - begun > 0.1
        assert listener.seen[0] == []
        broker.server.answers[RequestCode.LOCK_BATCH_MQ] = good
        monkeypatch.setattr(process_queue, "LOCK_TRUSTED_MS", 30_000)
        listener.wait(1)


def test_no_more_is_consumed_once_it_is_shut_down(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(20))
    begun, go_on = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def slow(messages: list[Message], context: ConsumeContext) -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        seen.append(messages[0].body)

    with consuming(broker, slow, orderly=True) as consumer:
        assert begun.wait(DEADLINE_S)
        ending = threading.Thread(target=consumer.shutdown)
        ending.start()
        wait_until(lambda: consumer._threads.stopped, "the shutdown to begin")
        go_on.set()
        ending.join(DEADLINE_S)
    assert seen == [b"0"]
    assert broker.committed("group", "orders").get(0) == 1, "and what was running is noted"


def test_locks_are_given_back_also_of_queues_that_are_just_moving(broker: ScriptedQueues) -> None:
    """A member stops while its listener still has messages of a queue that is moving away."""
    broker.put("orders", 1, *_numbers(3))
    begun, go_on = threading.Event(), threading.Event()

    def slow(messages: list[Message], context: ConsumeContext) -> None:
        begun.set()
        go_on.wait(DEADLINE_S)

    with consuming(broker, slow, orderly=True) as consumer:
        assert begun.wait(DEADLINE_S)
        broker.members["group"].append("zz")
        consumer.on_consumer_ids_changed()
        moving = [each for each in consumer._rebalancer.process_queues if each.queue.queue_id == 1]
        wait_until(lambda: moving[0].unlock_attempts, "the attempt to give it away")
        ending = threading.Thread(target=consumer.shutdown)
        ending.start()
        wait_until(lambda: consumer._threads.stopped, "the shutdown to begin")
        go_on.set()
        ending.join(DEADLINE_S)
    assert broker.locks == {}
    assert broker.committed("group", "orders")[1] == 1


def test_a_lock_is_given_back_where_the_offset_is_not_known(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member may be able to read the queue; it must not wait a minute for the lock."""
    monkeypatch.setattr(push_consumer, "_FIRST_QUEUES_S", 0.0)
    broker.server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: answer(
        request, ResponseCode.SYSTEM_ERROR, "no"
    )
    listener = _Orderly()
    with consuming(broker, listener, orderly=True, rebalance_interval_ms=60_000):
        broker.server.wait_for(RequestCode.QUERY_CONSUMER_OFFSET, 3)
        wait_until(lambda: broker.locks == {}, "the locks to be given back")


def test_a_queue_that_is_gone_is_not_locked_again(broker: ScriptedQueues) -> None:
    """When the queue was given away, its lock had expired and was about to be requested again."""
    listener = _Orderly()
    with consuming(broker, listener, orderly=True) as consumer:
        wait_until(lambda: len(consumer.queues) == 3, "all queues")
        held = consumer._rebalancer.process_queues
        gone = next(each for each in held if each.queue.queue_id == 1)
        broker.members["group"].append("zz")
        consumer.on_consumer_ids_changed()
        wait_until(lambda: gone.queue not in consumer.queues, "the queue to be given away")
        wait_until(lambda: len(broker.locks) == 2, "its lock to be given back")
        orderly = consumer._rebalancer._consumption
        consumer._client.call(orderly._lock_and_go_on(gone))
        assert ("group", "orders", 1) not in broker.locks


def test_taken_back_at_once_a_queue_is_locked(broker: ScriptedQueues) -> None:
    """Brokers use several threads, so one-way requests may take effect late."""
    unlocked: list[RemotingCommand] = []
    unlock = broker.server.answers[RequestCode.UNLOCK_BATCH_MQ]

    async def late(request: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0.05)
        answered: RemotingCommand = unlock(request)
        unlocked.append(request)
        return answered

    broker.server.answers[RequestCode.UNLOCK_BATCH_MQ] = late
    broker.put("orders", 1, *_numbers(2))
    begun, go_on = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def slow(messages: list[Message], context: ConsumeContext) -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        seen.append(messages[0].body)

    with consuming(broker, slow, orderly=True) as consumer:
        assert begun.wait(DEADLINE_S)
        (held,) = [each for each in consumer._rebalancer.process_queues if each.queue.queue_id == 1]
        broker.members["group"].append("zz")
        consumer.on_consumer_ids_changed()
        wait_until(lambda: held.unlock_attempts, "the attempt to give it away")
        broker.members["group"].remove("zz")
        go_on.set()
        wait_until(lambda: seen == _numbers(2), "the queue to be taken back")
        assert len(broker.server.wait_for(RequestCode.UNLOCK_BATCH_MQ)) == 1
        wait_until(lambda: unlocked, "the broker to obey")
        assert broker.locks["group", "orders", 1] == consumer.client_id


def test_a_broker_that_was_started_anew_forgot_its_locks(broker: ScriptedQueues) -> None:
    """Another member may have locked them first: nothing is consumed before locks are granted."""
    broker.put("orders", 0, b"before")
    listener = _Orderly()
    with consuming(broker, listener, orderly=True) as consumer:
        listener.wait(1)
        broker.server.stop()
        for place in list(broker.locks):
            broker.locks[place] = "somebody"
        broker.put("orders", 0, b"after")
        before = len(broker.server.asked(RequestCode.LOCK_BATCH_MQ))
        broker.server.start()
        broker.server.wait_for(RequestCode.LOCK_BATCH_MQ, before + 3)
        assert listener.seen[0] == [b"before"]
        assert not any(each.locked for each in consumer._rebalancer.process_queues)
        broker.locks.clear()
        listener.wait(2)
    assert listener.seen[0] == [b"before", b"after"]
