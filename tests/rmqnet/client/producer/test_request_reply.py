# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from rmqnet.client.producer.producer import Producer
from rmqnet.client.producer.request_reply import reply_to
from rmqnet.errors import ClientError, RemotingTimeoutError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from store_core.message import Message
from tests.rmqnet.client.producer.scripted_brokers import (
    pushed,
    sent_properties,
    storing_brokers,
)
from tests.rmqnet.scripted_cluster import ScriptedCluster


@pytest.fixture
def cluster():
    with ScriptedCluster() as cluster:
        yield cluster


@pytest.fixture
def broker(cluster):
    return storing_brokers(cluster, "broker-a")[0]


@pytest.fixture
def producer(cluster):
    with Producer("g", cluster.namesrv_addr) as producer:
        yield producer


def test_a_request_waits_for_its_reply(broker, producer):
    replies: list[object] = []
    thread = threading.Thread(
        target=lambda: replies.append(producer.request(Message("orders", b"?"), timeout_s=10))
    )
    thread.start()
    (sent,) = broker.server.wait_for(RequestCode.SEND_MESSAGE_V2)
    asked = sent_properties(sent)
    assert asked["REPLY_TO_CLIENT"] == producer._instance.client_id
    assert asked["TTL"] == "10000"
    other = broker.server.ask_client(pushed("of somebody else", b"no"))
    mine = broker.server.ask_client(pushed(asked["CORRELATION_ID"], b"yes"))
    thread.join(10)
    assert [reply.body for reply in replies] == [b"yes"]
    assert mine.code == ResponseCode.SUCCESS
    assert other.is_response


def test_a_reply_that_does_not_come(broker, producer):
    with pytest.raises(RemotingTimeoutError, match=r"topic orders was sent, but no reply .* 0.2 s"):
        producer.request(Message("orders", b"?"), timeout_s=0.2)


def test_a_reply_goes_to_the_topic_of_its_cluster(cluster, broker, producer):
    cluster.add_topic("DefaultCluster_REPLY_TOPIC")
    request = Message(
        "orders",
        b"?",
        properties={
            "CLUSTER": "DefaultCluster",
            "CORRELATION_ID": "C",
            "REPLY_TO_CLIENT": "1.2.3.4@x",
            "TTL": "3000",
            "other": "o",
        },
    )
    producer.send(reply_to(request, b"!"))
    (sent,) = broker.server.asked(RequestCode.SEND_REPLY_MESSAGE_V2)
    assert sent.ext_fields["b"] == "DefaultCluster_REPLY_TOPIC"
    properties = sent_properties(sent)
    assert properties.pop("UNIQ_KEY")
    assert properties == {
        "WAIT": "true",
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "C",
        "REPLY_TO_CLIENT": "1.2.3.4@x",
        "TTL": "3000",
    }


def test_what_is_no_request_has_no_reply():
    with pytest.raises(ClientError, match="no property CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT"):
        reply_to(Message("orders", b"x"), b"!")
