import socket

import pytest

from rmqnet.broker.store_host import store_host
from rmqnet.errors import ClientError
from store_core.codec.hosts import parse_host


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
    with pytest.raises(ClientError, match=r"till\.example, of which no address is known: Name"):
        store_host("till.example", 1)
