# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from rmqnet.client.producer.producer import Producer
from rmqnet.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from rmqnet.client.send_result import SendStatus
from rmqnet.errors import ClientError, SendFailedError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.codec.message_codec import encode_message, properties_to_bytes
from store_core.message import Message
from tests.rmqnet.client.producer.scripted_brokers import (
    pushed,
    sent_header,
    sent_properties,
    storing_brokers,
)
from tests.rmqnet.scripted_cluster import ScriptedCluster

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOWN,
)


class Listener:
    def __init__(self) -> None:
        self.outcome: object = COMMIT
        self.checked_outcome: object = COMMIT
        self.executed: list[tuple[Message, object]] = []
        self.checked: list[tuple[Message, str]] = []

    def execute_local_transaction(self, message, argument):
        self.executed.append((message, argument))
        return self._answer(self.outcome)

    def check_local_transaction(self, message):
        self.checked.append((message, threading.current_thread().name))
        return self._answer(self.checked_outcome)

    def _answer(self, outcome):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def cluster():
    with ScriptedCluster() as cluster:
        yield cluster


@pytest.fixture
def broker(cluster):
    broker = storing_brokers(cluster, "broker-a")[0]
    broker.server.answers[RequestCode.END_TRANSACTION] = lambda _: None
    return broker


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def producer(cluster, listener):
    with TransactionProducer("tg", cluster.namesrv_addr, listener) as producer:
        yield producer


def ended(broker, count: int = 1) -> EndTransactionRequestHeader:
    request = broker.server.wait_for(RequestCode.END_TRANSACTION, count)[-1]
    assert request.is_oneway
    return decode_header(EndTransactionRequestHeader, request.ext_fields)


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOWN])
def test_the_broker_learns_the_outcome(broker, listener, producer, state):
    listener.outcome = state
    message = Message("orders", b"x")
    producer.send(Message("orders", b"before"))
    result = producer.send_in_transaction(message, "argument")
    half = broker.stored[1]
    properties = sent_properties(half)
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "tg")
    assert sent_header(half).sys_flag == 4
    assert listener.executed == [(message, "argument")]
    assert "TRAN_MSG" not in message.properties
    assert result.status is SendStatus.SEND_OK
    assert (result.local_transaction_state, result.local_error) == (state, None)
    assert result.message_id == message.unique_key == result.transaction_id
    assert ended(broker) == EndTransactionRequestHeader(
        producer_group="tg",
        tran_state_table_offset=1,
        commit_log_offset=1,
        commit_or_rollback={COMMIT: 8, ROLLBACK: 12, UNKNOWN: 0}[state],
        msg_id=message.unique_key,
        topic="orders",
        from_transaction_check=False,
        transaction_id=message.unique_key,
        bname="broker-a",
    )


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
def test_a_delay_is_refused(broker, listener, producer, name):
    """As in RocketMQ's client 5.5: a broker would forget the delay or the transaction."""
    message = Message("orders", b"x", properties={name: "1"})
    with pytest.raises(ClientError, match=f"do not support delayed delivery: property {name} "):
        producer.send_in_transaction(message)
    assert not listener.executed
    assert not broker.server.asked(RequestCode.SEND_MESSAGE_V2)


def test_what_the_listener_raises_is_unknown(broker, listener, producer):
    listener.outcome = ValueError("no database")
    result = producer.send_in_transaction(Message("orders", b"x"))
    assert result.local_transaction_state is UNKNOWN
    assert result.local_error is listener.outcome
    assert ended(broker).commit_or_rollback == 0


@pytest.mark.parametrize(("outcome", "error"), [(None, type(None)), ("commit", TypeError)])
def test_what_is_no_state_is_unknown(broker, listener, producer, outcome, error):
    listener.outcome = outcome
    result = producer.send_in_transaction(Message("orders", b"x"))
    assert result.local_transaction_state is UNKNOWN
    assert type(result.local_error) is error


def test_no_transaction_runs_for_what_is_not_safe(broker, listener, producer):
    broker.status = ResponseCode.SLAVE_NOT_AVAILABLE
    result = producer.send_in_transaction(Message("orders", b"x"))
    assert result.local_transaction_state is ROLLBACK
    assert listener.executed == []
    assert ended(broker).commit_or_rollback == 12


def test_no_transaction_runs_for_what_was_not_sent(broker, listener, producer):
    broker.codes = [2] * 3
    with pytest.raises(SendFailedError):
        producer.send_in_transaction(Message("orders", b"x"))
    assert listener.executed == []
    assert broker.server.asked(RequestCode.END_TRANSACTION) == []


def test_an_outcome_that_cannot_be_told_is_no_error(cluster, broker, listener, producer):
    listener.execute_local_transaction = lambda *_: broker.server.stop() or COMMIT
    result = producer.send_in_transaction(Message("orders", b"x"))
    assert result.local_transaction_state is COMMIT


def check_request(key: str = "KEY", group: str = "tg") -> RemotingCommand:
    properties = {"PGROUP": group, "UNIQ_KEY": key, "TRAN_MSG": "true"}
    record = encode_message(
        topic=b"orders",
        body=b"half",
        properties_raw=properties_to_bytes(properties.items()),
        queue_id=0,
        queue_offset=7,
        commit_log_offset=4711,
        born_timestamp=1,
        store_timestamp=2,
        born_host=bytes(8),
        store_host=bytes([127, 0, 0, 1, 0, 0, 42, 159]),
    )
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=70,
        commit_log_offset=4711,
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        msg_id=key,
        transaction_id=key,
        bname="broker-a",
    )
    return RemotingCommand.request(header, record)


@pytest.mark.parametrize(
    ("outcome", "told"), [(COMMIT, 8), (ROLLBACK, 12), (UNKNOWN, 0), (ValueError("?"), 0), (1, 0)]
)
def test_the_broker_asks_and_is_told(broker, listener, producer, outcome, told):
    producer.send(Message("orders", b"x"))  # so that there is a connection
    listener.checked_outcome = outcome
    broker.server.tell_clients(check_request())
    assert ended(broker) == EndTransactionRequestHeader(
        producer_group="tg",
        tran_state_table_offset=70,
        commit_log_offset=4711,
        commit_or_rollback=told,
        msg_id="KEY",
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        from_transaction_check=True,
        transaction_id="KEY",
        bname="broker-a",
    )
    ((message, thread),) = listener.checked
    assert (message.body, message.unique_key) == (b"half", "KEY")
    assert "listener" in thread


def test_a_check_that_waits_does_not_hold_up_sending(broker, listener, producer):
    producer.send(Message("orders", b"x"))
    asked, may_answer = threading.Event(), threading.Event()

    def check(message):
        asked.set()
        assert may_answer.wait(10)
        return COMMIT

    listener.check_local_transaction = check
    broker.server.tell_clients(check_request())
    assert asked.wait(10)
    producer.send(Message("orders", b"y"))
    assert broker.server.asked(RequestCode.END_TRANSACTION) == []
    may_answer.set()
    assert ended(broker).commit_or_rollback == 8


def test_checks_that_wait_do_not_hold_up_replies(broker, listener, producer):
    producer.send(Message("orders", b"x"))
    may_answer = threading.Event()
    listener.check_local_transaction = lambda _: COMMIT if may_answer.wait(10) else None
    for _ in range(8):  # more than the client has threads for
        broker.server.tell_clients(check_request())
    assert broker.server.ask_client(pushed("nobody's", b"x")).code == ResponseCode.SUCCESS
    may_answer.set()
    assert ended(broker, 8).commit_or_rollback == 8


def test_another_group_is_not_answered_for(broker, listener, producer):
    producer.send(Message("orders", b"x"))
    broker.server.tell_clients(check_request(group="other"))
    broker.server.tell_clients(check_request("MINE"))
    assert ended(broker).msg_id == "MINE"
    assert [message.unique_key for message, _ in listener.checked] == ["MINE"]


def test_a_plain_producer_does_not_answer(cluster, broker, caplog):
    with Producer("tg", cluster.namesrv_addr) as producer:
        producer.send(Message("orders", b"x"))
        broker.server.tell_clients(check_request())
        producer.send(Message("orders", b"y"))
    assert "it is not a TransactionProducer" in caplog.text
    assert broker.server.asked(RequestCode.END_TRANSACTION) == []
