# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rmqnet import ClientInstance, MessageQueue
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.codec.compression import deflate
from store_core.codec.message_codec import encode_message
from store_core.codec.message_id import parse_host
from store_core.config.lenient_json import parse_lenient_json
from tests.rmqnet.client.groups import NotingConsumer, NotingProducer
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, wait_until


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        made.add_topic("orders")
        yield made


@pytest.fixture
def broker(cluster: ScriptedCluster) -> ScriptedServer:
    return cluster.broker("broker-a")


@pytest.fixture
def consumer() -> NotingConsumer:
    return NotingConsumer("g", "orders")


@pytest.fixture
def producer() -> NotingProducer:
    return NotingProducer("orders")


@pytest.fixture(autouse=True)
def _client(
    cluster: ScriptedCluster, consumer: NotingConsumer, producer: NotingProducer
) -> Iterator[None]:
    with ClientInstance(cluster.namesrv_addr) as client:
        client.call(client.register_consumer("g", consumer))
        client.call(client.register_producer("p", producer))
        yield


def _record(properties: bytes = b"PGROUP\x01p\x02UNIQ_KEY\x01id\x02") -> bytes:
    return encode_message(
        topic=b"orders",
        body=b"body",
        properties_raw=properties,
        commit_log_offset=4711,
        queue_offset=7,
        queue_id=3,
        born_timestamp=1,
        born_host=parse_host("10.0.0.9:5000"),
        store_timestamp=2,
        store_host=parse_host("10.0.0.1:10911"),
    )


def test_a_producer_of_the_group_is_asked_about_a_transaction(
    broker: ScriptedServer, producer: NotingProducer
) -> None:
    header = CheckTransactionStateRequestHeader(5, 4711, msg_id="id", bname="broker-a")
    broker.tell_clients(RemotingCommand.request(header, _record()))
    assert producer.checked.wait(10)
    ((message, asked, address),) = producer.checks
    assert (message.body, message.unique_key) == (b"body", "id")
    assert asked == header
    assert address == broker.address


def test_a_transaction_of_another_group_is_not_for_this_client(
    broker: ScriptedServer, producer: NotingProducer
) -> None:
    header = CheckTransactionStateRequestHeader(5, 4711)
    for properties in (b"PGROUP\x01other\x02", b""):
        broker.tell_clients(RemotingCommand.request(header, _record(properties)))
    broker.tell_clients(RemotingCommand.request(header, b"no record"))
    broker.tell_clients(RemotingCommand.request(header, _record()))
    assert producer.checked.wait(10)
    assert len(producer.checks) == 1


@pytest.mark.parametrize(
    "table",
    [
        '{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:5}',
        '[{"brokerName":"broker-a","queueId":0,"topic":"orders","offset":5}]',
    ],
)
def test_offsets_are_reset(broker: ScriptedServer, consumer: NotingConsumer, table: str) -> None:
    header = ResetOffsetRequestHeader(group="g", topic="orders", timestamp=1, is_force=True)
    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    body = f'{{"offsetTable":{table}}}'.encode()
    broker.tell_clients(RemotingCommand.request(header, body, code))
    wait_until(lambda: consumer.resets, "the reset")
    assert consumer.resets == [("orders", {MessageQueue("orders", "broker-a", 0): 5})]
    assert all(name.startswith("rocketmq-listener") for name in consumer.threads)


def test_offsets_are_told(broker: ScriptedServer) -> None:
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    header = GetConsumerStatusRequestHeader(topic="orders", group="g")
    answer = broker.ask_client(RemotingCommand.request(header, code=code))
    assert answer.code == ResponseCode.SUCCESS
    table = parse_lenient_json(answer.body.decode())["messageQueueTable"]
    assert {(dict(queue)["queueId"], offset) for queue, offset in table.items()} == {(0, 5), (1, 6)}
    header = GetConsumerStatusRequestHeader(topic="orders", group="other")
    answer = broker.ask_client(RemotingCommand.request(header, code=code))
    assert json.loads(answer.body) == {"messageQueueTable": {}}


def test_what_a_consumer_does_is_told(broker: ScriptedServer, consumer: NotingConsumer) -> None:
    header = GetConsumerRunningInfoRequestHeader("g", "client")
    answer = broker.ask_client(RemotingCommand.request(header))
    assert json.loads(answer.body)["properties"]
    assert consumer.threads
    answer = broker.ask_client(
        RemotingCommand.request(GetConsumerRunningInfoRequestHeader("other", "client"))
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "other" in (answer.remark or "")


def test_a_message_is_consumed_now(broker: ScriptedServer, consumer: NotingConsumer) -> None:
    header = ConsumeMessageDirectlyResultRequestHeader("g", "client", broker_name="broker-a")
    answer = broker.ask_client(RemotingCommand.request(header, _record()))
    assert json.loads(answer.body) == {"consumeResult": "CR_SUCCESS"}
    ((message, broker_name),) = consumer.consumed
    assert (message.body, broker_name) == (b"body", "broker-a")
    header = ConsumeMessageDirectlyResultRequestHeader("other", "client")
    answer = broker.ask_client(RemotingCommand.request(header, _record()))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_request_that_makes_no_sense_is_answered_so(broker: ScriptedServer) -> None:
    header = ConsumeMessageDirectlyResultRequestHeader("g", "client")
    answer = broker.ask_client(RemotingCommand.request(header, b"nonsense"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "damaged record" in (answer.remark or "")


@pytest.mark.parametrize("sys_flag", [0, 1])
def test_a_reply_arrives(broker: ScriptedServer, producer: NotingProducer, sys_flag: int) -> None:
    body = deflate(b"reply", sys_flag) if sys_flag else b"reply"
    header = ReplyMessageRequestHeader(
        producer_group="p",
        topic="DefaultCluster_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=1,
        flag=0,
        born_host="10.0.0.9:5000",
        store_host="10.0.0.1:10911",
        store_timestamp=2,
        properties="CORRELATION_ID\x01abc\x02",
    )
    answer = broker.ask_client(RemotingCommand.request(header, body))
    assert answer.code == ResponseCode.SUCCESS
    (message,) = producer.replies
    assert message.body == b"reply"
    assert message.properties["CORRELATION_ID"] == "abc"
    assert int(message.properties["ARRIVE_TIME"]) > 0
