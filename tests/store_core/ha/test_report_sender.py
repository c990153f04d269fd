"""Reports go out whole, one after the other, whatever the socket takes."""

from __future__ import annotations

import random
import struct

import pytest

from store_core.ha.master_connection import ReportSender
from store_core.ha.peer import ConnectionLostError


class Narrow:
    """A socket that takes some bytes, or none."""

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
