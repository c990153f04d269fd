# SPDX-License-Identifier: Apache-2.0
"""The address that a broker writes into its records.

Source: RocketMQ ``BrokerController.getStoreHost`` (release 5.3.3).
"""

from __future__ import annotations

import ipaddress
import socket

from rmqnet.errors import ClientError


def store_host(host: str, port: int) -> str:
    """Return ``ip:port`` or ``[ipv6]:port`` of a broker, as records have no room for names.

    Raises
    ------
    ClientError
        The name cannot be resolved.
    """
    try:
        address = str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        address = _address_of(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _address_of(name: str) -> str:
    try:
        found = [str(each[4][0]) for each in socket.getaddrinfo(name, None)]
    except OSError as err:
        raise ClientError(
            f"cannot resolve {name}, the name under which clients should reach the broker: "
            f"{err.strerror}"
        ) from err
    # IPv4 first, as in Java, for clients that support nothing else.
    return min(found, key=lambda address: ":" in address)
