# SPDX-License-Identifier: Apache-2.0
"""Routes of topics: the brokers and queues that a name server reports.

Source of the JSON: RocketMQ ``TopicRouteData``, ``QueueData``, ``BrokerData`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rmqnet.client.message_queue import MessageQueue
from rmqnet.errors import RemotingFormatError
from store_core.config.lenient_json import json_object, json_whole_number, parse_lenient_json

if TYPE_CHECKING:
    from collections.abc import Mapping

MASTER_ID = 0
PERM_WRITE, PERM_READ = 2, 4


@dataclass(frozen=True)
class QueueData:
    """Queues of a topic on one broker (RocketMQ ``QueueData``)."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    """Bits: 1 inherit, 2 write, 4 read."""
    topic_sys_flag: int = 0

    @property
    def is_readable(self) -> bool:
        """Whether consumers may read."""
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        """Whether producers may send; only clients check this."""
        return bool(self.perm & PERM_WRITE)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that name servers write."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }


@dataclass(frozen=True)
class BrokerData:
    """Brokers of one name: a master and its slaves (RocketMQ ``BrokerData``)."""

    broker_name: str
    cluster: str = ""
    addresses: Mapping[int, str] = field(default_factory=dict)
    """Addresses by broker id; 0 is the master."""
    enable_acting_master: bool = False
    """If the master is gone, the slave with the lowest id replaces it."""
    zone_name: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that name servers write; ``brokerAddrs`` has integer keys."""
        data = {
            "brokerAddrs": dict(sorted(self.addresses.items())),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": self.enable_acting_master,
        }
        return data if self.zone_name is None else {**data, "zoneName": self.zone_name}


@dataclass(frozen=True)
class TopicRoute:
    """Brokers and queues of a topic (RocketMQ ``TopicRouteData``, releases 4.9.7 and 5.3.3).

    Parameters
    ----------
    topic
        Name of the topic.
    queue_datas
        One item per broker, in the order of broker names.
    brokers
        Addresses by broker name, then broker id: 0 is the master.
    clusters
        The cluster of each broker name.
    order_topic_conf
        ``broker:queues;broker:queues``: the fixed queues of an order topic; None for other
        topics.
    """

    topic: str
    queue_datas: tuple[QueueData, ...]
    brokers: Mapping[str, Mapping[int, str]]
    clusters: Mapping[str, str]
    order_topic_conf: str | None = None

    @property
    def is_order_topic(self) -> bool:
        """Whether the name server fixes the topic's queues."""
        return bool(self.order_topic_conf)

    def publish_queues(self) -> list[MessageQueue]:
        """Return the queues to send to: those of brokers that have a master and allow writing.

        For an order topic, these are its fixed queues even if their brokers are down, because a
        key must always select the same queue. Source:
        ``MQClientInstance.topicRouteData2TopicPublishInfo``.
        """
        if self.order_topic_conf:
            numbers = _fixed_queues(self.order_topic_conf)
        else:
            numbers = [
                (queues.broker_name, queues.write_queue_nums)
                for queues in self.queue_datas
                if queues.is_writable and MASTER_ID in self.brokers.get(queues.broker_name, {})
            ]
        return self._queues(numbers)

    def subscribe_queues(self) -> list[MessageQueue]:
        """Return the queues of brokers that allow reading, sorted.

        Source: ``MQClientInstance.topicRouteData2TopicSubscribeInfo``.
        """
        readable = [queues for queues in self.queue_datas if queues.is_readable]
        return sorted(self._queues((each.broker_name, each.read_queue_nums) for each in readable))

    def for_new_topic(self, topic: str, queue_nums: int) -> TopicRoute:
        """Return the route of a new topic that brokers create with this route's settings.

        Each broker gets at most ``queue_nums`` queues. Source:
        ``MQClientInstance.updateTopicRouteInfoFromNameServer``.
        """
        queue_datas = []
        for queues in self.queue_datas:
            count = min(queue_nums, queues.read_queue_nums)
            queue_datas.append(replace(queues, read_queue_nums=count, write_queue_nums=count))
        return replace(self, topic=topic, queue_datas=tuple(queue_datas))

    def _queues(self, numbers: Any) -> list[MessageQueue]:
        return [
            MessageQueue(self.topic, broker_name, queue_id)
            for broker_name, count in numbers
            for queue_id in range(count)
        ]


def parse_topic_route(topic: str, body: bytes, name_server: str) -> TopicRoute:
    """Return the route in the body of a name server's answer.

    Raises
    ------
    RemotingFormatError
        The body is not a route; the text names the topic, the name server and the fault. Also
        raised for a static topic (queues that move between brokers), which is not supported.
    """
    try:
        return _route(topic, json_object(parse_lenient_json(body.decode()), "route"))
    except (KeyError, ValueError) as err:
        reason = f"{err} is missing" if isinstance(err, KeyError) else str(err)
        raise RemotingFormatError(
            f"name server {name_server} sent no usable route of topic {topic}: {reason}"
        ) from err


def parse_broker_data(data: dict[str, Any]) -> BrokerData:
    """Return the brokers of one name; ``brokerAddrs`` may have numbers or text as keys.

    Raises
    ------
    ValueError
        A field is invalid. If the name is missing, KeyError is raised.
    """
    addresses = json_object(data.get("brokerAddrs"), "brokerAddrs")
    zone_name = data.get("zoneName")
    return BrokerData(
        str(data["brokerName"]),
        str(data.get("cluster", "")),
        {int(broker_id): str(address) for broker_id, address in sorted(addresses.items())},
        data.get("enableActingMaster") is True,
        None if zone_name is None else str(zone_name),
    )


def _route(topic: str, data: dict[str, Any]) -> TopicRoute:
    if data.get("topicQueueMappingByBroker"):
        raise ValueError("it is a static topic (topicQueueMappingByBroker), which is not supported")
    brokers, clusters = {}, {}
    for each in data.get("brokerDatas") or []:
        broker = parse_broker_data(json_object(each, "brokerDatas"))
        brokers[broker.broker_name] = broker.addresses
        clusters[broker.broker_name] = broker.cluster
    queues = data.get("queueDatas") or []
    queue_datas = [parse_queue_data(json_object(each, "queueDatas")) for each in queues]
    return TopicRoute(
        topic,
        tuple(sorted(queue_datas, key=lambda queues: queues.broker_name)),
        brokers,
        clusters,
        data.get("orderTopicConf") or None,
    )


def parse_queue_data(data: dict[str, Any]) -> QueueData:
    """Return a topic's queues on one broker; raises the errors of `parse_broker_data`."""
    return QueueData(
        broker_name=str(data["brokerName"]),
        read_queue_nums=json_whole_number(data.get("readQueueNums", 0), "readQueueNums"),
        write_queue_nums=json_whole_number(data.get("writeQueueNums", 0), "writeQueueNums"),
        perm=json_whole_number(data.get("perm", 0), "perm"),
        topic_sys_flag=json_whole_number(data.get("topicSysFlag", 0), "topicSysFlag"),
    )


def _fixed_queues(order_topic_conf: str) -> list[tuple[str, int]]:
    numbers = []
    for part in order_topic_conf.rstrip(";").split(";"):
        broker_name, _, count = part.partition(":")
        numbers.append((broker_name, int(count)))
    return numbers


@dataclass(frozen=True)
class ClusterInfo:
    """The registered brokers and their clusters (RocketMQ ``ClusterInfo``).

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
        """Addresses of the masters by broker name; names without a master are left out."""
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
