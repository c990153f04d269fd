# SPDX-License-Identifier: Apache-2.0
"""Requests that administrators send to brokers, one method per request code.

Source: RocketMQ ``MQClientAPIImpl`` (releases 5.3.3 and 4.9.7).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

from rmqnet.client.admin_results import (
    ConsumerConnections,
    parse_connections,
    parse_consume_stats,
    parse_consumer_connections,
    parse_groups,
    parse_topic_stats,
)
from rmqnet.client.queue_json import queue_table
from rmqnet.client.request_calls import json_of
from rmqnet.client.route_table import AUTO_CREATE_TOPIC
from rmqnet.errors import BrokerError, ClientError, RemotingFormatError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import RequestHeader
from rmqnet.remoting.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ResetOffsetRequestHeader,
)
from store_core.config.config_files import parse_topic_configs
from store_core.config.lenient_json import json_object, parse_lenient_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.client.admin_results import Connection, ConsumeStats, GroupConfig, QueueStats
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.request_calls import Request, RequestCalls
    from store_core.config.config_files import TopicConfig

T = TypeVar("T")
ALL_QUEUES = -1
LATEST_TIMESTAMP = -1
"""Timestamp that means the end of each queue."""
_PATIENCE = 3
"""Factor on the timeout for tables of many topics and queues (as in ``DefaultMQAdminExtImpl``)."""
_NO_CONFIG = (
    ResponseCode.SUCCESS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)
_PAGE = 2000
_MOST_BEGINNINGS = 10


class BrokerAdminClient:
    """Queries and configures brokers by address.

    Each method raises `BrokerError` for a response code that is not accepted and `RemotingError`
    if no answer arrives.
    """

    def __init__(self, calls: RequestCalls) -> None:
        self._calls = calls

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Return the topics of a broker by name, including RocketMQ's own."""
        return await self._pages(address, RequestCode.GET_ALL_TOPIC_CONFIG, _sorted_topics)

    async def update_topic(self, address: str, config: TopicConfig) -> None:
        """Create or change a topic; its attributes become those of ``config``."""
        header = GetTopicConfigRequestHeader(topic=config.topic_name)
        current = await self._attributes(address, header)
        request = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            order=config.order,
            topic_sys_flag=config.topic_sys_flag,
            attributes=_attribute_text(_changes(current, config.attributes)),
        )
        await self._calls.answer(address, request)

    async def delete_topic(self, address: str, topic: str) -> None:
        """Delete a topic and its messages from a broker."""
        await self._calls.answer(address, DeleteTopicRequestHeader(topic=topic))

    async def group_configs(self, address: str) -> dict[str, GroupConfig]:
        """Return the consumer groups of a broker by name, including RocketMQ's own."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return await self._pages(address, code, parse_groups)

    async def update_group(self, address: str, config: GroupConfig) -> None:
        """Create or change a group; its attributes become those of ``config``."""
        header = GetSubscriptionGroupConfigRequestHeader(group=config.group_name)
        current = await self._attributes(address, header)
        data = {**config.to_json(), "attributes": _changes(current, config.attributes)}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._calls.answer(address, code, json.dumps(data).encode())

    async def delete_group(self, address: str, group: str, *, clean_offsets: bool = False) -> None:
        """Delete a group's settings and, with ``clean_offsets``, its offsets."""
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=clean_offsets, remove_offset=clean_offsets
        )
        await self._calls.answer(address, header)

    async def topic_stats(self, address: str, topic: str) -> dict[MessageQueue, QueueStats]:
        """Return the offsets of a topic's queues on a broker."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        return await self._table(address, header, parse_topic_stats)

    async def consume_stats(
        self, address: str, group: str, topic: str | None = None
    ) -> ConsumeStats:
        """Return a group's progress in a broker's queues, for one topic or (if None) for all."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        return await self._table(address, header, parse_consume_stats)

    async def consumer_connections(self, address: str, group: str) -> ConsumerConnections:
        """Return the group members connected to a broker; possibly none."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        known = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
        answer = await self._calls.answer(address, header, accepted=known)
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return ConsumerConnections()
        return _parsed(answer.body, address, parse_consumer_connections)

    async def producer_connections(self, address: str, group: str) -> tuple[Connection, ...]:
        """Return the group's producers connected to a broker; possibly none."""
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        try:
            return await self._table(address, header, parse_connections)
        except BrokerError as err:
            # Brokers use the general error code for "none": only the remark differs.
            if err.code == ResponseCode.SYSTEM_ERROR and "not exist" in err.remark:
                return ()
            raise

    async def groups_of_topic(self, address: str, topic: str) -> set[str]:
        """Return the groups that read a topic or have read it."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        return await self._table(address, header, _group_list)

    async def reset_offsets(
        self,
        address: str,
        group: str,
        topic: str,
        timestamp: int,
        *,
        force: bool = True,
        queue_id: int = ALL_QUEUES,
        offset: int | None = None,
    ) -> dict[MessageQueue, int]:
        """Reset a group's offsets and return the new ones.

        4.x brokers notify the connected members and refuse if there are none
        (CONSUMER_NOT_ONLINE); 5.x brokers store the offsets themselves.

        Parameters
        ----------
        force
            Also move offsets forward; 5.x brokers always do.
        queue_id, offset
            One queue and its offset; 5.x brokers only.
        """
        header = ResetOffsetRequestHeader(
            group=group,
            topic=topic,
            timestamp=timestamp,
            is_force=force,
            queue_id=queue_id,
            offset=-1 if offset is None else offset,
        )
        return await self._table(address, header, _offsets)

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return a broker's figures: versions, rates, times, disk."""
        return await self._table(address, RequestCode.GET_BROKER_RUNTIME_INFO, _texts)

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return all settings of a broker."""
        answer = await self._calls.answer(address, RequestCode.GET_BROKER_CONFIG)
        lines = (line.partition("=") for line in answer.body.decode().splitlines())
        return {key.strip(): value for key, separator, value in lines if separator}

    async def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker and in its configuration file."""
        for name, value in settings.items():  # the value may be a secret
            if "\n" in name or "\n" in value:
                raise ClientError(f"the setting {name!r:.200} of a broker holds a line break")
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        await self._calls.answer(address, RequestCode.UPDATE_BROKER_CONFIG, text.encode())

    async def consumer_running_info(
        self, address: str, group: str, client_id: str
    ) -> dict[str, Any]:
        """Return the state that a connected consumer reports (``ConsumerRunningInfo``)."""
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        return await self._table(address, header, dict)

    async def _attributes(self, address: str, header: Request) -> dict[str, str]:
        """Return a topic's or group's attributes; empty if unknown, and from 4.x brokers."""
        answer = await self._calls.answer(address, header, accepted=_NO_CONFIG)
        if answer.code != ResponseCode.SUCCESS:
            return {}
        return _parsed(answer.body, address, _attributes_of)

    async def _pages(
        self, address: str, code: RequestCode, parse: Callable[[dict[str, Any]], T]
    ) -> T:
        timeout_s = _PATIENCE * self._calls.timeout_s
        table = await paged_table(self._calls, address, code, timeout_s)
        try:
            return parse(table)
        except ValueError as err:
            raise RemotingFormatError(f"the answer of {address} cannot be decoded: {err}") from err

    async def _table(
        self, address: str, request: Request, parse: Callable[[dict[str, Any]], T]
    ) -> T:
        timeout_s = _PATIENCE * self._calls.timeout_s
        answer = await self._calls.answer(address, request, timeout_s=timeout_s)
        return _parsed(answer.body, address, parse)


def _parsed(body: bytes, address: str, parse: Callable[[dict[str, Any]], T]) -> T:
    """Return the parsed body of an answer; RemotingFormatError names the broker."""
    try:
        return parse(json_object(parse_lenient_json(body.decode() or "null"), "the answer"))
    except ValueError as err:
        raise RemotingFormatError(f"the answer of {address} cannot be decoded: {err}") from err


def _sorted_topics(data: dict[str, Any]) -> dict[str, TopicConfig]:
    return dict(sorted(parse_topic_configs(data).items()))


def _group_list(data: dict[str, Any]) -> set[str]:
    return {str(group) for group in data.get("groupList") or []}


def _offsets(data: dict[str, Any]) -> dict[MessageQueue, int]:
    return {queue: int(offset) for queue, offset in queue_table(data, "offsetTable").items()}


def _texts(data: dict[str, Any]) -> dict[str, str]:
    table = json_object(data.get("table"), "table")
    return {str(name): str(value) for name, value in sorted(table.items())}


def _attributes_of(data: dict[str, Any]) -> dict[str, str]:
    attributes = json_object(data.get("attributes"), "attributes")
    return {str(name): str(value) for name, value in attributes.items()}


def _changes(current: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the changes that give a broker the requested attributes.

    Only differences are sent: brokers refuse attributes that cannot change (``queue.type``), even
    with the same value.
    """
    changed = {f"+{name}": value for name, value in wanted.items() if current.get(name) != value}
    return {**changed, **{f"-{name}": "" for name in current if name not in wanted}}


def _attribute_text(changes: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" if value else name for name, value in changes.items())


# Source: RocketMQ ``MQClientAPIImpl.getAllTopicConfig``, ``getAllSubscriptionGroup`` (release
# 5.5.0).
class _Kind(NamedTuple):
    """How to request one kind of table, and the fields that give its rows and their number."""

    header: Callable[[int, str], RequestHeader]
    rows: str
    total: str
    beside: str


_KINDS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: _Kind(
        lambda begin, version: GetAllTopicConfigRequestHeader(
            topic_seq=begin, data_version=version, max_topic_num=_PAGE
        ),
        "topicConfigTable",
        "totalTopicNum",
        "topicQueueMappingDetailMap",
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _Kind(
        lambda begin, version: GetAllSubscriptionGroupRequestHeader(
            group_seq=begin, data_version=version, max_group_num=_PAGE
        ),
        "subscriptionGroupTable",
        "totalGroupNum",
        "forbiddenTable",
    ),
}


PAGED_CODES = frozenset(_KINDS)


async def paged_table(
    calls: RequestCalls, address: str, code: RequestCode, timeout_s: float | None = None
) -> dict[str, Any]:
    """Return the whole table in the form of a broker that does not use pages.

    Reading starts over if the table changes between two pages.

    Raises
    ------
    BrokerError, RemotingError
        As in ``RequestCalls.answer``; RemotingError also if the table keeps changing.
    """
    kind = _KINDS[code]
    for _ in range(_MOST_BEGINNINGS):
        whole = await _read(calls, address, kind, timeout_s)
        if whole is not None:
            return whole
    raise RemotingFormatError(
        f"{address} answers {code.name} with a different version of the table each time"
    )


async def _read(
    calls: RequestCalls, address: str, kind: _Kind, timeout_s: float | None
) -> dict[str, Any] | None:
    """Return the table; None if it changed meanwhile."""
    whole: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    version = ""
    while True:
        answer = await calls.answer(address, kind.header(len(rows), version), timeout_s=timeout_s)
        page = json_of(answer, address, "table")
        whole = whole or page
        if page.get("dataVersion") != whole.get("dataVersion"):
            return None
        try:
            found = json_object(page.get(kind.rows) or {}, kind.rows)
            others = json_object(page.get(kind.beside) or {}, kind.beside)
        except ValueError as err:
            raise RemotingFormatError(f"the answer of {address} cannot be decoded: {err}") from err
        is_new = bool(found.keys() - rows.keys())
        rows.update(found)
        beside.update(others)
        total = answer.ext_fields.get(kind.total, "")
        if not total.isdecimal() or len(rows) >= int(total) or not is_new:
            tables = {kind.rows: rows, kind.beside: beside}
            return {**whole, **{name: table for name, table in tables.items() if table}}
        version = json.dumps(page.get("dataVersion") or {}, separators=(",", ":"))
