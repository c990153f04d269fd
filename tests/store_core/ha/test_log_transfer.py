# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.errors import HAError
from store_core.ha.ha_connection import LogTransfer, SendProgress
from store_core.layout import TRANSFER_HEADER

SEGMENT = 256


class Log:
    """The part of a master's log that transfers use; its bytes follow from their offsets."""

    def __init__(self, batch_bytes, end=0, first=0):
        self.config = SimpleNamespace(ha_transfer_batch_size=batch_bytes)
        self.min_phy_offset, self.replicable_offset = first, end
        self.is_lent = False

    @contextmanager
    def commit_log_data(self, offset, most):
        stop = min(self.replicable_offset, offset - offset % SEGMENT + SEGMENT, offset + most)
        if not self.min_phy_offset <= offset < stop:
            yield None
            return
        self.is_lent = True
        yield np.arange(offset, stop).astype(np.uint8)
        self.is_lent = False


class Socket:
    """Accepts as many bytes of each call as scripted."""

    def __init__(self, takes):
        self.takes, self.taken = takes, b""

    def sendmsg(self, parts):
        takes = next(self.takes)
        if not takes:
            raise BlockingIOError
        data = b"".join(bytes(part) for part in parts)[:takes]
        self.taken += data
        return len(data)


def frames(data):
    """Return the frames of a stream; it ends with a whole one."""
    found = []
    while data:
        offset, size = TRANSFER_HEADER.unpack(data)
        body, data = (
            data[TRANSFER_HEADER.size : TRANSFER_HEADER.size + size],
            data[TRANSFER_HEADER.size + size :],
        )
        assert len(body) == size
        found.append((offset, body))
    return found


def everything():
    return itertools.repeat(sys.maxsize)


def send_all(transfer, allowances=None):
    progress = SendProgress.SENT
    while progress is not SendProgress.AT_END:
        progress = transfer.send(next(allowances) if allowances else sys.maxsize)


@settings(deadline=None)  # because of the machine's other work
@given(
    start=st.integers(1, 600),
    length=st.integers(0, 900),
    batch_bytes=st.sampled_from([1, 7, 12, 100, 256, 1000]),
    takes=st.lists(st.integers(0, 40) | st.integers(0, 2000), min_size=1),
    allowances=st.lists(st.integers(1, 300), min_size=1),
    heartbeats=st.lists(st.booleans(), min_size=1),
    grows=st.lists(st.integers(0, 300)),
)
def test_the_stream_is_the_log_however_little_is_taken(
    start, length, batch_bytes, takes, allowances, heartbeats, grows
):
    log = Log(batch_bytes, start + length)
    taken = Socket(itertools.cycle([*takes, 5]))
    transfer = LogTransfer(log, taken, start)
    heartbeats, last = itertools.cycle(heartbeats), -1
    allowances = itertools.cycle(allowances)
    for more in [*grows, 0]:
        log.replicable_offset += more
        progress = SendProgress.SENT
        while progress is not SendProgress.AT_END:
            if not transfer.is_in_frame and transfer.offset > last and next(heartbeats):
                last = transfer.offset  # otherwise nothing else might ever be sent
                transfer.begin_heartbeat()
            progress = transfer.send(next(allowances))
            assert not log.is_lent
            assert transfer.sent_bytes == len(taken.taken)
    at = start
    for offset, body in frames(taken.taken):
        assert offset == at
        assert len(body) <= batch_bytes
        assert not body or offset // SEGMENT == (offset + len(body) - 1) // SEGMENT
        assert body == np.arange(at, at + len(body)).astype(np.uint8).tobytes()
        at += len(body)
    assert at == log.replicable_offset == transfer.offset


def test_frames_are_as_long_as_may_be():
    taken = Socket(everything())
    send_all(LogTransfer(Log(100, 600), taken, 90))
    sizes = [(offset, len(body)) for offset, body in frames(taken.taken)]
    assert sizes == [(90, 100), (190, 66), (256, 100), (356, 100), (456, 56), (512, 88)]


def test_an_allowance_makes_frames_shorter():
    taken = Socket(everything())
    transfer = LogTransfer(Log(100, 256), taken, 0)
    transfer.send(130)
    assert [(at, len(body)) for at, body in frames(taken.taken)] == [(0, 100), (100, 30)]


def test_a_frame_that_was_begun_needs_no_allowance():
    taken = Socket(iter([20, 1000]))
    transfer = LogTransfer(Log(100, 256), taken, 0)
    assert transfer.send(100) is SendProgress.BLOCKED
    assert transfer.is_in_frame
    assert transfer.offset == 8
    assert transfer.send(0) is SendProgress.SENT
    assert not transfer.is_in_frame
    assert [(at, len(body)) for at, body in frames(taken.taken)] == [(0, 100)]


def test_a_heartbeat_says_what_comes_next():
    taken = Socket(iter([3, 9, 1000, 1000]))
    transfer = LogTransfer(Log(100, 90), taken, 70)
    transfer.begin_heartbeat()
    assert transfer.send(100) is SendProgress.BLOCKED
    assert transfer.send(100) is SendProgress.SENT
    assert transfer.send(100) is SendProgress.SENT
    transfer.begin_heartbeat()
    assert transfer.send(100) is SendProgress.SENT
    assert [(at, len(body)) for at, body in frames(taken.taken)] == [(70, 0), (70, 20), (90, 0)]


def test_bytes_that_were_deleted_end_the_transfer():
    log = Log(100, 600)
    transfer = LogTransfer(log, Socket(iter([50])), 90)
    assert transfer.send(100) is SendProgress.BLOCKED
    log.min_phy_offset = 256
    with pytest.raises(HAError, match="is at offset 128, but the log now begins at 256"):
        transfer.send(100)


def test_an_offset_that_was_deleted_before_is_only_nothing():
    transfer = LogTransfer(Log(100, 600, first=256), Socket(everything()), 90, is_below_log=True)
    assert transfer.send(100) is SendProgress.AT_END
    assert not transfer.is_behind
