# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.processor.consumer_manage import ConsumerManageProcessor
from rmqnet.broker.processor.pull_advice import advise
from rmqnet.client.message_queue import MessageQueue
from rmqnet.errors import BrokerError, RemotingFormatError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core import GetMessageStatus, MessageStoreConfig
from store_core.config.config_files import SubscriptionGroupConfig, TopicConfig
from store_core.read.pull_records import PulledRecords
from tests.rmqnet.broker.client_broker import BROKER_NAME, ClientBroker, FakeConnection

GROUP = SubscriptionGroupConfig("g", broker_id=3, which_broker_when_consume_slowly=7)
FOUND = PulledRecords(GetMessageStatus.FOUND, 1, 0, 1, b"x", 1)
NOTHING = PulledRecords(GetMessageStatus.OFFSET_OVERFLOW_ONE, 1, 0, 1)
MOVED = PulledRecords(GetMessageStatus.OFFSET_TOO_SMALL, 1, 1, 1)
CODES = {
    FOUND: ResponseCode.SUCCESS,
    NOTHING: ResponseCode.PULL_NOT_FOUND,
    MOVED: ResponseCode.PULL_OFFSET_MOVED,
}
AGAIN = ResponseCode.PULL_RETRY_IMMEDIATELY


@pytest.fixture
def small(tmp_path):
    with ClientBroker(tmp_path, ConsumerManageProcessor) as small:
        small.broker.topics.update(TopicConfig("t", 4, 4), {})
        small.broker.groups.find("g")
        yield small


@pytest.fixture
def processor(small):
    return small.processors[0]


def queue(queue_id=0, topic="t"):
    return MessageQueue(topic, BROKER_NAME, queue_id)


def query(processor, queue_id=0, **changes):
    header = QueryConsumerOffsetRequestHeader("g", "t", queue_id, **changes)
    return processor.query_consumer_offset(RemotingCommand.request(header))


def update(processor, offset, group="g", topic="t"):
    header = UpdateConsumerOffsetRequestHeader(group, topic, 0, offset)
    return processor.update_consumer_offset(FakeConnection(), RemotingCommand.request(header))


def test_an_offset_is_kept(small):
    async def call(broker, _):
        await broker.update_consumer_offset(small.address, "g", queue(), 7, oneway=False)
        return await broker.query_consumer_offset(small.address, "g", queue())

    assert small.ask(call) == 7
    assert small.broker.offsets.query("g", "t", 0) == 7


def test_a_new_group_begins_at_0_where_message_0_is_there(small, processor):
    small.put("t", b"first")
    answer = query(processor)
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {"offset": "0"})
    answer = query(processor, set_zero_if_not_found=False)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    answer = query(processor, queue_id=1)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert "boot first" in answer.remark


@pytest.mark.parametrize(
    ("group", "topic", "code"),
    [
        ("unseen", "t", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("g", "nothing", ResponseCode.TOPIC_NOT_EXIST),
    ],
)
def test_offsets_of_what_is_not_there_are_refused(small, processor, group, topic, code):
    assert update(processor, 5, group, topic).code == code
    assert small.broker.offsets.query(group, topic, 0) == -1
    assert small.broker.groups.get("unseen") is None


def test_commits_count_for_nothing_until_a_reset_is_taken(small, processor):
    update(processor, 9)
    small.broker.offsets.assign_reset("g", "t", 0, 3)
    answer = update(processor, 10)
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert query(processor).ext_fields == {"offset": "3"}
    small.broker.offsets.take_reset("g", "t", 0)
    update(processor, 4)
    assert query(processor).ext_fields == {"offset": "4"}


def test_a_field_that_is_missing_is_named(processor):
    request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, {"topic": "t"})
    with pytest.raises(RemotingFormatError, match="consumerGroup is missing"):
        processor.query_consumer_offset(request)


def test_queues_are_locked_for_one_member(small):
    async def call(broker, _):
        address, queues = small.address, [queue(0), queue(1)]
        first = await broker.lock_queues(address, "g", "a", queues)
        second = await broker.lock_queues(address, "g", "b", queues)
        await broker.unlock_queues(address, "g", "a", [queue(1)])
        third = await broker.lock_queues(address, "g", "b", queues)
        return first, second, third

    assert small.ask(call) == ({queue(0), queue(1)}, set(), {queue(1)})


@pytest.mark.parametrize(
    "body", [b"", b"7", b'{"mqSet":7}', b'{"mqSet":[7]}', b'{"mqSet":[{"topic":"t"}]}']
)
def test_locks_of_what_are_no_queues_are_refused(processor, body):
    request = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body)
    with pytest.raises(RemotingFormatError, match="the body of LOCK_BATCH_MQ cannot be decoded"):
        processor.lock_queues(request)


def test_a_group_without_members_has_no_list(small):
    with pytest.raises(BrokerError, match="no consumer for this group, g"):
        small.ask(lambda broker, _: broker.consumer_ids(small.address, "g"))


# Where the broker sends consumers to read next, compared with RocketMQ 5.3.3.


def advice(found, *, role="SLAVE", broker_id=1, reads=True, has_master=True, is_far=False):
    store = SimpleNamespace(config=MessageStoreConfig(broker_role=role))
    config = BrokerConfig(broker_name="b", broker_id=broker_id, slave_read_enable=reads)
    broker = SimpleNamespace(
        config=config, store=store, min_broker_id=0 if has_master else broker_id
    )
    code = CODES[found]
    found = found._replace(suggest_pulling_from_slave=is_far)
    return tuple(advise(broker, GROUP, found, code))


@pytest.mark.parametrize("found", CODES)
def test_a_master_without_slaves_to_read_from(found):
    expected = (CODES[found], 0)
    assert advice(found, role="ASYNC_MASTER", broker_id=0, reads=False, is_far=True) == expected


def test_a_master_that_lets_slaves_be_read():
    master = {"role": "ASYNC_MASTER", "broker_id": 0}
    assert advice(FOUND, **master) == (ResponseCode.SUCCESS, 3)
    assert advice(FOUND, **master, is_far=True) == (ResponseCode.SUCCESS, 7)
    assert advice(MOVED, **master) == (ResponseCode.PULL_OFFSET_MOVED, 3)


def test_a_slave_sends_readers_back_to_its_master():
    assert advice(FOUND) == (ResponseCode.SUCCESS, 0)
    assert advice(NOTHING) == (AGAIN, 0)
    assert advice(MOVED) == (AGAIN, 0)


def test_a_slave_keeps_those_that_are_far_behind():
    assert advice(FOUND, is_far=True) == (ResponseCode.SUCCESS, 7)


def test_a_slave_whose_master_is_gone_answers_itself():
    assert advice(FOUND, has_master=False) == (ResponseCode.SUCCESS, 3)
    assert advice(NOTHING, has_master=False) == (ResponseCode.PULL_NOT_FOUND, 3)
    assert advice(MOVED, has_master=False) == (AGAIN, 3)
