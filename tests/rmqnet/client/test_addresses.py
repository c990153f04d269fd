from __future__ import annotations

import ipaddress

import pytest

from rmqnet.client.addresses import local_ip, parse_addresses, split_address
from rmqnet.errors import ClientError


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
