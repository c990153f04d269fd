# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket

import pytest

from rmqnet.broker.broker_config import BrokerConfig, config_text, parse_config_text
from rmqnet.broker.pools import Pools
from rmqnet.broker.store_host import store_host
from rmqnet.errors import ClientError
from store_core.codec.message_id import parse_host
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreConfigError


def test_rocketmqs_keys():
    config = BrokerConfig.from_properties(
        {"brokerName": "a", "brokerIP1": "10.0.0.1", "traceOn": "false", "somethingElse": "x"}
    )
    assert (config.broker_name, config.broker_ip1, config.trace_on) == ("a", "10.0.0.1", False)
    assert BrokerConfig().broker_name


def test_an_update_is_made_whole_or_not_at_all():
    config = BrokerConfig(broker_name="a")
    config.update({"brokerPermission": "4", "flushConsumerOffsetInterval": "7"})
    assert (config.broker_permission, config.flush_consumer_offset_interval) == (4, 7)
    with pytest.raises(StoreConfigError, match="brokerPermission=99: must be 0 to 15"):
        config.update({"flushConsumerOffsetInterval": "8", "brokerPermission": "99"})
    with pytest.raises(StoreConfigError, match="traceOn='maybe'"):
        config.update({"traceOn": "maybe"})
    assert config.flush_consumer_offset_interval == 7


def test_the_text_of_all_settings_is_read_back():
    store = MessageStoreConfig(message_delay_level="1s 2s")
    config = BrokerConfig(broker_name="a", namesrv_addr="n1:9876; n2:9876;")
    text = config_text(config, store)
    properties = parse_config_text(text)
    assert properties["messageDelayLevel"] == "1s 2s"
    assert properties["brokerIP1"] == "127.0.0.1"
    assert properties["autoCreateTopicEnable"] == "true"
    assert "mappedFileSizeCommitLog" not in properties
    assert list(properties) == sorted(properties)
    assert BrokerConfig.from_properties(properties) == config
    assert MessageStoreConfig.from_properties(properties) == store
    assert config.name_servers == ("n1:9876", "n2:9876")


def test_the_text_of_an_update():
    assert parse_config_text("# x\n\na = b=c \r\n!y\nd=") == {"a": "b=c", "d": ""}
    with pytest.raises(StoreConfigError, match="'nothing': expected key=value"):
        parse_config_text("a=b\nnothing\n")


def test_name_servers_hear_of_the_broker_as_often_as_rocketmq_allows():
    periods = [
        BrokerConfig(register_name_server_period=ms).register_period_ms
        for ms in (1, 20_000, 90_000)
    ]
    assert periods == [10_000, 20_000, 60_000]


def test_pools_are_as_large_as_the_settings_say():
    pools = Pools(BrokerConfig(send_thread_pool_queue_capacity=3))
    assert pools.send.capacity == 3
    assert {pool.name for pool in pools.all} >= {"send", "pull", "query", "admin", "heartbeat"}
    pools.start()
    pools.shutdown()
    assert not pools.send.submit(lambda: None)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.7", "10.0.0.7:10911"),
        ("[2001:db8::7]", "[2001:db8::7]:10911"),
        ("2001:db8::7", "[2001:db8::7]:10911"),
    ],
)
def test_addresses_stay_as_they_are(host, expected):
    assert store_host(host, 10911) == expected
    assert parse_host(expected)


@pytest.mark.parametrize(
    ("known", "expected"),
    [(("2001:db8::7", "10.0.0.7"), "10.0.0.7:1"), (("2001:db8::7",), "[2001:db8::7]:1")],
)
def test_names_are_looked_up(monkeypatch, known, expected):
    found = [(0, 0, 0, "", (address, 0)) for address in known]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    assert store_host("till.example", 1) == expected


def test_a_name_that_nobody_knows(monkeypatch):
    def fail(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ClientError, match=r"resolve till\.example, the name .*: Name"):
        store_host("till.example", 1)
