# SPDX-License-Identifier: Apache-2.0
"""A consumer against a scripted broker; RocketMQ's own brokers are in tests/interop."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqnet import (
    BrokerError,
    ClientConfig,
    ClientError,
    ClientInstance,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageModel,
    MessageQueue,
    PushConsumer,
    PushConsumerOptions,
)
from rmqnet.client.consumer import consumption
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.layout import COMPRESSED_FLAG
from tests.rmqnet.client.consumer.scripted_queues import ScriptedQueues
from tests.rmqnet.scripted_cluster import answer, wait_until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
DEADLINE_S = 10.0


class Recorder:
    """A listener that records messages; ``fails`` says for which of them it returns False."""

    def __init__(self, fails: Any = lambda message: False) -> None:
        self.messages: list[Message] = []
        self.contexts: list[ConsumeContext] = []
        self.sizes: list[int] = []
        self._fails = fails
        self._guard = threading.Lock()

    def __call__(self, messages: list[Message], context: ConsumeContext) -> bool | None:
        with self._guard:
            self.messages += messages
            self.contexts.append(context)
            self.sizes.append(len(messages))
        return False if any(map(self._fails, messages)) else None

    @property
    def bodies(self) -> Counter[bytes]:
        return Counter(each.body for each in self.messages)

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.messages) >= count, f"{count} messages for the listener")


@contextmanager
def consuming(
    broker: ScriptedQueues, listener: Any, *, tags: str = "*", orderly: bool = False, **options: Any
) -> Iterator[PushConsumer]:
    options.setdefault("consume_from_where", FIRST)
    options.setdefault("pull_retry_delay_ms", 20)
    options.setdefault("rebalance_interval_ms", 200)
    consumer = PushConsumer(
        "group",
        ClientConfig(broker.cluster.namesrv_addr, persist_consumer_offset_interval_ms=50),
        listener,
        orderly=orderly,
        options=PushConsumerOptions(**options),
    )
    consumer.subscribe("orders", tags)
    with consumer:
        yield consumer


def _numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_every_message_once_and_the_offsets(broker: ScriptedQueues) -> None:
    bodies = _numbers(100)
    broker.put("orders", 0, *bodies[:70])
    listener = Recorder()
    with consuming(broker, listener) as consumer:
        listener.wait(70)
        broker.put("orders", 1, *bodies[70:])
        listener.wait(100)
        assert consumer.queues == [
            MessageQueue("%RETRY%group", "broker-a", 0),
            *broker.queues("orders", 2),
        ]
        wait_until(
            lambda: broker.committed("group", "orders") == {0: 70, 1: 30}, "offsets while it runs"
        )
        broker.put("orders", 1, b"last")
        listener.wait(101)
    assert listener.bodies == Counter([*bodies, b"last"])
    assert set(listener.sizes) == {1}
    assert broker.committed("group", "orders") == {0: 70, 1: 31}
    assert broker.members["group"] == []
    message = next(each for each in listener.messages if each.body == b"0")
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 0, 0)
    assert (message.unique_key, message.reconsume_times) == ("orders/0/0", 0)
    assert message.store == f"broker-a@{broker.server.address}"


def test_what_is_asked_and_in_which_order(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, b"x")
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(1)
        wait_until(lambda: broker.committed("group", "orders").get(0) == 1, "the offset")
        broker.put("orders", 0, b"y")
        broker.server.wait_for(RequestCode.PULL_MESSAGE, 5)
    codes = [request.code for request in broker.server.requests]
    firsts = (
        RequestCode.HEART_BEAT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.PULL_MESSAGE,
    )
    places = [codes.index(code) for code in firsts]
    assert places == sorted(places)
    assert codes[-2:] == [RequestCode.UNREGISTER_CLIENT] * 2
    assert broker.server.requests[-2].ext_fields["consumerGroup"] == "group"
    assert broker.server.requests[-1].ext_fields["producerGroup"] == "CLIENT_INNER_PRODUCER"
    pulls = [
        request.ext_fields
        for request in broker.server.asked(RequestCode.PULL_MESSAGE)
        if request.ext_fields["topic"] == "orders" and request.ext_fields["queueId"] == "0"
    ]
    first = pulls[0]
    assert "subscription" not in first
    assert (first["sysFlag"], first["commitOffset"], first["suspendTimeoutMillis"]) == (
        "2",
        "-1",
        "15000",
    )
    assert (first["maxMsgNums"], first["maxMsgBytes"], first["bname"]) == (
        "32",
        "262144",
        "broker-a",
    )
    assert first["expressionType"] == "TAG"
    assert {("3", "1"), ("3", "2")} & {(each["sysFlag"], each["commitOffset"]) for each in pulls}
    heartbeats = [json.loads(each.body) for each in broker.server.asked(RequestCode.HEART_BEAT)]
    announced = {
        int(each["subVersion"])
        for heartbeat in heartbeats
        for data in heartbeat["consumerDataSet"]
        for each in data["subscriptionDataSet"]
        if each["topic"] == "orders"
    }
    assert {int(each["subVersion"]) for each in pulls} <= announced, "brokers know what is pulled"


def test_what_fails_comes_again_with_its_topic(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(10))
    listener = Recorder(lambda message: message.body == b"3" and message.reconsume_times < 2)
    with consuming(broker, listener):
        listener.wait(12)
        wait_until(lambda: broker.committed("group", "%RETRY%group") == {0: 2}, "the offset")
    assert listener.bodies == Counter([*_numbers(10), b"3", b"3"])
    again = [each for each in listener.messages if each.body == b"3"]
    assert [each.reconsume_times for each in again] == [0, 1, 2]
    assert {each.topic for each in again} == {"orders"}
    first, second = broker.server.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert first.ext_fields == {
        "offset": str(again[0].commit_log_offset),
        "group": "group",
        "delayLevel": "0",
        "originMsgId": "orders/0/3",
        "originTopic": "orders",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
        "bname": "broker-a",
    }
    assert second.ext_fields["offset"] == str(again[1].commit_log_offset)
    assert broker.committed("group", "orders")[0] == 10


def test_exceptions_and_odd_answers_are_failures(
    broker: ScriptedQueues, caplog: pytest.LogCaptureFixture
) -> None:
    broker.put("orders", 0, b"raises", b"exits", b"odd", b"good")

    def listener(messages: list[Message], context: ConsumeContext) -> Any:
        body = messages[0].body
        if messages[0].reconsume_times or body == b"good":
            return True
        if body == b"raises":
            raise ValueError("not today")
        if body == b"exits":
            raise SystemExit(3)
        return "maybe"

    with consuming(broker, listener):
        wait_until(lambda: broker.committed("group", "%RETRY%group") == {0: 3}, "three retries")
    assert "not today" in caplog.text
    assert "the listener returned 'maybe'" in caplog.text
    assert len(broker.server.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 3


def test_part_of_a_batch_and_a_level(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(8))
    sizes: list[int] = []

    def listener(messages: list[Message], context: ConsumeContext) -> None:
        if not messages[0].reconsume_times:  # those sent back may arrive before the second batch
            sizes.append(len(messages))
            context.ack_index = 1
            context.delay_level_when_next_consume = -1

    with consuming(broker, listener, consume_message_batch_max_size=4):
        backs = broker.server.wait_for(RequestCode.CONSUMER_SEND_MSG_BACK, 4)
        wait_until(lambda: broker.committed("group", "orders").get(0) == 8, "the offset")
    assert sizes == [4, 4]
    ids = {each.ext_fields["originMsgId"] for each in backs}
    assert ids == {f"orders/0/{number}" for number in (2, 3, 6, 7)}
    assert {each.ext_fields["delayLevel"] for each in backs} == {"-1"}


def test_not_taken_back_it_is_sent_anew(broker: ScriptedQueues) -> None:
    packed = zlib.compress(b"compressed " * 500)
    broker.put("orders", 0, packed, properties={"KEYS": "k"}, sys_flag=COMPRESSED_FLAG)
    broker.server.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: answer(
        request, ResponseCode.SYSTEM_ERROR, "no"
    )
    listener = Recorder(lambda message: not message.reconsume_times)
    with consuming(broker, listener):
        listener.wait(1)
        (sent,) = broker.server.wait_for(RequestCode.SEND_MESSAGE_V2)
        wait_until(lambda: broker.committed("group", "orders").get(0) == 1, "the offset")
    fields = sent.ext_fields
    assert (fields["a"], fields["b"]) == ("CLIENT_INNER_PRODUCER", "%RETRY%group")
    assert (fields["j"], fields["l"], fields["f"]) == ("1", "16", "1")
    assert zlib.decompress(sent.body) == b"compressed " * 500
    properties = dict(part.split("\x01") for part in fields["i"].split("\x02") if part)
    assert properties == {
        "UNIQ_KEY": "orders/0/0",
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "orders/0/0",
        "RETRY_TOPIC": "orders",
        "RECONSUME_TIME": "1",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "3",
    }


@pytest.mark.parametrize(("level", "times", "delay"), [(-1, "17", "3"), (7, "1", "7")])
def test_sent_anew_it_comes_when_the_listener_said(
    broker: ScriptedQueues, level: int, times: str, delay: str
) -> None:
    broker.put("orders", 0, b"x")
    broker.server.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: answer(
        request, ResponseCode.SYSTEM_ERROR, "no"
    )

    def listener(messages: list[Message], context: ConsumeContext) -> bool:
        context.delay_level_when_next_consume = level
        return messages[0].reconsume_times > 0

    with consuming(broker, listener):
        (sent,) = broker.server.wait_for(RequestCode.SEND_MESSAGE_V2)
    fields = sent.ext_fields
    assert fields["j"] == times, "brokers put aside what was tried more than 16 times"
    assert f"DELAY\x01{delay}\x02" in fields["i"]


def test_nobody_takes_it_it_is_tried_again_here(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_AGAIN_HERE_MS", 20)
    broker.put("orders", 0, *_numbers(4))
    for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
        broker.server.answers[code] = lambda request: answer(
            request, ResponseCode.SYSTEM_BUSY, "no"
        )
    listener = Recorder(lambda message: message.body == b"2" and message.reconsume_times < 3)
    with consuming(broker, listener):
        listener.wait(7)
        wait_until(lambda: broker.committed("group", "orders").get(0) == 4, "the offset")
    assert [each.reconsume_times for each in listener.messages if each.body == b"2"][-1] == 3
    assert broker.committed("group", "%RETRY%group") == {}


def test_tags_exactly(broker: ScriptedQueues) -> None:
    # "Aa" and "BB" have the same hash: a broker passes both.
    for tag in ("Aa", "BB", "C"):
        broker.put("orders", 0, tag.encode(), properties={"TAGS": tag})
    broker.put("orders", 0, b"none")
    broker.put("orders", 1, b"Aa", properties={"TAGS": "Aa"})
    listener = Recorder()
    with consuming(broker, listener, tags="BB || C"):
        listener.wait(2)
        wait_until(
            lambda: broker.committed("group", "orders") == {0: 3, 1: 1},
            "offsets, also where nothing was wanted",
        )
    assert listener.bodies == Counter([b"BB", b"C"])
    heartbeat = json.loads(broker.server.asked(RequestCode.HEART_BEAT)[0].body)
    (data,) = heartbeat["consumerDataSet"]
    subscription = next(each for each in data["subscriptionDataSet"] if each["topic"] == "orders")
    assert subscription["tagsSet"] == ["BB", "C"]
    assert subscription["codeSet"] == [67, 2112]
    assert subscription["subString"] == "BB || C"


def test_sql_that_the_broker_refuses(broker: ScriptedQueues) -> None:
    broker.server.answers[RequestCode.CHECK_CLIENT_CONFIG] = lambda request: answer(
        request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "Encountered EOF"
    )
    consumer = PushConsumer("group", broker.cluster.namesrv_addr, Recorder())
    consumer.subscribe("orders", sql="a >")
    with pytest.raises(BrokerError, match="Encountered EOF"):
        consumer.start()
    (check,) = broker.server.asked(RequestCode.CHECK_CLIENT_CONFIG)
    data = json.loads(check.body)
    assert (data["group"], data["clientId"]) == ("group", consumer.client_id)
    assert data["subscriptionData"]["expressionType"] == "SQL92"
    assert data["subscriptionData"]["subString"] == "a >"
    assert data["subscriptionData"]["tagsSet"] == []
    with pytest.raises(ClientError, match="was shut down"):
        consumer.start()


@pytest.mark.parametrize(
    ("where", "begin"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, {b"new"}),
        (FIRST, {b"0", b"1", b"2", b"new"}),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, {b"1", b"2", b"new"}),
    ],
)
def test_where_a_new_group_begins(
    broker: ScriptedQueues, where: ConsumeFromWhere, begin: set[bytes]
) -> None:
    broker.put("orders", 0, *_numbers(3))
    broker.put("%RETRY%group", 0, b"0", reconsume_times=1)
    listener = Recorder()
    with consuming(broker, listener, consume_from_where=where, consume_timestamp_ms=1):
        broker.server.wait_for(RequestCode.PULL_MESSAGE, 3)
        broker.put("orders", 0, b"new")
        wait_until(lambda: broker.committed("group", "orders").get(0) == 4, "the offset")
    assert {each.body for each in listener.messages if not each.reconsume_times} == begin
    retried = [each for each in listener.messages if each.reconsume_times]
    assert len(retried) == (where is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)


def test_goes_on_where_the_group_was(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(5))
    broker.offsets["group", "orders", 0] = 3
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(2)
    assert listener.bodies == Counter([b"3", b"4"])


def test_broadcasting(broker: ScriptedQueues, tmp_path: Path) -> None:
    broker.put("orders", 0, *_numbers(5))
    broker.put("orders", 1, b"other")
    listeners = [Recorder(lambda message: message.body == b"2") for _ in range(2)]
    options = {
        "message_model": MessageModel.BROADCASTING,
        "offset_directory": tmp_path,
    }
    for listener in listeners:
        with consuming(broker, listener, **options) as consumer:
            listener.wait(6 if listener is listeners[0] else 1)
            path = tmp_path / consumer.client_id / "group" / "offsets.json"
            assert consumer.queues == broker.queues("orders", 2)
        text = path.read_text()
        assert '{"topic":"orders","brokerName":"broker-a","queueId":0}:5' in text
        broker.put("orders", 1, b"more")
    assert listeners[0].bodies == Counter([*_numbers(5), b"other"])
    assert listeners[1].bodies == Counter([b"more"]), "from the file on, and nothing again"
    codes = {request.code for request in broker.server.requests}
    assert not codes & {
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    }
    pulls = broker.server.asked(RequestCode.PULL_MESSAGE)
    assert {each.ext_fields["commitOffset"] for each in pulls} == {"0"}


def test_members_share_the_queues(broker: ScriptedQueues) -> None:
    with consuming(broker, Recorder()) as first:
        wait_until(lambda: len(first.queues) == 3, "all queues for one member")
        all_queues = first.queues
        with consuming(broker, Recorder()) as second:
            wait_until(
                lambda: sorted([len(first.queues), len(second.queues)]) == [1, 2],
                "queues shared out",
            )
            assert sorted(first.queues + second.queues) == all_queues
            smaller = min((first, second), key=lambda each: each.client_id)
            assert smaller.queues == [
                MessageQueue("%RETRY%group", "broker-a", 0),
                MessageQueue("orders", "broker-a", 0),
            ]
        wait_until(lambda: len(first.queues) == 3, "all queues for who is left")


def test_an_offset_that_is_gone(broker: ScriptedQueues) -> None:
    broker.first_offsets["orders", 0] = 100
    broker.put("orders", 0, *_numbers(3))
    broker.offsets["group", "orders", 0] = 40
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(3)
    assert listener.bodies == Counter(_numbers(3))
    assert broker.committed("group", "orders")[0] == 103


def test_no_more_than_may_wait_for_the_listener(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(300))
    go_on = threading.Event()
    seen: list[bytes] = []

    def listener(messages: list[Message], context: ConsumeContext) -> None:
        go_on.wait(DEADLINE_S)
        seen.append(messages[0].body)

    def pulls() -> list[RemotingCommand]:
        return [
            request
            for request in broker.server.asked(RequestCode.PULL_MESSAGE)
            if request.ext_fields["topic"] == "orders" and request.ext_fields["queueId"] == "0"
        ]

    with consuming(
        broker, listener, pull_threshold_for_queue=60, consume_thread_count=4
    ) as consumer:
        wait_until(lambda: len(pulls()) == 2, "as many pulls as may be")
        queue = next(
            each
            for each in consumer.running_info()["mqTable"].items()
            if each[0] == MessageQueue("orders", "broker-a", 0)
        )[1]
        assert 32 <= queue["cachedMsgCount"] <= 64
        assert len(pulls()) == 2
        go_on.set()
        wait_until(lambda: len(seen) == 300, "all messages")
    assert Counter(seen) == Counter(_numbers(300))


def test_a_listener_that_takes_too_long(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(3))
    go_on = threading.Event()
    seen: list[tuple[bytes, int]] = []

    def listener(messages: list[Message], context: ConsumeContext) -> bool:
        (message,) = messages
        seen.append((message.body, message.reconsume_times))
        if message.body == b"1" and not message.reconsume_times:
            go_on.wait(DEADLINE_S)
            return False
        return True

    with consuming(broker, listener, consume_timeout_ms=50, consume_thread_count=4):
        (back,) = broker.server.wait_for(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert back.ext_fields["delayLevel"] == "3"
        wait_until(lambda: (b"1", 1) in seen, "the message, tried again while the listener runs")
        wait_until(lambda: broker.committed("group", "orders").get(0) == 3, "the offset")
        go_on.set()
    assert len(broker.server.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1, "once, not twice"


def test_broadcasting_a_listener_that_never_returns(
    broker: ScriptedQueues, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other queues go on, and nothing is sent to a retry topic without readers."""
    broker.put("orders", 0, *_numbers(3))
    go_on = threading.Event()

    def listener(messages: list[Message], context: ConsumeContext) -> None:
        if messages[0].body == b"0":
            go_on.wait(DEADLINE_S)

    options = {"message_model": MessageModel.BROADCASTING, "offset_directory": tmp_path}
    with consuming(broker, listener, consume_timeout_ms=50, **options) as consumer:
        (queue,) = broker.queues("orders", 1)
        wait_until(lambda: consumer.consumer_offsets("orders").get(queue) == 3, "the offset")
        go_on.set()
    assert broker.server.asked(RequestCode.CONSUMER_SEND_MSG_BACK) == []
    assert "it is no longer waited for" in caplog.text


def test_pulls_that_fail_are_tried_again(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, b"x")
    good = broker.server.answers[RequestCode.PULL_MESSAGE]
    codes = iter([ResponseCode.SUBSCRIPTION_NOT_LATEST, ResponseCode.FLOW_CONTROL])

    def pull(request: RemotingCommand) -> Any:
        if request.ext_fields["topic"] != "orders" or request.ext_fields["queueId"] != "0":
            return good(request)
        code = next(codes, None)
        return good(request) if code is None else answer(request, code, "wait")

    broker.server.answers[RequestCode.PULL_MESSAGE] = pull
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(1)


def test_a_broker_that_forgot_the_group(broker: ScriptedQueues) -> None:
    """A restarted broker gets the group as soon as it answers that it does not know it."""
    good, heartbeats = broker.server.answers[RequestCode.PULL_MESSAGE], RequestCode.HEART_BEAT
    listener = Recorder()
    with consuming(broker, listener):
        broker.server.wait_for(RequestCode.PULL_MESSAGE, 3)
        known = len(broker.server.asked(heartbeats))

        def pull(request: RemotingCommand) -> Any:
            if len(broker.server.asked(heartbeats)) > known:
                return good(request)
            return answer(request, ResponseCode.SUBSCRIPTION_NOT_EXIST, "group info not exist")

        broker.server.answers[RequestCode.PULL_MESSAGE] = pull
        broker.put("orders", 0, b"x")  # the pull under way still brings it
        listener.wait(1)
        broker.put("orders", 0, b"y")
        listener.wait(2)
        assert len(broker.server.asked(heartbeats)) > known


def test_the_broker_names_a_slave(broker: ScriptedQueues) -> None:
    slave = broker.cluster.broker("broker-a", broker_id=1)
    slave.answers.update(broker.server.answers)
    broker.pulled_from = 1
    broker.put("orders", 0, b"x")
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(1)
        broker.put("orders", 0, b"y")
        listener.wait(2)
        slave.wait_for(RequestCode.PULL_MESSAGE, 2)
        wait_until(lambda: broker.committed("group", "orders").get(0) == 2, "the offset")
        broker.put("orders", 0, b"z")
        listener.wait(3)
    flags = {each.ext_fields["sysFlag"] for each in slave.asked(RequestCode.PULL_MESSAGE)}
    assert flags == {"2"}, "slaves note no offsets"
    assert slave.asked(RequestCode.UPDATE_CONSUMER_OFFSET) == []


def test_suspended_and_resumed(broker: ScriptedQueues) -> None:
    listener = Recorder()
    with consuming(broker, listener) as consumer:
        broker.server.wait_for(RequestCode.PULL_MESSAGE, 3)
        consumer.suspend()
        broker.put("orders", 0, b"x")  # the pull under way still brings it
        listener.wait(1)
        broker.put("orders", 0, b"y")
        wait_until(lambda: broker.committed("group", "orders").get(0) == 1, "the offset")
        assert listener.bodies == Counter([b"x"])
        consumer.resume()
        listener.wait(2)


def test_subscribed_and_unsubscribed_while_it_runs(broker: ScriptedQueues) -> None:
    broker.cluster.add_topic("bills", queues={"broker-a": 1})
    broker.put("bills", 0, b"bill")
    listener = Recorder()
    with consuming(broker, listener) as consumer:
        wait_until(lambda: len(consumer.queues) == 3, "the first topic's queues")
        consumer.subscribe("bills")
        listener.wait(1)
        consumer.unsubscribe("orders")
        wait_until(
            lambda: {each.topic for each in consumer.queues} == {"%RETRY%group", "bills"},
            "the queues of what is left",
        )
        with pytest.raises(ClientError, match="no tag"):
            consumer.subscribe("bills", "||")


def test_shut_down_while_the_listener_runs(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(5))
    begun, go_on = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def listener(messages: list[Message], context: ConsumeContext) -> None:
        begun.set()
        go_on.wait(DEADLINE_S)
        seen.append(messages[0].body)

    with consuming(broker, listener, consume_thread_count=1) as consumer:
        assert begun.wait(DEADLINE_S)
        ended = threading.Thread(target=consumer.shutdown)
        ended.start()
        wait_until(lambda: not consumer._threads._tasks, "nothing more to begin")
        go_on.set()
        ended.join(DEADLINE_S)
        assert not ended.is_alive()
    assert seen == [b"0"]
    assert broker.committed("group", "orders")[0] == 1


def test_shut_down_in_its_listener(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(5))
    consumers: list[PushConsumer] = []
    ended = threading.Event()

    def listener(messages: list[Message], context: ConsumeContext) -> None:
        consumers[0].shutdown()
        ended.set()

    consumer = PushConsumer(
        "group",
        broker.cluster.namesrv_addr,
        listener,
        options=PushConsumerOptions(consume_from_where=FIRST, consume_thread_count=1),
    )
    consumers.append(consumer)
    consumer.subscribe("orders")
    consumer.start()
    assert ended.wait(DEADLINE_S)
    wait_until(lambda: not broker.members["group"], "its leaving")


def test_what_brokers_ask(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(4))
    listener = Recorder()
    with consuming(broker, listener) as consumer:
        listener.wait(4)
        wait_until(
            lambda: consumer.consumer_offsets("orders").get(broker.queues("orders", 1)[0]) == 4, "4"
        )
        fields = {"consumerGroup": "group", "clientId": consumer.client_id}
        shown = broker.server.ask_client(
            RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        )
        text = shown.body.decode()
        assert '{"topic":"orders","brokerName":"broker-a","queueId":0}:{"commitOffset":4' in text
        assert '"PROP_CONSUMEORDERLY":"false"' in text
        assert '"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"' in text
        status = broker.server.ask_client(
            RemotingCommand(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "orders", "group": "group"}
            )
        )
        assert '{"topic":"orders","brokerName":"broker-a","queueId":0}:4' in status.body.decode()
        record = broker.records["orders", 0][2]
        direct = broker.server.ask_client(
            RemotingCommand(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "brokerName": "broker-a"}, record
            )
        )
        result = json.loads(direct.body)
        assert (result["consumeResult"], result["order"]) == ("CR_SUCCESS", False)
        assert listener.bodies[b"2"] == 2
        assert listener.contexts[-1].message_queue == broker.queues("orders", 1)[0]


def test_consumed_directly_it_may_fail(broker: ScriptedQueues) -> None:
    def listener(messages: list[Message], context: ConsumeContext) -> bool:
        if messages[0].body == b"raises":
            raise KeyError("x")
        return False

    consumer = PushConsumer("group", broker.cluster.namesrv_addr, listener, orderly=True)
    retried = Message("%RETRY%group", b"", properties={"RETRY_TOPIC": "orders"})
    assert consumer.consume_directly(retried, "broker-a")["consumeResult"] == "CR_LATER"
    assert retried.topic == "orders"
    result = consumer.consume_directly(Message("orders", b"raises"), "broker-a")
    assert (result["consumeResult"], result["order"]) == ("CR_THROW_EXCEPTION", True)
    assert result["remark"] == "KeyError: 'x'"


def test_offsets_reset_by_an_administrator(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(6))
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(6)
        table = '{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:4}'
        broker.server.tell_clients(
            RemotingCommand(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                {"topic": "orders", "group": "group", "timestamp": "0", "isForce": "true"},
                f'{{"offsetTable":{table}}}'.encode(),
            )
        )
        listener.wait(8)
        wait_until(lambda: broker.committed("group", "orders").get(0) == 6, "the offset")
    assert [each.body for each in listener.messages[6:]] == [b"4", b"5"]


def test_a_damaged_answer_is_tried_again_and_said(
    broker: ScriptedQueues, caplog: pytest.LogCaptureFixture
) -> None:
    broker.put("orders", 0, *_numbers(2))
    good, times = broker.server.answers[RequestCode.PULL_MESSAGE], iter(range(1))

    async def pull(request: RemotingCommand) -> RemotingCommand:
        response: RemotingCommand = await good(request)
        if response.body and next(times, None) is not None:
            response.body = response.body[:-1]
        return response

    broker.server.answers[RequestCode.PULL_MESSAGE] = pull
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(2)
    assert listener.bodies == Counter(_numbers(2))
    assert "damaged record" in caplog.text
    assert "queue 0 of topic orders on broker broker-a" in caplog.text


@pytest.mark.parametrize("group", ["", "a b", "x" * 256, "DEFAULT_CONSUMER", "ü"])
def test_no_group(group: str) -> None:
    with pytest.raises(ClientError, match="group"):
        PushConsumer(group, "127.0.0.1:1", Recorder())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"pull_batch_size": 0}, "pull_batch_size=0: must be 1 to 1024"),
        ({"pull_batch_size": 1.5}, r"pull_batch_size=1\.5: expected a whole number"),
        ({"await_termination_s": -1}, "await_termination_s=-1: must be 0 or more"),
        ({"await_termination_s": math.nan}, "await_termination_s=nan: must be 0 or more"),
        ({"await_termination_s": "1"}, "await_termination_s='1': expected a number"),
        (
            {"post_subscription_when_pull": 1},
            "post_subscription_when_pull=1: expected True or False",
        ),
        ({"consume_timestamp_ms": "now"}, "consume_timestamp_ms='now': expected a whole number"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ClientError, match=error):
        PushConsumerOptions(**options)


def test_times_before_1970_and_whole_seconds_are_good_options() -> None:
    options = PushConsumerOptions(consume_timestamp_ms=-1, await_termination_s=3)
    assert (options.consume_timestamp_ms, options.await_termination_s) == (-1, 3)


def test_started_twice(broker: ScriptedQueues) -> None:
    with consuming(broker, Recorder()) as consumer:
        with pytest.raises(ClientError, match="is already running"):
            consumer.start()
        consumer.shutdown()


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_may_do_as_it_likes_with_what_it_gets(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    """The listener removes messages from its list and replaces them: none is lost or stuck."""
    monkeypatch.setattr(consumption, "_AGAIN_HERE_MS", 10)
    broker.server.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda request: answer(
        request, ResponseCode.SYSTEM_ERROR, "no"
    )
    broker.put("orders", 0, *_numbers(12))
    seen: list[Any] = []

    def listener(messages: list[Message], context: ConsumeContext) -> None:
        failing = not messages[0].reconsume_times
        while messages:
            message = messages.pop()
            message.body = int(message.body)
            seen.append(message.body)
            message.properties["seen"] = 1  # not text: it cannot be sent
            context.suspend_current_queue_time_ms = None
        if failing:
            raise KeyError("the first time")

    batches = {"consume_message_batch_max_size": 5, "suspend_current_queue_time_ms": 10}
    with consuming(broker, listener, orderly=orderly, **batches):
        wait_until(lambda: broker.committed("group", "orders").get(0) == 12, "the offset")
    counts = Counter(seen)
    assert counts.keys() == set(range(12))
    assert min(counts.values()) == 2


def test_a_context_that_makes_no_sense(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_AGAIN_HERE_MS", 10)
    broker.put("orders", 0, b"x")
    seen: list[bytes] = []

    def listener(messages: list[Message], context: ConsumeContext) -> None:
        seen.append(messages[0].body)
        if len(seen) < 3:
            context.ack_index = "first"  # type: ignore[assignment]

    with consuming(broker, listener):
        wait_until(lambda: broker.committed("group", "orders").get(0) == 1, "the offset")
    assert seen == [b"x"] * 3


def test_a_body_that_cannot_be_inflated_stops_no_queue(
    broker: ScriptedQueues, caplog: pytest.LogCaptureFixture
) -> None:
    broker.put("orders", 0, b"before")
    broker.put("orders", 0, b"no zlib", sys_flag=COMPRESSED_FLAG)
    broker.put("orders", 0, b"after")
    listener = Recorder()
    with consuming(broker, listener):
        listener.wait(3)
    assert listener.bodies == Counter([b"before", b"no zlib", b"after"])
    assert "offset 1" in caplog.text


def test_a_newer_subscription_is_newer_whatever_the_clock_says(
    broker: ScriptedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consuming(broker, Recorder(), tags="a") as consumer:
        first = consumer._subscriptions["orders"].version
        monkeypatch.setattr("rmqnet.client.consumer.push_consumer._now_ms", lambda: 1)
        consumer.subscribe("orders", "b")
        second = consumer._subscriptions["orders"]
        assert (second.expression, second.version > first) == ("b", True)


def test_a_broker_that_does_not_answer_holds_up_no_other_queue(broker: ScriptedQueues) -> None:
    """All queues are given away in parallel, not each after another's time limit."""
    broker.cluster.add_topic("many", queues={"broker-a": 6})
    with consuming(broker, Recorder()) as consumer:
        consumer.subscribe("many")
        wait_until(lambda: len(consumer.queues) == 9, "all queues")
        for queue in consumer.queues:
            consumer._offsets.update(queue, 1, only_forward=True)
        consumer._client.call(consumer._offsets.persist(consumer.queues))  # else one is sent first
        waiting, all_wait = 0, asyncio.Event()
        good = broker.server.answers[RequestCode.UPDATE_CONSUMER_OFFSET]

        async def slow(request: RemotingCommand) -> Any:
            nonlocal waiting
            if request.is_oneway:  # as periodic commits are
                return good(request)
            waiting += 1
            if waiting == 6:
                all_wait.set()
            await asyncio.wait_for(all_wait.wait(), 30)
            return good(request)

        broker.server.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = slow
        consumer.unsubscribe("many")
        wait_until(lambda: len(consumer.queues) == 3, "the queues to be given away")
    assert all_wait.is_set()


def test_the_first_offset_of_a_topic_is_noted_before_the_others(broker: ScriptedQueues) -> None:
    """A RocketMQ broker can lose one of two concurrent offsets of a group that is new to it."""
    broker.cluster.add_topic("many", queues={"broker-a": 6})
    commits = broker.slow_commits("many")
    with consuming(broker, Recorder()) as consumer:
        consumer.subscribe("many")
        wait_until(lambda: len(consumer.queues) == 9, "all queues")
        for queue in consumer.queues:
            consumer._offsets.update(queue, 1, only_forward=True)
        consumer.unsubscribe("many")
        wait_until(lambda: len(consumer.queues) == 3, "the queues to be given away")
    assert broker.committed("group", "many") == dict.fromkeys(range(6), 1)
    assert commits.begun_when_answered[0] == 1


def test_consumers_that_share_a_client(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(20))
    listeners = [Recorder(), Recorder(lambda message: message.body == b"7")]
    options = PushConsumerOptions(
        consume_from_where=FIRST, rebalance_interval_ms=50, suspend_current_queue_time_ms=10
    )
    with ClientInstance(broker.cluster.namesrv_addr) as client:
        for round_number in (1, 2):
            consumers = [
                PushConsumer(f"group{n}", client, listener, orderly=n > 0, options=options)
                for n, listener in enumerate(listeners)
            ]
            for each in consumers:
                each.subscribe("orders")
                each.start()
            assert {each.client_id for each in consumers} == {client.client_id}
            for each in listeners:
                each.wait(7 * round_number)
            twice = PushConsumer("group0", client, Recorder())
            with pytest.raises(ClientError, match=r"already has .*group0"):
                twice.start()
            assert client.client_id in broker.members["group0"], "the first one stays a member"
            for each in consumers:
                each.shutdown()
            assert broker.members["group0"] == broker.members["group1"] == []
            assert broker.locks == {}
            pulls = len(broker.server.asked(RequestCode.PULL_MESSAGE))
            assert client.call(client.route("orders")).topic == "orders", "it goes on"
        assert not _threads("ConsumeMessageThread")
        client.call(asyncio.sleep(0.15))  # three intervals in which it would ask if it had left
        assert len(broker.server.asked(RequestCode.PULL_MESSAGE)) == pulls
        left = [each for each in client.call(_tasks()) if "client/consumer" in repr(each)]
        assert [each for each in left if "_after()" not in repr(each)] == []
    assert broker.committed("group0", "orders") == {0: 20}
    assert broker.committed("group1", "orders") == {0: 7}


async def _tasks() -> list[asyncio.Task[Any]]:
    return [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]


def _threads(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(name)]


def test_a_shared_client_that_ends_first(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, b"x")
    listener = Recorder()
    client = ClientInstance(broker.cluster.namesrv_addr).start()
    options = PushConsumerOptions(consume_from_where=FIRST)
    consumer = PushConsumer("group", client, listener, options=options)
    consumer.subscribe("orders")
    with consumer:
        listener.wait(1)
        client.shutdown()
    assert not _threads("ConsumeMessageThread")
