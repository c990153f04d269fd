# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rmqnet import ClientConfig, ClientError, ClientInstance
from rmqnet.client.heartbeat_data import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    encode_heartbeat,
    parse_heartbeat,
)
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.headers import NotifyConsumerIdsChangedRequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.client.groups import NotingConsumer, NotingProducer
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, success, wait_until

HEART_BEAT, UNREGISTER = RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT
ORDERS = SubscriptionData("orders", "a || b", ("a", "b"), (97, 98), 1700000000000)
HEARTBEAT = HeartbeatData(
    "10.0.0.7@1",
    ("tills",),
    (
        ConsumerData(
            "cooks",
            (ORDERS,),
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.BROADCASTING,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            unit_mode=True,
        ),
    ),
)
JAVA = """{"clientID":"10.0.0.7@1","consumerDataSet":[{
"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cooks","messageModel":"BROADCASTING",
"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97,98],"expressionType":"TAG",
"subString":"a || b","subVersion":1700000000000,"tagsSet":["a","b"],"topic":"orders"}],
"unitMode":true}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"tills"}],
"withoutSub":false}"""
GO = """{"clientID":"10.0.0.7@1","producerDataSet":[{"groupName":"tills"}],"consumerDataSet":[
{"groupName":"cooks","consumeType":"CONSUME_PASSIVELY","messageModel":"BROADCASTING",
"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,
"topic":"orders","subString":"a || b","tagsSet":["a","b"],"codeSet":["97","98"],
"subVersion":1700000000000,"expressionType":"TAG"}],"unitMode":true}]}"""
CPP = """{"clientID":"10.0.0.7@1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,
"groupName":"cooks","messageModel":0,"unitMode":"true","subscriptionDataSet":[{"codeSet":["97","98"],
"subString":"a || b","subVersion":"1700000000000","tagsSet":["a","b"],"topic":"orders"}]}],
"producerDataSet":[{"groupName":"tills"}]}"""
NET = """{"ClientID":"10.0.0.7@1","ConsumerDataSet":[{
"ConsumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","ConsumeType":"CONSUME_PASSIVELY",
"GroupName":"cooks","MessageModel":"BROADCASTING","SubscriptionDataSet":[{"Topic":"orders",
"ExpressionType":null,"SubString":"a || b","TagsSet":["a","b"],"CodeSet":["97","98"],
"ClassFilterMode":false,"FilterClassSource":null,"SubVersion":1700000000000}],"UnitMode":true}],
"ProducerDataSet":[{"GroupName":"tills"}]}"""


def _last(broker: ScriptedServer) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(broker.asked(HEART_BEAT)[-1].body)
    return data


def _groups(broker: ScriptedServer) -> tuple[set[str], set[str]]:
    data = _last(broker)
    return (
        {each["groupName"] for each in data["producerDataSet"]},
        {each["groupName"] for each in data["consumerDataSet"]},
    )


def test_a_client_without_groups_sends_no_heartbeat_and_leaves_nothing() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        config = ClientConfig(cluster.namesrv_addr, heartbeat_broker_interval_ms=20)
        with ClientInstance(config) as client:
            client.call(client.route("orders"))
            client.call(client.send_heartbeats())
        assert cluster.broker("broker-a").requests == []


def test_a_consumer_is_announced_when_it_registers() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 1})
        slave = cluster.broker("broker-b", 1)
        consumer = NotingConsumer("g", "orders", "%RETRY%g")
        client.call(client.register_consumer("g", consumer))
        for broker in (cluster.broker("broker-a"), cluster.broker("broker-b"), slave):
            assert len(broker.asked(HEART_BEAT)) == 1
        data = _last(slave)
        assert data["clientID"] == client.client_id
        (announced,) = data["consumerDataSet"]
        assert announced["groupName"] == "g"
        assert announced["consumeType"] == "CONSUME_PASSIVELY"
        assert [each["topic"] for each in announced["subscriptionDataSet"]] == [
            "orders",
            "%RETRY%g",
        ]
        assert data["producerDataSet"] == [{"groupName": "CLIENT_INNER_PRODUCER"}]
        assert set(client.broker_versions.values()) == {479}


def test_producers_are_announced_to_masters_as_soon_as_they_are_known() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        slave = cluster.broker("broker-a", 1)
        cluster.add_topic("orders")
        client.call(client.register_producer("p", NotingProducer("orders")))
        client.call(client.publish_route("orders"))
        assert _groups(cluster.broker("broker-a")) == ({"p", "CLIENT_INNER_PRODUCER"}, set())
        assert slave.requests == []


def test_heartbeats_go_on() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        broker = cluster.broker("broker-a")
        config = ClientConfig(cluster.namesrv_addr, heartbeat_broker_interval_ms=20)
        with ClientInstance(config) as client:
            client.call(client.register_consumer("g", NotingConsumer("g", "orders")))
            client.call(client.register_consumer("h", NotingConsumer("h", "orders")))
            broker.wait_for(HEART_BEAT, 6)
            assert _groups(broker)[1] == {"g", "h"}
            client.call(client.unregister_consumer("g"))
            count = len(broker.asked(HEART_BEAT))
            broker.wait_for(HEART_BEAT, count + 2)
            assert _groups(broker)[1] == {"h"}


def test_one_group_of_a_name() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        client.call(client.register_consumer("g", NotingConsumer("g")))
        client.call(client.register_producer("g", NotingProducer()))
        with pytest.raises(ClientError, match="already has a consumer of group 'g'"):
            client.call(client.register_consumer("g", NotingConsumer("g")))
        with pytest.raises(ClientError, match="already has a producer of group 'g'"):
            client.call(client.register_producer("g", NotingProducer()))


def test_brokers_are_told_who_leaves() -> None:
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders")
        slave, broker = cluster.broker("broker-a", 1), cluster.broker("broker-a")
        with ClientInstance(cluster.namesrv_addr) as client:
            client.call(client.register_consumer("g", NotingConsumer("g", "orders")))
            client.call(client.register_producer("p", NotingProducer("orders")))
            client.call(client.unregister_consumer("g"))
            client.call(client.unregister_consumer("g"))  # nothing more
            for server in (broker, slave):
                (told,) = server.asked(UNREGISTER)
                assert told.ext_fields == {"clientID": client.client_id, "consumerGroup": "g"}
        left = [each.ext_fields.get("producerGroup") for each in broker.asked(UNREGISTER)]
        assert left == [None, "p", "CLIENT_INNER_PRODUCER"]


def test_a_broker_that_comes_back_hears_of_the_groups_soon() -> None:
    """The broker forgot the groups with the connection; a heartbeat may be half a minute away."""
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders")
        broker = cluster.broker("broker-a")
        consumer = NotingConsumer("g", "orders")
        client.call(client.register_consumer("g", consumer))
        count = len(broker.asked(HEART_BEAT))
        broker.drop_connections()
        broker.wait_for(HEART_BEAT, count + 1)
        wait_until(lambda: consumer.changes, "queues are shared out anew")


def test_members_may_change_before_the_heartbeat_is_answered() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders")
        broker = cluster.broker("broker-a")
        consumer = NotingConsumer("g", "orders")

        async def notify_first(request: RemotingCommand) -> RemotingCommand:
            notice = RemotingCommand.request(NotifyConsumerIdsChangedRequestHeader("g"))
            notice.opaque = request.opaque  # brokers number their requests independently
            notice.flag = 2
            await broker._write_all(notice)
            return success(request)

        broker.answers[HEART_BEAT] = notify_first
        client.call(client.register_consumer("g", consumer))
        wait_until(lambda: consumer.changes == 1, "the notice arrives")


def test_a_broker_that_refuses_heartbeats_stops_nothing() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 1})
        del cluster.broker("broker-a").answers[HEART_BEAT]
        client.call(client.register_consumer("g", NotingConsumer("g", "orders")))
        assert set(client.broker_versions) == {cluster.broker("broker-b").address}


def test_a_broker_that_does_not_answer_holds_up_nobody() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 1})
        cluster.broker("broker-a").answers[HEART_BEAT] = lambda _: None
        client.call(client.register_producer("p", NotingProducer("orders")))
        assert client.call(client.publish_route("orders"), timeout_s=2.5)
        assert set(client.broker_versions) == {cluster.broker("broker-b").address}


# Heartbeats as clients in several languages write them; Java's broker reads all of these.


@pytest.mark.parametrize("text", [JAVA, GO, CPP, NET], ids=["java", "go", "c++", ".net"])
def test_a_heartbeat_means_the_same_in_every_language(text):
    assert parse_heartbeat(text.encode()) == HEARTBEAT


def test_ours_is_read_as_it_was_written():
    body = encode_heartbeat("10.0.0.7@1", ["tills"], HEARTBEAT.consumers)
    assert parse_heartbeat(body) == HEARTBEAT


def test_a_subscription_without_version_is_of_now():
    """As in RocketMQ; otherwise a pull that names a version would find the subscription too old."""
    body = json.loads(CPP)
    del body["consumerDataSet"][0]["subscriptionDataSet"][0]["subVersion"]
    before = time.time_ns() // 1_000_000
    (consumer,) = parse_heartbeat(json.dumps(body).encode()).consumers
    assert before <= consumer.subscriptions[0].sub_version <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("number", [-1, 2, 99, True, "NOWHERE", None])
def test_a_model_that_nobody_knows_is_clustering(number):
    body = json.loads(CPP)
    body["consumerDataSet"][0]["messageModel"] = number
    (consumer,) = parse_heartbeat(json.dumps(body).encode()).consumers
    assert consumer.message_model is MessageModel.CLUSTERING


@pytest.mark.parametrize("version", ["soon", "", "1.5 ", [], "9" * 30])
def test_a_version_that_is_no_number_is_named(version):
    body = json.loads(CPP)
    body["consumerDataSet"][0]["subscriptionDataSet"][0]["subVersion"] = version
    with pytest.raises(ValueError, match="subVersion: a whole number was expected"):
        parse_heartbeat(json.dumps(body).encode())
