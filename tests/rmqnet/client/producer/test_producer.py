# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import collections
import math
import os
import pickle
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from rmqnet.client.client_instance import ClientInstance
from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.producer.message_batch import encoded_batch
from rmqnet.client.producer.producer import Producer
from rmqnet.client.send_result import SendStatus
from rmqnet.errors import (
    BrokerError,
    ClientError,
    RemotingConnectError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
    SendFailedError,
    SendTimeoutError,
    TopicNotFoundError,
)
from rmqnet.remoting.codes import RequestCode, ResponseCode
from store_core.message import Message
from tests.rmqnet.client.producer.scripted_brokers import (
    HOST,
    Hold,
    StoringBroker,
    sent_header,
    sent_properties,
    storing_brokers,
)
from tests.rmqnet.scripted_cluster import ScriptedCluster, success, wait_until

RETRIED = [1, 2, 14, 16, 17, 204, 205]


@pytest.fixture
def cluster():
    with ScriptedCluster() as cluster:
        yield cluster


@pytest.fixture
def broker(cluster):
    return storing_brokers(cluster, "broker-a")[0]


@pytest.fixture
def pair(cluster):
    return storing_brokers(cluster, "broker-a", "broker-b")


@pytest.fixture
def producer(cluster):
    with Producer("g", cluster.namesrv_addr) as producer:
        yield producer


def order(body: bytes = b"x", **more) -> Message:
    return Message("orders", body, **more)


class TestOneBroker:
    def test_a_message_is_sent_as_a_java_client_sends_it(self, broker, producer):
        before_ms = time.time_ns() // 1_000_000
        result = producer.send(order(b"body", tags="t", flag=5))
        (request,) = broker.server.asked(RequestCode.SEND_MESSAGE_V2)
        header = sent_header(request)
        assert before_ms <= header.born_timestamp <= time.time_ns() // 1_000_000
        assert set(request.ext_fields) == set("abcdefghijkmn")
        assert (header.producer_group, header.topic, header.default_topic) == (
            "g",
            "orders",
            "TBW102",
        )
        assert (header.default_topic_queue_nums, header.sys_flag, header.flag) == (4, 0, 5)
        assert (header.reconsume_times, header.unit_mode, header.batch) == (0, False, False)
        assert header.bname == "broker-a"
        assert request.body == b"body"
        assert result.status is SendStatus.SEND_OK
        assert result.message_id == sent_properties(request)["UNIQ_KEY"]
        assert result.offset_message_id == f"{HOST}{0:016X}"
        assert result.queue == MessageQueue("orders", "broker-a", header.queue_id)
        assert (result.queue_offset, result.region_id, result.trace_on) == (
            0,
            "DefaultRegion",
            True,
        )
        assert result.transaction_id == result.message_id

    def test_all_queues_are_used_in_turn(self, broker, producer):
        for _ in range(8):
            producer.send(order())
        ids = [sent_header(request).queue_id for request in broker.stored]
        assert sorted(ids) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert ids[:4] == ids[4:]

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
            (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
            (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        ],
    )
    def test_what_is_stored_less_safely_says_so(self, broker, producer, code, status):
        broker.status = code
        assert producer.send(order()).status is status
        assert producer.send_async(order()).result().status is status
        assert len(broker.stored) == 2

    def test_the_broker_may_choose_the_queue(self, broker, producer):
        broker.server.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: success(
            request, msgId="A", queueId=3, queueOffset=9
        )
        result = producer.send(order(), queue=MessageQueue("orders", "broker-a", -1))
        assert result.queue == MessageQueue("orders", "broker-a", 3)
        assert (result.queue_offset, result.transaction_id) == (9, None)

    def test_an_answer_without_its_fields_is_an_error_that_names_them(self, broker, producer):
        broker.server.answers[RequestCode.SEND_MESSAGE_V2] = success
        with pytest.raises(Exception, match="msgId is missing") as caught:
            producer.send(order())
        assert broker.server.address in str(caught.value)

    def test_a_message_sent_twice_keeps_its_id(self, broker, producer):
        message = order()
        assert producer.send(message).message_id == producer.send(message).message_id
        assert producer.send(order()).message_id != message.unique_key

    def test_delays_are_properties(self, broker, producer):
        producer.send(order(), delay_level=3)
        producer.send(order(), delay_ms=1500)
        producer.send(order(), deliver_at_ms=1_800_000_000_000)
        producer.send_async(order(), delay_level=2).result()
        sent = [sent_properties(request) for request in broker.stored]
        assert [each.get("DELAY") for each in sent] == ["3", None, None, "2"]
        assert sent[1]["TIMER_DELAY_MS"] == "1500"
        assert sent[2]["TIMER_DELIVER_MS"] == "1800000000000"
        with pytest.raises(ClientError, match="only one of delay_level"):
            producer.send(order(), delay_level=3, delay_ms=3)

    def test_long_bodies_are_compressed(self, broker, producer):
        producer.send(order(b"a" * 5000))
        (request,) = broker.stored
        assert sent_header(request).sys_flag == 0x301
        assert len(request.body) < 100

    def test_what_no_broker_takes_is_not_sent(self, broker, producer):
        for bad in (order(b""), Message("a b", b"x"), order(bytes(5 << 20)), order("text")):
            for send in (producer.send, producer.send_async, producer.send_oneway):
                with pytest.raises(ClientError):
                    send(bad)
        assert broker.server.requests == []

    def test_a_queue_of_another_topic_is_refused(self, broker, producer):
        queue = MessageQueue("other", "broker-a", 0)
        for send in (producer.send, producer.send_async, producer.send_oneway):
            with pytest.raises(ClientError, match="topic orders cannot be sent to queue 0 of"):
                send(order(), queue=queue)

    def test_a_key_leads_to_one_queue(self, broker, producer):
        queues = producer.publish_queues("orders")
        assert queues == [MessageQueue("orders", "broker-a", number) for number in range(4)]
        for key, queue_id in (("order-1", 2), ("order-42", 1), ("GydZG_", 0)):  # as Java chooses
            assert producer.send(order(), sharding_key=key).queue == queues[queue_id]
            assert (
                producer.send_async(order(), sharding_key=key).result().queue.queue_id == queue_id
            )

    @pytest.mark.parametrize("timeout_s", [math.inf, 1e300, 10**30])
    def test_any_time_may_be_given(self, broker, producer, timeout_s):
        producer.send(order(), timeout_s=timeout_s)
        producer.send_async(order(), timeout_s=timeout_s).result(10)
        assert producer.flush(timeout_s)
        assert len(broker.stored) == 2

    @pytest.mark.parametrize("timeout_s", ["3", math.nan, [1]])
    def test_what_is_no_time_is_refused_before_anything_is_sent(self, broker, producer, timeout_s):
        for send in (producer.send, producer.send_async, producer.request):
            with pytest.raises(ClientError, match="timeout_s: expected seconds"):
                send(order(), timeout_s=timeout_s)
        assert producer.flush(10)
        assert broker.stored == []

    def test_keys_are_text_and_go_without_a_queue(self, broker, producer):
        for send in (producer.send, producer.send_async, producer.send_oneway):
            with pytest.raises(ClientError, match="sharding_key: expected a string, not 7"):
                send(order(), sharding_key=7)
            with pytest.raises(ClientError, match="only one of queue and sharding_key"):
                send(order(), sharding_key="7", queue=MessageQueue("orders", "broker-a", 0))

    def test_an_error_that_should_not_be_ends_its_message_only(self, broker, producer, monkeypatch):
        producer.send(order())
        fields = producer._sender._headers.fields

        def fail_once(*arguments):
            monkeypatch.setattr(producer._sender._headers, "fields", fields)
            raise ZeroDivisionError

        monkeypatch.setattr(producer._sender._headers, "fields", fail_once)
        first, second = (producer.send_async(order()) for _ in range(2))
        with pytest.raises(ZeroDivisionError):
            first.result(10)
        assert second.result(10)

    def test_oneway_messages_ask_for_no_answer(self, broker, producer):
        producer.send_oneway(order(b"1"), sharding_key="order-1")
        producer.send_oneway(order(b"2"), delay_level=1)
        requests = broker.server.wait_for(RequestCode.SEND_MESSAGE_V2, 2)
        assert all(request.is_oneway for request in requests)
        assert sent_header(requests[0]).queue_id == 2
        assert producer.flush(10)

    def test_a_batch_is_one_request(self, broker, producer):
        messages = [order(b"%d" % number) for number in range(3)]
        result = producer.send_batch(messages)
        (request,) = broker.server.asked(RequestCode.SEND_BATCH_MESSAGE)
        assert sent_header(request).batch is True
        assert broker.bodies == [b"0", b"1", b"2"]
        assert result.message_id == ",".join(message.unique_key for message in messages)
        assert result.offset_message_id.count(",") == 2
        assert producer.send_batch_async(iter(messages)).result().message_id == result.message_id

    def test_a_batch_encoded_elsewhere_is_sent(self, broker, producer):
        made = producer._batch([order(b"1"), order(b"2")])
        batch = encoded_batch("orders", made.body, ["K1", "K2"], 1000)
        assert producer.send_batch(batch).message_id == "K1,K2"
        assert broker.bodies == [b"1", b"2"]


class TestFailures:
    @pytest.mark.parametrize("code", RETRIED)
    @pytest.mark.parametrize("kind", ["sync", "async"])
    def test_another_broker_is_asked_where_that_may_help(self, pair, producer, code, kind):
        for broker in pair:
            broker.codes = [code]
        send = producer.send if kind == "sync" else lambda m: producer.send_async(m).result()
        result = send(order(b"once"))
        bodies = [body for broker in pair for body in broker.bodies]
        assert bodies == [b"once"]
        assert sum(len(each.server.asked(RequestCode.SEND_MESSAGE_V2)) for each in pair) == 3
        assert result.status is SendStatus.SEND_OK

    def test_the_error_names_all_brokers_and_reasons(self, pair, producer):
        for broker in pair:
            broker.codes = [2, 2, 2]
        with pytest.raises(SendFailedError) as caught:
            producer.send(order())
        error = caught.value
        names = [attempt.broker_name for attempt in error.attempts]
        assert names[0] == names[2] != names[1]
        assert (error.topic, error.response_code) == ("orders", 2)
        for broker in pair:
            assert broker.server.address in str(error)
        assert "topic orders" in str(error)
        assert "in 3 tries" in str(error)
        assert "code 2, scripted" in str(error)
        assert isinstance(error.__cause__, BrokerError)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)

    def test_a_definite_refusal_is_not_tried_again(self, pair, producer):
        for broker in pair:
            broker.codes = [ResponseCode.MESSAGE_ILLEGAL]
        with pytest.raises(BrokerError, match="SEND_MESSAGE_V2 to topic orders with code 13"):
            producer.send(order())
        assert sum(len(each.server.asked(RequestCode.SEND_MESSAGE_V2)) for each in pair) == 1

    def test_a_signature_that_is_refused_is_not_tried_again(self, pair, producer):
        for broker in pair:
            broker.codes = [ResponseCode.SYSTEM_ERROR] * 3
            broker.remark = "org.apache.rocketmq.acl.common.AclException: Check signature failed"
        with pytest.raises(BrokerError, match="Check signature failed"):
            producer.send(order())
        assert sum(len(each.server.asked(RequestCode.SEND_MESSAGE_V2)) for each in pair) == 1

    def test_no_more_tries_than_set(self, cluster, pair):
        for broker in pair:
            broker.codes = [2] * 5
        settings = {"retry_times_when_send_failed": 0, "retry_times_when_send_async_failed": 4}
        with Producer("g", cluster.namesrv_addr, **settings) as producer:
            with pytest.raises(SendFailedError, match="in 1 tries"):
                producer.send(order())
            with pytest.raises(SendFailedError, match="in 5 tries"):
                producer.send_async(order()).result()

    def test_chosen_queues_have_one_try(self, pair, producer):
        queue = MessageQueue("orders", "broker-b", 1)
        pair[1].codes = [2, 2, 2, 2]
        for kind in (producer.send, lambda *a, **k: producer.send_async(*a, **k).result()):
            with pytest.raises(SendFailedError, match=r"in 1 tries.*broker-b"):
                kind(order(), queue=queue)
            with pytest.raises(SendFailedError, match=r"in 1 tries.*broker-b"):
                kind(order(), sharding_key=_key_of_broker_b())
        assert pair[0].server.asked(RequestCode.SEND_MESSAGE_V2) == []

    def test_a_stopped_broker_is_passed_over(self, pair, producer):
        for _ in range(4):
            producer.send(order())
        pair[0].server.stop()
        stored = len(pair[1].stored)
        for number in range(10):
            result = producer.send(order(b"%d" % number))
            assert result.queue.broker_name == "broker-b"
        assert pair[1].bodies[stored:] == [b"%d" % number for number in range(10)]

    def test_all_brokers_stopped(self, pair, producer):
        producer.send(order())
        for broker in pair:
            broker.server.stop()
        with pytest.raises(SendFailedError, match=r"cannot connect|ended|no attempt") as caught:
            producer.send(order())
        assert len(caught.value.attempts) == 3
        assert isinstance(caught.value.__cause__, RemotingConnectError)

    def test_a_broker_that_comes_back_is_used_again(self, broker, producer):
        producer.send(order(b"before"))
        broker.server.stop()
        with pytest.raises(SendFailedError):
            producer.send(order())
        broker.server.start()

        def sent() -> bool:
            try:
                producer.send(order(b"after"))
            except SendFailedError:
                return False
            return True

        wait_until(sent, "the broker takes messages again")
        assert broker.bodies == [b"before", b"after"]

    def test_a_connection_that_ends_before_the_answer(self, pair, producer):
        hold = Hold()
        pair[0].before = pair[1].before = hold
        future = producer.send_async(order(b"1"))
        wait_until(
            lambda: any(
                broker.server.requests[-1:] and broker.server.asked(310) for broker in pair
            ),
            "the message came",
        )
        asked = next(broker for broker in pair if broker.server.asked(310))
        other = pair[1 - pair.index(asked)]
        other.before = None
        asked.server.drop_connections()
        assert future.result(10).queue.broker_name == sent_header(other.stored[0]).bname
        hold.open()

    def test_the_time_is_for_all_tries(self, pair, producer):
        hold = Hold()
        pair[0].before = pair[1].before = hold
        with pytest.raises(SendTimeoutError, match="did not answer SEND_MESSAGE_V2 within") as late:
            producer.send(order(), timeout_s=0.3)
        assert sum(len(broker.server.asked(310)) for broker in pair) == 1
        assert isinstance(late.value, RemotingTimeoutError)
        with pytest.raises(SendTimeoutError):
            producer.send_async(order(), timeout_s=0.2).result()
        hold.open()

    def test_time_may_be_kept_for_another_broker(self, cluster, pair):
        hold = Hold()
        pair[0].before = hold
        settings = {"send_msg_max_timeout_per_request_ms": 150}
        with Producer("g", cluster.namesrv_addr, **settings) as producer:
            for _ in range(3):
                result = producer.send(order(), timeout_s=5)
                assert result.queue.broker_name == "broker-b"
        hold.open()

    def test_stored_but_not_safely_may_be_sent_elsewhere(self, cluster, pair):
        for broker in pair:
            broker.status = ResponseCode.SLAVE_NOT_AVAILABLE
        settings = {"retry_another_broker_when_not_store_ok": True}
        with Producer("g", cluster.namesrv_addr, **settings) as producer:
            result = producer.send(order(b"x"))
            assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
            assert len(pair[0].stored) + len(pair[1].stored) == 3
            pair[0].status = ResponseCode.SUCCESS
            result = producer.send(order(b"y"))
            assert result.status is SendStatus.SEND_OK
            assert result.queue.broker_name == "broker-a"

    def test_what_was_stored_once_is_no_failure(self, cluster, pair):
        pair[0].status = pair[1].status = ResponseCode.FLUSH_DISK_TIMEOUT
        settings = {"retry_another_broker_when_not_store_ok": True}
        with Producer("g", cluster.namesrv_addr, **settings) as producer:
            asked = []

            def refuse_others(request):
                asked.append(request)
                if len(asked) > 1:
                    pair[0].codes = pair[1].codes = [13]

            pair[0].before = pair[1].before = refuse_others
            assert producer.send(order()).status is SendStatus.FLUSH_DISK_TIMEOUT

    def test_slow_brokers_rest(self, cluster, pair, monkeypatch):
        now = [1000.0]
        clock = SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns)
        for module in ("message_sender", "sending"):
            monkeypatch.setattr(f"rmqnet.client.producer.{module}.time", clock)

        def slow(_):
            now[0] += 0.6

        with Producer("g", cluster.namesrv_addr, send_latency_fault_enable=True) as producer:
            pair[0].before = slow
            while not pair[0].stored:
                producer.send(order())
            brokers = {producer.send(order()).queue.broker_name for _ in range(20)}
        assert brokers == {"broker-b"}

    def test_failing_brokers_rest(self, cluster, pair):
        with Producer("g", cluster.namesrv_addr, send_latency_fault_enable=True) as producer:
            pair[0].codes = [2]
            while pair[0].codes:
                producer.send(order())
            brokers = {producer.send(order()).queue.broker_name for _ in range(20)}
        assert brokers == {"broker-b"}

    def test_oneway_messages_that_fail_are_forgotten(self, cluster, broker, producer, caplog):
        producer.send(order())
        broker.server.stop()
        producer.send_oneway(order())
        assert producer.flush(10)
        assert len(broker.stored) == 1


def _key_of_broker_b() -> str:
    return "order-42"  # hash 1234255197: queue 5 of 8


class TestRoutes:
    def test_an_unknown_topic(self, cluster, broker, producer):
        for send in (producer.send, lambda m: producer.send_async(m).result()):
            with pytest.raises(TopicNotFoundError, match="nosuch"):
                send(Message("nosuch", b"x"))
        producer.send_oneway(Message("nosuch", b"x"))
        assert producer.flush(10)

    def test_a_topic_that_brokers_create(self, cluster, broker, producer):
        cluster.add_topic("TBW102", queues={"broker-a": 8})
        result = producer.send(Message("new", b"x"))
        assert result.queue.topic == "new"
        assert 0 <= result.queue.queue_id < 4
        header = sent_header(broker.stored[0])
        assert (header.topic, header.default_topic) == ("new", "TBW102")

    def test_a_topic_that_may_not_be_written(self, cluster, producer):
        cluster.add_topic("readonly", perm=4)
        with pytest.raises(ClientError, match="topic readonly has no queue to send to"):
            producer.send(Message("readonly", b"x"))

    def test_a_topic_that_may_be_written_again(self, cluster, producer):
        cluster.add_topic("later", perm=4)
        StoringBroker(cluster.broker())
        with pytest.raises(ClientError):
            producer.send(Message("later", b"x"))
        cluster.topics["later"].perm = 6
        assert producer.send(Message("later", b"x")).status is SendStatus.SEND_OK

    def test_a_name_server_that_does_not_answer(self, cluster, broker, producer):
        hold = Hold()
        route = cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

        async def late(request):
            await hold(request)
            return route(request)

        cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = late
        late_ones = [producer.send_async(order(b"late"), timeout_s=0.2)]
        futures = [producer.send_async(order(b"%d" % n), sharding_key="k") for n in range(20)]
        with pytest.raises(SendTimeoutError, match="no name server"):
            late_ones[0].result(10)
        hold.open()
        for future in futures:
            future.result(10)
        assert broker.bodies == [b"%d" % number for number in range(20)]

    def test_a_broker_that_is_gone_leaves_the_route(self, cluster, pair, producer):
        for _ in range(8):
            producer.send(order())
        pair[0].server.stop()
        cluster.registered.discard(("broker-a", 0))
        wait_until(
            lambda: (
                producer.send(order()).queue.broker_name == "broker-b"
                and {
                    queue.broker_name
                    for queue in producer._instance.cached_route("orders").publish_queues()
                }
                == {"broker-b"}
            ),
            "the route is known anew",
        )

    def test_the_group_is_announced_before_the_first_message(self, broker, producer):
        producer.send(order())
        codes = [request.code for request in broker.server.requests]
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.SEND_MESSAGE_V2)
        assert b'"groupName":"g"' in broker.server.asked(RequestCode.HEART_BEAT)[0].body


class TestManyAtOnce:
    def test_asynchronous_messages_keep_their_order(self, broker, producer):
        futures = [
            producer.send_async(order(b"%d" % number), sharding_key="k") for number in range(500)
        ]
        offsets = [future.result(10).queue_offset for future in futures]
        assert offsets == list(range(500))
        assert broker.bodies == [b"%d" % number for number in range(500)]

    def test_answers_may_come_in_any_order(self, broker, producer):
        hold = Hold()
        broker.before = lambda request: hold(request) if request.body == b"first" else None
        first = producer.send_async(order(b"first"))
        assert producer.send_async(order(b"second")).result(10)
        assert not first.done()
        hold.open()
        assert first.result(10)

    def test_many_threads_send_at_once(self, pair, producer):
        ids, errors = [], []

        def work() -> None:
            try:
                ids.extend([producer.send(order()).message_id for _ in range(50)])
            except Exception as err:
                errors.append(err)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(set(ids)) == 400
        stored = [sent_properties(each)["UNIQ_KEY"] for broker in pair for each in broker.stored]
        assert collections.Counter(stored) == collections.Counter(ids)

    def test_an_asyncio_program_can_wait(self, broker, producer):
        async def main() -> list[SendStatus]:
            waits = [asyncio.wrap_future(producer.send_async(order())) for _ in range(10)]
            return [result.status for result in await asyncio.gather(*waits)]

        assert asyncio.run(main()) == [SendStatus.SEND_OK] * 10

    def test_too_many_under_way_wait_for_room(self, cluster, broker):
        hold = Hold()
        broker.before = hold
        with Producer("g", cluster.namesrv_addr, back_pressure_for_async_send_num=2) as producer:
            futures = [producer.send_async(order()) for _ in range(2)]
            with pytest.raises(
                RemotingTooMuchRequestError, match=r"topic orders .* 2 are in flight"
            ):
                producer.send_async(order(), timeout_s=0.1)
            waiting: list[object] = []
            thread = threading.Thread(target=lambda: waiting.append(producer.send_async(order())))
            thread.start()
            hold.open()
            thread.join(10)
            assert [future.result(10).status for future in [*futures, *waiting]]
            assert len(broker.stored) == 3

    def test_too_many_bytes_under_way_wait_for_room(self, cluster, broker):
        hold = Hold()
        broker.before = hold
        settings = {"back_pressure_for_async_send_size": 1000}
        with Producer("g", cluster.namesrv_addr, **settings) as producer:
            futures = [producer.send_async(order(bytes(2000)))]  # alone it may be longer
            with pytest.raises(RemotingTooMuchRequestError, match=r"no room within 0\.1 s"):
                producer.send_async(order(), timeout_s=0.1)
            hold.open()
            futures += [producer.send_async(order(bytes(400))) for _ in range(10)]
            assert all(future.result(10) for future in futures)

    def test_callbacks_may_send_but_not_wait(self, cluster, broker):
        hold = Hold()
        outcome: list[object] = []
        with Producer("g", cluster.namesrv_addr, back_pressure_for_async_send_num=2) as producer:

            def then(_) -> None:
                for send in (producer.send, producer.send_async, producer.send_async):
                    try:
                        outcome.append(send(order()))
                    except (ClientError, RemotingTooMuchRequestError) as err:
                        outcome.append(err)
                hold.open()

            holds = {b"held": hold, b"first": Hold()}
            broker.before = lambda request: holds.get(request.body, lambda _: None)(request)
            producer.send_async(order(b"held"))
            producer.send_async(order(b"first")).add_done_callback(then)
            holds[b"first"].open()  # if it were done before, it would call back here
            wait_until(lambda: len(outcome) == 3, "the callback ran")
            assert isinstance(outcome[0], ClientError)
            assert "would wait for itself" in str(outcome[0])
            assert outcome[1].result(10).status is SendStatus.SEND_OK
            assert isinstance(outcome[2], RemotingTooMuchRequestError)

    def test_a_callback_that_wants_to_exit_does_not_end_the_client(self, broker, producer, caplog):
        hold = Hold()
        broker.before = hold
        future = producer.send_async(order())
        future.add_done_callback(lambda _: sys.exit(3))
        hold.open()
        assert producer.flush(10)
        assert "a callback of a message to topic orders" in caplog.text
        assert producer.send(order())

    def test_a_callback_that_is_cancelled_does_not_end_the_connection(self, broker, producer):
        def cancelled(_: object) -> None:
            raise asyncio.CancelledError

        hold = Hold()
        broker.before = hold
        futures = [producer.send_async(order()) for _ in range(20)]
        futures[0].add_done_callback(cancelled)
        hold.open()
        assert producer.flush(10)
        assert all(future.result(10) for future in futures)
        assert len(broker.stored) == len(futures)

    def test_after_a_flush_all_callbacks_have_run(self, broker, producer):
        seen = []

        def note(future) -> None:
            time.sleep(0.05)  # as a callback does that writes a line somewhere
            seen.append(future.result().queue_offset)

        for number in range(3):
            producer.send_async(order()).add_done_callback(note)
            assert producer.flush(10)
            assert len(seen) == number + 1

    def test_a_future_cannot_be_cancelled(self, broker, producer):
        future = producer.send_async(order())
        assert not future.cancel()
        assert future.result(10)


class TestLifecycle:
    def test_it_must_be_started_and_not_shut_down(self, cluster, broker):
        producer = Producer("g", cluster.namesrv_addr)
        with pytest.raises(ClientError, match="producer g is not started"):
            producer.send(order())
        assert producer.start() is producer
        assert producer.start() is producer
        producer.send(order())
        producer.shutdown()
        producer.shutdown()
        for use in (producer.send, producer.send_async, producer.send_oneway):
            with pytest.raises(ClientError, match="producer g was shut down"):
                use(order())
        with pytest.raises(ClientError, match="was shut down: create a new one"):
            producer.start()

    def test_leaving_waits_for_what_is_under_way(self, cluster, broker):
        hold = Hold()
        broker.before = hold
        with Producer("g", cluster.namesrv_addr) as producer:
            futures = [producer.send_async(order()) for _ in range(20)]
            broker.server.wait_for(RequestCode.SEND_MESSAGE_V2)
            threading.Timer(0.1, hold.open).start()
        assert all(future.done() and future.result() for future in futures)
        (request,) = [
            each
            for each in broker.server.wait_for(RequestCode.UNREGISTER_CLIENT)
            if each.ext_fields.get("producerGroup") == "g"
        ]
        assert request.ext_fields["clientID"] == producer._instance.client_id

    def test_it_leaves_no_thread(self, cluster, broker):
        before = set(threading.enumerate())
        with Producer("g", cluster.namesrv_addr) as producer:
            producer.send(order())
        wait_until(
            lambda: (
                not [
                    thread
                    for thread in set(threading.enumerate()) - before
                    if "scripted" not in thread.name
                ]
            ),
            "threads end",
        )

    def test_several_share_a_client_that_outlives_them(self, cluster, broker):
        with ClientInstance(cluster.namesrv_addr) as client:
            with Producer("g1", client) as one, Producer("g2", client) as other:
                one.send(order())
                other.send(order())
                with pytest.raises(ClientError, match="already has a producer of group 'g1'"):
                    Producer("g1", client).start()
            assert client.is_running
            with Producer("g1", client) as again:
                again.send(order())
        assert len(broker.stored) == 3
        assert broker.server.connection_count <= 1

    def test_the_client_is_shut_down_under_it(self, cluster, broker):
        hold = Hold()
        broker.before = hold
        client = ClientInstance(cluster.namesrv_addr)
        producer = Producer("g", client).start()
        future = producer.send_async(order())
        broker.server.wait_for(RequestCode.SEND_MESSAGE_V2)
        client.shutdown()
        with pytest.raises((SendFailedError, RemotingConnectError, ClientError)):
            future.result(10)
        with pytest.raises(ClientError, match="does not run"):
            producer.send(order())
        with pytest.raises(ClientError, match="does not run"):
            producer.send_async(order())
        producer.shutdown()
        hold.open()

    def test_what_was_not_begun_when_the_client_ended_fails(self, cluster, broker, monkeypatch):
        client = ClientInstance(cluster.namesrv_addr)
        producer = Producer("g", client).start()
        monkeypatch.setattr(producer._sender, "_is_woken", True)  # as if the loop were about to
        future = producer.send_async(order())
        client.shutdown()
        producer.shutdown()
        with pytest.raises(ClientError, match="was shut down before it sent this"):
            future.result(0)

    def test_settings_are_checked(self):
        with pytest.raises(ClientError, match="the group is blank"):
            Producer("", "h:1")
        with pytest.raises(ClientError, match="send_msg_timeout_ms=0: must be 1 or more"):
            Producer("g", "h:1", send_msg_timeout_ms=0)
        with pytest.raises(ClientError, match="max_message_size='4M': expected a whole number"):
            Producer("g", "h:1", max_message_size="4M")
        with pytest.raises(ClientError, match="compress_type='GZIP'"):
            Producer("g", "h:1", compress_type="GZIP")
        with pytest.raises(TypeError, match="no_such"):
            Producer("g", "h:1", no_such=1)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
    def test_a_forked_child_is_told(self, broker, producer):
        producer.send(order())
        child = os.fork()
        if child == 0:
            status = 1
            try:
                producer.send(order())
            except ClientError as err:
                status = 0 if "does not run in this process" in str(err) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(order())
