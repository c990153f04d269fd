# SPDX-License-Identifier: Apache-2.0
"""Frames come in any pieces, and from any peer."""

from __future__ import annotations

import random
import struct
from collections import deque

import pytest

from store_core.errors import HAError
from store_core.ha.frame_reader import FirstRecord, FrameReader
from store_core.ha.peer import ConnectionLostError
from store_core.message import Message
from store_core.message_store import MessageStore
from tests.store_core.ha.stores import log_bytes, store_config

HEADER = struct.Struct(">qi")
SEGMENT = 1000


def frames(log, sizes, first=0, heartbeats=lambda: 0):
    """Return a log as frames of these sizes, never over the end of a segment."""
    at, stream = first, b""
    while at < first + len(log):
        stream += HEADER.pack(at, 0) * heartbeats()
        size = min(sizes(), SEGMENT - at % SEGMENT, first + len(log) - at)
        stream += HEADER.pack(at, size) + log[at - first : at - first + size]
        at += size
    return stream


def read(reader, stream, counts):
    """Receive a stream in pieces; return copies of the runs."""
    at, runs = 0, []
    while at < len(stream):
        room = reader.room()
        count = min(counts(), len(room), len(stream) - at)
        room[:count] = stream[at : at + count]
        runs += [(offset, bytes(data)) for offset, data in reader.take(count)]
        at += count
    return runs


@pytest.mark.parametrize("seed", range(30))
def test_the_log_comes_whatever_the_pieces(seed):
    rng = random.Random(seed)
    log, first = rng.randbytes(5000), 2 * SEGMENT
    most = rng.choice([1, 20, 400, 5000])
    stream = frames(log, lambda: rng.randint(1, most), first, lambda: rng.choice([0, 0, 1, 2, 50]))
    reader = FrameReader("m:1", SEGMENT, rng.choice([None, first]), rng.choice([13, 100, 4096]))
    piece = rng.choice([1, 7, 3000])
    runs = read(reader, stream, lambda: rng.randint(1, piece))
    assert b"".join(data for _, data in runs) == log
    at = first
    for offset, data in runs:
        assert offset == at
        assert data
        assert offset // SEGMENT == (offset + len(data) - 1) // SEGMENT
        at += len(data)
    assert reader.next_offset == reader.known_end == at
    assert reader.is_between_frames


def test_one_run_of_what_came_at_once():
    reader = FrameReader("m:1", SEGMENT, 0, 4096)
    log = bytes(range(250)) * 4
    stream = frames(log, lambda: 100)
    assert read(reader, stream, lambda: 4096) == [(0, log)]
    assert reader.frames == 10
    assert reader.largest_body == reader.last_body == 100


def test_what_is_known_of_a_frame_that_is_coming():
    reader = FrameReader("m:1", SEGMENT, 500, 4096)
    assert read(reader, HEADER.pack(500, 300) + b"abc", lambda: 99) == [(500, b"abc")]
    assert reader.next_offset == 503
    assert reader.known_end == 800
    assert not reader.is_between_frames


def test_a_flood_of_heartbeats_is_one_step():
    reader = FrameReader("m:1", SEGMENT, 500, 1 << 20)
    assert read(
        reader, HEADER.pack(500, 0) * 80_000 + HEADER.pack(500, 1) + b"x", lambda: 1 << 20
    ) == [(500, b"x")]
    assert reader.heartbeats == 80_000
    assert reader.frames == 80_001


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        ((500, -1), ConnectionLostError, "not send frames of a commit log: offset 500, -1 bytes"),
        ((500, 2**31 - 1), ConnectionLostError, "at most 4194292"),
        ((-1, 5), ConnectionLostError, "offset -1"),
        ((499, 5), ConnectionLostError, "offset 499, but 500 comes next"),
        ((499, 0), ConnectionLostError, "offset 499, but 500 comes next"),
        ((500, 501), HAError, "mappedFileSizeCommitLog is 1000"),
    ],
)
def test_what_no_master_sends(frame, error, text):
    reader = FrameReader("m:1", SEGMENT, 500, 4096)
    with pytest.raises(error, match=text) as caught:
        read(reader, HEADER.pack(*frame), lambda: 99)
    assert "m:1" in str(caught.value)


def test_segments_of_another_size():
    reader = FrameReader("m:1", SEGMENT, None, 4096)
    with pytest.raises(HAError, match="a segment that begins at 1500"):
        read(reader, HEADER.pack(1500, 5), lambda: 99)


def log_of(root, body):
    config = store_config(
        root,
        mapped_file_size_commit_log=1 << 26,
        max_message_size=1 << 26,
    )
    with MessageStore(config) as store:
        assert store.put_message(Message(topic="T", queue_id=0, body=body)).status.name == "PUT_OK"
        end = store.max_phy_offset
    return log_bytes(root)[:end]


@pytest.mark.parametrize("size", [0, 1000, (1 << 24) + 77])
def test_it_is_the_high_byte_of_the_size(tmp_path, size):
    log = log_of(tmp_path / "store", b"b" * size)
    assert log[0] == size >> 24
    first = FirstRecord("m:1", 1 << 26)
    step = max(len(log) // 7, 1)
    found = None
    for at in range(1, len(log), step):
        assert found is None
        found = first.take(at, memoryview(log[at : at + step]))
    assert found is not None
    assert found.offset == 0
    assert bytes(found.data) == log


@pytest.mark.parametrize("place", [1, 3, 5, 30, 87])
def test_no_record_is_refused(tmp_path, place):
    log = bytearray(log_of(tmp_path / "store", b"b" * 1000))
    log[place] ^= 0x41
    first = FirstRecord("m:1", 65536)
    whole = memoryview(log + bytes(1 << 17))
    with pytest.raises(HAError, match="m:1 has no record at offset 0"):
        deque((first.take(at, whole[at : at + 1000]) for at in range(1, 1 << 17, 1000)), maxlen=0)


def test_a_segment_begins_with_a_record(tmp_path):
    log = log_of(tmp_path / "store", b"b" * 1000)
    first = FirstRecord("m:1", 1 << 26)
    assert first.take(0, memoryview(log[:-1])) is None
    offset, data = first.take(len(log) - 1, memoryview(log[-1:] + b"more"))
    assert offset == 0
    assert bytes(data) == log + b"more"
    with pytest.raises(HAError, match="no record at offset 65536"):  # its own offset differs
        FirstRecord("m:1", 65536).take(65536, memoryview(log))
    with pytest.raises(HAError, match="no record at offset 0"):
        FirstRecord("m:1", 65536).take(0, memoryview(bytes(200)))
