"""What a name server answers, by request code.

Source: RocketMQ ``DefaultRequestProcessor``, ``ClientRequestProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, cast

from rmqnet.client.queue_json import to_queue_json
from rmqnet.client.topic_route import parse_queue_data
from rmqnet.errors import RemotingFormatError
from rmqnet.namesrv.kv_config_manager import ORDER_TOPIC_CONFIG
from rmqnet.namesrv.name_server_config import BLACK_LIST
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rmqnet.remoting.registration_body import body_crc32, decode_registration_body
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.broker_config import parse_properties
from store_core.config.data_version import parse_data_version
from store_core.config.lenient_json import json_object, parse_lenient_json
from store_core.errors import StoreConfigError, StoreWriteError

if TYPE_CHECKING:
    from rmqnet.namesrv.kv_config_manager import KVConfigManager
    from rmqnet.namesrv.name_server_config import NameServerConfig
    from rmqnet.namesrv.route_info_manager import RouteInfoManager
    from rmqnet.remoting.remoting_server import RemotingServer
    from rmqnet.remoting.server_connection import ServerConnection
    from rmqnet.remoting.worker_pool import WorkerPool

_V4_9_4 = 401
"""Clients from here on get standard JSON, without whole numbers as keys."""

_UNIT, _UNIT_SUB = 1, 2  # bits of a topic's system flags (TopicSysFlag)
_ZONE_NAME, _ZONE_MODE = "__ZONE_NAME", "__ZONE_MODE"  # fields of any request (MixAll)

Answer = Callable[["ServerConnection", RemotingCommand], RemotingCommand]


class _ThisProcess:
    """Stands where connections stand, for whoever asks without one."""

    address = "this process"
    is_open = True


class NameServerProcessor:
    """Answers brokers, clients and admins."""

    def __init__(
        self,
        config: NameServerConfig,
        routes: RouteInfoManager,
        kv_configs: KVConfigManager,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self._routes = routes
        self._kv_configs = kv_configs
        self._clock = clock
        self._started_at = clock()

    def register(self, server: RemotingServer, clients: WorkerPool, others: WorkerPool) -> None:
        """Have a server call this: for routes in the first pool, for all else in the second."""
        server.register([RequestCode.GET_ROUTEINFO_BY_TOPIC], self._route, clients)
        for code, answer in self._answers().items():
            server.register([code], answer, others)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """Answer a broker of this process.

        Raises
        ------
        RemotingFormatError
            The request is not what it must be.
        """
        asker = cast("ServerConnection", _ThisProcess())  # it has all that is looked at
        return self._answers()[request.code](asker, request)

    def _answers(self) -> dict[int, Answer]:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_configs_of_namespace,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._broker_member_group,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_ununit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    # Routes.

    def _route(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        config = self.config
        if config.need_wait_for_service:
            left = self._started_at + config.wait_seconds_for_service - self._clock()
            if left > 0:
                return _failure(request, f"name server not ready: {left:.0f} s left")
        header = decode_header(GetRouteInfoRequestHeader, request.ext_fields)
        route = self._routes.route(header.topic, acting_masters=config.support_acting_master)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return request.refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        zone_name = request.ext_fields.get(_ZONE_NAME, "").strip()
        if zone_name and request.ext_fields.get(_ZONE_MODE, "").lower() == "true":
            route = route.in_zone(zone_name)
        if config.order_message_enable:
            fixed = self._kv_configs.get(ORDER_TOPIC_CONFIG, header.topic)
            route = replace(route, order_topic_conf=fixed)
        data = route.to_json()
        is_standard = request.version >= _V4_9_4 or header.accept_standard_json_only
        return request.success(body=_standard_json(data) if is_standard else _json(data))

    # What brokers say.

    def _register_broker(
        self, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(RegisterBrokerRequestHeader, request.ext_fields)
        if header.body_crc32 and header.body_crc32 != body_crc32(request.body):
            return _failure(request, "crc32 not match")
        body = decode_registration_body(request.body, compressed=bool(header.compressed))
        result = self._routes.register(
            header,
            body,
            connection,
            request.ext_fields.get(_ZONE_NAME),
            forgets_topics=self.config.delete_topic_with_broker_registration,
        )
        if result is None:
            remark = (
                f"register broker failed: {header.broker_name} is not known here, and names only "
                "one topic"
            )
            return _failure(request, remark)
        if not connection.is_open:  # it ended meanwhile: nobody else would notice
            self._routes.unregister_connection(connection)
        table = None
        if self.config.return_order_topic_config_to_broker:
            table = self._kv_configs.table(ORDER_TOPIC_CONFIG)
        return request.success(result, b"" if table is None else _json({"table": table}))

    def _unregister_broker(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        self._routes.unregister(decode_header(UnRegisterBrokerRequestHeader, request.ext_fields))
        return request.success()

    def _broker_heartbeat(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(BrokerHeartbeatRequestHeader, request.ext_fields)
        self._routes.note_heartbeat(header.cluster_name, header.broker_addr)
        return request.success()

    def _query_data_version(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(QueryDataVersionRequestHeader, request.ext_fields)
        asked = _parsed(request, "data version", parse_data_version)
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        self._routes.note_heartbeat(header.cluster_name, header.broker_addr)
        body = b"" if known is None else _json(known.to_json())
        return request.success(QueryDataVersionResponseHeader(changed=known != asked), body)

    def _register_topic(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(RegisterTopicRequestHeader, request.ext_fields)
        self._routes.register_topic(header.topic, _parsed(request, "route", _queue_datas))
        return request.success()

    def _broker_member_group(
        self, _: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(GetBrokerMemberGroupRequestHeader, request.ext_fields)
        group = {
            "brokerAddrs": dict(self._routes.broker_addresses(header.broker_name)),
            "brokerName": header.broker_name,
            "cluster": header.cluster_name,
        }
        return request.success(body=_json({"brokerMemberGroup": group}))

    # What admins ask and change.

    def _cluster_info(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        return request.success(body=_json(self._routes.cluster_info()))

    def _wipe_write_perm(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(WipeWritePermOfBrokerRequestHeader, request.ext_fields)
        count = self._routes.wipe_write_perm(header.broker_name)
        return request.success(WipeWritePermOfBrokerResponseHeader(count))

    def _add_write_perm(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(AddWritePermOfBrokerRequestHeader, request.ext_fields)
        count = self._routes.add_write_perm(header.broker_name)
        return request.success(AddWritePermOfBrokerResponseHeader(count))

    def _delete_topic(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(DeleteTopicFromNamesrvRequestHeader, request.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return request.success()

    def _all_topics(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(
            request, self._routes.topics, is_allowed=self.config.enable_all_topic_list
        )

    def _topics_of_cluster(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetTopicsByClusterRequestHeader, request.ext_fields)
        return self._topic_list(request, lambda: self._routes.topics_of_cluster(header.cluster))

    def _unit_topics(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(request, lambda: self._routes.topics_with_flags(_UNIT, _UNIT))

    def _unit_sub_topics(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(
            request, lambda: self._routes.topics_with_flags(_UNIT_SUB, _UNIT_SUB)
        )

    def _unit_sub_ununit_topics(
        self, _: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        return self._topic_list(
            request, lambda: self._routes.topics_with_flags(_UNIT_SUB, _UNIT_SUB | _UNIT)
        )

    def _topic_list(
        self,
        request: RemotingCommand,
        topics: Callable[[], list[str]],
        *,
        is_allowed: bool | None = None,
    ) -> RemotingCommand:
        if not (self.config.enable_topic_list if is_allowed is None else is_allowed):
            return _failure(request, "disable")
        return request.success(body=_json({"topicList": topics()}))

    def _system_topics(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        topics, address = self._routes.system_topics()
        content: dict[str, Any] = {} if address is None else {"brokerAddr": address}
        return request.success(body=_json({**content, "topicList": topics}))

    # Values and settings.

    def _put_kv_config(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(PutKVConfigRequestHeader, request.ext_fields)
        return _kept(
            request, lambda: self._kv_configs.put(header.namespace, header.key, header.value)
        )

    def _get_kv_config(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetKVConfigRequestHeader, request.ext_fields)
        value = self._kv_configs.get(header.namespace, header.key)
        if value is not None:
            return request.success(GetKVConfigResponseHeader(value))
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return request.refusal(ResponseCode.QUERY_NOT_FOUND, remark)

    def _delete_kv_config(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(DeleteKVConfigRequestHeader, request.ext_fields)
        return _kept(request, lambda: self._kv_configs.delete(header.namespace, header.key))

    def _kv_configs_of_namespace(
        self, _: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(GetKVListByNamespaceRequestHeader, request.ext_fields)
        table = self._kv_configs.table(header.namespace)
        if table is not None:
            return request.success(body=_json({"table": table}))
        remark = f"No config item, Namespace: {header.namespace}"
        return request.refusal(ResponseCode.QUERY_NOT_FOUND, remark)

    def _get_config(self, _: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        return request.success(body=self.config.to_text().encode())

    def _update_config(
        self, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        try:
            properties = parse_properties(request.body.decode(), connection.address)
            changed = self.config.changed(properties)
        except (UnicodeDecodeError, StoreConfigError) as err:
            return _failure(request, f"the settings cannot be used: {err}")
        if properties.keys() & BLACK_LIST:
            remark = "Can not update config in black list."
            return request.refusal(ResponseCode.NO_PERMISSION, remark)
        self.config = changed
        return request.success()


def _failure(request: RemotingCommand, remark: str) -> RemotingCommand:
    return request.refusal(ResponseCode.SYSTEM_ERROR, remark)


def _kept(request: RemotingCommand, keep: Callable[[], None]) -> RemotingCommand:
    """Change a file; that it cannot be written is told to whoever asked."""
    try:
        keep()
    except StoreWriteError as err:
        return _failure(request, f"the value is not kept: {err}")
    return request.success()


def _json(value: Any) -> bytes:
    """Return JSON as fastjson writes it: whole numbers as keys stand there bare."""
    return to_queue_json(value).encode()


def _standard_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parsed(request: RemotingCommand, what: str, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(parse_lenient_json(request.body.decode() or "null"))
    except (KeyError, ValueError) as err:
        raise RemotingFormatError(f"the body is no {what}: {err}") from err


def _queue_datas(value: Any) -> list[Any]:
    queues = json_object(value, "route").get("queueDatas") or []
    return [parse_queue_data(json_object(each, "queueDatas")) for each in queues]
