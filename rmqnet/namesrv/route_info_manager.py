# SPDX-License-Identifier: Apache-2.0
"""The brokers that are up, and their topics; without sockets.

Source: RocketMQ ``RouteInfoManager`` (releases 5.3.3 and 4.9.7).
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.client.topic_route import MASTER_ID, PERM_READ, PERM_WRITE, BrokerData, QueueData
from rmqnet.remoting.headers import RegisterBrokerResponseHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqnet.remoting.headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
    from rmqnet.remoting.registration_body import RegistrationBody
    from store_core.config.config_files import TopicConfig
    from store_core.config.data_version import DataVersion

logger = logging.getLogger(__name__)
DEFAULT_TIMEOUT_MS = 120_000
"""How long a broker may be silent if it registered without a timeout of its own."""
_Address = tuple[str, str]  # cluster and address of one broker


@dataclass
class _LiveBroker:
    """One broker that is up."""

    broker_name: str
    seen_at: float  # seconds of the clock
    timeout_ms: int
    data_version: DataVersion
    ha_server_addr: str
    connection: object


class RouteInfoManager:
    """Brokers and topics as brokers registered them; any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: dict[str, dict[str, QueueData]] = {}  # by topic, then broker name
        self._brokers: dict[str, BrokerData] = {}  # by broker name
        self._clusters: dict[str, set[str]] = {}  # broker names
        self._live: dict[_Address, _LiveBroker] = {}
        self._filter_servers: dict[_Address, tuple[str, ...]] = {}
        self._queue_mappings: dict[str, dict[str, Any]] = {}  # by topic, then broker name

    # Called for brokers.

    def register(
        self,
        header: RegisterBrokerRequestHeader,
        body: RegistrationBody,
        connection: object = None,
        zone_name: str | None = None,
        *,
        forgets_topics: bool = False,
    ) -> RegisterBrokerResponseHeader | None:
        """Record that a broker is up, and its topics if they have changed.

        A slave's topics count only if it has the lowest id of its name and may act as master.

        Returns
        -------
        header
            The master's addresses, for slaves; None if refused, as an unknown broker has only one
            topic (5.x brokers announce a new topic alone, even before their first full list).
        """
        with self._lock:
            self._forget_other_name(header)
            known = self._brokers.get(header.broker_name) or BrokerData(
                header.broker_name, header.cluster_name
            )
            if self._is_older_than_known(header, body, known):
                self._live.pop((header.cluster_name, header.broker_addr), None)
                return RegisterBrokerResponseHeader()
            if header.broker_id not in known.addresses and len(body.topics) == 1:
                return None
            broker = self._brokers[header.broker_name] = _joined(known, header, zone_name)
            self._clusters.setdefault(header.cluster_name, set()).add(header.broker_name)
            if header.broker_id == MASTER_ID or _is_prime_slave(header, broker):
                is_new = not known.addresses.get(header.broker_id)
                self._note_topics(header, body, is_new=is_new, forgets_topics=forgets_topics)
            self._note_live(header, body, connection)
            return self._master_of(header, broker)

    def note_heartbeat(self, cluster: str, address: str) -> None:
        """Record that a broker is still up; an unknown one is ignored."""
        with self._lock:
            live = self._live.get((cluster, address))
            if live is not None:
                live.seen_at = self._clock()

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the recorded version of a broker's topics; None for an unknown broker."""
        with self._lock:
            live = self._live.get((cluster, address))
            return None if live is None else live.data_version

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Record queues of a topic, unless one of their brokers is unknown."""
        queues = {each.broker_name: each for each in queue_datas}
        with self._lock:
            if queues and all(name in self._brokers for name in queues):
                self._topics.setdefault(topic, {}).update(queues)

    def unregister(self, header: UnRegisterBrokerRequestHeader) -> None:
        """Remove a broker that leaves."""
        with self._lock:
            self._remove([(header.broker_name, (header.cluster_name, header.broker_addr))])

    def unregister_connection(self, connection: object) -> None:
        """Remove the brokers whose last registration came by a connection that has ended."""
        with self._lock:
            gone = [key for key, live in self._live.items() if live.connection is connection]
            if gone:
                self._remove_live(gone)

    def expire(self) -> list[object]:
        """Remove brokers that were silent for too long; return their connections."""
        with self._lock:
            now = self._clock()
            gone = [
                key
                for key, live in self._live.items()
                if live.seen_at + live.timeout_ms / 1000 < now
            ]
            connections = [self._live[key].connection for key in gone]
            for cluster, address in gone:
                live = self._live[cluster, address]
                logger.warning(
                    "broker %s of %s at %s was silent for %d ms: it is considered gone",
                    live.broker_name,
                    cluster,
                    address,
                    live.timeout_ms,
                )
            self._remove_live(gone)
            return connections

    # Called for clients and admins.

    def route(self, topic: str, *, acting_masters: bool = False) -> RouteData | None:
        """Return the route of a topic; None if no broker has it."""
        with self._lock:
            queues = self._topics.get(topic, {})
            names = sorted(queues)
            brokers = [self._brokers[name] for name in names if name in self._brokers]
            if not brokers:
                return None
            filter_servers = {
                address: self._filter_servers[broker.cluster, address]
                for broker in brokers
                for address in broker.addresses.values()
                if (broker.cluster, address) in self._filter_servers
            }
            mappings = dict(self._queue_mappings.get(topic, {}))
            data = RouteData([queues[name] for name in names], brokers, filter_servers, mappings)
        return data.with_acting_masters() if acting_masters else data

    def cluster_info(self) -> dict[str, Any]:
        """Return all brokers and clusters as name servers write them (``ClusterInfo``)."""
        with self._lock:
            return {
                "brokerAddrTable": {
                    name: broker.to_json() for name, broker in sorted(self._brokers.items())
                },
                "clusterAddrTable": {
                    cluster: sorted(names) for cluster, names in sorted(self._clusters.items())
                },
            }

    def broker_addresses(self, broker_name: str) -> Mapping[int, str]:
        """Return the addresses of a broker name by broker id; empty if it is unknown."""
        with self._lock:
            broker = self._brokers.get(broker_name)
            return {} if broker is None else broker.addresses

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        with self._lock:
            return sorted(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the names of the topics that brokers of a cluster have, sorted."""
        with self._lock:
            names = self._clusters.get(cluster, set())
            return sorted(topic for topic, queues in self._topics.items() if names & queues.keys())

    def topics_with_flags(self, flags: int, mask: int) -> list[str]:
        """Return the names of the topics whose system flags under a mask are these, sorted."""
        with self._lock:
            return sorted(
                topic
                for topic, queues in self._topics.items()
                if next(iter(queues.values())).topic_sys_flag & mask == flags
            )

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics named as clusters and brokers, sorted, and a broker's address."""
        with self._lock:
            names = {*self._clusters, *(name for each in self._clusters.values() for name in each)}
            addresses = (each.addresses.values() for each in self._brokers.values())
            return sorted(names), next((at for each in addresses for at in each), None)

    # Changes by admins.

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic from the brokers of one cluster, or of all if None."""
        with self._lock:
            queues = self._topics.get(topic, {})
            for name in self._clusters.get(cluster, set()) if cluster else list(queues):
                queues.pop(name, None)
            if not queues:
                self._topics.pop(topic, None)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove write permission from a broker's topics; return their number."""
        return self._change_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Set read and write permission on a broker's topics; return their number."""
        return self._change_perms(broker_name, lambda _: PERM_READ | PERM_WRITE)

    # Internals, called with the lock.

    def _forget_other_name(self, header: RegisterBrokerRequestHeader) -> None:
        """Remove a broker of another name at the same address, where only one can be."""
        key = (header.cluster_name, header.broker_addr)
        live = self._live.get(key)
        if live is not None and live.broker_name != header.broker_name:
            self._remove([(live.broker_name, key)])

    def _is_older_than_known(
        self, header: RegisterBrokerRequestHeader, body: RegistrationBody, known: BrokerData
    ) -> bool:
        """Return whether the controller gave this id to another broker at a later state."""
        address = known.addresses.get(header.broker_id)
        if address is None or address == header.broker_addr:
            return False
        live = self._live.get((header.cluster_name, address))
        if live is None or live.data_version.state_version <= body.data_version.state_version:
            return False
        logger.warning(
            "ignored: %s registers as broker %d of %s, but %s has this id with a newer state",
            header.broker_addr,
            header.broker_id,
            header.broker_name,
            address,
        )
        return True

    def _note_topics(
        self,
        header: RegisterBrokerRequestHeader,
        body: RegistrationBody,
        *,
        is_new: bool,
        forgets_topics: bool,
    ) -> None:
        name = header.broker_name
        if forgets_topics and not body.queue_mappings:
            gone = [topic for topic in self._topics if topic not in body.topics]
            self._remove_queues(gone, {name})
        live = self._live.get((header.cluster_name, header.broker_addr))
        is_changed = is_new or live is None or live.data_version != body.data_version
        # The first slave acts as master, but accepts no messages.
        is_acting = header.broker_id != MASTER_ID and header.enable_acting_master
        for config in body.topics.values():
            queues = self._topics.setdefault(config.topic_name, {})
            if is_changed or name not in queues:
                queues[name] = _queue_data(name, config, PERM_WRITE if is_acting else 0)
        if is_changed:
            for topic, mapping in body.queue_mappings.items():
                by_name = self._queue_mappings.setdefault(topic, {})
                by_name[str(mapping.get("bname", name))] = mapping

    def _note_live(
        self,
        header: RegisterBrokerRequestHeader,
        body: RegistrationBody,
        connection: object,
    ) -> None:
        key = (header.cluster_name, header.broker_addr)
        if key not in self._live:
            logger.info(
                "broker %s:%d of %s is at %s",
                header.broker_name,
                header.broker_id,
                header.cluster_name,
                header.broker_addr,
            )
        timeout_ms = header.heartbeat_timeout_millis
        self._live[key] = _LiveBroker(
            header.broker_name,
            self._clock(),
            DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms,
            body.data_version,
            header.ha_server_addr,
            connection,
        )
        if body.filter_servers:
            self._filter_servers[key] = body.filter_servers
        else:
            self._filter_servers.pop(key, None)

    def _master_of(
        self, header: RegisterBrokerRequestHeader, broker: BrokerData
    ) -> RegisterBrokerResponseHeader:
        address = broker.addresses.get(MASTER_ID)
        live = self._live.get((header.cluster_name, address)) if address else None
        if header.broker_id == MASTER_ID or live is None:
            return RegisterBrokerResponseHeader()
        return RegisterBrokerResponseHeader(live.ha_server_addr, address)

    def _remove_live(self, keys: Iterable[_Address]) -> None:
        self._remove([(self._live[key].broker_name, key) for key in keys])

    def _remove(self, brokers: Iterable[tuple[str, _Address]]) -> None:
        """Remove brokers by name, cluster and address, and entries that only they have."""
        gone, less = set(), set()
        for name, key in brokers:
            self._live.pop(key, None)
            self._filter_servers.pop(key, None)
            known = self._brokers.get(name)
            if known is None:
                continue
            left = {number: at for number, at in known.addresses.items() if at != key[1]}
            if left:
                self._brokers[name] = replace(known, addresses=left)
                less.add(name)
            else:
                del self._brokers[name]
                gone.add(name)
            logger.info("broker %s of %s at %s is gone", name, *key)
        self._remove_names(gone)
        for name in less - gone:
            broker = self._brokers[name]
            if broker.enable_acting_master and MASTER_ID not in broker.addresses:
                self._set_perms(name, lambda perm: perm & ~PERM_WRITE)

    def _remove_names(self, names: set[str]) -> None:
        if not names:
            return
        for cluster in list(self._clusters):
            self._clusters[cluster] -= names
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        self._remove_queues(list(self._topics), names)

    def _remove_queues(self, topics: Iterable[str], names: set[str]) -> None:
        for topic in topics:
            queues = self._topics[topic]
            for name in names & queues.keys():
                del queues[name]
            if not queues:
                del self._topics[topic]
                self._queue_mappings.pop(topic, None)

    def _change_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        with self._lock:
            return self._set_perms(broker_name, change)

    def _set_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            known = queues.get(broker_name)
            if known is not None:
                queues[broker_name] = replace(known, perm=change(known.perm))
                count += 1
        return count


def _joined(
    known: BrokerData, header: RegisterBrokerRequestHeader, zone_name: str | None
) -> BrokerData:
    """Return the brokers of a name with one added, which may have had another id before."""
    others = {
        number: address
        for number, address in known.addresses.items()
        if address != header.broker_addr
    }
    return replace(
        known,
        addresses={**others, header.broker_id: header.broker_addr},
        enable_acting_master=bool(header.enable_acting_master),
        zone_name=zone_name,
    )


def _is_prime_slave(header: RegisterBrokerRequestHeader, broker: BrokerData) -> bool:
    """Return whether it has the lowest id, and is of a release (5.x) that can act as master."""
    return header.enable_acting_master is not None and header.broker_id == min(broker.addresses)


def _queue_data(broker_name: str, config: TopicConfig, without: int) -> QueueData:
    return QueueData(
        broker_name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm & ~without,
        config.topic_sys_flag,
    )


# Source: RocketMQ ``TopicRouteData``, ``ZoneRouteRPCHook``,
# ``RouteInfoManager.pickupTopicRouteData`` (release 5.3.3).
@dataclass(frozen=True)
class RouteData:
    """Queues of a topic and the brokers that have them."""

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
        """Return it without brokers of other zones, except those whose master is gone."""
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

        This applies to brokers that enable it and do not accept messages to the topic.
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
