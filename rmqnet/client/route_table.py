# SPDX-License-Identifier: Apache-2.0
"""A client's cache of topic routes, refreshed while their topics are in use."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rmqnet.client.outage_log import OutageLog
from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import ClientError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqnet.client.name_server_client import NameServerClient
    from rmqnet.client.topic_route import TopicRoute

logger = logging.getLogger(__name__)

AUTO_CREATE_TOPIC = "TBW102"
"""Topic whose queues brokers copy when they create a topic on its first message."""
_MISSES_UNTIL_GONE = 4
"""A restarted name server knows a topic again once its brokers have registered: each 30 s, 60 at
most (``registerNameServerPeriod``)."""


class BrokerAddress(NamedTuple):
    """Address of one broker of a broker name."""

    address: str
    is_slave: bool


@dataclass
class _Entry:
    route: TopicRoute
    is_assumed: bool = False
    """Whether this is the route that the topic will have once a broker creates it."""
    number: int = 0
    """If two routes disagree about a broker, the one with the greater number applies."""
    misses: int = 0


class RouteTable:
    """The routes of the topics in use, and the brokers' addresses from them.

    A topic is in use if its route was requested since the refresh before last, or if one of the
    client's groups uses it. Only the event loop changes the table; any thread may read it.
    """

    def __init__(self, name_servers: NameServerClient, outages: OutageLog | None = None) -> None:
        self._name_servers = name_servers
        self._outages = outages or OutageLog()
        self._entries: dict[str, _Entry] = {}
        self._brokers: Mapping[str, Mapping[int, str]] = {}
        self._used: set[str] = set()
        self._used_before: set[str] = set()
        self._numbers = itertools.count()
        self._asking: dict[str, asyncio.Task[TopicRoute]] = {}

    @property
    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Addresses by broker name, then broker id; replaced by a new mapping on each change."""
        return self._brokers

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the cached or assumed route without asking a name server; None if unknown."""
        self._used.add(topic)
        entry = self._entries.get(topic)
        return None if entry is None else entry.route

    async def route(self, topic: str) -> TopicRoute:
        """Return the route, asking a name server if it is not cached.

        Raises
        ------
        TopicNotFoundError
            The name server does not know the topic.
        """
        self._used.add(topic)
        entry = self._entries.get(topic)
        if entry is not None and not entry.is_assumed:
            return entry.route
        return await self.refresh(topic)

    async def publish_route(
        self, topic: str, queue_nums: int, created_like: str = AUTO_CREATE_TOPIC
    ) -> TopicRoute:
        """Return the route for sending; for an unknown topic, the route brokers will give it.

        Parameters
        ----------
        queue_nums
            Most queues that a topic created this way gets on each broker.

        Raises
        ------
        TopicNotFoundError
            The topic is unknown, and brokers do not create topics (``autoCreateTopicEnable``).
        """
        known = self.cached(topic)
        if known is not None:
            return known
        try:
            return await self.refresh(topic)
        except TopicNotFoundError as err:
            try:
                pattern = await self.route(created_like)
            except TopicNotFoundError:
                raise err from None
        assumed = pattern.for_new_topic(topic, queue_nums)
        self._keep(_Entry(assumed, is_assumed=True))
        return assumed

    async def refresh(self, topic: str) -> TopicRoute:
        """Ask for a route now; concurrent calls for one topic share one request."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.ensure_future(self._ask(topic))
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        # A caller may stop waiting; the other callers and the table still get the answer.
        return await asyncio.shield(task)

    async def refresh_used(self, used_by_groups: Collection[str]) -> None:
        """Refresh the routes of the topics in use and drop the others."""
        in_use = self._used | self._used_before | set(used_by_groups)
        self._used_before, self._used = self._used, set()
        for topic in self._entries.keys() - in_use:
            del self._entries[topic]
        answers = await asyncio.gather(*map(self.refresh, in_use), return_exceptions=True)
        for topic, answer in zip(in_use, answers):
            if isinstance(answer, TopicNotFoundError):
                self._miss(topic)
            elif isinstance(answer, Exception):
                text = "cannot update the route of topic %s: %s"
                self._outages.report(logger, answer, text, topic, answer)
            elif isinstance(answer, BaseException):
                raise answer
        self._collect_brokers()

    def find_broker(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this_broker: bool = True
    ) -> BrokerAddress:
        """Return the address of a broker.

        Parameters
        ----------
        broker_id
            0 is the master. If a slave is gone, the slave with the next id is returned.

        Raises
        ------
        ClientError
            No cached route names it.

        Notes
        -----
        Source: ``MQClientInstance.findBrokerAddressInSubscribe``.
        """
        addresses = self._brokers.get(broker_name, {})
        ids = [broker_id] if broker_id == MASTER_ID else [broker_id, broker_id + 1]
        if not only_this_broker:
            ids += sorted(addresses)
        for each in ids:
            if each in addresses:
                return BrokerAddress(addresses[each], each != MASTER_ID)
        raise ClientError(self._unknown_broker(broker_name, broker_id))

    def addresses_of(self, broker_name: str) -> list[BrokerAddress]:
        """Return the addresses of a name's brokers, master first; empty if no route names it."""
        addresses = self._brokers.get(broker_name, {})
        return [BrokerAddress(addresses[each], each != MASTER_ID) for each in sorted(addresses)]

    def describe(self, address: str) -> str:
        """Return an explanation of where an address comes from, for connection errors."""
        for name, addresses in self._brokers.items():
            if address in addresses.values():
                return (
                    f"address of broker {name} as name server {self._name_servers.chosen} gives "
                    "it: if this machine cannot reach it, set the broker's brokerIP1 to an "
                    "address that it can reach"
                )
        return "no known route names this address"

    async def _ask(self, topic: str) -> TopicRoute:
        route = await self._name_servers.route(topic)
        known = self._entries.get(topic)
        if known is None or known.route != route:
            logger.info("route of topic %s: %s", topic, route)
        self._keep(_Entry(route))
        return route

    def _keep(self, entry: _Entry) -> None:
        entry.number = next(self._numbers)
        self._entries[entry.route.topic] = entry
        self._set_brokers({**self._brokers, **entry.route.brokers})

    def _miss(self, topic: str) -> None:
        entry = self._entries.get(topic)
        if entry is None or entry.is_assumed:
            return
        entry.misses += 1
        if entry.misses >= _MISSES_UNTIL_GONE:
            logger.warning("topic %s is gone: the name server no longer knows it", topic)
            del self._entries[topic]

    def _collect_brokers(self) -> None:
        """Remove brokers that no route names any more."""
        brokers: dict[str, Mapping[int, str]] = {}
        for entry in sorted(self._entries.values(), key=lambda each: each.number):
            brokers.update(entry.route.brokers)
        for name in self._brokers.keys() - brokers.keys():
            logger.info("broker %s is no longer in any route", name)
        self._set_brokers(brokers)

    def _set_brokers(self, brokers: Mapping[str, Mapping[int, str]]) -> None:
        if brokers != self._brokers:
            self._brokers = brokers

    def _unknown_broker(self, broker_name: str, broker_id: int) -> str:
        addresses = self._brokers.get(broker_name)
        if addresses is None:
            known = ", ".join(sorted(self._brokers)) or "none"
            return f"no route names broker {broker_name!r} (known: {known}): it is down, or gone"
        which = "master" if broker_id == MASTER_ID else f"member with id {broker_id}"
        return (
            f"broker {broker_name!r} has no {which} at present, only {dict(addresses)}: it is "
            "down, or has not registered yet"
        )
