# SPDX-License-Identifier: Apache-2.0
"""A slave of this project with a master of this project: messages, topics, groups and offsets."""

from __future__ import annotations

import json
import logging
import struct
import time

import pytest

from rmqnet import (
    Admin,
    ClientError,
    GroupConfig,
    Producer,
    TopicConfig,
    serve,
)
from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.roles.slave import MasterCalls, SlaveSynchronize, settings_of_slave
from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from rmqnet.broker.state.topic_config_manager import TopicConfigManager
from rmqnet.client.received_messages import messages_from_body
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.remoting_server import RemotingServer
from store_core import Message, StoreConfigError
from store_core.config.config_files import load_delay_offsets
from store_core.config.data_version import DataVersion
from store_core.config.lenient_json import parse_lenient_json
from store_core.files.store_directory import StoreDirectory
from store_core.layout import TRANSACTION_COMMIT_TYPE
from tests.rmqnet.broker.small_broker import pull_header, send_header
from tests.rmqnet.remoting.raw_client import RawClient

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 1000}
MASTER = {"brokerName": "b", "brokerClusterName": "c", "messageDelayLevel": "1s 2s", **SIZES}
VERSION = {"stateVersion": 0, "counter": 7, "timestamp": 1_700_000_000_000}
TOPICS = {
    "topicConfigTable": {"t": {"topicName": "t", "readQueueNums": 3, "writeQueueNums": 3}},
    "dataVersion": VERSION,
    "mappingDataVersion": VERSION,
}
GROUPS = {
    "subscriptionGroupTable": {"g": {"groupName": "g", "retryMaxTimes": 5}},
    "dataVersion": VERSION,
}
# As Java writes it: integers as keys, without quotes.
OFFSETS = '{"offsetTable":{"t@g":{0:12,2:5}},"dataVersion":' + json.dumps(VERSION) + "}"
DELAYS = '{"dataVersion":' + json.dumps(VERSION) + ',"offsetTable":{3:40,1:2}}'
ANSWERS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: json.dumps(TOPICS),
    RequestCode.GET_ALL_CONSUMER_OFFSET: OFFSETS,
    RequestCode.GET_ALL_DELAY_OFFSET: DELAYS,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: json.dumps(GROUPS),
    RequestCode.GET_BROKER_CONFIG: "brokerName=b\nbrokerId=0\nmappedFileSizeCommitLog=1048576\n",
}


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def asked(served):
    return RawClient(served.controller.config.listen_port)


def follow(slave, master):
    """Wait until the slave has all messages of the master."""
    role = slave.controller.role
    until(lambda: role.client is not None)
    assert role.client.wait_for(master.controller.role.store.max_phy_offset, 20)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("master"), ha_port=0, settings=MASTER) as served:
        with Admin(served.namesrv_addr) as admin:
            admin.update_topic(TopicConfig("t", 2, 2))
            admin.update_group(GroupConfig("g", retry_queue_nums=3))
        with Producer("p", served.namesrv_addr) as producer:
            for number in range(10):
                producer.send(Message("t", b"%d" % number))
        with asked(served) as client:
            client.request(UpdateConsumerOffsetRequestHeader("g", "t", 0, 4))
        yield served


@pytest.fixture(scope="module")
def slave(master, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("slave"), replica_of=master.address) as served:
        follow(served, master)
        yield served


def test_it_has_the_name_of_its_master_and_another_id(master, slave):
    config = slave.controller.config
    assert (config.broker_name, config.broker_cluster_name, config.broker_id) == ("b", "c", 1)
    assert slave.namesrv_addr == master.namesrv_addr
    assert slave.name_server is None
    with Admin(master.namesrv_addr) as admin:
        assert admin.route("t").brokers == {"b": {0: master.address, 1: slave.address}}


def test_it_takes_over_what_the_master_has(master, slave):
    mine, theirs = slave.controller.role, master.controller.role
    until(lambda: mine.groups.data_version == theirs.groups.data_version)
    assert mine.topics.all() == theirs.topics.all()
    assert mine.topics.data_version == theirs.topics.data_version
    assert mine.groups.get("g").retry_queue_nums == 3
    assert mine.offsets.query("g", "t", 0) == 4
    directory = StoreDirectory(mine.offsets.root)
    until(lambda: load_delay_offsets(directory) is not None)


def test_both_say_how_far_the_slave_is(master, slave):
    end = master.controller.role.store.max_phy_offset
    with asked(master) as client:
        until(lambda: ha_status(client)["haConnectionInfo"][0]["slaveAckOffset"] == end)
        status = ha_status(client)
    assert (status["master"], status["inSyncSlaveNums"]) == (True, 1)
    assert status["masterCommitLogMaxOffset"] == end
    (found,) = status["haConnectionInfo"]
    assert (found["diff"], found["inSync"], found["transferFromWhere"]) == (0, True, end)
    with asked(slave) as client:
        status = ha_status(client)
    assert status["master"] is False
    told = status["haClientRuntimeInfo"]
    assert told["masterAddr"] == master.controller.role.ha_address
    assert told["maxOffset"] == end
    assert 0 < told["lastReadTimestamp"] <= time.time() * 1000
    assert 0 < told["lastWriteTimestamp"] <= time.time() * 1000


def ha_status(client):
    return parse_lenient_json(client.request(RequestCode.GET_BROKER_HA_STATUS).body.decode())


def test_what_a_slave_gets_counts_as_put(master, slave):
    mine, theirs = (each.controller.role.store.runtime_info() for each in (slave, master))
    assert int(theirs["putMessageTimesTotal"]) >= 10
    for key in ("putMessageTimesTotal", "putMessageSizeTotal"):
        assert mine[key] == theirs[key]


def test_changes_come_with_the_next_round(master, slave):
    with Admin(master.namesrv_addr) as admin:
        admin.update_topic(TopicConfig("later", 1, 1))
        admin.create_group("gone")
        role = slave.controller.role
        role.synchronize()
        assert role.topics.select("later").read_queue_nums == 1
        assert role.groups.get("gone") is not None
        admin.delete_topic("later")
        admin.delete_group("gone")
    assert role.synchronize()
    assert role.topics.select("later") is None
    assert role.groups.get("gone") is None


def test_it_answers_reads(master, slave):
    with asked(slave) as client, asked(master) as other:
        answers = [
            (each.request(pull_header("t", 0, 0)), each.request(pull_header("t", 1, 0)))
            for each in (client, other)
        ]
        assert [a.body for a in answers[0]] == [a.body for a in answers[1]]
        assert sum(len(messages_from_body(a.body, "")) for a in answers[0]) == 10
        end = client.request(pull_header("t", 0, 5, suspend_timeout_millis=9000, sys_flag=6))
        assert end.code == ResponseCode.PULL_RETRY_IMMEDIATELY  # the master may have more
        assert end.ext_fields["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (send_header("t"), ResponseCode.SYSTEM_BUSY),
        (ConsumerSendMsgBackRequestHeader(0, "g", 0), ResponseCode.SYSTEM_BUSY),
        (
            EndTransactionRequestHeader("p", 0, 0, TRANSACTION_COMMIT_TYPE, ""),
            ResponseCode.SLAVE_NOT_AVAILABLE,
        ),
    ],
)
def test_it_refuses_what_only_a_master_does(slave, header, code):
    with asked(slave) as client:
        assert client.request(header, b"x").code == code


def test_a_slave_that_is_not_to_be_read(master, tmp_path):
    settings = {"slaveReadEnable": False, "brokerId": 2}
    with serve(tmp_path, replica_of=master.address, settings=settings) as served:
        with asked(served) as client:
            answer = client.request(pull_header("t", 0, 0))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark.startswith("[REJECTREQUEST]")


def test_messages_of_a_master_that_goes_can_be_read(tmp_path):
    with serve(tmp_path / "m", ha_port=0, settings=MASTER) as master:
        with Producer("p", master.namesrv_addr) as producer:
            queue_id = producer.send(Message("t", b"kept")).queue.queue_id
        with serve(tmp_path / "s", replica_of=master.address) as slave:
            follow(slave, master)
            role = slave.controller.role
            until(lambda: role.topics.select("t") is not None)
            master.controller.shutdown()
            role.synchronize()  # name servers reported a master
            slave.controller.registration.run_once()
            role.synchronize()
            with asked(slave) as client:
                answer = client.request(pull_header("t", queue_id, 0))
                assert answer.code == ResponseCode.SUCCESS
                at_end = pull_header("t", queue_id, 1)
                assert client.request(at_end).code == ResponseCode.PULL_NOT_FOUND


def test_it_starts_again_without_its_master(tmp_path):
    with serve(tmp_path / "m", ha_port=0, settings=MASTER) as master:
        with Producer("p", master.namesrv_addr) as producer:
            producer.send(Message("t", b"kept"))
        with serve(tmp_path / "s", replica_of=master.address) as slave:
            follow(slave, master)
            end = slave.controller.role.store.max_phy_offset
        gone, name_server = master.address, master.namesrv_addr
    with pytest.raises(ClientError, match="brokerName"):
        serve(tmp_path / "s", replica_of=gone)
    options = {"namesrv_addr": name_server, "settings": {"brokerName": "b"}}
    with serve(tmp_path / "s", replica_of=gone, **options) as slave:
        assert slave.controller.role.store.max_phy_offset == end


def test_slaves_of_slaves_there_are_none(slave, tmp_path):
    with pytest.raises(ClientError, match="is not a master"):
        serve(tmp_path, replica_of=slave.address)


def test_a_slave_has_an_id_of_its_own(master, tmp_path):
    with pytest.raises(StoreConfigError, match="brokerId=0"):
        serve(tmp_path, replica_of=master.address, settings={"brokerId": 0})


def test_one_kind_of_broker_at_a_time(tmp_path):
    with pytest.raises(StoreConfigError, match="is read-only, or is a slave"):
        serve(tmp_path, replica_of="127.0.0.1:1", read_only=True)
    with pytest.raises(StoreConfigError, match="replica_of"):
        serve(tmp_path, settings={"brokerRole": "SLAVE"})


def test_it_is_told_to_be_a_slave(slave):
    with asked(slave) as client:
        text = client.request(RequestCode.GET_BROKER_CONFIG).body.decode()
    assert "brokerRole=SLAVE" in text


def test_what_a_slave_of_rocketmq_asks_for_besides(master):
    """The progress of timers, and the queues read by pop: none."""
    controller = master.controller
    controller.broker.timers.save()
    with RawClient(controller.config.listen_port - 2) as client:  # slaves ask there
        assert b'"t"' in client.request(RequestCode.GET_ALL_TOPIC_CONFIG).body
        answer = client.request(RequestCode.GET_TIMER_CHECK_POINT)
        fields = struct.unpack(">7q", answer.body)
        assert fields[2] == controller.broker.timers.queue_offset
        metrics = parse_lenient_json(client.request(RequestCode.GET_TIMER_METRICS).body.decode())
        assert metrics["timingCount"] == {}
        modes = client.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert modes.code == ResponseCode.SUCCESS


# Data that a slave takes from a scripted master, including garbage.


class ScriptedMaster:
    """Answers as scripted: with a text, bytes, or a code."""

    def __init__(self):
        self.answers = dict(ANSWERS)
        self.server = RemotingServer("scripted master")
        self.server.register(ANSWERS, self.answer)
        self.address = f"127.0.0.1:{self.server.start('127.0.0.1', 0)}"

    def answer(self, connection, request):
        told = self.answers[request.code]
        if isinstance(told, ResponseCode):
            return RemotingCommand.response_to(request, told, "not now")
        body = told.encode() if isinstance(told, str) else told
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=body)


@pytest.fixture
def scripted_master():
    found = ScriptedMaster()
    yield found
    found.server.shutdown()


class Slave:
    def __init__(self, root, calls):
        config, root = BrokerConfig(broker_name="b", broker_id=1), str(root)
        self.directory = StoreDirectory(root)
        self.topics = TopicConfigManager(config, root, lambda: 1)
        self.groups = SubscriptionGroupManager(config, root, lambda: 1)
        self.offsets = ConsumerOffsetManager(config, root, lambda: 1)
        self.told = 0
        self.synchronize = SlaveSynchronize(
            calls, self.topics, self.groups, self.offsets, self.note_topics
        )

    def note_topics(self):
        self.told += 1


@pytest.fixture
def synchronized_slave(tmp_path):
    with MasterCalls() as calls:
        yield Slave(tmp_path, calls)


def test_all_kinds_are_taken_over_and_saved(scripted_master, synchronized_slave):
    assert synchronized_slave.synchronize.run_once(scripted_master.address)
    assert list(synchronized_slave.topics.all()) == ["t"]
    assert synchronized_slave.topics.data_version == DataVersion(0, 7, 1_700_000_000_000)
    assert synchronized_slave.groups.get("g").retry_max_times == 5
    assert synchronized_slave.offsets.query_all("g", "t") == {0: 12, 2: 5}
    assert load_delay_offsets(synchronized_slave.directory) == {1: 2, 3: 40}
    again = TopicConfigManager(
        BrokerConfig(broker_name="b"), synchronized_slave.topics.root, lambda: 1
    )
    again.load()
    assert again.select("t").read_queue_nums == 3


def test_what_has_not_changed_is_left_alone(scripted_master, synchronized_slave):
    synchronized_slave.synchronize.run_once(scripted_master.address)
    assert synchronized_slave.synchronize.run_once(scripted_master.address)
    assert synchronized_slave.told == 1


def test_what_the_master_has_no_more_goes(scripted_master, synchronized_slave):
    synchronized_slave.synchronize.run_once(scripted_master.address)
    newer = {**TOPICS, "topicConfigTable": {}, "dataVersion": {**VERSION, "counter": 8}}
    scripted_master.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = json.dumps(newer)
    synchronized_slave.synchronize.run_once(scripted_master.address)
    assert synchronized_slave.topics.all() == {}
    assert synchronized_slave.told == 2


@pytest.mark.parametrize(
    "answer",
    [
        ResponseCode.SYSTEM_ERROR,
        "",
        "null",
        "[]",
        "{",
        b"\xff\xfe",
        '{"topicConfigTable":[1]}',
        '{"topicConfigTable":{"t":{"readQueueNums":"many"}}}',
        '{"dataVersion":7,"topicConfigTable":{}}',
        "[" * 5000,
    ],
)
def test_garbage_of_one_kind_keeps_no_other_back(scripted_master, synchronized_slave, answer):
    before = synchronized_slave.topics.all()
    scripted_master.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = answer
    assert not synchronized_slave.synchronize.run_once(scripted_master.address)
    assert synchronized_slave.groups.get("g").retry_max_times == 5
    assert synchronized_slave.offsets.query("g", "t", 0) == 12
    assert synchronized_slave.topics.all() == before


@pytest.mark.parametrize("answer", ["{", '{"offsetTable":{"x":1}}', '{"offsetTable":[]}'])
def test_delay_offsets_that_are_none_are_not_written(scripted_master, synchronized_slave, answer):
    synchronized_slave.synchronize.run_once(scripted_master.address)
    scripted_master.answers[RequestCode.GET_ALL_DELAY_OFFSET] = answer
    assert not synchronized_slave.synchronize.run_once(scripted_master.address)
    assert load_delay_offsets(synchronized_slave.directory) == {1: 2, 3: 40}


def test_a_failure_is_logged_once(scripted_master, synchronized_slave, caplog):
    scripted_master.answers[RequestCode.GET_ALL_CONSUMER_OFFSET] = ResponseCode.SYSTEM_ERROR
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            synchronized_slave.synchronize.run_once(scripted_master.address)
    assert len([each for each in caplog.records if "GET_ALL_CONSUMER" in each.message]) == 1


def test_settings_of_the_master_and_given_ones(scripted_master):
    found = settings_of_slave(scripted_master.address, {"brokerId": "5", "brokerName": ""})
    assert (found["brokerName"], found["brokerId"], found["brokerRole"]) == ("b", "5", "SLAVE")
    assert found["mappedFileSizeCommitLog"] == "1048576"


@pytest.mark.parametrize("answer", [ResponseCode.NO_PERMISSION, b"\xff", "brokerName"])
def test_settings_that_do_not_come(scripted_master, answer):
    scripted_master.answers[RequestCode.GET_BROKER_CONFIG] = answer
    with pytest.raises(ClientError, match="brokerName"):
        settings_of_slave(scripted_master.address, {})
    given = {"brokerName": "b", "namesrvAddr": "127.0.0.1:1"}
    assert settings_of_slave(scripted_master.address, given)["brokerName"] == "b"


def test_nobody_is_there(scripted_master):
    scripted_master.server.shutdown()
    with pytest.raises(ClientError, match=scripted_master.address):
        settings_of_slave(scripted_master.address, {})
