# SPDX-License-Identifier: Apache-2.0
"""Requests to name servers, with failover from one server to the next."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from rmqnet.client.request_calls import RequestCalls, checked, json_of
from rmqnet.client.topic_route import parse_cluster_info, parse_topic_route
from rmqnet.errors import RemotingConnectError, RemotingError, TopicNotFoundError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.lenient_json import json_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqnet.client.request_calls import Request
    from rmqnet.client.topic_route import ClusterInfo, TopicRoute
    from rmqnet.remoting.remoting_client import RemotingClient


class NameServerClient:
    """Sends requests to name servers (part of RocketMQ's ``MQClientAPIImpl``).

    It chooses a name server at random and asks it until it fails to answer, then the next.

    Parameters
    ----------
    name_servers
        Addresses ``host:port``, at least one.
    """

    def __init__(
        self, remoting: RemotingClient, name_servers: Sequence[str], timeout_s: float = 3.0
    ) -> None:
        self._calls = RequestCalls(remoting, timeout_s)
        self._name_servers = tuple(name_servers)
        self._chosen = random.randrange(len(self._name_servers))

    @property
    def name_servers(self) -> tuple[str, ...]:
        """All addresses."""
        return self._name_servers

    @property
    def chosen(self) -> str:
        """The name server that requests go to at present."""
        return self._name_servers[self._chosen]

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic.

        Raises
        ------
        TopicNotFoundError
            The name server does not know the topic.
        RemotingError
            No name server answered.
        """
        header = GetRouteInfoRequestHeader(topic=topic)
        known = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        address, answer = await self._ask(header, known)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(self._not_found(topic, address))
        return parse_topic_route(topic, answer.body, address)

    async def cluster_info(self) -> ClusterInfo:
        """Return brokers and clusters."""
        address, answer = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return parse_cluster_info(json_of(answer, address, "cluster info"))

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return await self._topic_list(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)

    async def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the names of the topics that brokers of a cluster have, sorted."""
        return await self._topic_list(GetTopicsByClusterRequestHeader(cluster=cluster))

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic from all name servers, for one cluster or (if None) for all."""
        await self._tell_all(DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster))

    async def kv_config(self, namespace: str, key: str) -> str | None:
        """Return a value; None if there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        known = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        _, answer = await self._ask(header, known)
        return answer.ext_fields.get("value")

    async def kv_configs(self, namespace: str) -> dict[str, str]:
        """Return the values of a namespace by key; empty if there is no such namespace."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        known = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        address, answer = await self._ask(header, known)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        table = json_object(json_of(answer, address, "values").get("table"), "table")
        return {str(key): str(value) for key, value in table.items()}

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value on all name servers."""
        await self._tell_all(PutKVConfigRequestHeader(namespace=namespace, key=key, value=value))

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        """Delete a value on all name servers."""
        await self._tell_all(DeleteKVConfigRequestHeader(namespace=namespace, key=key))

    async def _topic_list(self, request: Request) -> list[str]:
        address, answer = await self._ask(request)
        topics = json_of(answer, address, "topic list").get("topicList") or []
        return sorted(str(topic) for topic in topics)

    async def _tell_all(self, request: Request) -> None:
        for address in self._name_servers:
            await self._calls.answer(address, request)

    async def _ask(
        self, request: Request, accepted: tuple[int, ...] = (ResponseCode.SUCCESS,)
    ) -> tuple[str, RemotingCommand]:
        """Return the first name server that answers, and its answer."""
        command = RemotingCommand.request(request)
        failures = []
        for _ in self._name_servers:
            address = self.chosen
            try:
                answer = await self._calls.ask(address, command)
            except RemotingError as err:
                failures.append(f"{address}: {err}")
                self._turn_from(address)
            else:
                return address, checked(answer, address, command, accepted)
        error = RemotingConnectError(
            f"no name server answers ({'; '.join(failures)}). Check the addresses and that name "
            "servers run there"
        )
        error.address = ";".join(self._name_servers)
        raise error

    def _turn_from(self, address: str) -> None:
        """Choose the next name server unless another request has already done so."""
        if self.chosen == address:
            self._chosen = (self._chosen + 1) % len(self._name_servers)

    def _not_found(self, topic: str, address: str) -> str:
        others = [each for each in self._name_servers if each != address]
        not_asked = f" (not asked: {', '.join(others)})" if others else ""
        return (
            f"name server {address} does not know topic {topic!r}{not_asked}. Check the name, or "
            "create the topic; brokers create it on the first message only with "
            "autoCreateTopicEnable=true"
        )
