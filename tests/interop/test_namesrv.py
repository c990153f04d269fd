"""RocketMQ's own brokers and clients at our name server."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from tests.interop.client_node import ClientNode, numbered_key, wait_until
from tests.interop.java_cluster import RELEASES
from tests.interop.live_cluster import LiveCluster

pytestmark = pytest.mark.interop

TOPIC, GROUP = "orders", "billing"
A, B = "broker-a", "broker-b"


def brokers_of(names: NameServer, topic: str = TOPIC) -> dict[str, dict[int, str]]:
    route = names.routes.route(topic)
    if route is None:
        return {}
    return {each.broker_name: dict(each.addresses) for each in route.broker_datas}


@pytest.mark.parametrize("release", RELEASES)
def test_java_brokers_come_and_go_and_java_clients_find_them(release: str, tmp_path: Path) -> None:
    with (
        NameServer(NameServerConfig(port=0)) as names,
        LiveCluster(
            tmp_path / "cluster",
            release,
            brokers=(A, B),
            namesrv_addr=names.address,
            settings_of={B: {"compressedRegister": True}},
        ) as cluster,
        ClientNode(tmp_path / "client", release, names.address) as java,
    ):
        java.create_topic(TOPIC)
        both = {A: {0: cluster.address(A)}, B: {0: cluster.address(B)}}
        assert wait_until(lambda: brokers_of(names) == both)
        queues = {each["brokerName"]: each for each in java.ask("route", topic=TOPIC)["queueDatas"]}
        assert {name: each["writeQueueNums"] for name, each in queues.items()} == {A: 4, B: 4}
        assert sorted(java.ask("cluster")["brokerAddrTable"]) == [A, B]
        assert TOPIC in java.ask("topics")

        java.start_producer("p", "producers")
        sent = java.send("p", TOPIC, 40, seed=1)
        assert {row["broker"] for row in sent} == {A, B}
        java.start_consumer("c", GROUP, {TOPIC: "*"})
        keys = {numbered_key(1, number) for number in range(40)}
        assert {row["keys"] for row in java.wait_received("c", 40)} == keys
        # The brokers made the group's topic and tell of it at once, not in half a minute.
        assert wait_until(lambda: sorted(brokers_of(names, f"%RETRY%{GROUP}")) == [A, B], 5)

        java.ask("put_kv", namespace="space", key="colour", value="blau ü")
        assert java.ask("get_kv", namespace="space", key="colour") == ["blau ü"]

        cluster.stop_broker(B)  # it says goodbye
        assert wait_until(lambda: brokers_of(names) == {A: both[A]}, 5)
        cluster.start_broker(B)
        assert wait_until(lambda: brokers_of(names) == both)
        cluster.kill_broker(B)  # its connection ends
        assert wait_until(lambda: brokers_of(names) == {A: both[A]}, 5)
        assert sorted(java.ask("cluster")["brokerAddrTable"]) == [A]

        java.ask("delete_topic", topic=TOPIC)
        assert brokers_of(names) == {}
        assert TOPIC not in java.ask("topics")


def test_a_java_broker_that_hangs_expires_and_a_slave_stands_in(tmp_path: Path) -> None:
    """Brokers of 5.x that send heartbeats each second, and want a slave to act as master."""
    settings = {
        "enableSlaveActingMaster": True,
        "brokerNotActiveTimeoutMillis": 5000,
        "registerNameServerPeriod": 10_000,
    }
    config = NameServerConfig(
        port=0, scan_not_active_broker_interval=200, support_acting_master=True
    )
    slave = f"{A}:1"
    with (
        NameServer(config) as names,
        LiveCluster(
            tmp_path / "cluster", brokers=(A, slave), namesrv_addr=names.address, settings=settings
        ) as cluster,
        ClientNode(tmp_path / "client", "5.3.3", names.address) as java,
    ):
        both = {A: {0: cluster.address(A), 1: cluster.address(slave)}}
        assert wait_until(lambda: brokers_of(names, "TBW102") == both)
        java.create_topic(TOPIC)
        assert wait_until(lambda: brokers_of(names) == both)
        java.start_producer("p", "producers")
        java.send("p", TOPIC, 20, seed=1)

        cluster.freeze_broker(A)
        assert wait_until(lambda: brokers_of(names) == {A: {1: cluster.address(slave)}})
        (broker,) = java.ask("route", topic=TOPIC)["brokerDatas"]
        assert broker["enableActingMaster"] is True
        assert broker["brokerAddrs"] == {"0": cluster.address(slave)}

        cluster.thaw_broker(A)
        assert wait_until(lambda: brokers_of(names) == both, 60)
        java.send("p", TOPIC, 20, seed=2)
        assert len(java.pull_all(TOPIC)) == 40
