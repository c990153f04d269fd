# SPDX-License-Identifier: Apache-2.0
"""A broker of RocketMQ beside ours, and a name server of each kind, for clients of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqnet import (
    Admin,
    BrokerError,
    ClientConfig,
    ClientError,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    RemotingError,
    TransactionProducer,
)
from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from tests.interop.client_node import ClientNode, body_of, numbered_key, queue_of, wait_until
from tests.interop.java_cluster import RELEASES
from tests.interop.live_cluster import LiveCluster, unique
from tests.interop.python_server import OURS
from tests.interop.test_live_consumer import Delivery

pytestmark = pytest.mark.interop

THEIRS, MINE = "broker-a", "broker-b"
BROKERS = {THEIRS, MINE}
_WAIT_S = 40
TOPIC, GROUP = "orders", "billing"
A, B = "broker-a", "broker-b"


class Mixed:
    """Two brokers and two name servers, each of which lists both brokers."""

    def __init__(self, cluster: LiveCluster, java: ClientNode) -> None:
        self.cluster, self.java = cluster, java
        self.ours, self.theirs = cluster.namesrv_addr.split(";")

    def routes(self, topic: str) -> list[dict[str, Any]]:
        """Return the brokers of a topic, as each name server reports them."""
        found = []
        for address in (self.ours, self.theirs):
            with Admin(address) as admin:
                try:
                    route = admin.route(topic)
                except (BrokerError, ClientError):
                    found.append({})
                    continue
            found.append(dict(route.brokers))
        return found

    def wait_for_brokers(self, topic: str, names: set[str]) -> None:
        assert wait_until(
            lambda: all(set(each) == names for each in self.routes(topic)), _WAIT_S
        ), self.routes(topic)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """A broker of 5.3.3 and ours, a name server of 4.9.7 and ours."""
    directory = tmp_path_factory.mktemp("mixed")
    newer, older = RELEASES
    releases = {"name-server-0": OURS, "name-server-1": older, MINE: OURS}
    with (
        LiveCluster(
            directory / "cluster",
            newer,
            releases=releases,
            brokers=sorted(BROKERS),
            name_servers=2,
        ) as cluster,
        ClientNode(directory / "java", newer, cluster.namesrv_addr) as java,
    ):
        yield Mixed(cluster, java)


def test_clients_of_both_kinds_share_the_queues_of_both(mixed: Mixed) -> None:
    """Java's clients ask our name server; Python's ask RocketMQ's."""
    java, topic, group = mixed.java, unique("topic"), unique("group")
    java.ask("connect", namesrv_addr=mixed.ours)
    java.create_topic(topic, 4)
    mixed.wait_for_brokers(topic, BROKERS)
    java.start_producer(topic, unique("producers"))
    listener = Delivery()
    with ExitStack() as stack:
        names = ["java-1", "java-2"]
        for name in names:
            java.start_consumer(name, group, {topic: "*"}, instance=name)
            stack.callback(java.close_consumer, name)
        for _ in names:
            stack.enter_context(python_consumer(mixed.theirs, group, listener, topic))
        producer = stack.enter_context(Producer(unique("producers"), mixed.theirs))
        assert wait_until(lambda: shares(java, names, topic) == [2, 2], _WAIT_S)
        sent = java.send(topic, topic, 80, seed=1)
        results = [producer.send(Message(topic, b"%d" % n, keys=[f"P-{n}"])) for n in range(80)]
        assert {row["broker"] for row in sent} == BROKERS
        assert {result.queue.broker_name for result in results} == BROKERS
        wanted = Counter([*(row["keys"] for row in sent), *(f"P-{n}" for n in range(80))])

        def received() -> Counter[str]:
            rows = [row["keys"] for name in names for row in java.received(name)]
            return Counter(rows) + Counter(m.properties["KEYS"] for m in list(listener.messages))

        assert wait_until(lambda: received() == wanted, _WAIT_S), wanted - received()
        ends = Counter(result.queue for result in results)
        ends.update(queue_of(row) for row in sent)
        assert wait_until(lambda: java.consumer_offsets(group, topic) == dict(ends), _WAIT_S)
        brokers = {each["brokerName"] for each in java.ask("route", topic=topic)["brokerDatas"]}
        assert brokers == BROKERS
        members = java.ask("consumer_connections", group=group)["connectionSet"]
        assert len(members) == 4


def python_consumer(address: str, group: str, listener: Delivery, topic: str) -> PushConsumer:
    """Return a group member with an id of its own."""
    config = ClientConfig(
        address, instance_name=unique("python"), persist_consumer_offset_interval_ms=300
    )
    options = PushConsumerOptions(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, rebalance_interval_ms=1000
    )
    consumer = PushConsumer(group, config, listener, options=options)
    consumer.subscribe(topic)
    return consumer


def shares(java: ClientNode, names: list[str], topic: str) -> list[int]:
    """Return how many queues each Java member has."""
    return [sum(each.topic == topic for each in java.allocation(name)) for name in names]


def test_what_comes_later_comes_from_both(mixed: Mixed) -> None:
    java, topic = mixed.java, unique("topic")
    java.ask("connect", namesrv_addr=mixed.theirs)
    java.create_topic(topic, 2)
    mixed.wait_for_brokers(topic, BROKERS)
    with (
        Producer(unique("producers"), mixed.ours) as producer,
        TransactionProducer(unique("payers"), mixed.ours, Commits()) as payer,
    ):
        for number in range(8):
            producer.send(Message(topic, b"later %d" % number), delay_level=1)
            payer.send_in_transaction(Message(topic, b"paid %d" % number), number)
        wanted = {b"%b %d" % (kind, n) for kind in (b"later", b"paid") for n in range(8)}
        assert wait_until(lambda: len(java.pull_all(topic)) >= len(wanted), _WAIT_S)
    rows = java.pull_all(topic)
    assert Counter(map(body_of, rows)) == Counter(wanted)
    assert {row["broker"] for row in rows} == BROKERS


class Commits:
    """Commits immediately, or when the broker asks."""

    def execute_local_transaction(self, message: Message, argument: Any) -> LocalTransactionState:
        committed = LocalTransactionState.COMMIT_MESSAGE
        return committed if argument % 4 else LocalTransactionState.UNKNOWN

    def check_local_transaction(self, message: Message) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


def test_our_broker_goes_and_comes_again(mixed: Mixed) -> None:
    """Both name servers report the loss, and clients of both kinds go on at the other broker."""
    java, topic, gone = mixed.java, unique("topic"), MINE
    java.ask("connect", namesrv_addr=mixed.ours)
    java.create_topic(topic, 2)
    java.start_producer(topic, unique("producers"))
    config = ClientConfig(mixed.theirs, poll_name_server_interval_ms=1000)
    with Producer(unique("producers"), config) as producer:
        mixed.wait_for_brokers(topic, BROKERS)
        java.send(topic, topic, 8, seed=1)
        mixed.cluster.stop_broker(gone)
        mixed.wait_for_brokers(topic, BROKERS - {gone})
        while_gone = java.send(topic, topic, 8, seed=2)
        assert {row["broker"] for row in while_gone} == BROKERS - {gone}
        for number in range(8):
            result = producer.send(Message(topic, b"%d" % number))
            assert result.queue.broker_name != gone
        mixed.cluster.start_broker(gone)
        mixed.wait_for_brokers(topic, BROKERS)

        def sends_to_both() -> bool:
            try:
                results = [producer.send(Message(topic, b"more")) for _ in range(8)]
            except (RemotingError, BrokerError, ClientError):
                return False
            return {result.queue.broker_name for result in results} == BROKERS

        assert wait_until(sends_to_both, _WAIT_S)
        java.send(topic, topic, 8, seed=3)
        wanted = Counter(numbered_key(seed, n) for seed in (1, 2, 3) for n in range(8))

        def stored() -> Counter[str]:
            return Counter(row["keys"] for row in java.pull_all(topic) if row["keys"])

        # Queues grow a moment after the answer.
        assert wait_until(lambda: stored() == wanted, _WAIT_S), wanted - stored()


# RocketMQ's own brokers and clients at our name server.


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
        # The brokers created the group's topic and announce it immediately, not in half a minute.
        assert wait_until(lambda: sorted(brokers_of(names, f"%RETRY%{GROUP}")) == [A, B], 5)

        java.ask("put_kv", namespace="space", key="colour", value="blau ü")
        assert java.ask("get_kv", namespace="space", key="colour") == ["blau ü"]

        cluster.stop_broker(B)  # it unregisters
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
    """5.x brokers that send heartbeats each second, and want a slave to act as master."""
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
