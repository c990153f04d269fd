from __future__ import annotations

import json
from typing import Any

import pytest

from rmqnet import MessageQueue, RemotingFormatError, TopicRoute
from rmqnet.client.topic_route import parse_topic_route

# As a name server of 5.3.3 answers a client before 4.9.4: broker ids are bare numbers.
BARE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-b","cluster":"DefaultCluster","enableActingMaster":false},'
    b'{"brokerAddrs":{1:"10.0.0.3:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
    b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-b",'
    b'"perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":1},{"brokerName":"broker-a",'
    b'"perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
)


def _route(body: bytes) -> TopicRoute:
    return parse_topic_route("orders", body, "10.0.0.9:9876")


def _with(**settings: Any) -> TopicRoute:
    queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2}
    brokers = [{"brokerName": "broker-a", "brokerAddrs": {"0": "a:1"}, "cluster": "c"}]
    top = {key: settings.pop(key) for key in list(settings) if key in _TOP_KEYS}
    data = {"brokerDatas": brokers, "queueDatas": [{**queues, **settings}], **top}
    return _route(json.dumps(data).encode())


_TOP_KEYS = ("orderTopicConf", "topicQueueMappingByBroker", "brokerDatas", "queueDatas")


def _queues(*numbers: tuple[str, int]) -> list[MessageQueue]:
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
    assert route.publish_queues() == _queues(("broker-b", 0))
    assert route.subscribe_queues() == _queues(("broker-a", 0), ("broker-b", 0), ("broker-b", 1))


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
    assert route.publish_queues() == _queues(("broker-z", 0), ("broker-a", 0), ("broker-a", 1))
    assert route.subscribe_queues() == _queues(("broker-a", 0), ("broker-a", 1))
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
