"""Brokers and clusters, as a name server knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqnet.client.topic_route import MASTER_ID, parse_broker_data
from store_core.config.lenient_json import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class ClusterInfo:
    """All brokers that are up (RocketMQ ``ClusterInfo``).

    Parameters
    ----------
    brokers
        Addresses by broker name, then broker id: 0 is the master.
    clusters
        Broker names of each cluster.
    """

    brokers: Mapping[str, Mapping[int, str]]
    clusters: Mapping[str, tuple[str, ...]]

    @property
    def masters(self) -> dict[str, str]:
        """Address of the master by broker name, where there is one."""
        return {
            name: addresses[MASTER_ID]
            for name, addresses in self.brokers.items()
            if MASTER_ID in addresses
        }


def parse_cluster_info(data: dict[str, Any]) -> ClusterInfo:
    """Return the brokers in the answer to GET_BROKER_CLUSTER_INFO."""
    table = json_object(data.get("brokerAddrTable"), "brokerAddrTable")
    names = json_object(data.get("clusterAddrTable"), "clusterAddrTable")
    return ClusterInfo(
        {
            str(name): parse_broker_data(
                {"brokerName": name, **json_object(broker, "brokerAddrTable")}
            ).addresses
            for name, broker in sorted(table.items())
        },
        {str(cluster): tuple(sorted(brokers)) for cluster, brokers in sorted(names.items())},
    )
