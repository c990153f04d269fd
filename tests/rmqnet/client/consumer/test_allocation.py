# SPDX-License-Identifier: Apache-2.0
"""Test vectors are results of RocketMQ 5.3.3 itself; live groups are in tests/interop."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqnet import ConsumeFromWhere
from rmqnet.client.consumer import push_consumer
from rmqnet.client.consumer.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocationStrategy,
    allocate,
)
from rmqnet.client.message_queue import MessageQueue
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.client.consumer.scripted_queues import ScriptedQueues
from tests.rmqnet.client.consumer.test_push_consumer import Recorder, consuming

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def _queues(count: int, broker_name: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("t", broker_name, queue_id) for queue_id in range(count)]


def _shares(strategy: AllocationStrategy, queues: int, members: int) -> list[list[int]]:
    names = [f"10.0.0.{index}@1" for index in range(members)]
    return [
        [queue.queue_id for queue in allocate(strategy, name, _queues(queues), names)]
        for name in names
    ]


@pytest.mark.parametrize(
    ("queues", "members", "shares"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, 4, [[0], [1], [2], [3]]),
        (2, 3, [[0], [1], []]),
        (7, 2, [[0, 1, 2, 3], [4, 5, 6]]),
        (6, 1, [[0, 1, 2, 3, 4, 5]]),
    ],
)
def test_averagely(queues: int, members: int, shares: list[list[int]]) -> None:
    assert _shares(AllocateAveragely(), queues, members) == shares


def test_by_circle() -> None:
    assert _shares(AllocateAveragelyByCircle(), 8, 3) == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert _shares(AllocateAveragelyByCircle(), 2, 3) == [[0], [1], []]


def test_by_machine_room() -> None:
    names = ["a@1", "b@1"]
    queues = [*_queues(3, "room1@a"), *_queues(2, "room2@b"), *_queues(2, "room3@c")]
    queues += [*_queues(2, "noroom"), *_queues(2, "room1@a@b"), *_queues(2, "room1@")]
    strategy = AllocateByMachineRoom(frozenset({"room1", "room2"}))
    shares = [allocate(strategy, name, queues, names) for name in names]
    # Five queues: two each, and the fifth to the first member.
    assert [[(queue.broker_name, queue.queue_id) for queue in share] for share in shares] == [
        [("room1@a", 0), ("room1@a", 1), ("room2@b", 1)],
        [("room1@a", 2), ("room2@b", 0)],
    ]


def test_by_config_takes_what_there_is() -> None:
    strategy = AllocateByConfig((MessageQueue("t", "broker-a", 3), MessageQueue("u", "b", 0)))
    assert allocate(strategy, "x", _queues(4), ["x", "y"]) == [MessageQueue("t", "broker-a", 3)]
    assert allocate(strategy, "y", _queues(2), ["x", "y"]) == []


def test_members_are_in_the_order_of_java_strings() -> None:
    # U+FF5E is one unit; U+1F600 is two, of which the first is smaller.
    names = ["\uff5e@1", "\U0001f600@1"]
    assert allocate(AllocateAveragely(), names[1], _queues(2), names) == _queues(2)[:1]
    brokers = [MessageQueue("t", "\uff5e", 0), MessageQueue("t", "\U0001f600", 0)]
    assert allocate(AllocateAveragely(), "x@1", brokers, ["x@1", "y@1"]) == brokers[1:]
    # Queue ids sort as numbers; clients sort as texts, in which 10 comes before 9.
    eleven = _queues(11)
    assert allocate(AllocateAveragely(), "x", eleven[::-1], ["x"]) == eleven
    assert allocate(AllocateAveragely(), "ip@10", _queues(2), ["ip@9", "ip@10"]) == _queues(1)


def test_who_is_no_member_has_nothing() -> None:
    assert allocate(AllocateAveragely(), "z@1", _queues(4), ["x@1"]) == []


@pytest.mark.parametrize(("queues", "members"), [(0, ["x"]), (1, [])])
def test_nothing_to_divide(queues: int, members: list[str]) -> None:
    with pytest.raises(ClientError, match="nothing to divide"):
        allocate(AllocateAveragely(), "x", _queues(queues), members)


_QUEUES = st.builds(
    MessageQueue, st.just("t"), st.sampled_from(["r@a", "r@b", "q@a", "é"]), st.integers(0, 40)
)


@given(
    st.sampled_from([AllocateAveragely(), AllocateAveragelyByCircle()]),
    st.lists(_QUEUES, min_size=1, unique=True),
    st.lists(st.text(min_size=1), min_size=1, unique=True),
    st.randoms(use_true_random=False),
)
def test_each_queue_has_one_member(strategy, queues, members, random) -> None:
    shares = []
    for member in list(members):
        random.shuffle(queues)
        random.shuffle(members)
        shares.append(allocate(strategy, member, queues, members))
    assert sorted(queue for share in shares for queue in share) == sorted(queues)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(_QUEUES, min_size=1, unique=True), st.integers(1, 9))
def test_each_queue_of_a_room_has_one_member(queues, count) -> None:
    members = [f"10.0.0.{index}@1" for index in range(count)]
    strategy = AllocateByMachineRoom(frozenset({"r"}))
    shares = [queue for name in members for queue in allocate(strategy, name, queues, members)]
    wanted = [queue for queue in queues if queue.broker_name.startswith("r@")]
    assert sorted(shares) == sorted(wanted)


# Messages sent after ``start`` has returned reach a new group, whatever brokers did meanwhile.


@pytest.mark.parametrize("orderly", [False, True])
def test_what_is_sent_after_start_comes(broker: ScriptedQueues, orderly: bool) -> None:
    async def later(request: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0.05)  # as long as a busy machine takes
        return broker._query_offset(request)

    broker.server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = later
    broker.put("orders", 0, b"old")
    listener = Recorder()
    with consuming(broker, listener, orderly=orderly, consume_from_where=LAST) as consumer:
        assert len(consumer.queues) == 3, "its own, and its retry topic's"
        broker.put("orders", 0, b"a")
        broker.put("orders", 1, b"b", b"c")
        listener.wait(3)
    assert listener.bodies == Counter([b"a", b"b", b"c"])


def test_an_empty_queue_is_begun_at_its_beginning(broker: ScriptedQueues) -> None:
    def not_found_and_then_a_message(request: RemotingCommand) -> RemotingCommand:
        response = broker._query_offset(request)
        broker.put(request.ext_fields["topic"], int(request.ext_fields["queueId"]), b"between")
        return response

    broker.server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = not_found_and_then_a_message
    listener = Recorder()
    with consuming(broker, listener, consume_from_where=LAST):
        listener.wait(3)
    assert listener.bodies == Counter({b"between": 3})


def test_a_topic_subscribed_while_it_runs(broker: ScriptedQueues) -> None:
    broker.cluster.add_topic("more", queues={"broker-a": 2})
    listener = Recorder()
    with consuming(
        broker, listener, consume_from_where=LAST, rebalance_interval_ms=60_000
    ) as consumer:
        consumer.subscribe("more")
        broker.put("more", 1, b"at once")
        listener.wait(1)
    assert listener.bodies == Counter([b"at once"])


def test_the_next_member_begins_where_the_first_would_have(broker: ScriptedQueues) -> None:
    """No message had come, so none was consumed; then one comes while the group has no member."""
    with consuming(broker, Recorder(), consume_from_where=LAST):
        pass
    broker.put("orders", 1, b"meanwhile")
    listener = Recorder()
    with consuming(broker, listener, consume_from_where=LAST):
        listener.wait(1)
    assert listener.bodies == Counter([b"meanwhile"])


def test_a_broker_that_does_not_answer_is_waited_for_a_while(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(push_consumer, "_FIRST_QUEUES_S", 0.1)
    known = broker.server.answers[RequestCode.QUERY_CONSUMER_OFFSET]
    broker.server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: (
        None if request.ext_fields["topic"] == "orders" else known(request)
    )
    with consuming(broker, Recorder(), consume_from_where=LAST) as consumer:
        assert {each.topic for each in consumer.queues} <= {"%RETRY%group"}
    assert "did not get all of its queues of topics orders within 0.1 s" in caplog.text


def test_shut_down_while_it_waits(broker: ScriptedQueues) -> None:
    """The shutdown ends it, not the limit of ten seconds."""
    asked = RequestCode.QUERY_CONSUMER_OFFSET
    broker.server.answers[asked] = lambda _: None
    consumer = push_consumer.PushConsumer("group", broker.cluster.namesrv_addr, Recorder())
    consumer.subscribe("orders")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(consumer.start)
        broker.server.wait_for(asked)
        consumer.shutdown()
        with suppress(ClientError):  # the error says that it was shut down
            starting.result(5)
