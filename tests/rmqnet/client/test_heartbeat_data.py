"""Heartbeats as clients in several languages write them; Java's broker reads all of these."""

from __future__ import annotations

import json
import time

import pytest

from rmqnet.client.heartbeat_data import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    encode_heartbeat,
    parse_heartbeat,
)

ORDERS = SubscriptionData("orders", "a || b", ("a", "b"), (97, 98), 1700000000000)
HEARTBEAT = HeartbeatData(
    "10.0.0.7@1",
    ("tills",),
    (
        ConsumerData(
            "cooks",
            (ORDERS,),
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.BROADCASTING,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            unit_mode=True,
        ),
    ),
)

JAVA = """{"clientID":"10.0.0.7@1","consumerDataSet":[{
"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cooks","messageModel":"BROADCASTING",
"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97,98],"expressionType":"TAG",
"subString":"a || b","subVersion":1700000000000,"tagsSet":["a","b"],"topic":"orders"}],
"unitMode":true}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"tills"}],
"withoutSub":false}"""

GO = """{"clientID":"10.0.0.7@1","producerDataSet":[{"groupName":"tills"}],"consumerDataSet":[
{"groupName":"cooks","consumeType":"CONSUME_PASSIVELY","messageModel":"BROADCASTING",
"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,
"topic":"orders","subString":"a || b","tagsSet":["a","b"],"codeSet":["97","98"],
"subVersion":1700000000000,"expressionType":"TAG"}],"unitMode":true}]}"""

CPP = """{"clientID":"10.0.0.7@1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,
"groupName":"cooks","messageModel":0,"unitMode":"true","subscriptionDataSet":[{"codeSet":["97","98"],
"subString":"a || b","subVersion":"1700000000000","tagsSet":["a","b"],"topic":"orders"}]}],
"producerDataSet":[{"groupName":"tills"}]}"""

NET = """{"ClientID":"10.0.0.7@1","ConsumerDataSet":[{
"ConsumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","ConsumeType":"CONSUME_PASSIVELY",
"GroupName":"cooks","MessageModel":"BROADCASTING","SubscriptionDataSet":[{"Topic":"orders",
"ExpressionType":null,"SubString":"a || b","TagsSet":["a","b"],"CodeSet":["97","98"],
"ClassFilterMode":false,"FilterClassSource":null,"SubVersion":1700000000000}],"UnitMode":true}],
"ProducerDataSet":[{"GroupName":"tills"}]}"""


@pytest.mark.parametrize("text", [JAVA, GO, CPP, NET], ids=["java", "go", "c++", ".net"])
def test_a_heartbeat_means_the_same_in_every_language(text):
    assert parse_heartbeat(text.encode()) == HEARTBEAT


def test_ours_is_read_as_it_was_written():
    body = encode_heartbeat("10.0.0.7@1", ["tills"], HEARTBEAT.consumers)
    assert parse_heartbeat(body) == HEARTBEAT


def test_a_subscription_without_version_is_of_now():
    """As in RocketMQ; else a pull that names a version would find it too old."""
    body = json.loads(CPP)
    del body["consumerDataSet"][0]["subscriptionDataSet"][0]["subVersion"]
    before = time.time_ns() // 1_000_000
    (consumer,) = parse_heartbeat(json.dumps(body).encode()).consumers
    assert before <= consumer.subscriptions[0].sub_version <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("number", [-1, 2, 99, True, "NOWHERE", None])
def test_a_model_that_nobody_knows_is_clustering(number):
    body = json.loads(CPP)
    body["consumerDataSet"][0]["messageModel"] = number
    (consumer,) = parse_heartbeat(json.dumps(body).encode()).consumers
    assert consumer.message_model is MessageModel.CLUSTERING


@pytest.mark.parametrize("version", ["soon", "", "1.5 ", [], "9" * 30])
def test_a_version_that_is_no_number_is_named(version):
    body = json.loads(CPP)
    body["consumerDataSet"][0]["subscriptionDataSet"][0]["subVersion"] = version
    with pytest.raises(ValueError, match="subVersion: a whole number was expected"):
        parse_heartbeat(json.dumps(body).encode())
