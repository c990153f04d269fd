# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ipaddress
import os
import pickle
from typing import Any

import pytest

from rmqnet import AclCredentials, ClientConfig
from rmqnet.client.addresses import local_ip, parse_addresses, split_address
from rmqnet.errors import ClientError


def test_a_client_id_has_address_and_instance() -> None:
    config = ClientConfig("a:1", client_ip="10.0.0.9", instance_name="31")
    assert config.client_id == "10.0.0.9@31"
    named = ClientConfig("a:1", client_ip="10.0.0.9", instance_name="31", unit_name="unit")
    assert named.client_id == "10.0.0.9@31@unit"


def test_clients_get_instance_names_of_their_own() -> None:
    config = ClientConfig("a:1")
    names = {config.with_own_instance_name().instance_name for _ in range(100)}
    assert len(names) == 100
    assert {name.partition("#")[0] for name in names} == {str(os.getpid())}


def test_a_chosen_instance_name_stays() -> None:
    config = ClientConfig("a:1", instance_name="mine")
    assert config.with_own_instance_name() is config


def test_secrets_are_not_shown_and_travel_with_it() -> None:
    config = ClientConfig("a:1", credentials=AclCredentials("the-key", "the-secret"))
    assert "the-secret" not in repr(config)
    assert "the-key" not in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"namesrv_addr": "nowhere"}, "'nowhere' is not an address"),
        ({"mq_client_api_timeout_ms": 0}, "mq_client_api_timeout_ms"),
        ({"heartbeat_broker_interval_ms": 1.5}, "heartbeat_broker_interval_ms"),
        ({"poll_name_server_interval_ms": True}, "poll_name_server_interval_ms"),
        ({"instance_name": "a@b"}, "instance_name"),
        ({"unit_name": "a@b"}, "unit_name"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ClientError, match=named):
        ClientConfig(**{"namesrv_addr": "a:1", **settings})


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        ("names.example:1", "names.example", 1),
        ("[::1]:65535", "::1", 65535),
    ],
)
def test_an_address_has_host_and_port(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "host", "host:", ":9876", "host:0", "host:65536", "host:x"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ClientError, match=f"{text!r} is not an address"):
        split_address(text)


def test_several_addresses() -> None:
    assert parse_addresses(" a:1; b:2 ;a:1;") == ("a:1", "b:2")


@pytest.mark.parametrize("text", ["", " ; "])
def test_no_address_at_all(text: str) -> None:
    with pytest.raises(ClientError, match="names no name server"):
        parse_addresses(text)


def test_this_machine_has_an_address() -> None:
    ipaddress.IPv4Address(local_ip())
