# SPDX-License-Identifier: Apache-2.0
"""Requests of the client core to name servers and brokers, compared with RocketMQ's admin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from rmqnet import (
    BrokerError,
    ClientError,
    ClientInstance,
    MessageQueue,
    PullStatus,
    RemotingError,
    TopicConfig,
    TopicNotFoundError,
)
from rmqnet.client.received_messages import messages_from_body
from rmqnet.remoting.headers import PullMessageRequestHeader, QueryMessageRequestHeader
from rmqsource.live.live_follower import LiveFollower
from rmqsource.live.live_options import parse_live_options
from store_core.codec.message_id import parse_message_id
from store_core.message import Message
from tests.interop.client_node import (
    ClientNode,
    body_of,
    numbered_body,
    numbered_key,
    queue_of,
    wait_until,
)
from tests.interop.java_node import JavaNodeError
from tests.interop.live_cluster import LiveCluster, unique
from tests.readme_tables import DOCS
from tests.rmqnet.client.groups import NotingConsumer
from tests.rmqsource.live.live_reading import read_live
from tests.test_readme import LIVE_ADDRESS, SHOWN, blocks

pytestmark = pytest.mark.interop

NO_END = (1 << 63) - 1


@pytest.fixture(scope="module")
def java(
    live_cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientNode]:
    directory = tmp_path_factory.mktemp("java") / "jvm"
    with ClientNode(directory, live_cluster.release, live_cluster.namesrv_addr) as node:
        yield node


@pytest.fixture
def client(live_cluster: LiveCluster) -> Iterator[ClientInstance]:
    with ClientInstance(live_cluster.namesrv_addr) as instance:
        yield instance


@pytest.fixture(scope="module")
def topic(java: ClientNode) -> str:
    """A topic with messages of all kinds; large ones are compressed."""
    name, producer = unique("core"), unique("producer")
    java.create_topic(name, 3)
    java.start_producer(producer, producer)
    java.send(producer, name, 40, seed=1, tags=["a", "b"])
    java.send(producer, name, 10, seed=2, size=5000)
    java.send(producer, name, 20, seed=3, mode="batch", batch_size=7)
    return name


def _pull(client: ClientInstance, queue: MessageQueue, offset: int) -> tuple[Any, list[Message]]:
    address = client.broker_address(queue.broker_name, slave_ok=True)
    header = PullMessageRequestHeader(
        consumer_group="judge",
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
        bname=queue.broker_name,
    )
    result = client.call(client.broker.pull(address, header))
    return result, messages_from_body(result.body, f"{queue.broker_name}@{address}", str(queue))


def _all_messages(client: ClientInstance, topic: str) -> Iterator[Message]:
    for queue in client.call(client.route(topic)).subscribe_queues():
        result, messages = _pull(client, queue, 0)
        while result.status is PullStatus.FOUND:
            yield from messages
            result, messages = _pull(client, queue, result.next_begin_offset)


def test_messages_are_those_that_java_pulls(
    java: ClientNode, client: ClientInstance, topic: str
) -> None:
    expected = {(*queue_of(row)[2:], row["queue_offset"]): row for row in java.pull_all(topic)}
    messages = list(_all_messages(client, topic))
    assert len(messages) == len(expected) == 70
    for message in messages:
        row = expected[message.queue_id, message.queue_offset]
        assert message.body == body_of(row)
        assert message.keys == [row["keys"]]
        assert message.unique_key == row["msg_id"]
        assert message.message_id == row["offset_msg_id"]
        assert message.store_timestamp == row["store_timestamp"]


def test_routes(java: ClientNode, client: ClientInstance) -> None:
    topic = unique("route")
    with pytest.raises(TopicNotFoundError, match=topic):
        client.call(client.route(topic))
    java.create_topic(topic, read_queues=3, write_queues=2)
    route = client.call(client.route(topic))
    said = java.ask("route", topic=topic)
    ((broker,), (queues,)) = said["brokerDatas"], said["queueDatas"]
    assert route.brokers == {
        broker["brokerName"]: {int(key): at for key, at in broker["brokerAddrs"].items()}
    }
    assert len(route.subscribe_queues()) == queues["readQueueNums"] == 3
    assert len(route.publish_queues()) == queues["writeQueueNums"] == 2
    assert topic in client.call(client.name_server.topics())
    info = client.call(client.name_server.cluster_info())
    assert set(info.brokers) == set(java.ask("cluster")["brokerAddrTable"])


def test_offsets(java: ClientNode, client: ClientInstance, topic: str) -> None:
    now = int(time.time() * 1000)
    for row in java.ask("offsets", topic=topic, timestamp=now - 3_600_000):
        queue = MessageQueue(*queue_of(row))
        client.call(client.route(topic))
        address, broker = client.broker_address(queue.broker_name), client.broker
        assert client.call(broker.min_offset(address, queue)) == row["min_offset"]
        assert client.call(broker.max_offset(address, queue)) == row["max_offset"]
        assert client.call(broker.earliest_store_time(address, queue)) == row["earliest_ms"]
        early = broker.search_offset(address, queue, now - 3_600_000)
        assert client.call(early) == row["at_timestamp"]


def test_offsets_of_a_group(java: ClientNode, client: ClientInstance, topic: str) -> None:
    group = unique("group")
    java.ask("create_group", group=group)
    queues = client.call(client.route(topic)).subscribe_queues()
    for queue in queues:
        address = client.broker_address(queue.broker_name)
        update = client.broker.update_consumer_offset(address, group, queue, queue.queue_id + 5)
        client.call(update)
        asked = client.broker.query_consumer_offset(address, group, queue)
        assert client.call(asked) == queue.queue_id + 5


def test_queries(java: ClientNode, client: ClientInstance, topic: str) -> None:
    row = java.pull_all(topic)[5]
    client.call(client.route(topic))
    address = client.broker_address(row["broker"])

    def query(key: str, unique_key: bool) -> list[Message]:
        header = QueryMessageRequestHeader(topic, key, 32, 0, NO_END, unique_key)
        body = client.call(client.broker.query_message(address, header)).body
        return messages_from_body(body, address)

    assert wait_until(lambda: query(row["keys"], False))
    for key, unique_key in ((row["keys"], False), (row["msg_id"], True)):
        (message,) = query(key, unique_key)
        assert message.message_id == row["offset_msg_id"]
    assert query("no such key", False) == []

    _, commit_log_offset = parse_message_id(row["offset_msg_id"])
    body = client.call(client.broker.view_message(address, topic, commit_log_offset))
    (message,) = messages_from_body(body, address)
    assert message.body == body_of(row)
    with pytest.raises(BrokerError):
        client.call(client.broker.view_message(address, topic, commit_log_offset + 1))


def connections_once_known(java: ClientNode, group: str) -> Any:
    """Return an admin's answer about a group whose members brokers already know.

    The admin finds the broker by the route of the group's retry topic. The broker creates that
    topic at the first heartbeat, and announces it to name servers without waiting for their answer.
    """
    said: list[Any] = []

    def ask() -> bool:
        try:
            said.append(java.ask("consumer_connections", group=group))
        except JavaNodeError:
            return False
        return True

    assert wait_until(ask), f"no admin finds {group}"
    return said[0]


def test_members_of_a_group_come_and_go(
    java: ClientNode, live_cluster: LiveCluster, topic: str
) -> None:
    group = unique("group")
    consumer = NotingConsumer(group, topic)
    with ClientInstance(live_cluster.namesrv_addr) as client:
        client.call(client.register_consumer(group, consumer))
        said = connections_once_known(java, group)
        (connection,) = said["connectionSet"]
        assert connection["clientId"] == client.client_id
        assert connection["language"] == "PYTHON"
        assert set(said["subscriptionTable"]) == {topic}
        address = client.broker_address("broker-a")
        assert client.call(client.broker.consumer_ids(address, group)) == [client.client_id]
        assert wait_until(lambda: consumer.changes)
        info = java.ask("running_info", group=group, client_id=client.client_id)
        assert info["properties"]
    with pytest.raises(JavaNodeError, match="not online"):
        java.ask("consumer_connections", group=group)


def test_a_broker_that_is_killed_and_started_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(LiveCluster(tmp_path, "5.3.3"))
        client = stack.enter_context(ClientInstance(cluster.namesrv_addr))
        java = stack.enter_context(ClientNode(tmp_path / "java", "5.3.3", cluster.namesrv_addr))
        java.create_topic("orders", 1)
        consumer = NotingConsumer("g", "orders")
        client.call(client.register_consumer("g", consumer))
        queue = MessageQueue("orders", "broker-a", 0)
        assert client.call(client.broker.max_offset(cluster.address(), queue)) == 0
        cluster.kill_broker()
        with pytest.raises(RemotingError, match=cluster.address()):
            client.call(client.broker.max_offset(cluster.address(), queue))
        changes = consumer.changes
        cluster.start_broker()
        assert wait_until(lambda: consumer.changes > changes), "the group is announced again"
        assert connections_once_known(java, "g")["connectionSet"]
        assert client.call(client.broker.max_offset(cluster.address(), queue)) == 0


def test_a_name_server_that_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(LiveCluster(tmp_path, "5.3.3", name_servers=2))
        client = stack.enter_context(ClientInstance(cluster.namesrv_addr))
        client.call(client.publish_route("orders"))
        addresses = cluster.namesrv_addr.split(";")
        cluster.kill_name_server(addresses.index(client.name_server.chosen))
        assert client.call(client.publish_route("others")).publish_queues()
        assert "TBW102" in client.call(client.name_server.topics())


def test_a_slave_serves_where_the_master_is_gone(tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers, settings = ("broker-a", "broker-a:1"), {"slaveReadEnable": True}
        started = LiveCluster(tmp_path, "5.3.3", brokers=brokers, settings=settings)
        cluster = stack.enter_context(started)
        client = stack.enter_context(ClientInstance(cluster.namesrv_addr))
        java = stack.enter_context(ClientNode(tmp_path / "java", "5.3.3", cluster.namesrv_addr))
        java.create_topic("orders", 1)
        java.start_producer("p", "p")
        rows = java.send("p", "orders", 5, seed=1)
        slave = cluster.address("broker-a:1")
        assert client.call(client.route("orders")).brokers == {
            "broker-a": {0: cluster.address(), 1: slave}
        }
        assert client.find_broker("broker-a", 1).is_slave
        queue = MessageQueue("orders", "broker-a", 0)
        client.call(client.register_consumer("g", NotingConsumer("g", "orders")))
        assert set(client.broker_versions) == {cluster.address(), slave}
        assert wait_until(lambda: client.call(client.broker.max_offset(slave, queue)) == len(rows))
        # Messages come by replication; topics by one request a minute, which is too slow here.
        client.call(client.broker_admin.update_topic(slave, TopicConfig("orders", 1, 1)))
        pulled = java.pull_all("orders")  # Java asks masters only for the end of a queue
        asked = {"namesrvAddr": cluster.namesrv_addr, "topic": "orders"}
        follower = stack.enter_context(
            closing(LiveFollower(parse_live_options(asked, streaming=True)))
        )
        read = follower.next_offset(follower.initial, limited=False)
        cluster.kill_broker()
        found = read_live(asked, ("keys", "store"))  # as Spark's batch read does
        assert [row["keys"] for row in found] == [[row["keys"]] for row in pulled]
        assert follower.next_offset(read, limited=False) == read
        assert wait_until(lambda: 0 not in _brokers(client, "orders")["broker-a"])
        with pytest.raises(ClientError, match="has no master"):
            client.broker_address("broker-a")
        assert client.broker_address("broker-a", slave_ok=True) == slave
        assert [each.keys for each in _all_messages(client, "orders")] == [
            [row["keys"]] for row in pulled
        ]


def _brokers(client: ClientInstance, topic: str) -> Any:
    return client.call(client.refresh_route(topic)).brokers


# RocketMQ's own clients obey: they receive the messages they send, and the admin agrees.


@pytest.mark.parametrize("live_cluster", ["5.3.3"], indirect=True)  # others use both
def test_java_talks_to_itself(live_cluster: LiveCluster, tmp_path: Path) -> None:
    topic, group = unique("topic"), unique("group")
    with ClientNode(tmp_path / "jvm", live_cluster.release, live_cluster.namesrv_addr) as java:
        java.create_topic(topic)
        java.start_producer("p", group)
        keys = {numbered_key(seed, i) for seed in (1, 2, 3) for i in range(20)}
        java.send("p", topic, 20, seed=1, tags=["a", "b"])
        java.send("p", topic, 20, seed=2, mode="async", size=5000)
        java.send("p", topic, 20, seed=3, mode="batch", batch_size=7)
        pulled = java.pull_all(topic)
        assert {row["keys"] for row in pulled} == keys
        assert {row["keys"] for row in java.pull_all(topic, expression="b")} == {
            numbered_key(1, i) for i in range(1, 20, 2)
        }
        assert all(
            body_of(row) == numbered_body(2, int(row["properties"]["number"]), 5000)
            for row in pulled
            if row["keys"].startswith("K2-")
        )
        java.start_consumer("c1", group, {topic: "*"}, fail_first=1)
        java.start_consumer("c2", group, {topic: "*"}, fail_first=1)
        assert wait_until(
            lambda: (
                {row["keys"] for name in ("c1", "c2") for row in java.received(name) if row["ok"]}
                == keys
            )
        )
        assert wait_until(
            lambda: len([*java.allocation("c1"), *java.allocation("c2")]) == 4 + 1  # %RETRY%
        )
        assert wait_until(lambda: sum(java.consumer_offsets(group, topic).values()) == len(keys))
        assert {queue_of(row) for row in java.ask("topic_stats", topic=topic)} == {
            queue_of(row) for row in pulled
        }
        java.start_producer("tx", unique("tx"), transactional=True)
        answers = ["commit", "rollback", "unknown"]
        messages = [
            {
                "body": "t",
                "keys": f"T{local}-{later}",
                "properties": {"local": local, "answer": later},
            }
            for local in answers
            for later in answers[:2]
        ]
        java.send("tx", topic, messages=messages, mode="transaction")
        assert wait_until(lambda: len(java.pull_all(topic)) == len(keys) + 3)
        assert {row["keys"] for row in java.ask("checks", name="tx")} == {
            "Tunknown-commit",
            "Tunknown-rollback",
        }


# The examples of docs/client.md run on real clusters, unchanged.


def test_examples(live_cluster: LiveCluster, capfd: pytest.CaptureFixture[str]) -> None:
    page = DOCS / "client.md"
    names: dict[str, object] = {}
    for block in blocks(page):
        assert block.language == "python"
        code = block.code.replace(LIVE_ADDRESS, live_cluster.namesrv_addr)
        exec(compile("\n" * (block.line - 1) + code, page.name, "exec"), names)
    shown = capfd.readouterr().out
    assert [text for text in SHOWN[page.name] if text not in shown] == [], shown
