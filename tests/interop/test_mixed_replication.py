# SPDX-License-Identifier: Apache-2.0
"""Masters and slaves of RocketMQ and of this project, paired with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqnet import ConsumeFromWhere, PushConsumer, PushConsumerOptions, serve
from rmqnet.served_store import ServedStore
from store_core import StoreSnapshot
from store_core.config.config_files import (
    load_consumer_offsets,
    load_delay_offsets,
    load_subscription_groups,
    load_topics,
)
from store_core.files.store_directory import StoreDirectory
from tests.interop.client_node import ClientNode, numbered_key, wait_until
from tests.interop.java_cluster import ALL_RELEASES
from tests.interop.java_node import JavaNodeError
from tests.interop.live_cluster import BROKER, DELAY_LEVELS, LiveCluster

pytestmark = pytest.mark.interop

TOPIC, GROUP, QUEUES, COUNT = "orders", "billing", 4, 40
SLAVE = f"{BROKER}:1"
SETTINGS: dict[str, Any] = {
    "brokerName": BROKER,
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "messageDelayLevel": DELAY_LEVELS,
}
KEYS = {numbered_key(1, number) for number in range(COUNT)}


def send_and_read(java: ClientNode) -> None:
    """Send messages, and have a group read them and leave."""
    java.create_topic(TOPIC, QUEUES)
    java.start_producer("p", "producers")
    java.send("p", TOPIC, COUNT, seed=1)
    java.start_consumer("c", GROUP, {TOPIC: "*"})
    assert {row["keys"] for row in java.wait_received("c", COUNT)} == KEYS
    java.close_when_consumed("c", TOPIC, COUNT)


def read_anew(java: ClientNode) -> None:
    """Have another group read all of them."""
    java.start_consumer("d", "auditors", {TOPIC: "*"})
    assert {row["keys"] for row in java.wait_received("d", COUNT)} == KEYS


def broker_ids(java: ClientNode) -> dict[str, str]:
    try:
        found = java.ask("cluster")["brokerAddrTable"].get(BROKER, {})
    except JavaNodeError as err:
        if "ConcurrentModificationException" not in str(err):
            raise
        return {}  # RocketMQ's name server got the request while a broker registered
    return dict(found.get("brokerAddrs", {}))


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_our_slave_at_a_java_master(release: str, tmp_path: Path) -> None:
    with (
        LiveCluster(tmp_path / "cluster", release) as cluster,
        ClientNode(tmp_path / "client", release, cluster.namesrv_addr) as java,
    ):
        send_and_read(java)
        with serve(tmp_path / "slave", replica_of=cluster.address()) as slave:
            role = slave.controller.role
            ends = lambda: sum(  # noqa: E731
                role.store.get_max_offset_in_queue(TOPIC, each) for each in range(QUEUES)
            )
            assert wait_until(lambda: ends() == COUNT)
            assert broker_ids(java) == {"0": cluster.address(), "1": slave.address}

            def has_offsets() -> bool:
                role.synchronize()
                return sum(role.offsets.query_all(GROUP, TOPIC).values()) == COUNT

            assert wait_until(has_offsets)
            assert role.topics.select(TOPIC).read_queue_nums == QUEUES
            assert role.groups.get(GROUP) is not None
            assert role.client.state().is_caught_up

            read_live(cluster.store(), java)
            cluster.kill_broker()
            assert wait_until(lambda: broker_ids(java) == {"1": slave.address})
            read_anew(java)


def read_live(store: Path, java: ClientNode) -> None:
    """Serve the running broker's store to a consumer of ours, and send one more message."""
    got: list[str] = []
    options = PushConsumerOptions(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, rebalance_interval_ms=1000
    )
    with (
        serve(store, read_only=True) as reader,
        PushConsumer(
            "readers",
            reader.namesrv_addr,
            lambda messages, _: got.extend(each.keys[0] for each in messages),
            options=options,
        ) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert wait_until(lambda: set(got) == KEYS)
        java.create_topic("late", 1)
        consumer.subscribe("late")
        (row,) = java.send("p", "late", 1, seed=2)
        assert wait_until(lambda: len(got) == COUNT + 1)
        assert row["queue_id"] == 0


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_a_java_slave_at_our_master(release: str, tmp_path: Path) -> None:
    with (
        serve(tmp_path / "master", ha_port=0, settings=SETTINGS) as master,
        LiveCluster(
            tmp_path / "cluster",
            release,
            brokers=(SLAVE,),
            namesrv_addr=master.namesrv_addr,
            settings={"slaveReadEnable": True},
        ) as cluster,
        ClientNode(tmp_path / "client", release, master.namesrv_addr) as java,
    ):
        send_and_read(java)
        assert broker_ids(java) == {"0": master.address, "1": cluster.address(SLAVE)}
        directory = StoreDirectory(str(cluster.store(SLAVE)))
        assert wait_until(lambda: copied(directory) == COUNT)
        assert wait_until(lambda: committed(directory) == COUNT, 60)
        assert wait_until(lambda: GROUP in (load_subscription_groups(directory) or {}))
        assert wait_until(lambda: load_delay_offsets(directory) == delays(master))
        assert (load_topics(directory) or {})[TOPIC].read_queue_nums == QUEUES
        master.controller.shutdown()
        assert wait_until(lambda: broker_ids(java) == {"1": cluster.address(SLAVE)})
        read_anew(java)


def copied(directory: StoreDirectory) -> int:
    """Return how many messages the queues of a slave's topic have."""
    with StoreSnapshot(directory) as store:
        return sum(store.queue_range(TOPIC, each).max_offset for each in range(QUEUES))


def committed(directory: StoreDirectory) -> int:
    """Return how many messages the group has read according to a slave."""
    return sum(load_consumer_offsets(directory).get((GROUP, TOPIC), {}).values())


def delays(master: ServedStore) -> dict[int, int]:
    return dict(master.controller.broker.delays.offsets)
