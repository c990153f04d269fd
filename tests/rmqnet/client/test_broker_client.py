# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqnet import (
    BrokerError,
    ClientInstance,
    MessageQueue,
    PullStatus,
    RemotingConnectError,
    RemotingFormatError,
    SendStatus,
)
from rmqnet.client.heartbeat_data import SubscriptionData
from rmqnet.client.send_result import PullResult
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, answer, success

QUEUE = MessageQueue("orders", "broker-a", 3)
PLACE = {"topic": "orders", "queueId": "3", "bname": "broker-a"}


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        made.add_topic("orders")
        yield made


@pytest.fixture
def broker(cluster: ScriptedCluster) -> ScriptedServer:
    return cluster.broker("broker-a")


@pytest.fixture
def client(cluster: ScriptedCluster) -> Iterator[ClientInstance]:
    with ClientInstance(cluster.namesrv_addr) as made:
        yield made


def _send_header(**fields: Any) -> SendMessageRequestHeaderV2:
    settings: dict[str, Any] = {
        "producer_group": "p",
        "topic": "orders",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 3,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
        "bname": "broker-a",
    }
    return SendMessageRequestHeaderV2(**{**settings, **fields})


def _pull_header(sys_flag: int = 4) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group="g",
        topic="orders",
        queue_id=3,
        queue_offset=7,
        max_msg_nums=32,
        sys_flag=sys_flag,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        bname="broker-a",
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.SEND_OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_a_message_is_sent(
    client: ClientInstance, broker: ScriptedServer, code: int, status: SendStatus
) -> None:
    fields = {"msgId": "offset-id", "queueId": 2, "queueOffset": 9, "transactionId": "unique"}
    fields.update(MSG_REGION="here", TRACE_ON="false")
    broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda r: answer(r, code, **fields)
    header = _send_header(properties="TAGS\x01red\x02")
    result = client.call(
        client.broker.send_message(broker.address, header, b"body", message_id="unique")
    )
    assert result.status is status
    assert result.queue == MessageQueue("orders", "broker-a", 2)
    assert (result.message_id, result.offset_message_id) == ("unique", "offset-id")
    assert (result.queue_offset, result.transaction_id) == (9, "unique")
    assert (result.region_id, result.trace_on) == ("here", False)
    (request,) = broker.asked(RequestCode.SEND_MESSAGE_V2)
    assert request.body == b"body"
    assert request.ext_fields["n"] == "broker-a"
    assert request.ext_fields["i"] == "TAGS\x01red\x02"


def test_an_old_broker_says_less_of_a_message(
    client: ClientInstance, broker: ScriptedServer
) -> None:
    fields = {"msgId": "id", "queueId": 3, "queueOffset": 0}
    broker.answers[RequestCode.SEND_BATCH_MESSAGE] = lambda r: success(r, **fields)
    code = RequestCode.SEND_BATCH_MESSAGE
    send = client.broker.send_message(
        broker.address, _send_header(batch=True), b"", message_id="a,b", code=code
    )
    result = client.call(send)
    assert (result.transaction_id, result.region_id, result.trace_on) == (
        None,
        "DefaultRegion",
        True,
    )


def test_a_message_that_is_refused(client: ClientInstance, broker: ScriptedServer) -> None:
    code = ResponseCode.MESSAGE_ILLEGAL
    broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda r: answer(r, code, "too long")
    send = client.broker.send_message(broker.address, _send_header(), b"", message_id="")
    with pytest.raises(BrokerError, match=f"{broker.address} answered SEND_MESSAGE_V2 .*too long"):
        client.call(send)


def test_a_message_that_nobody_answers(client: ClientInstance, broker: ScriptedServer) -> None:
    client.call(client.broker.send_oneway(broker.address, _send_header(), b"body"))
    (request,) = broker.wait_for(RequestCode.SEND_MESSAGE_V2)
    assert request.is_oneway


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW_MSG),
        (20, PullStatus.NO_MATCHED_MSG),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_a_pull(
    client: ClientInstance, broker: ScriptedServer, code: int, status: PullStatus
) -> None:
    fields = {"nextBeginOffset": 8, "minOffset": 1, "maxOffset": 9, "suggestWhichBrokerId": 1}
    broker.answers[RequestCode.PULL_MESSAGE] = lambda r: answer(
        r, code, "words", b"records", **fields
    )
    result = client.call(client.broker.pull(broker.address, _pull_header()))
    assert result == PullResult(status, 8, 1, 9, 1, b"records", "words")
    assert "records" not in repr(result)


def test_a_lite_pull_has_a_code_of_its_own(client: ClientInstance, broker: ScriptedServer) -> None:
    fields = {"nextBeginOffset": 8, "minOffset": 1, "maxOffset": 9, "suggestWhichBrokerId": 0}
    broker.answers[RequestCode.LITE_PULL_MESSAGE] = lambda r: answer(r, 19, **fields)
    result = client.call(client.broker.pull(broker.address, _pull_header(sys_flag=22)))
    assert result.status is PullStatus.NO_NEW_MSG


def test_a_pull_that_is_refused(client: ClientInstance, broker: ScriptedServer) -> None:
    code = ResponseCode.SUBSCRIPTION_NOT_LATEST
    broker.answers[RequestCode.PULL_MESSAGE] = lambda r: answer(r, code, "not latest")
    with pytest.raises(BrokerError) as caught:
        client.call(client.broker.pull(broker.address, _pull_header()))
    assert caught.value.code == 25


def test_an_answer_without_its_fields_names_the_broker(
    client: ClientInstance, broker: ScriptedServer
) -> None:
    broker.answers[RequestCode.PULL_MESSAGE] = lambda r: success(r, minOffset=1)
    with pytest.raises(RemotingFormatError, match=f"{broker.address} answered.*is missing"):
        client.call(client.broker.pull(broker.address, _pull_header()))


def test_a_query_by_key(client: ClientInstance, broker: ScriptedServer) -> None:
    fields = {"indexLastUpdateTimestamp": 5, "indexLastUpdatePhyoffset": 6}
    broker.answers[RequestCode.QUERY_MESSAGE] = lambda r: success(r, b"records", **fields)
    header = QueryMessageRequestHeader("orders", "key", 32, 0, 1 << 62, unique_key_query=True)
    result = client.call(client.broker.query_message(broker.address, header))
    assert (result.body, result.index_last_update_timestamp) == (b"records", 5)
    (request,) = broker.asked(RequestCode.QUERY_MESSAGE)
    assert request.ext_fields["_UNIQUE_KEY_QUERY"] == "true"
    broker.answers[RequestCode.QUERY_MESSAGE] = lambda r: answer(r, ResponseCode.QUERY_NOT_FOUND)
    assert client.call(client.broker.query_message(broker.address, header)).body == b""


def test_a_message_by_its_place(client: ClientInstance, broker: ScriptedServer) -> None:
    broker.answers[RequestCode.VIEW_MESSAGE_BY_ID] = lambda r: success(r, b"record")
    view = client.broker.view_message(broker.address, "orders", 4711)
    assert client.call(view) == b"record"
    (request,) = broker.asked(RequestCode.VIEW_MESSAGE_BY_ID)
    assert request.ext_fields == {"topic": "orders", "offset": "4711"}


def test_offsets_of_a_queue(client: ClientInstance, broker: ScriptedServer) -> None:
    for code in (
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    ):
        broker.answers[code] = lambda r: success(r, offset=r.code)
    broker.answers[RequestCode.GET_EARLIEST_MSG_STORETIME] = lambda r: success(r, timestamp=-1)
    calls, at = client.broker, broker.address
    assert client.call(calls.max_offset(at, QUEUE)) == 30
    assert client.call(calls.min_offset(at, QUEUE)) == 31
    assert client.call(calls.search_offset(at, QUEUE, 77)) == 29
    assert client.call(calls.earliest_store_time(at, QUEUE)) == -1
    asked = {each.code: each.ext_fields for each in broker.requests}
    assert asked[30] == asked[31] == asked[32] == PLACE
    assert asked[29] == {**PLACE, "timestamp": "77"}


def test_offsets_of_a_group(client: ClientInstance, broker: ScriptedServer) -> None:
    calls, at = client.broker, broker.address
    broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda r: success(r, offset=5)
    assert client.call(calls.query_consumer_offset(at, "g", QUEUE)) == 5
    code = ResponseCode.QUERY_NOT_FOUND
    broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda r: answer(r, code)
    nothing = calls.query_consumer_offset(at, "g", QUEUE, set_zero_if_not_found=False)
    assert client.call(nothing) is None
    assert broker.requests[-1].ext_fields["setZeroIfNotFound"] == "false"

    broker.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = success
    client.call(calls.update_consumer_offset(at, "g", QUEUE, 6))
    client.call(calls.update_consumer_offset(at, "g", QUEUE, 7, oneway=True))
    updates = broker.wait_for(RequestCode.UPDATE_CONSUMER_OFFSET, 2)
    assert [each.is_oneway for each in updates] == [False, True]
    assert updates[1].ext_fields == {**PLACE, "consumerGroup": "g", "commitOffset": "7"}


def test_members_of_a_group(client: ClientInstance, broker: ScriptedServer) -> None:
    body = b'{"consumerIdList":["10.0.0.9@31","10.0.0.9@32"]}'
    broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda r: success(r, body)
    ids = client.call(client.broker.consumer_ids(broker.address, "g"))
    assert ids == ["10.0.0.9@31", "10.0.0.9@32"]


def test_queues_are_locked_and_given_away(client: ClientInstance, broker: ScriptedServer) -> None:
    locked = {"lockOKMQSet": [{"topic": "orders", "brokerName": "broker-a", "queueId": 3}]}
    broker.answers[RequestCode.LOCK_BATCH_MQ] = lambda r: success(r, json.dumps(locked).encode())
    broker.answers[RequestCode.UNLOCK_BATCH_MQ] = success
    queues = [QUEUE, MessageQueue("orders", "broker-a", 1)]
    calls, at = client.broker, broker.address
    assert client.call(calls.lock_queues(at, "g", "c", queues)) == {QUEUE}
    assert json.loads(broker.requests[-1].body) == {
        "consumerGroup": "g",
        "clientId": "c",
        "onlyThisBroker": False,
        "mqSet": [
            {"topic": "orders", "brokerName": "broker-a", "queueId": each} for each in (1, 3)
        ],
    }
    client.call(calls.unlock_queues(at, "g", "c", [QUEUE]))
    client.call(calls.unlock_queues(at, "g", "c", [QUEUE], oneway=True))
    unlocked = broker.wait_for(RequestCode.UNLOCK_BATCH_MQ, 2)
    assert [each.is_oneway for each in unlocked] == [False, True]


def test_a_message_is_sent_back(client: ClientInstance, broker: ScriptedServer) -> None:
    broker.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = success
    header = ConsumerSendMsgBackRequestHeader(offset=1, group="g", delay_level=3, origin_topic="t")
    client.call(client.broker.send_message_back(broker.address, header))
    assert broker.requests[-1].ext_fields["delayLevel"] == "3"


def test_a_transaction_is_ended_without_an_answer(
    client: ClientInstance, broker: ScriptedServer
) -> None:
    header = EndTransactionRequestHeader(
        producer_group="p",
        tran_state_table_offset=1,
        commit_log_offset=2,
        commit_or_rollback=8,
        msg_id="id",
    )
    client.call(client.broker.end_transaction(broker.address, header))
    (request,) = broker.wait_for(RequestCode.END_TRANSACTION)
    assert request.is_oneway


def test_an_expression_is_looked_at(client: ClientInstance, broker: ScriptedServer) -> None:
    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    broker.answers[RequestCode.CHECK_CLIENT_CONFIG] = lambda r: answer(r, code, "at line 1")
    subscription = SubscriptionData("orders", "a >", expression_type="SQL92")
    with pytest.raises(BrokerError, match="at line 1"):
        client.call(client.broker.check_client_config(broker.address, "c", "g", subscription))
    body = json.loads(broker.requests[-1].body)
    assert body["subscriptionData"]["expressionType"] == "SQL92"


def test_an_address_that_nobody_listens_at_is_explained(
    client: ClientInstance, cluster: ScriptedCluster, broker: ScriptedServer
) -> None:
    client.call(client.route("orders"))
    broker.stop()
    with pytest.raises(RemotingConnectError) as caught:
        client.call(client.broker.max_offset(broker.address, QUEUE))
    for part in (broker.address, "broker-a", cluster.namesrv_addr, "brokerIP1"):
        assert part in str(caught.value)
