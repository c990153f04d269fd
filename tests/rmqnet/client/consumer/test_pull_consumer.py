# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from rmqnet import (
    BrokerError,
    ClientError,
    ClientInstance,
    ConsumeFromWhere,
    MessageQueue,
    PullConsumer,
    PullConsumerOptions,
    TopicNotFoundError,
)
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.client.consumer.scripted_queues import ScriptedQueues
from tests.rmqnet.scripted_cluster import answer, wait_until

DEADLINE_S = 10.0


@contextmanager
def pulling(broker: ScriptedQueues, **options: Any) -> Iterator[PullConsumer]:
    options.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    options.setdefault("pull_retry_delay_ms", 20)
    consumer = PullConsumer(
        "group", broker.cluster.namesrv_addr, options=PullConsumerOptions(**options)
    )
    with consumer:
        yield consumer


def _numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def _bodies(consumer: PullConsumer, count: int, step: int = 7) -> list[bytes]:
    """Return the bodies of so many messages, polled in small steps."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        polled = consumer.poll(min(step, count - len(bodies)), timeout_s=DEADLINE_S)
        assert polled, f"{len(bodies)} of {count} messages came"
        assert len(polled) <= step
        bodies += [each.body for each in polled]
    return bodies


def test_all_queues_at_once_and_where_they_are(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(50))
    broker.put("orders", 1, *_numbers(20))
    with pulling(broker) as consumer:
        queues = consumer.queues_of("orders")
        assert queues == broker.queues("orders", 2)
        consumer.assign(queues)
        assert consumer.assignment == queues
        assert consumer.committed(queues[0]) is None
        assert Counter(_bodies(consumer, 70)) == Counter(_numbers(50) + _numbers(20))
        assert [consumer.position(each) for each in queues] == [50, 20]
        assert broker.committed("group", "orders") == {}
        consumer.commit(queues[0])
        assert broker.committed("group", "orders") == {0: 50}
        consumer.commit()
        assert broker.committed("group", "orders") == {0: 50, 1: 20}
        assert consumer.committed(queues[1]) == 20
        assert consumer.poll(5, timeout_s=0.05) == []
        broker.put("orders", 1, b"new")
        (message,) = consumer.poll(5, timeout_s=DEADLINE_S)
        assert (message.body, message.queue_id, message.queue_offset) == (b"new", 1, 20)
    first = broker.server.asked(RequestCode.PULL_MESSAGE)[0].ext_fields
    assert (first["sysFlag"], first["subscription"], first["subVersion"]) == ("6", "*", "0")
    assert (first["suspendTimeoutMillis"], first["commitOffset"]) == ("20000", "0")
    assert broker.members["group"] == []


def test_in_order_and_in_turns(broker: ScriptedQueues) -> None:
    for queue_id in (0, 1):
        broker.put("orders", queue_id, *_numbers(200))
    offsets: dict[int, list[int]] = {0: [], 1: []}
    with pulling(broker) as consumer:
        consumer.assign(consumer.queues_of("orders"))
        while sum(map(len, offsets.values())) < 400:
            for each in consumer.poll(10, timeout_s=DEADLINE_S):
                offsets[each.queue_id].append(each.queue_offset)
    assert offsets == {0: list(range(200)), 1: list(range(200))}


def test_only_what_poll_returned_is_committed(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(50))
    (queue,) = broker.queues("orders", 1)
    with pulling(broker) as consumer:
        consumer.assign([queue])
        _bodies(consumer, 10)
        assert consumer.position(queue) == 10
        consumer.commit()
        assert broker.committed("group", "orders") == {0: 10}
    with pulling(broker) as consumer:
        consumer.assign([queue])
        assert _bodies(consumer, 40) == _numbers(50)[10:]


def test_the_first_offset_of_a_topic_is_noted_before_the_others(broker: ScriptedQueues) -> None:
    """A RocketMQ broker can lose one of two concurrent offsets of a group that is new to it."""
    commits = broker.slow_commits("orders")
    queues = broker.queues("orders", 3)
    with pulling(broker) as consumer:
        consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, 0)
        consumer.commit()
        assert broker.committed("group", "orders") == {0: 0, 1: 0, 2: 0}
    assert commits.begun_when_answered[0] == 1
    assert commits.begun == 3


def test_seek(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(100))
    (queue,) = broker.queues("orders", 1)
    third = broker.messages("orders")[3].store_timestamp
    with pulling(broker) as consumer:
        consumer.assign([queue])
        _bodies(consumer, 5)
        consumer.seek(queue, 90)
        assert _bodies(consumer, 10) == _numbers(100)[90:]
        consumer.seek_to_begin()
        assert _bodies(consumer, 2) == [b"0", b"1"]
        consumer.seek_to_time(third, queue)
        assert consumer.position(queue) == 3
        assert _bodies(consumer, 1) == [b"3"]
        consumer.seek_to_end(queue)
        assert consumer.position(queue) == 100
        broker.put("orders", 0, b"new")
        assert _bodies(consumer, 1) == [b"new"]
        assert (consumer.begin_offset(queue), consumer.end_offset(queue)) == (0, 101)
        assert consumer.offset_of_time(queue, third) == 3
        with pytest.raises(ClientError, match="queue 1 of topic orders on broker broker-a is not"):
            consumer.seek(MessageQueue("orders", "broker-a", 1), 0)


def test_assigned_anew_the_others_go_on(broker: ScriptedQueues) -> None:
    for queue_id in (0, 1):
        broker.put("orders", queue_id, *_numbers(10))
    first, second = broker.queues("orders", 2)
    with pulling(broker) as consumer:
        consumer.assign([first])
        _bodies(consumer, 4)
        consumer.assign([first, second])
        assert Counter(_bodies(consumer, 16)) == Counter(_numbers(10) + _numbers(10)[4:])
        consumer.assign([second])
        assert consumer.assignment == [second]
        broker.put("orders", 0, b"nobody's")
        assert consumer.poll(1, timeout_s=0.05) == []


def test_paused(broker: ScriptedQueues) -> None:
    for queue_id in (0, 1):
        broker.put("orders", queue_id, *_numbers(5))
    first, second = broker.queues("orders", 2)
    with pulling(broker) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert {each.queue_id for each in consumer.poll(5, timeout_s=DEADLINE_S)} == {1}
        assert consumer.poll(5, timeout_s=0.05) == []
        consumer.seek_to_begin(first)
        assert consumer.poll(5, timeout_s=0.05) == []
        consumer.resume()
        assert _bodies(consumer, 5) == _numbers(5)


def test_no_further_ahead_than_told(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(500))
    (queue,) = broker.queues("orders", 1)
    with pulling(broker, read_ahead_messages=40) as consumer:
        consumer.assign([queue])
        broker.server.wait_for(RequestCode.PULL_MESSAGE, 2)
        wait_until(lambda: len(consumer._reads[queue]._messages) == 64, "two pulls")
        assert len(broker.server.asked(RequestCode.PULL_MESSAGE)) == 2
        assert _bodies(consumer, 500) == _numbers(500)


def test_tags_and_sql(broker: ScriptedQueues) -> None:
    for tag in ("Aa", "BB"):
        broker.put("orders", 0, tag.encode(), properties={"TAGS": tag})
    (queue,) = broker.queues("orders", 1)
    with pulling(broker) as consumer:
        consumer.assign([queue], "BB")
        assert _bodies(consumer, 1) == [b"BB"]
        consumer.assign([queue], sql="a > 1")
        assert _bodies(consumer, 2) == [b"Aa", b"BB"], "an expression is the broker's work"
        fields = broker.server.asked(RequestCode.PULL_MESSAGE)[-1].ext_fields
        assert (fields["expressionType"], fields["subscription"]) == ("SQL92", "a > 1")
        broker.server.answers[RequestCode.CHECK_CLIENT_CONFIG] = lambda request: answer(
            request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "what?"
        )
        with pytest.raises(BrokerError, match=r"what\?"):
            consumer.assign([queue], sql="a >")


def test_where_nothing_is_wanted_it_goes_on(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(5))
    (queue,) = broker.queues("orders", 1)
    with pulling(broker) as consumer:
        consumer.assign([queue], "other")
        wait_until(lambda: consumer.position(queue) == 5, "its end")
        consumer.commit()
        assert broker.committed("group", "orders") == {0: 5}


def test_an_offset_that_is_gone(broker: ScriptedQueues, caplog: pytest.LogCaptureFixture) -> None:
    broker.first_offsets["orders", 0] = 100
    broker.put("orders", 0, *_numbers(3))
    (queue,) = broker.queues("orders", 1)
    with pulling(broker) as consumer:
        consumer.assign([queue])
        consumer.seek(queue, 40)
        assert _bodies(consumer, 3) == _numbers(3)
    assert "has no offset 40 (it has 100 to 103): continuing at 100" in caplog.text


def test_what_fails_is_tried_again(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, b"x")
    for code in (RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET):
        good, times = broker.server.answers[code], iter(range(2))

        def answered(
            request: RemotingCommand, good: Any = good, times: Iterator[int] = times
        ) -> Any:
            if next(times, None) is None:
                return good(request)
            return answer(request, ResponseCode.SYSTEM_BUSY, "wait")

        broker.server.answers[code] = answered
    with pulling(broker) as consumer:
        consumer.assign(broker.queues("orders", 1))
        assert _bodies(consumer, 1) == [b"x"]


def test_shut_down_while_somebody_polls(broker: ScriptedQueues) -> None:
    consumer = PullConsumer("group", broker.cluster.namesrv_addr).start()
    consumer.assign(broker.queues("orders", 2))
    broker.server.wait_for(RequestCode.PULL_MESSAGE, 2)
    polled: list[Any] = []
    thread = threading.Thread(target=lambda: polled.append(consumer.poll(1, timeout_s=60)))
    thread.start()
    consumer.shutdown()
    thread.join(DEADLINE_S)
    assert polled == [[]]
    for use in (consumer.poll, consumer.commit, consumer.start):
        with pytest.raises(ClientError, match="was shut down"):
            use()


def test_used_wrongly(broker: ScriptedQueues) -> None:
    with pytest.raises(ClientError, match="is not started"):
        PullConsumer("group", broker.cluster.namesrv_addr).poll()
    with pytest.raises(ClientError, match="read_ahead_bytes=-1: must be 0 or more"):
        PullConsumerOptions(read_ahead_bytes=-1)
    with pulling(broker) as consumer, pytest.raises(TopicNotFoundError, match="nothing"):
        consumer.queues_of("nothing")


def test_what_brokers_ask(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(10))
    (queue,) = broker.queues("orders", 1)
    with pulling(broker) as consumer:
        consumer.assign([queue])
        _bodies(consumer, 10)
        status = broker.server.ask_client(
            RemotingCommand(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "orders", "group": "group"}
            )
        )
        assert b'"queueId":0}:10' in status.body
        fields = {"consumerGroup": "group", "clientId": consumer.client_id}
        shown = broker.server.ask_client(
            RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        )
        assert b'"PROP_CONSUME_TYPE":"CONSUME_ACTIVELY"' in shown.body
        direct = broker.server.ask_client(
            RemotingCommand(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                {**fields, "brokerName": "broker-a"},
                broker.records["orders", 0][2],
            )
        )
        assert direct.code == ResponseCode.SYSTEM_ERROR
        broker.server.tell_clients(
            RemotingCommand(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                {"topic": "orders", "group": "group", "timestamp": "0", "isForce": "true"},
                b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:8}}',
            )
        )
        assert _bodies(consumer, 2) == [b"8", b"9"]


def test_what_is_sought_can_be_committed_at_once(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(20))
    (queue,) = broker.queues("orders", 1)
    with pulling(broker) as consumer:
        consumer.assign([queue])
        for offset in (7, 3):
            consumer.seek(queue, offset)
            consumer.commit(queue)
            assert broker.committed("group", "orders") == {0: offset}
        consumer.seek_to_end()
        consumer.commit()
        assert broker.committed("group", "orders") == {0: 20}
        consumer.seek_to_begin()
        consumer.commit()
        assert broker.committed("group", "orders") == {0: 0}


def test_what_comes_while_it_commits_is_not_committed(broker: ScriptedQueues) -> None:
    """Messages arrive after the waiting messages were checked, and before the offset is read."""
    (queue,) = broker.queues("orders", 1)

    class Late(deque):  # type: ignore[type-arg]
        def __bool__(self) -> bool:
            had = len(self) > 0
            if not had and threading.current_thread() is threading.main_thread():
                broker.put("orders", 0, b"late")
                with suppress(AssertionError):  # it must not come now
                    wait_until(lambda: len(self) > 0, "the message", 0.2)
            return had

    with pulling(broker) as consumer:
        consumer.assign([queue])
        assert consumer.position(queue) == 0
        consumer._reads[queue]._messages = Late()
        consumer.commit()
        assert broker.committed("group", "orders") == {0: 0}


def test_assigned_and_sought_in_several_threads(broker: ScriptedQueues) -> None:
    broker.cluster.add_topic("others", queues={"broker-a": 2})
    topics = {name: broker.queues(name, 2) for name in ("orders", "others")}
    errors: list[BaseException] = []

    def assign(consumer: PullConsumer, queues: list[MessageQueue]) -> None:
        try:
            for number in range(20):
                consumer.assign(queues, f"tag{number}")
                with suppress(ClientError):  # not assigned just now
                    consumer.seek(queues[0], 0)
        except BaseException as err:
            errors.append(err)

    with pulling(broker) as consumer:
        threads = [
            threading.Thread(target=assign, args=(consumer, queues)) for queues in topics.values()
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(DEADLINE_S)
        assert errors == []
        assert consumer.assignment in list(topics.values())
        assert consumer._tasks.keys() == set(consumer.assignment)


def test_a_client_that_others_share(broker: ScriptedQueues) -> None:
    broker.put("orders", 0, *_numbers(5))
    (queue,) = broker.queues("orders", 1)
    with ClientInstance(broker.cluster.namesrv_addr) as client:
        for _ in range(2):
            options = PullConsumerOptions(
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            )
            with PullConsumer("group", client, options=options) as consumer:
                consumer.assign([queue])
                assert _bodies(consumer, 5) == _numbers(5)
                with pytest.raises(ClientError, match="already"):
                    PullConsumer("group", client).start()
                assert broker.members["group"] == [client.client_id]
            assert broker.members["group"] == []
        assert client.is_running
