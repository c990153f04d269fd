# SPDX-License-Identifier: Apache-2.0
"""The routes of a running client, seen from outside."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rmqnet import (
    ClientConfig,
    ClientError,
    ClientInstance,
    RemotingFormatError,
    TopicNotFoundError,
    TopicRoute,
)
from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.queue_json import parse_queue_offsets, to_queue_json
from rmqnet.client.route_table import BrokerAddress
from rmqnet.client.topic_route import parse_topic_route
from rmqnet.remoting.codes import RequestCode
from tests.rmqnet.client.groups import NotingProducer
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, wait_until

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
# A name server of 5.3.3 answers a client before 4.9.4 like this: broker ids are bare numbers.
BARE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-b","cluster":"DefaultCluster","enableActingMaster":false},'
    b'{"brokerAddrs":{1:"10.0.0.3:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
    b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-b",'
    b'"perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":1},{"brokerName":"broker-a",'
    b'"perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
)


def _quick(cluster: ScriptedCluster, poll_ms: int = 30) -> ClientConfig:
    return ClientConfig(cluster.namesrv_addr, poll_name_server_interval_ms=poll_ms)


def _asked(server: ScriptedServer, topic: str) -> int:
    return sum(each.ext_fields["topic"] == topic for each in server.asked(ROUTE))


def _keep_using(client: ClientInstance, topic: str, until: object) -> None:
    assert callable(until)

    def used() -> bool:
        client.cached_route(topic)
        return bool(until())

    wait_until(used, f"route of {topic}")


def test_a_route_in_use_is_looked_at_again() -> None:
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster)) as client:
        cluster.add_topic("orders", queues={"broker-a": 1})
        client.call(client.route("orders"))
        cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 2})
        _keep_using(client, "orders", lambda: len(_queues(client)) == 3)
        assert client.broker_address("broker-b") == cluster.broker("broker-b").address


def _queues(client: ClientInstance) -> list[MessageQueue]:
    route = client.cached_route("orders")
    return [] if route is None else route.publish_queues()


def test_a_route_that_nobody_uses_is_dropped_and_so_is_its_broker() -> None:
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster)) as client:
        cluster.add_topic("orders")
        client.call(client.route("orders"))
        wait_until(lambda: not client._routes.brokers, "the broker is forgotten")
        with pytest.raises(ClientError, match="no route names broker 'broker-a'"):
            client.broker_address("broker-a")
        before = len(cluster.name_server.requests)
        assert client.call(client.route("orders")).publish_queues()
        assert len(cluster.name_server.requests) > before


def test_a_topic_of_a_group_is_in_use() -> None:
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster)) as client:
        cluster.add_topic("orders")
        client.call(client.register_producer("p", NotingProducer("orders")))
        wait_until(lambda: _asked(cluster.name_server, "orders") > 5, "five looks")
        assert client.broker_address("broker-a")


def test_a_topic_that_is_unknown_for_a_moment_keeps_its_route() -> None:
    """A restarted name server knows no topics until the brokers register."""
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster, 200)) as client:
        cluster.add_topic("orders")
        route = client.call(client.route("orders"))
        topic = cluster.topics.pop("orders")
        before = _asked(cluster.name_server, "orders")
        _keep_using(client, "orders", lambda: _asked(cluster.name_server, "orders") >= before + 2)
        assert client.cached_route("orders") == route
        cluster.topics["orders"] = topic


def test_a_topic_that_is_gone_loses_its_route() -> None:
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster)) as client:
        cluster.add_topic("orders")
        client.call(client.route("orders"))
        del cluster.topics["orders"]
        wait_until(lambda: client.cached_route("orders") is None, "the route is dropped")
        with pytest.raises(TopicNotFoundError):
            client.call(client.route("orders"))


def test_a_broker_that_is_gone_is_left_out() -> None:
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster)) as client:
        cluster.add_topic("orders", queues={"broker-a": 1, "broker-b": 1})
        assert len(client.call(client.route("orders")).publish_queues()) == 2
        cluster.registered.remove(("broker-b", 0))
        _keep_using(client, "orders", lambda: "broker-b" not in client._routes.brokers)
        assert _queues(client) == [MessageQueue("orders", "broker-a", 0)]


def test_a_name_server_that_fails_leaves_the_route() -> None:
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster)) as client:
        cluster.add_topic("orders", queues={"broker-a": 1})
        client.call(client.route("orders"))
        cluster.name_server.stop()
        assert len(_queues(client)) == 1
        cluster.add_topic("orders", queues={"broker-a": 5})
        cluster.name_server.start()
        _keep_using(client, "orders", lambda: len(_queues(client)) == 5)


def test_who_asks_at_the_same_time_gets_the_same_answer() -> None:
    async def ask_often() -> set[int]:
        routes = await asyncio.gather(*(client.refresh_route("orders") for _ in range(20)))
        return {id(route) for route in routes}

    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders")
        assert len(client.call(ask_often())) == 1
        assert _asked(cluster.name_server, "orders") == 1


def test_a_new_topic_has_the_queues_that_brokers_will_give_it() -> None:
    with ScriptedCluster() as cluster, ClientInstance(_quick(cluster)) as client:
        cluster.add_topic("TBW102", queues={"broker-a": 8, "broker-b": 2})
        route = client.call(client.publish_route("new", 4))
        expected = [MessageQueue("new", "broker-a", each) for each in range(4)]
        expected += [MessageQueue("new", "broker-b", each) for each in range(2)]
        assert route.publish_queues() == expected
        assert client.broker_address("broker-b")
        assert client.call(client.publish_route("new", 4)) is route
        # A consumer must not treat an assumption as a fact.
        with pytest.raises(TopicNotFoundError):
            client.call(client.route("new"))
        cluster.add_topic("new", queues={"broker-a": 1})
        wait_until(
            lambda: len(client.call(client.publish_route("new", 4)).publish_queues()) == 1,
            "the topic's own route",
        )


def test_brokers_may_create_no_topics() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.broker("broker-a")
        with pytest.raises(TopicNotFoundError, match=r"topic 'new'.*autoCreateTopicEnable"):
            client.call(client.publish_route("new"))


def test_slaves() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        master, slave = cluster.broker("broker-a"), cluster.broker("broker-a", 2)
        cluster.add_topic("orders")
        client.call(client.route("orders"))
        assert client.find_broker("broker-a") == BrokerAddress(master.address, False)
        assert client.find_broker("broker-a", 2) == BrokerAddress(slave.address, True)
        # RocketMQ tries the next id, too: a slave may have taken another one.
        assert client.find_broker("broker-a", 1) == BrokerAddress(slave.address, True)
        with pytest.raises(ClientError, match="no member with id 3"):
            client.find_broker("broker-a", 3)
        assert client.broker_address("broker-a", 3, slave_ok=True) == master.address

        cluster.registered.remove(("broker-a", 0))
        client.call(client.refresh_route("orders"))
        with pytest.raises(ClientError, match="'broker-a' has no master"):
            client.broker_address("broker-a")
        assert client.broker_address("broker-a", slave_ok=True) == slave.address


def test_queues_as_keys() -> None:
    offsets = {MessageQueue("t", "b", 3): 4, MessageQueue('a"b', "é", 0): -1}
    text = to_queue_json({"offsetTable": offsets})
    assert text.startswith('{"offsetTable":{{"topic":"t","brokerName":"b","queueId":3}:4,')
    assert parse_queue_offsets(text) == offsets


def test_all_else_is_json() -> None:
    value = {"a": [1, True, None, "é"], "b": {"c": 1.5, "d": {}}}
    assert json.loads(to_queue_json(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"offsetTable":{"a":1}}',
        '{"offsetTable":{{"topic":"t"}:1}}',
        '{"offsetTable":{1:1}}',
        '{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:"x"}}',
    ],
)
def test_no_offsets_of_queues(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_queue_offsets(text)


def test_no_table() -> None:
    assert parse_queue_offsets("{}") == {}


def _route(body: bytes) -> TopicRoute:
    return parse_topic_route("orders", body, "10.0.0.9:9876")


def _with(**settings: Any) -> TopicRoute:
    queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2}
    brokers = [{"brokerName": "broker-a", "brokerAddrs": {"0": "a:1"}, "cluster": "c"}]
    top = {key: settings.pop(key) for key in list(settings) if key in _TOP_KEYS}
    data = {"brokerDatas": brokers, "queueDatas": [{**queues, **settings}], **top}
    return _route(json.dumps(data).encode())


_TOP_KEYS = ("orderTopicConf", "topicQueueMappingByBroker", "brokerDatas", "queueDatas")


def _queue_data(*numbers: tuple[str, int]) -> list[MessageQueue]:
    return [MessageQueue("orders", broker, queue_id) for broker, queue_id in numbers]


@pytest.mark.parametrize("body", [BARE, BARE.replace(b"{0:", b'{"0":').replace(b"1:", b'"1":')])
def test_keys_of_brokers_are_numbers_or_text(body: bytes) -> None:
    body = body.replace(b'10.0.0."1":', b"10.0.0.1:")
    route = _route(body)
    assert route.brokers == {
        "broker-b": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
        "broker-a": {1: "10.0.0.3:10911"},
    }
    assert route.clusters == {"broker-a": "DefaultCluster", "broker-b": "DefaultCluster"}


def test_messages_go_to_brokers_with_a_master_and_come_from_all() -> None:
    route = _route(BARE)
    assert route.publish_queues() == _queue_data(("broker-b", 0))
    assert route.subscribe_queues() == _queue_data(
        ("broker-a", 0), ("broker-b", 0), ("broker-b", 1)
    )


def test_permissions_count() -> None:
    assert _with(perm=4).publish_queues() == []
    assert len(_with(perm=4).subscribe_queues()) == 2
    assert len(_with(perm=2).publish_queues()) == 2
    assert _with(perm=2).subscribe_queues() == []


def test_reading_and_writing_have_queues_of_their_own() -> None:
    route = _with(readQueueNums=3, writeQueueNums=1)
    assert len(route.publish_queues()) == 1
    assert len(route.subscribe_queues()) == 3


def test_an_order_topic_keeps_the_queues_of_brokers_that_are_down() -> None:
    route = _with(orderTopicConf="broker-z:1;broker-a:2")
    assert route.is_order_topic
    assert route.publish_queues() == _queue_data(("broker-z", 0), ("broker-a", 0), ("broker-a", 1))
    assert route.subscribe_queues() == _queue_data(("broker-a", 0), ("broker-a", 1))
    assert _with(orderTopicConf="broker-z:1;broker-a:2;").publish_queues() == route.publish_queues()


def test_a_new_topic_gets_at_most_the_queues_asked_for() -> None:
    pattern = _with(readQueueNums=8, writeQueueNums=8)
    few = pattern.for_new_topic("new", 4)
    assert few.publish_queues() == [MessageQueue("new", "broker-a", each) for each in range(4)]
    assert len(pattern.for_new_topic("new", 16).subscribe_queues()) == 8


def test_equal_routes_are_equal() -> None:
    assert _route(BARE) == _route(BARE)
    assert _route(BARE) != _with()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{", "a key was expected"),
        (b"[]", "an object was expected"),
        (b"\xff", "decode"),
        (b'{"queueDatas":[{"perm":6}]}', "'brokerName' is missing"),
        (b'{"queueDatas":[{"brokerName":"b","perm":"x"}]}', "perm: a whole number"),
        (b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":[]}]}', "brokerAddrs"),
        (b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"a:1"}}]}', "'x'"),
        (b'{"topicQueueMappingByBroker":{"b":{}}}', "static topic"),
    ],
)
def test_a_bad_route_is_named(body: bytes, named: str) -> None:
    with pytest.raises(RemotingFormatError, match=r"10\.0\.0\.9:9876 .* topic orders") as caught:
        _route(body)
    assert named in str(caught.value)


def test_queues_are_ordered_as_in_java() -> None:
    queues = [MessageQueue("t", "b", 10), MessageQueue("t", "b", 9), MessageQueue("s", "z", 0)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]
    assert str(queues[0]) == "queue 10 of topic t on broker b"
