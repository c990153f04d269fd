"""Routes that a running client keeps, seen from outside."""

from __future__ import annotations

import asyncio

import pytest

from rmqnet import ClientConfig, ClientError, ClientInstance, MessageQueue, TopicNotFoundError
from rmqnet.client.route_table import BrokerAddress
from rmqnet.remoting.codes import RequestCode
from tests.rmqnet.client.groups import NotingProducer
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, wait_until

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


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
    """A name server that was just restarted knows no topics until the brokers call."""
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
        # A consumer must not take what is only assumed for true.
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
        # RocketMQ looks for the next id, too: a slave may have taken another one.
        assert client.find_broker("broker-a", 1) == BrokerAddress(slave.address, True)
        with pytest.raises(ClientError, match="no member with id 3"):
            client.find_broker("broker-a", 3)
        assert client.broker_address("broker-a", 3, slave_ok=True) == master.address

        cluster.registered.remove(("broker-a", 0))
        client.call(client.refresh_route("orders"))
        with pytest.raises(ClientError, match="'broker-a' has no master"):
            client.broker_address("broker-a")
        assert client.broker_address("broker-a", slave_ok=True) == slave.address
