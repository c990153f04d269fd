# SPDX-License-Identifier: Apache-2.0
"""Parsing of server addresses (``host:port``) and the address of this machine."""

from __future__ import annotations

import socket

from rmqnet.errors import ClientError

_MAX_PORT = 65535
# No host has this address (TEST-NET-1, RFC 5737). Nothing is sent to it: connecting a datagram
# socket only chooses the route that a packet would take.
_FAR_ADDRESS = ("192.0.2.1", 9876)
_LOOPBACK = "127.0.0.1"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[ipv6]:port``.

    Raises
    ------
    ClientError
        The address has neither form.
    """
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not separator or not host or not port.isdecimal() or not 0 < int(port) <= _MAX_PORT:
        raise ClientError(f"{address!r} is not an address: expected host:port or [ipv6]:port")
    return host, int(port)


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of ``host:port;host:port`` in order, without repeats.

    Raises
    ------
    ClientError
        The text has no address, or one is not valid.
    """
    addresses = tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    if not addresses:
        raise ClientError(
            f"{text!r} names no name server: expected host:port, or several separated by ';'"
        )
    for address in addresses:
        split_address(address)
    return addresses


def local_ip() -> str:
    """Return this machine's address in its network; the loopback address if it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_ADDRESS)
            return str(probe.getsockname()[0])
        except OSError:
            return _LOOPBACK
