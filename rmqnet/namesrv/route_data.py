"""What a name server answers who asks for a topic.

Source: RocketMQ ``TopicRouteData``, ``ZoneRouteRPCHook``,
``RouteInfoManager.pickupTopicRouteData`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rmqnet.client.topic_route import MASTER_ID, BrokerData, QueueData

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class RouteData:
    """Queues of a topic and the brokers that have them.

    Parameters
    ----------
    queue_datas, broker_datas
        One a broker name each, sorted by it.
    filter_servers
        Addresses by the address of the broker.
    queue_mappings
        Of a static topic, by broker name.
    order_topic_conf
        The queues that are fixed for an order topic.
    """

    queue_datas: Sequence[QueueData]
    broker_datas: Sequence[BrokerData]
    filter_servers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    queue_mappings: Mapping[str, Any] = field(default_factory=dict)
    order_topic_conf: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as name servers write it; some keys are whole numbers."""
        data: dict[str, Any] = {
            "brokerDatas": [broker.to_json() for broker in self.broker_datas],
            "filterServerTable": {
                each: [*self.filter_servers[each]] for each in self.filter_servers
            },
            "queueDatas": [queues.to_json() for queues in self.queue_datas],
        }
        if self.order_topic_conf is not None:
            data["orderTopicConf"] = self.order_topic_conf
        if self.queue_mappings:
            data["topicQueueMappingByBroker"] = dict(self.queue_mappings)
        return data

    def in_zone(self, zone_name: str) -> RouteData:
        """Return it without brokers of other zones, but for those whose master is gone."""
        brokers = [
            each
            for each in self.broker_datas
            if MASTER_ID not in each.addresses
            or (each.zone_name or "").lower() == zone_name.lower()
        ]
        names = {each.broker_name for each in brokers}
        addresses = {address for each in brokers for address in each.addresses.values()}
        return replace(
            self,
            broker_datas=brokers,
            queue_datas=[each for each in self.queue_datas if each.broker_name in names],
            filter_servers={
                address: self.filter_servers[address]
                for address in self.filter_servers
                if address in addresses
            },
        )

    def with_acting_masters(self) -> RouteData:
        """Return it with slaves in place of masters that are gone.

        Only where the brokers want that, and nothing can be sent to the topic there.
        """
        queues = {each.broker_name: each for each in self.queue_datas}
        brokers = [
            _with_acting_master(each)
            if each.enable_acting_master and not queues[each.broker_name].is_writable
            else each
            for each in self.broker_datas
        ]
        return replace(self, broker_datas=brokers)


def _with_acting_master(broker: BrokerData) -> BrokerData:
    if MASTER_ID in broker.addresses or not broker.addresses:
        return broker
    first = min(broker.addresses)
    others = {each: broker.addresses[each] for each in broker.addresses if each != first}
    return replace(broker, addresses={MASTER_ID: broker.addresses[first], **others})
