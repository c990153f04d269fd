# SPDX-License-Identifier: Apache-2.0
"""Consumers while brokers are away: what they report, and what slaves do meanwhile."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from rmqnet import ClientInstance, ConsumeFromWhere, PullConsumer, PullConsumerOptions
from rmqnet.client.admin.admin import Admin
from rmqnet.remoting.codes import RequestCode
from tests.rmqnet.client.consumer.scripted_queues import ScriptedQueues
from tests.rmqnet.client.consumer.test_push_consumer import Recorder, consuming
from tests.rmqnet.scripted_cluster import ScriptedServer, wait_until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.mark.parametrize("orderly", [False, True])
def test_an_outage_makes_one_warning(
    broker: ScriptedQueues, caplog: pytest.LogCaptureFixture, orderly: bool
) -> None:
    broker.cluster.add_topic("orders", queues={"broker-a": 60})
    caplog.set_level(logging.DEBUG, "rmqnet")
    with consuming(broker, Recorder(), orderly=orderly) as consumer:
        wait_until(lambda: len(consumer.queues) == 61, "all queues")
        broker.server.wait_for(RequestCode.PULL_MESSAGE, 61)
        caplog.clear()
        broker.server.stop()
        wait_until(
            lambda: sum("Connect call failed" in each.message for each in caplog.records) >= 244,
            "each queue to fail several times",
        )
        broker.server.start()
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1, warnings
    assert broker.server.address in warnings[0]


@pytest.fixture
def slave(broker: ScriptedQueues) -> ScriptedServer:
    """A slave that has all messages of its master."""
    server = broker.cluster.broker("broker-a", broker_id=1)
    server.answers = broker.server.answers
    return server


@pytest.mark.parametrize("route_tells", [False, True])
def test_a_pull_consumer_reads_from_the_slave_where_the_master_is_away(
    broker: ScriptedQueues, slave: ScriptedServer, route_tells: bool
) -> None:
    bodies = [b"%d" % number for number in range(70)]
    broker.put("orders", 0, *bodies)
    options = PullConsumerOptions(consume_from_where=FIRST, pull_retry_delay_ms=20)
    with PullConsumer("group", broker.cluster.namesrv_addr, options=options) as consumer:
        queues = consumer.queues_of("orders")
        if route_tells:
            broker.cluster.registered.remove(("broker-a", 0))
            consumer.queues_of("orders")
        broker.server.stop()
        consumer.assign(queues, sql="a = 1")
        consumer.seek_to_begin()
        assert (consumer.begin_offset(queues[0]), consumer.end_offset(queues[0])) == (0, 70)
        assert consumer.offset_of_time(queues[0], 1) == 1
        polled: list[bytes] = []
        while len(polled) < 70:
            messages = consumer.poll(32, timeout_s=10)
            assert messages, f"{len(polled)} of 70 came"
            polled += [each.body for each in messages]
        assert polled == bodies
        consumer.commit()
        assert consumer.committed(queues[0]) == 70
        consumer.seek_to_time(60, queues[0])
        consumer.seek_to_end(queues[0])
        assert consumer.position(queues[0]) == 70
        if not route_tells:
            broker.server.start()  # at its end the client unregisters at all brokers
    assert slave.asked(RequestCode.GET_MIN_OFFSET)


def test_a_push_consumer_goes_on_with_the_slave(
    broker: ScriptedQueues, slave: ScriptedServer
) -> None:
    listener = Recorder()
    with consuming(broker, listener):
        broker.server.wait_for(RequestCode.PULL_MESSAGE, 3)
        broker.server.stop()
        broker.put("orders", 1, b"a", b"b")
        listener.wait(2)
        broker.server.start()
    assert listener.bodies == Counter([b"a", b"b"])
    assert slave.asked(RequestCode.PULL_MESSAGE)


def test_an_administrator_reads_a_slaves_queue(
    broker: ScriptedQueues, slave: ScriptedServer
) -> None:
    broker.put("orders", 0, b"a")
    broker.cluster.registered.remove(("broker-a", 0))
    with ClientInstance(broker.cluster.namesrv_addr) as client:
        assert Admin(client).max_offset(broker.queues("orders", 1)[0]) == 1
    assert slave.asked(RequestCode.GET_MAX_OFFSET)
