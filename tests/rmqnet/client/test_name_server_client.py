# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from rmqnet import (
    BrokerError,
    ClientConfig,
    ClientInstance,
    RemotingFormatError,
    TopicNotFoundError,
)
from rmqnet.client.outage_log import OutageLog
from rmqnet.errors import RemotingConnectError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, answer, success

EMPTY_ROUTE = b'{"brokerDatas":[],"queueDatas":[]}'
logger = logging.getLogger(__name__)


def _route_server(body: bytes = EMPTY_ROUTE) -> ScriptedServer:
    return ScriptedServer(
        {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda request: success(request, body)}
    )


def test_one_name_server_is_kept_and_the_next_asked_where_it_fails() -> None:
    servers = [_route_server().start() for _ in range(3)]
    try:
        with ClientInstance(";".join(each.address for each in servers)) as client:
            for _ in range(5):
                client.call(client.refresh_route("orders"))
            (chosen,) = [each for each in servers if each.requests]
            assert client.name_server.chosen == chosen.address
            chosen.stop()
            for _ in range(5):
                client.call(client.refresh_route("orders"))
            others = [len(each.requests) for each in servers if each is not chosen]
            assert sorted(others) == [0, 5]
    finally:
        for each in servers:
            each.stop()


def test_that_none_answers_is_said_of_each() -> None:
    servers = [_route_server().start() for _ in range(2)]
    for each in servers:
        each.stop()
    with ClientInstance(";".join(each.address for each in servers)) as client:
        with pytest.raises(RemotingConnectError, match="no name server answers") as caught:
            client.call(client.route("orders"))
        assert all(each.address in str(caught.value) for each in servers)


def test_a_silent_name_server_is_passed_over() -> None:
    silent = ScriptedServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _: None})
    with silent, _route_server() as good:
        addresses = f"{silent.address};{good.address}"
        config = ClientConfig(addresses, mq_client_api_timeout_ms=200)
        with ClientInstance(config) as client:
            for _ in range(3):
                assert client.call(client.refresh_route("orders")).brokers == {}
    assert len(silent.requests) <= 1


def test_an_unknown_topic_is_an_error_that_names_it() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        with pytest.raises(TopicNotFoundError) as caught:
            client.call(client.route("no-topic"))
        assert "'no-topic'" in str(caught.value)
        assert cluster.namesrv_addr in str(caught.value)


def test_another_answer_is_an_error_with_its_words() -> None:
    server = ScriptedServer(
        {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda r: answer(r, ResponseCode.NO_PERMISSION, "no")}
    )
    with server, ClientInstance(server.address) as client:
        with pytest.raises(BrokerError, match="GET_ROUTEINFO_BY_TOPIC with code 16: no") as caught:
            client.call(client.route("orders"))
        assert (caught.value.code, caught.value.address) == (16, server.address)


def test_an_answer_that_is_no_route_names_the_server() -> None:
    with _route_server(b"nonsense") as server, ClientInstance(server.address) as client:
        route = client.route("orders")
        with pytest.raises(RemotingFormatError, match=server.address):
            client.call(route)


@pytest.mark.parametrize("bare_keys", [False, True])
def test_brokers_and_clusters(bare_keys: bool) -> None:
    with ScriptedCluster(bare_keys=bare_keys) as cluster:
        master, slave = cluster.broker("broker-a"), cluster.broker("broker-a", 1)
        lonely = cluster.broker("broker-b", 2)
        with ClientInstance(cluster.namesrv_addr) as client:
            info = client.call(client.name_server.cluster_info())
        assert info.brokers == {
            "broker-a": {0: master.address, 1: slave.address},
            "broker-b": {2: lonely.address},
        }
        assert info.clusters == {"DefaultCluster": ("broker-a", "broker-b")}
        assert info.masters == {"broker-a": master.address}


def test_topics() -> None:
    with ScriptedCluster() as cluster, ClientInstance(cluster.namesrv_addr) as client:
        cluster.add_topic("b")
        cluster.add_topic("a")
        assert client.call(client.name_server.topics()) == ["a", "b"]


def test_values_are_set_on_all_name_servers_and_read_from_one() -> None:
    values: dict[str, str] = {}

    def put(request):  # type: ignore[no-untyped-def]
        values[request.ext_fields["key"]] = request.ext_fields["value"]
        return success(request)

    def get(request):  # type: ignore[no-untyped-def]
        value = values.get(request.ext_fields["key"])
        if value is None:
            return answer(request, ResponseCode.QUERY_NOT_FOUND)
        return success(request, value=value)

    def get_all(request):  # type: ignore[no-untyped-def]
        if request.ext_fields["namespace"] != "space":
            return answer(request, ResponseCode.QUERY_NOT_FOUND)
        return success(request, json.dumps({"table": values}).encode())

    answers = {
        RequestCode.PUT_KV_CONFIG: put,
        RequestCode.GET_KV_CONFIG: get,
        RequestCode.GET_KVLIST_BY_NAMESPACE: get_all,
    }
    first, second = ScriptedServer(answers).start(), ScriptedServer(answers).start()
    with first, second, ClientInstance(f"{first.address};{second.address}") as client:
        names = client.name_server
        client.call(names.put_kv_config("space", "k", "v"))
        assert [len(each.asked(100)) for each in (first, second)] == [1, 1]
        assert client.call(names.kv_config("space", "k")) == "v"
        assert client.call(names.kv_config("space", "other")) is None
        assert client.call(names.kv_configs("space")) == {"k": "v"}
        assert client.call(names.kv_configs("void")) == {}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _away(address: str, text: str = "refused") -> RemotingConnectError:
    err = RemotingConnectError(text)
    err.address = address
    return err


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.DEBUG)
    return lambda: [each.message for each in caplog.records if each.levelno == logging.WARNING]


def test_one_warning_a_server_and_minute(
    warnings: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    log = OutageLog(clock)
    for second in range(120):
        clock.now = float(second)
        for queue in range(3):
            log.report(logger, _away("a:1", f"for {second} s"), "%d %d", second, queue)
    assert warnings() == ["0 0", "60 0"]
    assert len(caplog.records) == 360, "the others are there for who wants them"


def test_each_server_for_itself(warnings: Callable[[], list[str]]) -> None:
    log = OutageLog(Clock())
    for address in ("a:1", "b:1", "a:1"):
        log.report(logger, _away(address), "%s", address)
    assert warnings() == ["a:1", "b:1"]


def test_a_refusal_that_speaks_of_one_queue_hides_no_other(
    warnings: Callable[[], list[str]],
) -> None:
    log = OutageLog(Clock())
    log.report(logger, _away("a:1"), "away")
    for remark in ("queue 1 is damaged", "queue 2 is damaged", "queue 1 is damaged"):
        log.report(logger, BrokerError(1, remark, "a:1", "PULL_MESSAGE"), "%s", remark)
    assert warnings() == ["away", "queue 1 is damaged", "queue 2 is damaged"]


def test_what_it_remembers_is_bounded() -> None:
    clock = Clock()
    log = OutageLog(clock)
    for number in range(5000):
        clock.now = number / 10
        log.report(logger, ValueError(str(number)), "x")
    assert len(log._warned) <= 1600, "those of a minute, and up to 1,000"
