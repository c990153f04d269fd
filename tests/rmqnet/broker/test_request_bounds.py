# SPDX-License-Identifier: Apache-2.0
"""Numbers in requests are checked before use, and the work for a request is bounded."""

from __future__ import annotations

import json
import threading
from dataclasses import fields

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.broker_controller import BrokerController
from rmqnet.broker.pools import Pools
from rmqnet.errors import RemotingConnectError, RemotingFormatError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.current_request import check_wanted, working_for
from rmqnet.remoting.header_fields import _fields, decode_header, encode_header
from rmqnet.remoting.headers import (
    REQUEST_HEADERS,
    CreateTopicRequestHeader,
    EndTransactionRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import ONEWAY_FLAG, RemotingCommand
from rmqnet.remoting.remoting_server import RemotingServerConfig
from store_core.config.config_files import TopicConfig
from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout import TRANSACTION_NOT_TYPE
from tests.rmqnet.broker.small_broker import pull_header, send_header
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import wait_until

_LIMIT = 4000
_WAITS = {"sys_flag": 6, "suspend_timeout_millis": 60_000}


@pytest.fixture
def controller(tmp_path):
    store_config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 20
    )
    config = BrokerConfig(
        listen_port=0, max_groups_per_request=20, max_topics_per_request=10, broker_name="b"
    )
    with BrokerController(config, store_config) as found:
        yield found


@pytest.fixture
def client(controller):
    with RawClient(controller.config.listen_port) as client:
        yield client


def ask(client, code, fields=None, body=b""):
    return client.request(code, body, ext_fields=dict(fields or {}))


def files_of(root):
    config = root / "config"
    return {each.name: each.read_bytes() for each in config.iterdir()} if config.exists() else {}


def fields_of(**changes):
    header = CreateTopicRequestHeader("T", "TBW102", 4, 4, 6, "SINGLE_TAG", False)
    return {**encode_header(header), **changes}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("readQueueNums", str(1 << 31)),
        ("readQueueNums", "-1"),
        ("readQueueNums", "20000000"),
        ("writeQueueNums", str(1 << 40)),
        ("perm", str(1 << 40)),
        ("perm", "8"),
        ("perm", "-1"),
        ("topicSysFlag", str(-(1 << 31) - 1)),
        ("topicFilterType", "ALL_TAGS"),
    ],
)
def test_a_topic_out_of_range_is_refused_and_nothing_is_written(
    controller, client, tmp_path, name, text
):
    before = files_of(tmp_path)
    answer = ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, fields_of(**{name: text}))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert name in answer.remark
    assert controller.broker.topics.select("T") is None
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (1 << 31, ": 2147483648 does not fit 32 bits"),
        (16_385, " must be from 0 to 16384, not 16385"),
    ],
)
def test_a_topic_in_a_list_out_of_range_refuses_the_list(
    controller, client, tmp_path, number, reason
):
    before = files_of(tmp_path)
    topics = [{"topicName": "A"}, {"topicName": "B", "writeQueueNums": number}]
    body = json.dumps({"topicConfigList": topics}).encode()
    answer = ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"writeQueueNums{reason}" in answer.remark
    assert controller.broker.topics.select("A") is None
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("retryQueueNums", 1 << 31),
        ("retryQueueNums", -1),
        ("retryMaxTimes", 1 << 31),
        ("brokerId", 1 << 63),
        ("whichBrokerWhenConsumeSlowly", -1),
        ("groupSysFlag", 1 << 40),
        ("consumeTimeoutMinute", -(1 << 31) - 1),
    ],
)
def test_a_group_out_of_range_is_refused(controller, client, tmp_path, name, number):
    before = files_of(tmp_path)
    body = json.dumps({"groupName": "g", name: number}).encode()
    answer = ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert name in answer.remark
    assert controller.broker.groups.get("g") is None
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("queue_id", [1 << 31, -1, -(1 << 31) - 1])
def test_offsets_of_queues_that_cannot_be_are_not_kept(controller, client, queue_id):
    controller.broker.groups.find("g")
    header = UpdateConsumerOffsetRequestHeader("g", "b", queue_id, 5)
    fields = encode_header(header)
    assert ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, fields).code != ResponseCode.SUCCESS
    assert controller.broker.offsets.query_all("g", "b") == {}


@pytest.mark.parametrize("code", sorted(REQUEST_HEADERS))
def test_every_int_of_every_request_has_32_bits(code):
    cls = REQUEST_HEADERS[code]
    kinds = {each.name: each.type.removesuffix(" | None") for each in fields(cls)}
    bits = {"int": 32, "Long": 64}
    samples = {"str": "x", "int": "1", "Long": "1", "bool": "true"}
    whole = {
        each.wire_name: each.texts[0] if each.texts else samples[kinds[each.name]]
        for each in _fields(cls)
    }
    decode_header(cls, whole)
    for each in _fields(cls):
        kind = kinds[each.name]
        if kind in bits:
            for number in (1 << (bits[kind] - 1), -(1 << (bits[kind] - 1)) - 1):
                with pytest.raises(RemotingFormatError, match=each.wire_name):
                    decode_header(cls, {**whole, each.wire_name: str(number)})


def heartbeat(groups, topics=0):
    subscriptions = [{"topic": f"t{number}", "subString": "*"} for number in range(topics)]
    consumers = [
        {"groupName": f"g{number}", "subscriptionDataSet": subscriptions}
        for number in range(groups)
    ]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


@pytest.mark.parametrize(("groups", "topics"), [(21, 0), (1, 11)])
def test_a_heartbeat_of_too_many_groups_or_topics_makes_none(controller, client, groups, topics):
    answer = ask(client, RequestCode.HEART_BEAT, body=heartbeat(groups, topics))
    assert "at most" in answer.remark
    assert controller.broker.groups.get("g0") is None


def test_the_groups_of_a_heartbeat_are_saved_together(controller, client, monkeypatch):
    saves, broker = [], controller.broker
    for manager in (broker.groups, broker.topics):
        monkeypatch.setattr(manager, "persist", lambda name=manager.FILE_NAME: saves.append(name))
    told = []
    broker.topics.on_change(told.append)
    command = RemotingCommand.request(RequestCode.HEART_BEAT, heartbeat(20, 1))
    client.send(command)
    while not client.receive().is_response:
        pass
    assert saves == ["subscriptionGroup.json", "topics.json"]
    assert told == [None]
    assert {f"g{number}" for number in range(20)} <= broker.groups.all().keys()
    assert broker.topics.select("%RETRY%g19").read_queue_nums == 1


class _Connection:
    address, is_open = "1.2.3.4:5", True


def test_work_for_a_client_that_has_left_ends():
    connection = _Connection()
    with working_for(connection):
        check_wanted()
        connection.is_open = False
        with pytest.raises(RemotingConnectError, match=r"1\.2\.3\.4:5 has left"):
            check_wanted()
    check_wanted()


def test_statistics_of_a_large_topic_end_with_their_client(controller, monkeypatch):
    begun = threading.Event()

    def checked():
        begun.set()
        check_wanted()

    monkeypatch.setattr("rmqnet.broker.processor.admin_topics.check_wanted", checked)
    topics = controller.broker.topics
    topics.create_all([TopicConfig("large", 20_000_000, 20_000_000)])  # as a file may say
    with RawClient(controller.config.listen_port) as client:
        command = RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO)
        command.ext_fields = {"topic": "large"}
        client.send(command)
        assert begun.wait(30)
    pool = controller._pools.admin
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(10)
    controller.shutdown()
    assert not any(each.name.startswith("admin-") for each in threading.enumerate())


def test_a_stop_leaves_work_that_does_not_end(monkeypatch, caplog):
    monkeypatch.setattr("rmqnet.broker.pools._STOP_SECONDS", 0.05)
    pools, begun, end = Pools(BrokerConfig(broker_name="b")), threading.Event(), threading.Event()
    pools.start()
    pools.query.submit(lambda: (begun.set(), end.wait(60)))
    begun.wait(10)
    pools.shutdown()
    end.set()
    assert "pool query is still processing" in caplog.text


@pytest.mark.parametrize(
    ("code", "total", "table"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, "totalTopicNum", "topicConfigTable"),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "totalGroupNum", "subscriptionGroupTable"),
    ],
)
def test_tables_come_whole_with_their_number_of_rows(client, code, total, table):
    for fields_asked in ({}, {"topicSeq": "0", "groupSeq": "0", "dataVersion": ""}):
        answer = ask(client, code, fields_asked)
        assert int(answer.ext_fields[total]) == len(json.loads(answer.body)[table]) > 0


# Requests that are never answered leave room for later ones.


@pytest.fixture
def limited_controller(tmp_path):
    store_config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 20
    )
    limits = RemotingServerConfig(max_under_way_bytes=_LIMIT)
    with BrokerController(BrokerConfig(listen_port=0), store_config, limits=limits) as found:
        with RawClient(found.config.listen_port) as client:
            assert client.request(send_header("orders"), b"tea").code == ResponseCode.SUCCESS
        yield found


def _is_taken(limited_controller):
    with RawClient(limited_controller.config.listen_port) as client:
        return client.request(send_header("orders"), b"tea").code == ResponseCode.SUCCESS


def test_held_pulls_of_clients_that_are_gone(limited_controller):
    holds = limited_controller.broker.holds
    for _ in range(30):
        with RawClient(limited_controller.config.listen_port) as client:
            client.send(RemotingCommand.request(pull_header("orders", 1, 0, **_WAITS)))
            wait_until(lambda: holds.waiting == 1, "the pull waits")
        wait_until(lambda: holds.waiting == 0, "it is forgotten")
    assert _is_taken(limited_controller)


def test_one_way_pulls_wait_for_nothing(limited_controller):
    with RawClient(limited_controller.config.listen_port) as client:
        for _ in range(8):
            command = RemotingCommand.request(pull_header("orders", 1, 0, **_WAITS))
            command.flag |= ONEWAY_FLAG
            client.send(command)
            assert client.request(pull_header("orders", 1, 0)).code == ResponseCode.PULL_NOT_FOUND
    assert limited_controller.broker.holds.waiting == 0


def test_transactions_whose_end_is_not_known(limited_controller):
    header = EndTransactionRequestHeader(
        producer_group="P",
        tran_state_table_offset=0,
        commit_log_offset=0,
        commit_or_rollback=TRANSACTION_NOT_TYPE,
        from_transaction_check=False,
        msg_id="",
        transaction_id="",
    )
    with RawClient(limited_controller.config.listen_port) as client:
        for _ in range(40):
            client.send(RemotingCommand.request(header, b"tea"))
        last = client.send(RemotingCommand(int(RequestCode.GET_BROKER_RUNTIME_INFO)))
        while client.receive().opaque != last.opaque:
            pass
        wait_until(lambda: _is_taken(limited_controller), "there is room again")
