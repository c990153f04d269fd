# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's admin sees what this project's admin creates and resets, and the other way round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rmqnet import (
    EARLIEST,
    LATEST,
    Admin,
    BrokerError,
    ClientError,
    GroupConfig,
    MessageQueue,
    PushConsumer,
    TopicConfig,
    TopicNotFoundError,
)
from store_core.message import Message
from tests.interop.client_node import ClientNode, body_of, queue_of, wait_until
from tests.interop.live_cluster import BROKER, LiveCluster, unique

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def java(
    live_cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientNode]:
    directory = tmp_path_factory.mktemp("java") / "jvm"
    with ClientNode(directory, live_cluster.release, live_cluster.namesrv_addr) as node:
        node.start_producer("producer", "producers")
        yield node


@pytest.fixture
def admin(live_cluster: LiveCluster) -> Iterator[Admin]:
    with Admin(live_cluster.namesrv_addr) as made:
        yield made


def test_topics_made_here_are_seen_there(
    java: ClientNode, admin: Admin, live_cluster: LiveCluster
) -> None:
    takes_order = live_cluster.release.startswith("5")
    topic = unique("made_here")
    admin.create_topic(topic, 3, read_queue_nums=5, order=True)
    seen = java.ask("topic_configs")[topic]
    assert (seen["writeQueueNums"], seen["readQueueNums"], seen["perm"]) == (3, 5, 6)
    assert seen["order"] is takes_order
    assert topic in java.ask("topics")
    assert topic in admin.topics()
    with pytest.raises(ClientError, match="exists already on broker-a"):
        admin.create_topic(topic)

    config = admin.topic_configs(BROKER)[topic]
    assert (config.write_queue_nums, config.read_queue_nums, config.order) == (3, 5, takes_order)
    admin.update_topic(replace(config, perm=4))
    assert java.ask("topic_configs")[topic]["perm"] == 4
    assert admin.route(topic).publish_queues() == []

    admin.delete_topic(topic)
    assert topic not in java.ask("topic_configs")
    assert topic not in admin.topics()
    with pytest.raises(TopicNotFoundError):
        admin.route(topic)


def test_topics_made_there_are_seen_here(java: ClientNode, admin: Admin) -> None:
    topic = unique("made_there")
    java.create_topic(topic, read_queues=2, write_queues=4)
    config = admin.topic_configs(BROKER)[topic]
    assert (config.read_queue_nums, config.write_queue_nums) == (2, 4)
    java.ask("delete_topic", topic=topic)
    assert topic not in admin.topic_configs(BROKER)


def test_attributes_of_topics(java: ClientNode, admin: Admin, live_cluster: LiveCluster) -> None:
    if live_cluster.release.startswith("4"):
        pytest.skip("topics have attributes since release 5")
    topic = unique("attributes")
    attributes = {"queue.type": "BatchCQ", "cleanup.policy": "DELETE"}
    admin.create_topic(topic, 1, attributes=attributes)
    assert java.ask("topic_configs")[topic]["attributes"] == attributes
    config = admin.topic_configs(BROKER)[topic]
    assert config.attributes == attributes
    # Brokers refuse settings that cannot be changed: only the difference goes to them.
    admin.update_topic(replace(config, write_queue_nums=2))
    seen = java.ask("topic_configs")[topic]
    assert (seen["writeQueueNums"], seen["attributes"]) == (2, attributes)


def test_groups(java: ClientNode, admin: Admin) -> None:
    here, there = unique("made_here"), unique("made_there")
    admin.create_group(here, retry_max_times=3, more={"consumeTimeoutMinute": 7})
    java.ask("create_group", group=there, settings={"retryMaxTimes": "4"})
    seen = java.ask("groups")[here]
    assert seen["retryMaxTimes"] == 3
    assert seen.get("consumeTimeoutMinute") in (7, None)  # 4.x has no such setting
    with pytest.raises(ClientError, match="exists already"):
        admin.create_group(here)
    configs = admin.group_configs(BROKER)
    assert (configs[here].retry_max_times, configs[there].retry_max_times) == (3, 4)
    assert {here, there} <= set(admin.groups())

    admin.update_group(replace(configs[here], consume_broadcast_enable=False))
    changed = java.ask("groups")[here]
    assert changed["consumeBroadcastEnable"] is False
    unchanged = seen.keys() - {"consumeBroadcastEnable"}
    assert {key: changed[key] for key in unchanged} == {key: seen[key] for key in unchanged}

    admin.delete_group(here)
    assert here not in java.ask("groups")
    assert here not in admin.groups()


def test_offsets_of_topics(java: ClientNode, admin: Admin) -> None:
    topic = unique("offsets")
    admin.create_topic(topic, 3)
    java.send("producer", topic, 10, seed=1)
    rows = java.ask("topic_stats", topic=topic)
    stats = admin.topic_stats(topic)
    assert [(*queue, each.min_offset, each.max_offset) for queue, each in stats.items()] == [
        (*queue_of(row), row["min_offset"], row["max_offset"]) for row in rows
    ]
    assert [each.last_update_timestamp for each in stats.values()] == [
        row["last_update_timestamp"] for row in rows
    ]
    now = int(time.time() * 1000)
    for row in java.ask("offsets", topic=topic, timestamp=now - 60_000):
        queue = MessageQueue(*queue_of(row))
        assert admin.min_offset(queue) == row["min_offset"]
        assert admin.max_offset(queue) == row["max_offset"]
        assert admin.earliest_store_time(queue) == row["earliest_ms"]
        assert admin.search_offset(queue, now - 60_000) == row["at_timestamp"]


def test_messages_by_key_and_id(java: ClientNode, admin: Admin) -> None:
    topic = unique("queries")
    java.create_topic(topic, 2)
    rows = java.send("producer", topic, 6, seed=1, size=5000)
    (row,) = [each for each in java.pull_all(topic) if each["keys"] == "K1-3"]
    assert wait_until(lambda: admin.query_message(topic, "K1-3"))
    (message,) = admin.query_message(topic, "K1-3")
    assert message.body == body_of(row)
    assert admin.query_message(topic, "K1-33") == []
    assert admin.query_message(topic, "K1-3", end_timestamp=message.store_timestamp - 60_000) == []
    assert admin.query_message_by_unique_key(topic, row["msg_id"]) == [message]
    for message_id in (row["msg_id"], row["offset_msg_id"]):
        assert admin.view_message(topic, message_id) == message
        assert java.ask("view", topic=topic, msg_id=message_id)["keys"] == "K1-3"
    with pytest.raises(ClientError, match="has no message with id"):
        admin.view_message(topic, "no id")
    nowhere = row["offset_msg_id"][:-1] + ("0" if row["offset_msg_id"][-1] != "0" else "1")
    with pytest.raises(BrokerError):
        admin.view_message(topic, nowhere)
    assert len(rows) == 6


def test_a_group_that_consumes(java: ClientNode, admin: Admin, live_cluster: LiveCluster) -> None:
    topic, group, name = unique("consumed"), unique("group"), unique("consumer")
    java.create_topic(topic, 2)
    java.send("producer", topic, 20, seed=1)
    client_id = java.start_consumer(name, group, {topic: "*"})
    java.wait_received(name, 20)
    assert wait_until(lambda: sum(java.consumer_offsets(group, topic).values()) == 20)
    stats = admin.consume_stats(group, topic)
    rows = java.ask("consume_stats", group=group, topic=topic)
    assert [
        (*queue, each.broker_offset, each.consumer_offset, each.last_timestamp)
        for queue, each in stats.queues.items()
    ] == [
        (*queue_of(row), row["broker_offset"], row["consumer_offset"], row["last_timestamp"])
        for row in rows
    ]
    assert stats.lag == 0
    assert admin.consume_stats(group).queues.keys() >= stats.queues.keys()

    connections = admin.consumer_connections(group)
    (connection,) = connections.connections
    assert (connection.client_id, connection.language) == (client_id, "JAVA")
    assert connections.message_model == "CLUSTERING"
    assert set(connections.subscriptions) == {topic, f"%RETRY%{group}"}
    assert connections.subscriptions[topic].sub_string == "*"
    assert group in admin.groups_of_topic(topic)
    info = admin.consumer_running_info(group, client_id)
    assert info["properties"]["PROP_CONSUME_TYPE"]
    (producer,) = admin.producer_connections("producers")
    assert producer.language == "JAVA"
    assert admin.producer_connections("nobody") == ()

    java.close_consumer(name)
    assert not admin.consumer_connections(group).is_online
    java.send("producer", topic, 5, seed=2)
    assert wait_until(lambda: admin.consume_stats(group, topic).lag == 5)
    assert live_cluster.release


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST])
def test_a_group_that_is_offline_is_reset(java: ClientNode, admin: Admin, timestamp: int) -> None:
    topic, group, name = unique("reset"), unique("group"), unique("consumer")
    java.create_topic(topic, 2)
    java.send("producer", topic, 10, seed=1)
    java.start_consumer(name, group, {topic: "*"})
    java.wait_received(name, 10)
    java.close_consumer(name)
    java.send("producer", topic, 10, seed=2)
    ends = {queue: each.max_offset for queue, each in admin.topic_stats(topic).items()}
    expected = ends if timestamp == LATEST else dict.fromkeys(ends, 0)
    assert admin.reset_offsets(group, topic, timestamp) == expected
    assert {(*key,): at for key, at in java.consumer_offsets(group, topic).items()} == {
        (*queue,): at for queue, at in expected.items()
    }
    name = unique("consumer")
    java.start_consumer(name, group, {topic: "*"})
    java.send("producer", topic, 2, seed=3)
    wanted = 2 if timestamp == LATEST else 22
    keys = [row["keys"] for row in java.wait_received(name, wanted)]
    assert len(keys) == wanted
    assert {"K3-0", "K3-1"} <= set(keys)
    java.close_consumer(name)


def test_a_group_that_is_online_is_reset(java: ClientNode, admin: Admin) -> None:
    """Reset by both admins, with members of both kinds."""
    topic, group, name = unique("reset"), unique("group"), unique("consumer")
    java.create_topic(topic, 2)
    java.send("producer", topic, 10, seed=1)
    java.start_consumer(name, group, {topic: "*"})
    java.wait_received(name, 10)
    assert wait_until(lambda: sum(java.consumer_offsets(group, topic).values()) == 10)
    offsets = admin.reset_offsets(group, topic, EARLIEST)
    assert set(offsets.values()) == {0}
    keys = [row["keys"] for row in java.wait_received(name, 20, 45)]
    assert sorted(keys) == sorted(2 * [f"K1-{number}" for number in range(10)])
    java.close_consumer(name)


def test_a_member_here_is_reset_by_the_admin_there(
    java: ClientNode, live_cluster: LiveCluster
) -> None:
    topic, group = unique("reset"), unique("group")
    java.create_topic(topic, 2)
    java.send("producer", topic, 10, seed=1)
    received: list[str] = []

    def listen(messages: list[Message], _: object) -> None:
        received.extend(key for message in messages for key in message.keys or [])

    with PushConsumer(group, live_cluster.namesrv_addr, listen) as consumer:
        consumer.subscribe(topic, "*")
        assert wait_until(lambda: len(received) >= 10)
        assert wait_until(lambda: sum(java.consumer_offsets(group, topic).values()) == 10)
        java.ask("reset_offset", topic=topic, group=group, timestamp=0, force=True)
        assert wait_until(lambda: len(received) >= 20, 45)
    assert sorted(received) == sorted(2 * [f"K1-{number}" for number in range(10)])


def test_one_queue_is_reset(java: ClientNode, admin: Admin, live_cluster: LiveCluster) -> None:
    topic, group, name = unique("reset"), unique("group"), unique("consumer")
    java.create_topic(topic, 2)
    java.send("producer", topic, 10, seed=1)
    java.start_consumer(name, group, {topic: "*"})
    java.wait_received(name, 10)
    assert wait_until(lambda: sum(java.consumer_offsets(group, topic).values()) == 10)
    first, second = admin.topic_stats(topic)
    if live_cluster.release.startswith("4"):
        with pytest.raises(ClientError, match=r"members of group .* are connected"):
            admin.reset_offset(group, first, 1)
    java.close_consumer(name)
    before = admin.consume_stats(group, topic).queues
    admin.reset_offset(group, first, 1)
    after = admin.consume_stats(group, topic).queues
    assert after[first].consumer_offset == 1
    assert after[second] == before[second]


def test_a_group_that_nobody_knows(admin: Admin, live_cluster: LiveCluster) -> None:
    topic, group = unique("nobody"), unique("group")
    admin.create_topic(topic, 1)
    assert admin.consume_stats(group).queues == {}
    assert not admin.consumer_connections(group).is_online
    if live_cluster.release.startswith("5"):
        with pytest.raises(BrokerError, match=group):
            admin.reset_offsets(group, topic, EARLIEST)
        return
    admin.reset_offsets(group, topic, LATEST)
    assert set(admin.consume_stats(group).queues) == {MessageQueue(topic, BROKER, 0)}


def test_brokers(java: ClientNode, admin: Admin, live_cluster: LiveCluster) -> None:
    assert admin.cluster().masters == {BROKER: live_cluster.address()}
    stats = admin.broker_stats(BROKER)
    assert stats["brokerVersionDesc"].replace("_", ".")[1:] == live_cluster.release
    config = admin.broker_config(BROKER)
    assert config["brokerName"] == BROKER
    assert config == java.ask("broker_config")
    admin.update_broker_config(BROKER, {"longPollingEnable": "true", "fileReservedTime": "71"})
    assert java.ask("broker_config")["fileReservedTime"] == "71"
    with pytest.raises(ClientError, match="no master of broker broker-z is up"):
        admin.broker_stats("broker-z")


def test_two_brokers(live_pair: LiveCluster) -> None:
    topic = unique("pair")
    with Admin(live_pair.namesrv_addr) as admin:
        admin.create_topic(topic, 2)
        queues = [MessageQueue(topic, name, each) for name in live_pair.brokers for each in (0, 1)]
        assert admin.route(topic).publish_queues() == queues
        assert list(admin.topic_stats(topic)) == queues
        group = unique("group")
        admin.create_group(group, brokers=["broker-b"])
        assert group not in admin.group_configs("broker-a")
        assert group in admin.group_configs("broker-b")
        only = unique("only")
        admin.create_topic(only, 1, brokers=["broker-b"])
        assert list(admin.route(only).brokers) == ["broker-b"]
        admin.update_group(GroupConfig(group, retry_queue_nums=2))
        assert admin.group_configs("broker-a")[group].retry_queue_nums == 2


def test_what_a_broker_refuses(admin: Admin) -> None:
    topic = unique("refused")
    with pytest.raises(BrokerError, match="UPDATE_AND_CREATE_TOPIC"):
        admin.update_topic(TopicConfig("TBW102"))
    with pytest.raises(BrokerError, match="GET_CONSUMER_RUNNING_INFO"):
        admin.consumer_running_info(topic, "nobody")
