"""What a slave takes over from a master that a test scripts, garbage included."""

from __future__ import annotations

import json
import logging

import pytest

from rmqnet import ClientError
from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.roles.slave import MasterCalls, SlaveSynchronize, settings_of_slave
from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from rmqnet.broker.state.topic_config_manager import TopicConfigManager
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.remoting_server import RemotingServer
from store_core.config.config_files import load_delay_offsets
from store_core.config.data_version import DataVersion
from store_core.files.store_directory import StoreDirectory

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
# As Java writes it: whole numbers as keys, without quotes.
OFFSETS = '{"offsetTable":{"t@g":{0:12,2:5}},"dataVersion":' + json.dumps(VERSION) + "}"
DELAYS = '{"dataVersion":' + json.dumps(VERSION) + ',"offsetTable":{3:40,1:2}}'
ANSWERS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: json.dumps(TOPICS),
    RequestCode.GET_ALL_CONSUMER_OFFSET: OFFSETS,
    RequestCode.GET_ALL_DELAY_OFFSET: DELAYS,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: json.dumps(GROUPS),
    RequestCode.GET_BROKER_CONFIG: "brokerName=b\nbrokerId=0\nmappedFileSizeCommitLog=1048576\n",
}


class ScriptedMaster:
    """Answers as it is told: a text, bytes, or a code."""

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
def master():
    found = ScriptedMaster()
    yield found
    found.server.stop()


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
def slave(tmp_path):
    with MasterCalls() as calls:
        yield Slave(tmp_path, calls)


def test_all_kinds_are_taken_over_and_saved(master, slave):
    assert slave.synchronize.run_once(master.address)
    assert list(slave.topics.all()) == ["t"]
    assert slave.topics.data_version == DataVersion(0, 7, 1_700_000_000_000)
    assert slave.groups.get("g").retry_max_times == 5
    assert slave.offsets.query_all("g", "t") == {0: 12, 2: 5}
    assert load_delay_offsets(slave.directory) == {1: 2, 3: 40}
    again = TopicConfigManager(BrokerConfig(broker_name="b"), slave.topics.root, lambda: 1)
    again.load()
    assert again.select("t").read_queue_nums == 3


def test_what_has_not_changed_is_left_alone(master, slave):
    slave.synchronize.run_once(master.address)
    assert slave.synchronize.run_once(master.address)
    assert slave.told == 1


def test_what_the_master_has_no_more_goes(master, slave):
    slave.synchronize.run_once(master.address)
    newer = {**TOPICS, "topicConfigTable": {}, "dataVersion": {**VERSION, "counter": 8}}
    master.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = json.dumps(newer)
    slave.synchronize.run_once(master.address)
    assert slave.topics.all() == {}
    assert slave.told == 2


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
def test_garbage_of_one_kind_keeps_no_other_back(master, slave, answer):
    before = slave.topics.all()
    master.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = answer
    assert not slave.synchronize.run_once(master.address)
    assert slave.groups.get("g").retry_max_times == 5
    assert slave.offsets.query("g", "t", 0) == 12
    assert slave.topics.all() == before


@pytest.mark.parametrize("answer", ["{", '{"offsetTable":{"x":1}}', '{"offsetTable":[]}'])
def test_delay_offsets_that_are_none_are_not_written(master, slave, answer):
    slave.synchronize.run_once(master.address)
    master.answers[RequestCode.GET_ALL_DELAY_OFFSET] = answer
    assert not slave.synchronize.run_once(master.address)
    assert load_delay_offsets(slave.directory) == {1: 2, 3: 40}


def test_a_failure_is_logged_once(master, slave, caplog):
    master.answers[RequestCode.GET_ALL_CONSUMER_OFFSET] = ResponseCode.SYSTEM_ERROR
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            slave.synchronize.run_once(master.address)
    assert len([each for each in caplog.records if "GET_ALL_CONSUMER" in each.message]) == 1


def test_settings_of_the_master_and_given_ones(master):
    found = settings_of_slave(master.address, {"brokerId": "5", "brokerName": ""})
    assert (found["brokerName"], found["brokerId"], found["brokerRole"]) == ("b", "5", "SLAVE")
    assert found["mappedFileSizeCommitLog"] == "1048576"


@pytest.mark.parametrize("answer", [ResponseCode.NO_PERMISSION, b"\xff", "brokerName"])
def test_settings_that_do_not_come(master, answer):
    master.answers[RequestCode.GET_BROKER_CONFIG] = answer
    with pytest.raises(ClientError, match="brokerName"):
        settings_of_slave(master.address, {})
    given = {"brokerName": "b", "namesrvAddr": "127.0.0.1:1"}
    assert settings_of_slave(master.address, given)["brokerName"] == "b"


def test_nobody_is_there(master):
    master.server.stop()
    with pytest.raises(ClientError, match=master.address):
        settings_of_slave(master.address, {})
