# SPDX-License-Identifier: Apache-2.0
"""Answers of a name server, over the network."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqnet import Admin, ClientInstance, Producer, TopicNotFoundError
from rmqnet.errors import ClientError
from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from rmqnet.remoting.registration_body import (
    RegistrationBody,
    body_crc32,
    encode_registration_body,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.tls import ServerTls, TlsConfig
from store_core.config.config_files import TopicConfig
from store_core.config.data_version import DataVersion
from store_core.message import Message
from tests.rmqnet.client.producer.scripted_brokers import storing_brokers
from tests.rmqnet.remoting.golden_frames import recorded_headers
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import ScriptedCluster, wait_until

ADDRESS = "127.0.0.2:31911"
TOPICS = ("orders", "TBW102")
CERTIFICATES = Path(__file__).parents[1] / "remoting" / "certificates"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def serving(clock: Any = None, **settings: Any) -> Iterator[NameServer]:
    config = NameServerConfig(port=0, **settings)
    with NameServer(config, **({} if clock is None else {"clock": clock})) as server:
        yield server


@contextlib.contextmanager
def asked(**settings: Any) -> Iterator[RawClient]:
    with serving(**settings) as server, RawClient(server.port) as client:
        yield client


def register(
    client: RawClient,
    name: str = "broker-a",
    broker_id: int = 0,
    *,
    address: str = ADDRESS,
    topics: Any = TOPICS,
    compressed: bool = False,
    version: int = 1,
    crc32: int | None = None,
    **header: Any,
) -> RemotingCommand:
    configs = {topic: TopicConfig(topic, 4, 4) for topic in topics}
    content = RegistrationBody(configs, DataVersion(0, version, 9))
    body = encode_registration_body(content, compressed=compressed)
    return client.request(
        RegisterBrokerRequestHeader(
            name,
            address,
            "DefaultCluster",
            "127.0.0.2:31912",
            broker_id,
            compressed=compressed,
            body_crc32=body_crc32(body) if crc32 is None else crc32,
            **header,
        ),
        body,
    )


def ok(answer: RemotingCommand) -> RemotingCommand:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def route(client: RawClient, topic: str = "orders", **changes: Any) -> RemotingCommand:
    return client.request(GetRouteInfoRequestHeader(topic), **changes)


def topics(client: RawClient, request: Any = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) -> Any:
    return json.loads(ok(client.request(request)).body)["topicList"]


def _recorded_answer(code: int) -> bytes:
    return next(
        each.body
        for each in recorded_headers()
        if each.is_answer and each.request_code == code and each.header["code"] == 0
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_routes_are_what_rocketmq_s_name_server_answers(compressed: bool) -> None:
    with asked() as client:
        answer = ok(register(client, compressed=compressed))
        assert answer.ext_fields == {}
        assert answer.body == b""
        assert ok(route(client)).body == _recorded_answer(RequestCode.GET_ROUTEINFO_BY_TOPIC)


def test_cluster_info_is_what_rocketmq_s_name_server_answers() -> None:
    with asked() as client:
        ok(register(client))
        answer = ok(client.request(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert answer.body == _recorded_answer(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert b'{0:"' in answer.body


def test_broker_ids_are_bare_numbers_for_clients_before_4_9_4_that_want_nothing_else() -> None:
    with asked() as client:
        ok(register(client))
        ok(register(client, broker_id=1, address="10.0.0.2:10911"))
        bare = b'"brokerAddrs":{0:"127.0.0.2:31911",1:"10.0.0.2:10911"}'
        quoted = b'"brokerAddrs":{"0":"127.0.0.2:31911","1":"10.0.0.2:10911"}'
        assert bare in ok(route(client, version=400)).body
        assert quoted in ok(route(client, version=401)).body
        header = GetRouteInfoRequestHeader("orders", accept_standard_json_only=True)
        assert quoted in ok(client.request(header, version=400)).body


def test_an_unknown_topic_is_said() -> None:
    with asked() as client:
        answer = route(client, "none")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == "No topic route info in name server for the topic: none"


def test_slaves_hear_of_their_master() -> None:
    with asked() as client:
        ok(register(client))
        answer = ok(register(client, broker_id=1, address="10.0.0.2:10911"))
        assert answer.ext_fields == {"haServerAddr": "127.0.0.2:31912", "masterAddr": ADDRESS}
        group = ok(client.request(GetBrokerMemberGroupRequestHeader("DefaultCluster", "broker-a")))
        assert group.body == (
            b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.2:31911",1:"10.0.0.2:10911"},'
            b'"brokerName":"broker-a","cluster":"DefaultCluster"}}'
        )


def test_a_registration_that_was_damaged_is_refused() -> None:
    with asked() as client:
        answer = register(client, crc32=1)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
        ok(register(client, crc32=0))  # which means that there is none
        answer = client.request(
            RegisterBrokerRequestHeader("b", "x:1", "c", "x:2", 0, compressed=True), b"no zlib"
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "registration" in answer.remark
        answer = client.request(RequestCode.REGISTER_BROKER)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "RegisterBrokerRequestHeader: the field brokerName is missing",
        )
        answer = register(client, "broker-b", address="x:1", topics=["one"])
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("register broker failed")


def test_brokers_ask_whether_they_have_to_register_again() -> None:
    header = QueryDataVersionRequestHeader("broker-a", ADDRESS, "DefaultCluster", 0)
    asks = b'{"counter":1,"stateVersion":0,"timestamp":9}'
    with asked() as client:
        answer = ok(client.request(header, asks))
        assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
        ok(register(client))
        answer = ok(client.request(header, asks))
        assert (answer.ext_fields, answer.body) == ({"changed": "false"}, asks)
        # Of 4.x, without a state version.
        answer = ok(client.request(header, b'{"counter":2,"timestamp":9}'))
        assert (answer.ext_fields, answer.body) == ({"changed": "true"}, asks)
        assert client.request(header, b"[").code == ResponseCode.SYSTEM_ERROR


def test_a_broker_says_goodbye() -> None:
    with asked() as client:
        ok(register(client))
        ok(client.request(UnRegisterBrokerRequestHeader("broker-a", ADDRESS, "DefaultCluster", 0)))
        assert route(client).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_whose_connection_ends_is_gone() -> None:
    with serving() as server, RawClient(server.port) as client:
        with RawClient(server.port) as broker:
            ok(register(broker))
            ok(route(client))
        wait_until(lambda: route(client).code == ResponseCode.TOPIC_NOT_EXIST, "the broker goes")


def test_a_broker_that_says_nothing_is_gone_and_disconnected() -> None:
    clock = Clock()
    header = BrokerHeartbeatRequestHeader("DefaultCluster", "x:1", "broker-b", 0)
    with (
        serving(clock) as server,
        RawClient(server.port) as broker,
        RawClient(server.port) as other,
    ):
        ok(register(broker, heartbeat_timeout_millis=10_000))
        ok(register(other, "broker-b", address="x:1", heartbeat_timeout_millis=10_000))
        clock.now = 9.9
        assert not server.run_once()
        ok(other.request(header))
        clock.now = 10.1
        assert server.run_once()
        broker.wait_end()
        assert b"broker-a" not in ok(route(other)).body


def test_the_scan_runs_by_itself() -> None:
    with serving(scan_not_active_broker_interval=10) as server, RawClient(server.port) as broker:
        ok(register(broker, heartbeat_timeout_millis=50))
        broker.wait_end()
        with RawClient(server.port) as client:
            assert topics(client) == []


def test_lists_of_topics() -> None:
    with asked() as client:
        ok(register(client))
        assert topics(client) == ["TBW102", "orders"]
        assert topics(client, GetTopicsByClusterRequestHeader("DefaultCluster")) == [
            *sorted(TOPICS)
        ]
        assert topics(client, GetTopicsByClusterRequestHeader("none")) == []
        answer = ok(client.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
        assert json.loads(answer.body) == {
            "brokerAddr": ADDRESS,
            "topicList": ["DefaultCluster", "broker-a"],
        }
        assert topics(client, RequestCode.GET_UNIT_TOPIC_LIST) == []
        assert topics(client, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == []
        assert topics(client, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == []


def test_lists_that_are_switched_off() -> None:
    with asked(enable_topic_list=False, enable_all_topic_list=False) as client:
        for request in (
            GetTopicsByClusterRequestHeader("c"),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            RequestCode.GET_UNIT_TOPIC_LIST,
        ):
            answer = client.request(request)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


def test_topics_are_told_singly_and_deleted() -> None:
    queues = {"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    with asked() as client:
        ok(register(client))
        body = json.dumps({"queueDatas": [queues]}).encode()
        ok(client.request(RegisterTopicRequestHeader("new"), body))
        assert topics(client) == ["TBW102", "new", "orders"]
        ok(client.request(DeleteTopicFromNamesrvRequestHeader("new")))
        ok(client.request(DeleteTopicFromNamesrvRequestHeader("orders", "DefaultCluster")))
        assert topics(client) == ["TBW102"]
        bad = client.request(RegisterTopicRequestHeader("new"), b'{"queueDatas":[{}]}')
        assert bad.code == ResponseCode.SYSTEM_ERROR
        assert bad.remark == "the body is not a valid route: 'brokerName'"


def test_writing_is_forbidden_and_allowed() -> None:
    with asked() as client:
        ok(register(client))
        answer = ok(client.request(WipeWritePermOfBrokerRequestHeader("broker-a")))
        assert answer.ext_fields == {"wipeTopicCount": "2"}
        assert b'"perm":4' in route(client).body
        answer = ok(client.request(AddWritePermOfBrokerRequestHeader("broker-a")))
        assert answer.ext_fields == {"addTopicCount": "2"}
        assert b'"perm":6' in route(client).body


def test_values_of_admins(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    with asked(kv_config_path=str(path)) as client:
        missing = client.request(GetKVListByNamespaceRequestHeader("space"))
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
        ok(client.request(PutKVConfigRequestHeader("space", "colour", "blau ü")))
        answer = ok(client.request(GetKVConfigRequestHeader("space", "colour")))
        assert answer.ext_fields == {"value": "blau ü"}
        answer = ok(client.request(GetKVListByNamespaceRequestHeader("space")))
        assert json.loads(answer.body) == {"table": {"colour": "blau ü"}}
    with asked(kv_config_path=str(path)) as client:
        ok(client.request(DeleteKVConfigRequestHeader("space", "colour")))
        missing = client.request(GetKVConfigRequestHeader("space", "colour"))
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
        assert missing.remark == "No config item, Namespace: space Key: colour"
        path.unlink()
        path.mkdir()
        answer = client.request(PutKVConfigRequestHeader("space", "colour", "red"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "the value cannot be saved" in answer.remark


def test_queues_of_order_topics_are_told_to_brokers_and_where_wanted_to_clients() -> None:
    with asked() as client:
        ok(client.request(PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")))
        assert ok(register(client)).body == b'{"table":{"orders":"broker-a:4"}}'
        assert b"orderTopicConf" not in ok(route(client)).body
        ok(client.request(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true"))
        assert b'"orderTopicConf":"broker-a:4"' in ok(route(client)).body
        assert b"orderTopicConf" not in ok(route(client, "TBW102")).body
        settings = b"returnOrderTopicConfigToBroker=false"
        ok(client.request(RequestCode.UPDATE_NAMESRV_CONFIG, settings))
        assert ok(register(client)).body == b""


def test_the_port_that_was_chosen_is_told() -> None:
    with serving() as server, RawClient(server.port) as client:
        told = ok(client.request(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
        assert f"listenPort={server.port}\n" in told


def test_settings_are_told_and_changed() -> None:
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    with asked() as client:
        assert (
            b"waitSecondsForService=45\n" in ok(client.request(RequestCode.GET_NAMESRV_CONFIG)).body
        )
        ok(client.request(code, b"waitSecondsForService=7\nunknown=1\n"))
        ok(client.request(code))
        assert b"waitSecondsForService=7\n" in client.request(RequestCode.GET_NAMESRV_CONFIG).body
        answer = client.request(code, b"kvConfigPath=/etc/passwd")
        assert answer.code == ResponseCode.NO_PERMISSION
        for body in (b"waitSecondsForService=x", b"\xff", b"a=\\u12"):
            answer = client.request(code, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert answer.remark.startswith("the settings cannot be used: ")


def test_routes_may_have_to_wait_until_all_brokers_have_come() -> None:
    clock = Clock()
    with asked(clock=clock, need_wait_for_service=True) as client:
        ok(register(client))
        clock.now = 44.0
        answer = route(client)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "name server not ready: 1 s left"
        clock.now = 45.0
        ok(route(client))


def test_clients_of_one_zone() -> None:
    with asked() as client:
        for name in ("broker-a", "broker-b"):
            command = RemotingCommand.request(
                RegisterBrokerRequestHeader(name, f"{name}:1", "c", "h:1", 0),
                encode_registration_body(
                    RegistrationBody({t: TopicConfig(t) for t in TOPICS}, DataVersion())
                ),
            )
            command.ext_fields["__ZONE_NAME"] = name[-1]
            client.send(command)
            ok(client.receive())
        fields = {"topic": "orders", "__ZONE_NAME": "A", "__ZONE_MODE": "true"}
        body = ok(route(client, ext_fields=fields)).body
        assert b"broker-a" in body
        assert b"broker-b" not in body
        fields["__ZONE_MODE"] = "false"
        assert b"broker-b" in ok(route(client, ext_fields=fields)).body


def test_acting_masters_are_told() -> None:
    with asked(support_acting_master=True) as client:
        ok(register(client, broker_id=1, enable_acting_master=True))
        body = ok(route(client)).body
        assert b'"brokerAddrs":{"0":"127.0.0.2:31911"}' in body
        assert b'"enableActingMaster":true' in body


def test_what_is_no_name_server_s_business_is_refused() -> None:
    with asked() as client:
        answer = client.request(RequestCode.SEND_MESSAGE)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == "request type 10 (SEND_MESSAGE) not supported"


def test_our_own_client_uses_it() -> None:
    with serving(order_message_enable=True) as server, RawClient(server.port) as broker:
        ok(register(broker))
        with ClientInstance(server.address) as client:
            names = client.name_server
            found = client.call(names.route("orders"))
            assert [each.queue_id for each in found.publish_queues()] == [0, 1, 2, 3]
            assert client.call(names.cluster_info()).masters == {"broker-a": ADDRESS}
            assert client.call(names.topics()) == sorted(TOPICS)
            assert client.call(names.topics_of_cluster("DefaultCluster")) == sorted(TOPICS)
            client.call(names.put_kv_config("ORDER_TOPIC_CONFIG", "orders", "broker-a:2"))
            assert client.call(names.kv_configs("ORDER_TOPIC_CONFIG")) == {"orders": "broker-a:2"}
            assert len(client.call(names.route("orders")).publish_queues()) == 2
            client.call(names.delete_kv_config("ORDER_TOPIC_CONFIG", "orders"))
            assert client.call(names.kv_config("ORDER_TOPIC_CONFIG", "orders")) is None
            client.call(names.delete_topic("orders"))
            with pytest.raises(TopicNotFoundError, match="orders"):
                client.call(names.route("orders"))
        with Admin(server.address) as admin:
            assert admin.topics() == ["TBW102"]
            assert admin.cluster().brokers == {"broker-a": {0: ADDRESS}}


def test_our_own_producer_sends_by_its_routes() -> None:
    with ScriptedCluster() as cluster, serving() as server, RawClient(server.port) as client:
        (broker,) = storing_brokers(cluster, "broker-a")
        ok(register(client, address=cluster.broker("broker-a").address))
        with Producer("group", server.address) as producer:
            result = producer.send(Message("orders", b"hello"))
            assert result.queue.broker_name == "broker-a"
            assert broker.bodies == [b"hello"]


def test_it_listens_on_this_machine_only_unless_told_otherwise() -> None:
    with serving() as server:
        assert server.address == f"127.0.0.1:{server.port}"
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.2", server.port)) != 0


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("0.0.0.0", "127.0.0.1:7"),
        ("", "127.0.0.1:7"),
        ("::", "[::1]:7"),
        ("10.0.0.1", "10.0.0.1:7"),
    ],
)
def test_its_address_is_one_that_clients_can_use(host: str, told: str) -> None:
    assert NameServer(NameServerConfig(host=host, port=7)).address == told


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with serving() as server:
        second = NameServer(NameServerConfig(port=server.port))
        with pytest.raises(ClientError, match=f"cannot listen at 127.0.0.1:{server.port}"):
            second.start()
        second.shutdown()


def test_stop_twice_and_start_again() -> None:
    server = NameServer(NameServerConfig(port=0))
    server.shutdown()
    first = server.start()
    with RawClient(first) as client:
        ok(register(client))
        server.shutdown()
        client.wait_end()
    server.shutdown()
    server.start()
    with RawClient(server.port) as client:
        assert topics(client) == []
    server.shutdown()


def test_tls() -> None:
    tls = ServerTls(str(CERTIFICATES / "server.pem"), str(CERTIFICATES / "server.key"))
    with NameServer(NameServerConfig(port=0), tls=tls) as server:
        context = TlsConfig(ca_file=str(CERTIFICATES / "ca.pem")).ssl_context()
        with RawClient(server.port, context) as client:
            ok(register(client))
            ok(route(client))


def test_one_that_runs_may_be_started_again() -> None:
    server = NameServer(NameServerConfig(port=0))
    port = server.start()
    with server:
        assert server.port == port
        socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
