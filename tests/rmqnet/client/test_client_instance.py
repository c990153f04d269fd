from __future__ import annotations

import pytest

from rmqnet import ClientInstance, MessageQueue, TopicNotFoundError
from tests.rmqnet.scripted_cluster import ScriptedCluster


def test_a_route_is_asked_for_once() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("orders", queues={"broker-b": 1, "broker-a": 2})
        routes = [client.call(client.route("orders")) for _ in range(3)]
        assert routes[0].publish_queues() == [
            MessageQueue("orders", "broker-a", 0),
            MessageQueue("orders", "broker-a", 1),
            MessageQueue("orders", "broker-b", 0),
        ]
        assert routes[1] is routes[2] is routes[0]
        assert len(cluster.name_server.requests) == 1
        assert client.broker_address("broker-b") == cluster.broker("broker-b").address
        with pytest.raises(TopicNotFoundError, match=cluster.namesrv_addr):
            client.call(client.route("nothing"))
