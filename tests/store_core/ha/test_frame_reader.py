"""Frames come in any pieces, and from anybody."""

from __future__ import annotations

import random
import struct

import pytest

from store_core.errors import HAError
from store_core.ha.frame_reader import FrameReader
from store_core.ha.peer import ConnectionLostError

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
    """Receive a stream in pieces; return the runs, copied."""
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
        ((500, -1), ConnectionLostError, "no frames of a commit log: offset 500, -1 bytes"),
        ((500, 2**31 - 1), ConnectionLostError, "at most 4194292"),
        ((-1, 5), ConnectionLostError, "offset -1"),
        ((499, 5), ConnectionLostError, "offset 499 where 500 comes next"),
        ((499, 0), ConnectionLostError, "offset 499 where 500 comes next"),
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
