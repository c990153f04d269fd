# SPDX-License-Identifier: Apache-2.0
"""Reports are sent whole, one after the other, whatever the socket accepts."""

from __future__ import annotations

import random
import socket
import struct
import sys

import pytest

from store_core.ha.follow_state import FlowMonitor
from store_core.ha.ha_client import HAClient
from store_core.ha.master_connection import ReportSender
from store_core.ha.peer import ConnectionLostError

_RESET = struct.pack("ii", 1, 0)


class Narrow:
    """A socket that accepts some bytes, or none."""

    def __init__(self, takes):
        self.takes, self.sent = takes, b""

    def send(self, data):
        count = self.takes()
        if count == 0:
            raise BlockingIOError
        self.sent += data[:count]
        return min(count, len(data))


@pytest.mark.parametrize("seed", range(20))
def test_all_that_is_sent_are_whole_reports(seed):
    rng = random.Random(seed)
    sock = Narrow(lambda: rng.choice([0, 0, 1, 3, 8]))
    sender = ReportSender(sock, "m:1", lambda: 0.0)
    reported = sorted(rng.randrange(1 << 40) for _ in range(50))
    for offset in reported:
        sender.send(offset)
    while sender.has_rest:
        sender.send_rest()
    assert len(sock.sent) % 8 == 0
    offsets = [offset for (offset,) in struct.iter_unpack(">q", sock.sent)]
    assert set(offsets) <= set(reported)
    assert offsets == sorted(offsets)
    assert offsets[-1] == reported[-1] == sender.offset


def test_of_what_could_not_be_sent_only_the_newest_is():
    room = [0]
    sock = Narrow(lambda: room[0])
    sender = ReportSender(sock, "m:1", lambda: 7.0)
    for offset in range(1000):
        sender.send(offset)
    assert sender.has_rest
    room[0] = 8
    sender.send_rest()
    offsets = [offset for (offset,) in struct.iter_unpack(">q", sock.sent)]
    assert offsets == [0, 999]
    sender.repeat()
    assert sock.sent[-8:] == struct.pack(">q", 999)
    assert not sender.has_rest


def test_a_broken_socket_is_named():
    class Broken:
        def send(self, data):
            raise ConnectionResetError(104, "Connection reset by peer")

    sender = ReportSender(Broken(), "m:1", lambda: 0.0)
    with pytest.raises(ConnectionLostError, match="cannot report to m:1: Connection reset"):
        sender.send(5)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_without_a_limit_all_is_allowed_and_counted(clock):
    flow = FlowMonitor(None, clock)
    flow.add(10**12)
    assert flow.allowance_bytes == sys.maxsize
    clock.now += 1
    assert flow.bytes_in_second == 10**12


def test_what_is_allowed_in_a_second_is_given_once(clock):
    flow = FlowMonitor(100, clock)
    assert flow.allowance_bytes == 100
    flow.add(70)
    clock.now += 0.25
    assert flow.allowance_bytes == 30
    flow.add(42)
    assert flow.allowance_bytes == 0
    assert flow.next_second_s == pytest.approx(0.75)
    clock.now += 0.75
    assert flow.next_second_s == 0
    assert flow.allowance_bytes == 100


def test_seconds_follow_each_other_from_the_first_on(clock):
    flow = FlowMonitor(100, clock)
    clock.now += 3.5
    flow.add(100)
    assert flow.allowance_bytes == 0
    assert flow.next_second_s == pytest.approx(0.5)


def test_bytes_of_the_last_whole_second(clock):
    flow = FlowMonitor(None, clock)
    assert flow.bytes_in_second == 0
    flow.add(5)
    assert flow.bytes_in_second == 0
    clock.now += 1
    assert flow.bytes_in_second == 5
    flow.add(7)
    assert flow.bytes_in_second == 5
    clock.now += 1
    assert flow.bytes_in_second == 7
    clock.now += 1
    assert flow.bytes_in_second == 0
    flow.add(1)
    assert flow.bytes_in_second == 0


# A connection that the other side resets is made again, like one that it closes.


def test_a_reset_while_nothing_comes_is_no_failure(slave):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        with HAClient(slave, f"127.0.0.1:{listener.getsockname()[1]}") as client:
            for _ in range(3):
                connection, _ = listener.accept()
                assert connection.recv(8)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.close()
            listener.accept()[0].close()
            assert client.failure is None
            assert client.state().reconnects >= 3
