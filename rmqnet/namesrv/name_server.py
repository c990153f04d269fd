# SPDX-License-Identifier: Apache-2.0
"""A name server that runs in this process.

Source: RocketMQ ``DefaultRequestProcessor``, ``ClientRequestProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.client.queue_json import to_queue_json
from rmqnet.client.topic_route import parse_queue_data
from rmqnet.errors import ClientError, RemotingFormatError
from rmqnet.namesrv.kv_config_manager import ORDER_TOPIC_CONFIG, KVConfigManager
from rmqnet.namesrv.name_server_config import BLACK_LIST, NameServerConfig
from rmqnet.namesrv.route_info_manager import RouteInfoManager
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
from rmqnet.remoting.remoting_server import RemotingServer
from rmqnet.remoting.request_processor import RequestProcessor, answers
from rmqnet.remoting.server_connection import ServerConnection
from rmqnet.remoting.worker_pool import WorkerPool
from store_core.config.broker_config import parse_properties
from store_core.config.data_version import parse_data_version
from store_core.config.lenient_json import json_object, parse_lenient_json
from store_core.errors import StoreConfigError, StoreWriteError
from store_core.services.service_thread import RepeatedService
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from rmqnet.remoting.remoting_server import Gate, RemotingServerConfig
    from rmqnet.remoting.tls import ServerTls

logger = logging.getLogger(__name__)
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # for those that mean all
_V4_9_4 = 401
"""Clients from this version on get standard JSON, without whole numbers as keys."""
_UNIT, _UNIT_SUB = 1, 2  # bits of a topic's system flags (TopicSysFlag)
_ZONE_NAME, _ZONE_MODE = "__ZONE_NAME", "__ZONE_MODE"  # fields of any request (MixAll)


class NameServer(ShuttingDown):
    """Registers brokers, and returns their addresses to clients (RocketMQ ``NamesrvController``).

    ``with NameServer(NameServerConfig(port=0)) as server: server.address``. RocketMQ's brokers and
    clients of 4.9 and 5.x can use it. Data on brokers is in memory only: they register again every
    30 seconds.

    Parameters
    ----------
    tls
        Encryption of connections; they are unencrypted if None.
    gate
        Checks each request first; if None, anyone may send requests and register brokers.

    Raises
    ------
    ClientError
        The file of values, or one that ``tls`` names, cannot be used.
    """

    def __init__(
        self,
        config: NameServerConfig | None = None,
        limits: RemotingServerConfig | None = None,
        tls: ServerTls | None = None,
        gate: Gate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config = config or NameServerConfig()
        self.routes = RouteInfoManager(clock)
        self.port = config.port
        self._kv_configs = KVConfigManager(config.kv_config_path)
        self._clock = clock
        self._clients = WorkerPool(
            "namesrv-clients",
            config.client_request_thread_pool_nums,
            config.client_request_thread_pool_queue_capacity,
        )
        self._others = WorkerPool(
            "namesrv-brokers",
            config.default_thread_pool_nums,
            config.default_thread_pool_queue_capacity,
        )
        context = None if tls is None else tls.ssl_context()
        self._server = RemotingServer("namesrv", limits, context)
        self._server.on_close(self.routes.unregister_connection)
        self._server.use_gate(gate)
        self._processor: NameServerProcessor | None = None
        self._scan = RepeatedService(
            "namesrv-scan", self.run_once, config.scan_not_active_broker_interval, is_late=True
        )

    @property
    def address(self) -> str:
        """``host:port`` for clients and brokers on this machine."""
        host = self.config.host
        host = _LOOPBACK.get(host, host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def start(self) -> int:
        """Listen; return the port, which is any free one if configured as 0.

        A second call does nothing.

        Raises
        ------
        ClientError
            The server cannot listen at the address; the message names it.
        """
        if self._server.is_running:
            return self.port
        processor = NameServerProcessor(self.config, self.routes, self._kv_configs, self._clock)
        processor.register(self._server, self._clients, self._others)
        self._clients.start()
        self._others.start()
        try:
            self.port = self._server.start(self.config.host, self.config.port)
        except ClientError:
            self.shutdown()
            raise
        processor.config = replace(self.config, port=self.port)
        self._processor = processor
        self._scan.start()
        logger.info("the name server listens at %s", self.address)
        return self.port

    def shutdown(self) -> None:
        """Stop listening, and disconnect all; a second call does nothing."""
        self._scan.shutdown()
        self._server.shutdown()
        self._clients.shutdown()
        self._others.shutdown()

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """Answer a broker of this process, which needs neither an account nor a certificate.

        Raises
        ------
        ClientError
            The name server was not started.
        RemotingFormatError
            The request is malformed.
        """
        if self._processor is None:
            raise ClientError("the name server was not started")
        return self._processor.answer(request)

    def run_once(self) -> bool:
        """Remove silent brokers; return whether there were any. The scan thread calls this."""
        expired = self.routes.expire()
        for connection in expired:
            if isinstance(connection, ServerConnection):
                self._server.disconnect(connection, "its broker was silent for too long")
        return bool(expired)


# Source: RocketMQ ``DefaultRequestProcessor``, ``ClientRequestProcessor`` (release 5.3.3).
class _ThisProcess:
    """Stands in for a connection in calls that have none."""

    address = "this process"
    is_open = True


class NameServerProcessor(RequestProcessor):
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
        self._handlers = self.handlers()

    def register(self, server: RemotingServer, clients: WorkerPool, others: WorkerPool) -> None:
        """Register with a server: routes use the first pool, all other requests the second."""
        for code, handler in self._handlers.items():
            is_route = code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            server.register([code], handler, clients if is_route else others)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """Answer a broker of this process.

        Raises
        ------
        RemotingFormatError
            The request is malformed.
        """
        answer: RemotingCommand = self._handlers[request.code](_ThisProcess(), request)
        return answer

    # Routes.

    @answers(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def _route(self, request: RemotingCommand) -> RemotingCommand:
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

    # Requests of brokers.

    @answers(RequestCode.REGISTER_BROKER, with_peer=True)
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
        if not connection.is_open:  # it ended during the call; nothing else notices
            self._routes.unregister_connection(connection)
        table = None
        if self.config.return_order_topic_config_to_broker:
            table = self._kv_configs.table(ORDER_TOPIC_CONFIG)
        return request.success(result, b"" if table is None else _json({"table": table}))

    @answers(RequestCode.UNREGISTER_BROKER)
    def _unregister_broker(self, request: RemotingCommand) -> RemotingCommand:
        self._routes.unregister(decode_header(UnRegisterBrokerRequestHeader, request.ext_fields))
        return request.success()

    @answers(RequestCode.BROKER_HEARTBEAT)
    def _broker_heartbeat(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(BrokerHeartbeatRequestHeader, request.ext_fields)
        self._routes.note_heartbeat(header.cluster_name, header.broker_addr)
        return request.success()

    @answers(RequestCode.QUERY_DATA_VERSION)
    def _query_data_version(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(QueryDataVersionRequestHeader, request.ext_fields)
        asked = _parsed(request, "data version", parse_data_version)
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        self._routes.note_heartbeat(header.cluster_name, header.broker_addr)
        body = b"" if known is None else _json(known.to_json())
        return request.success(QueryDataVersionResponseHeader(changed=known != asked), body)

    @answers(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
    def _register_topic(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(RegisterTopicRequestHeader, request.ext_fields)
        self._routes.register_topic(header.topic, _parsed(request, "route", _queue_datas))
        return request.success()

    @answers(RequestCode.GET_BROKER_MEMBER_GROUP)
    def _broker_member_group(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetBrokerMemberGroupRequestHeader, request.ext_fields)
        group = {
            "brokerAddrs": dict(self._routes.broker_addresses(header.broker_name)),
            "brokerName": header.broker_name,
            "cluster": header.cluster_name,
        }
        return request.success(body=_json({"brokerMemberGroup": group}))

    # Requests of admins.

    @answers(RequestCode.GET_BROKER_CLUSTER_INFO)
    def _cluster_info(self, request: RemotingCommand) -> RemotingCommand:
        return request.success(body=_json(self._routes.cluster_info()))

    @answers(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    def _wipe_write_perm(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(WipeWritePermOfBrokerRequestHeader, request.ext_fields)
        count = self._routes.wipe_write_perm(header.broker_name)
        return request.success(WipeWritePermOfBrokerResponseHeader(count))

    @answers(RequestCode.ADD_WRITE_PERM_OF_BROKER)
    def _add_write_perm(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(AddWritePermOfBrokerRequestHeader, request.ext_fields)
        count = self._routes.add_write_perm(header.broker_name)
        return request.success(AddWritePermOfBrokerResponseHeader(count))

    @answers(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    def _delete_topic(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(DeleteTopicFromNamesrvRequestHeader, request.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return request.success()

    @answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def _all_topics(self, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(
            request, self._routes.topics, is_allowed=self.config.enable_all_topic_list
        )

    @answers(RequestCode.GET_TOPICS_BY_CLUSTER)
    def _topics_of_cluster(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetTopicsByClusterRequestHeader, request.ext_fields)
        return self._topic_list(request, lambda: self._routes.topics_of_cluster(header.cluster))

    @answers(RequestCode.GET_UNIT_TOPIC_LIST)
    def _unit_topics(self, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(request, lambda: self._routes.topics_with_flags(_UNIT, _UNIT))

    @answers(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def _unit_sub_topics(self, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(
            request, lambda: self._routes.topics_with_flags(_UNIT_SUB, _UNIT_SUB)
        )

    @answers(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def _unit_sub_ununit_topics(self, request: RemotingCommand) -> RemotingCommand:
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

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def _system_topics(self, request: RemotingCommand) -> RemotingCommand:
        topics, address = self._routes.system_topics()
        content: dict[str, Any] = {} if address is None else {"brokerAddr": address}
        return request.success(body=_json({**content, "topicList": topics}))

    # Values and settings.

    @answers(RequestCode.PUT_KV_CONFIG)
    def _put_kv_config(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(PutKVConfigRequestHeader, request.ext_fields)
        return _kept(
            request, lambda: self._kv_configs.put(header.namespace, header.key, header.value)
        )

    @answers(RequestCode.GET_KV_CONFIG)
    def _get_kv_config(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetKVConfigRequestHeader, request.ext_fields)
        value = self._kv_configs.get(header.namespace, header.key)
        if value is not None:
            return request.success(GetKVConfigResponseHeader(value))
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return request.refusal(ResponseCode.QUERY_NOT_FOUND, remark)

    @answers(RequestCode.DELETE_KV_CONFIG)
    def _delete_kv_config(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(DeleteKVConfigRequestHeader, request.ext_fields)
        return _kept(request, lambda: self._kv_configs.delete(header.namespace, header.key))

    @answers(RequestCode.GET_KVLIST_BY_NAMESPACE)
    def _kv_configs_of_namespace(self, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(GetKVListByNamespaceRequestHeader, request.ext_fields)
        table = self._kv_configs.table(header.namespace)
        if table is not None:
            return request.success(body=_json({"table": table}))
        remark = f"No config item, Namespace: {header.namespace}"
        return request.refusal(ResponseCode.QUERY_NOT_FOUND, remark)

    @answers(RequestCode.GET_NAMESRV_CONFIG)
    def _get_config(self, request: RemotingCommand) -> RemotingCommand:
        return request.success(body=self.config.to_text().encode())

    @answers(RequestCode.UPDATE_NAMESRV_CONFIG, with_peer=True)
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
    """Change a file; answer with an error if it cannot be written."""
    try:
        keep()
    except StoreWriteError as err:
        return _failure(request, f"the value cannot be saved: {err}")
    return request.success()


def _json(value: Any) -> bytes:
    """Return JSON as fastjson writes it: keys that are whole numbers have no quotes."""
    return to_queue_json(value).encode()


def _standard_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parsed(request: RemotingCommand, what: str, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(parse_lenient_json(request.body.decode() or "null"))
    except (KeyError, ValueError) as err:
        raise RemotingFormatError(f"the body is not a valid {what}: {err}") from err


def _queue_datas(value: Any) -> list[Any]:
    queues = json_object(value, "route").get("queueDatas") or []
    return [parse_queue_data(json_object(each, "queueDatas")) for each in queues]
