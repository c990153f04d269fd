# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import time

import pytest

from rmqnet.broker.processor.client_manage import ClientManageProcessor
from rmqnet.broker.processor.consumer_manage import ConsumerManageProcessor
from rmqnet.client.heartbeat_data import (
    ConsumerData,
    ConsumeType,
    SubscriptionData,
    encode_heartbeat,
)
from rmqnet.client.message_queue import MessageQueue
from rmqnet.errors import BrokerError, RemotingFormatError
from rmqnet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqnet.remoting.headers import UnregisterClientRequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.config_files import SubscriptionGroupConfig, TopicConfig
from tests.rmqnet.broker.client_broker import ClientBroker, FakeConnection
from tests.rmqnet.remoting.raw_client import RawClient


@pytest.fixture
def small(tmp_path):
    with ClientBroker(tmp_path, ClientManageProcessor, ConsumerManageProcessor) as small:
        yield small


@pytest.fixture
def processor(small):
    return small.processors[0]


def consumer(group="g", *topics, **changes):
    subscriptions = tuple(SubscriptionData(topic) for topic in topics or ("t",))
    return ConsumerData(group, subscriptions, **changes)


def heartbeat(client_id, *consumers, producers=(), **changes):
    body = json.loads(encode_heartbeat(client_id, producers, consumers))
    return json.dumps({**body, **changes}).encode()


def request(body, code=RequestCode.HEART_BEAT):
    return RemotingCommand.request(code, body)


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_member_hears_of_itself_before_its_heartbeat_is_answered(small):
    with RawClient(small.port) as client:
        first = client.request(RequestCode.HEART_BEAT, heartbeat("c1", consumer()))
        assert (first.code, first.is_oneway) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, True)
        assert first.ext_fields == {"consumerGroup": "g"}
        answer = client.receive()
        assert (answer.code, answer.is_response) == (ResponseCode.SUCCESS, True)
        assert answer.ext_fields == {
            "IS_SUPPORT_HEART_BEAT_V2": "true",
            "IS_SUB_CHANGE": "true",
        }
        again = client.request(RequestCode.HEART_BEAT, heartbeat("c1", consumer()))
        assert again.is_response


def test_members_hear_of_others_that_come_leave_or_vanish(small):
    ids_changed = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    with RawClient(small.port) as a, RawClient(small.port) as b:
        a.request(RequestCode.HEART_BEAT, heartbeat("a", consumer()))
        a.receive()
        b.request(RequestCode.HEART_BEAT, heartbeat("b", consumer()))
        b.receive()
        assert a.receive().code == ids_changed
        ids = small.ask(lambda broker, _: broker.consumer_ids(small.address, "g"))
        assert sorted(ids) == ["a", "b"]
        leave = UnregisterClientRequestHeader(client_id="b", consumer_group="g")
        small.broker.locks.lock("g", [MessageQueue("t", "b", 0)], "b")
        assert b.request(leave).is_response
        assert small.broker.locks.is_lock_all_expired("g")
        assert a.receive().code == ids_changed
        b.request(RequestCode.HEART_BEAT, heartbeat("b", consumer()))
        b.receive()
        assert a.receive().code == ids_changed
        b.close()
        assert a.receive().code == ids_changed
        assert small.broker.consumers.group_info("g").client_ids == ["a"]
    wait_until(lambda: small.broker.consumers.group_info("g") is None)
    with pytest.raises(BrokerError, match="no consumer for this group, g"):
        small.ask(lambda broker, _: broker.consumer_ids(small.address, "g"))


def test_no_member_hears_anything_where_the_broker_or_the_group_does_not_want_it(small):
    small.broker.config.update({"notifyConsumerIdsChangedEnable": "false"})
    with RawClient(small.port) as client:
        assert client.request(RequestCode.HEART_BEAT, heartbeat("a", consumer())).is_response


def test_the_first_heartbeat_of_a_group_makes_its_retry_topic(small):
    made = []
    small.broker.topics.on_change(lambda config: made.append(config.topic_name))
    small.ask(lambda broker, _: broker.heartbeat(small.address, heartbeat("c", consumer())))
    assert small.broker.topics.select("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)
    assert made == ["%RETRY%g"]
    assert small.broker.groups.get("g") is not None


def test_the_retry_topic_is_like_the_group_and_its_topics(small, processor):
    small.broker.topics.update(TopicConfig("ordered", order=True), {})
    data = consumer("h", "t", "ordered", unit_mode=True)
    processor.heartbeat(FakeConnection(), request(heartbeat("c", data)))
    assert small.broker.topics.select("%RETRY%h") == TopicConfig(
        "%RETRY%h", 1, 1, 6, order=True, topic_sys_flag=2
    )


def test_a_group_that_may_not_be_is_left_out_others_are_taken(small, processor):
    small.broker.config.update({"autoCreateSubscriptionGroup": "false"})
    small.broker.groups.update(SubscriptionGroupConfig("known"), {})
    body = heartbeat("c", consumer("new"), consumer("known"), producers=["p"])
    processor.heartbeat(FakeConnection(), request(body))
    assert small.broker.consumers.group_info("new") is None
    assert small.broker.consumers.group_info("known") is not None
    assert small.broker.topics.select("%RETRY%new") is None
    assert [each.client_id for each in small.broker.producers.members("p")] == ["c"]


def test_pull_consumers_are_left_out_where_the_broker_does_not_want_them(small, processor):
    small.broker.config.update({"rejectPullConsumerEnable": "true"})
    active = consumer("g", consume_type=ConsumeType.CONSUME_ACTIVELY)
    processor.heartbeat(FakeConnection(), request(heartbeat("c", active, consumer("h"))))
    assert small.broker.consumers.group_info("g") is None
    assert small.broker.consumers.group_info("h") is not None


def test_who_a_client_is(small):
    with RawClient(small.port) as client:
        body = heartbeat("c", producers=["p"])
        client.request(RequestCode.HEART_BEAT, body, language=LanguageCode.JAVA, version=407)
        (member,) = small.broker.producers.members("p")
        connection = member.to_connection()
        assert (connection.language, connection.version) == ("JAVA", 407)
        assert connection.client_addr == client.address


def test_the_second_form_of_heartbeats(small, processor):
    connection = FakeConnection()

    def send(fingerprint, **changes):
        data = heartbeat("c", consumer(), heartbeatFingerprint=fingerprint, **changes)
        return processor.heartbeat(connection, request(data)).ext_fields["IS_SUB_CHANGE"]

    assert send(5) == "false"
    assert send(5, withoutSub=True) == "false"
    assert send(6, withoutSub=True) == "true"
    without = heartbeat("c", ConsumerData("g", ()), heartbeatFingerprint=6, withoutSub=True)
    processor.heartbeat(connection, request(without))
    assert small.broker.consumers.find_subscription("g", "t") is not None


def test_a_client_that_is_gone_when_its_heartbeat_is_worked_on_is_in_no_group(small, processor):
    gone = FakeConnection(is_open=False)
    processor.heartbeat(gone, request(heartbeat("c", consumer(), producers=["p"])))
    assert small.broker.consumers.group_info("g") is None
    assert small.broker.producers.members("p") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b'{"clientID":7}',
        b'{"clientID":""}',
        b'{"clientID":"c","producerDataSet":[{}]}',
        b'{"clientID":"c","producerDataSet":5}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":["x"]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":null}]}',
        b'{"clientID":"c","heartbeatFingerprint":"x"}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"t","codeSet":[[1]]}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"t","tagsSet":1}]}]}',
        b"[" * 100_000,
    ],
)
def test_a_heartbeat_that_is_none_is_refused_with_words(small, processor, body):
    with pytest.raises(RemotingFormatError, match="the heartbeat cannot be decoded"):
        processor.heartbeat(FakeConnection(), request(body))
    assert small.broker.consumers.all() == []


def test_silent_clients_are_disconnected(small):
    with RawClient(small.port) as client:
        client.request(RequestCode.HEART_BEAT, heartbeat("c", consumer(), producers=["p"]))
        client.receive()
        small.now += small.broker.config.channel_expired_timeout
        small.housekeeping.run_once()
        assert small.broker.consumers.group_info("g") is not None
        small.now += 1
        small.housekeeping.run_once()
        client.wait_end()
    assert small.broker.consumers.group_info("g") is None
    assert small.broker.producers.members("p") == []


def test_filters_of_a_group_are_kept_and_die_with_it(small, processor):
    connection = FakeConnection()
    wanted = SubscriptionData("t", "a > 5", sub_version=3, expression_type="SQL92")
    data = ConsumerData("g", (wanted, SubscriptionData("u")))
    processor.heartbeat(connection, request(heartbeat("c", data)))
    filters = small.broker.filters
    assert filters.get("t", "g").data.expression == "a > 5"
    assert filters.get("u", "g") is None
    assert not filters.get("t", "g").data.is_dead
    without = heartbeat("c", ConsumerData("g", ()), heartbeatFingerprint=6, withoutSub=True)
    processor.heartbeat(connection, request(without))
    assert not filters.get("t", "g").data.is_dead
    processor.heartbeat(connection, request(heartbeat("c", consumer("g", "u"))))
    assert filters.get("t", "g").data.is_dead
    processor.heartbeat(connection, request(heartbeat("c", data)))
    assert not filters.get("t", "g").data.is_dead
    small.broker.consumers.remove(connection)
    assert filters.get("t", "g").data.is_dead


@pytest.mark.parametrize(
    ("expression", "kind", "code", "words"),
    [
        ("a || b", "TAG", ResponseCode.SUCCESS, ""),
        ("anything", None, ResponseCode.SUCCESS, ""),
        ("a > 5 AND b IS NOT NULL", "SQL92", ResponseCode.SUCCESS, ""),
        ("a >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "column 4"),
        ("x", "XPATH", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no filter of type XPATH"),
    ],
)
def test_expressions_are_looked_at(small, processor, expression, kind, code, words):
    small.broker.config.update({"enablePropertyFilter": "true"})
    found = {"topic": "t", "subString": expression, "expressionType": kind}
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": found}).encode()
    answer = processor.check_client_config(request(body, RequestCode.CHECK_CLIENT_CONFIG))
    assert answer.code == code
    assert words in (answer.remark or "")


def test_without_property_filters_no_sql_is_taken(small):
    subscription = SubscriptionData("t", "a > 5", expression_type="SQL92")
    with pytest.raises(BrokerError, match="does not support consumer to filter message by SQL92"):
        small.ask(
            lambda broker, _: broker.check_client_config(small.address, "c", "g", subscription)
        )
