"""What is sent once ``start`` has returned reaches a new group, whatever brokers were doing."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from rmqnet import ClientError, ConsumeFromWhere
from rmqnet.client.consumer import push_consumer
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.client.consumer.scripted_queues import ScriptedQueues
from tests.rmqnet.client.consumer.test_push_consumer import Recorder, consuming

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


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
    """Nothing had come, so that nothing was consumed; then one comes while no member is there."""
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
    assert "has not all of its queues of topics orders within 0.1 s" in caplog.text


def test_shut_down_while_it_waits(broker: ScriptedQueues) -> None:
    """It is not the ten seconds that end it."""
    asked = RequestCode.QUERY_CONSUMER_OFFSET
    broker.server.answers[asked] = lambda _: None
    consumer = push_consumer.PushConsumer("group", broker.cluster.namesrv_addr, Recorder())
    consumer.subscribe("orders")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(consumer.start)
        broker.server.wait_for(asked)
        consumer.shutdown()
        with suppress(ClientError):  # it says that it was shut down
            starting.result(5)
