# SPDX-License-Identifier: Apache-2.0
"""Address, process and clock of this machine in the form that messages contain.

Source: RocketMQ ``UtilAll.getIP``, ``NetworkUtil.getLocalAddress`` (release 5.3.3).
"""

from __future__ import annotations

import os
import socket
import time

from store_core.codec.message_id import ClientMessageIds

_LOOPBACK = bytes([127, 0, 0, 1])
_UNROUTED = ("192.0.2.1", 9)  # reserved for documentation; nothing is sent


def local_address() -> bytes:
    """Return the four bytes of the address from which this machine reaches others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_UNROUTED)
            return socket.inet_aton(probe.getsockname()[0])
        except OSError:  # no network at all
            return _LOOPBACK


def address_bytes(address: bytes, port: int) -> bytes:
    """Return address and port as records store them."""
    return address + port.to_bytes(4, "big")


def message_ids() -> ClientMessageIds:
    """Return a generator of ids that no other task gives out.

    Tasks share the machine's address and may reuse a process, so a random number replaces the hash
    of Java's class loader.
    """
    token = int.from_bytes(os.urandom(4), "big", signed=True)
    return ClientMessageIds(local_address(), os.getpid(), token, now_ms())


def now_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
