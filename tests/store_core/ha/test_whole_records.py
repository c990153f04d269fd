# SPDX-License-Identifier: Apache-2.0
"""Only whole records may be appended, wherever the received pieces end."""

from __future__ import annotations

import random

import pytest

from store_core.ha.frame_reader import WholeRecords
from tests.store_core.ha.stores import SEGMENT, record_ends


def pieces_of(log, rng, most):
    """Cut a log anywhere, and at the ends of segments."""
    at = 0
    while at < len(log):
        stop = min(at + rng.randrange(1, most), at - at % SEGMENT + SEGMENT, len(log))
        yield at, memoryview(log)[at:stop]
        at = stop


def take(records, pieces):
    """Return the end of the appended bytes after each piece, and all these bytes."""
    ends, found = [], bytearray()
    for offset, data in pieces:
        for part in records.take(offset, data):
            assert part.offset == len(found)
            found += part.data
        ends.append((offset + len(data), len(found)))
    return ends, bytes(found)


@pytest.mark.parametrize("most", [2, 9, 300, 5000, 100_000])
def test_ends_with_a_record(written_log, most):
    log = written_log[:140_000] if most < 100 else written_log
    at_ends = set(record_ends(written_log).tolist())
    rng, records = random.Random(most), WholeRecords(SEGMENT)
    ends, found = take(records, pieces_of(log, rng, most))
    assert found == log[: len(found)]
    in_blank = 0
    for received, given in ends:
        last = max(end for end in at_ends if end <= received)
        in_blank += given not in at_ends
        assert given in {last, received}  # the latter after a blank record's beginning
    assert in_blank <= sum(received % SEGMENT > SEGMENT - 2000 for received, _ in ends)
    if len(log) == len(written_log):
        assert found == written_log


def test_damage_passes_to_the_end_of_its_segment(written_log):
    log, at_ends = bytearray(written_log), record_ends(written_log)
    at = int(at_ends[30])
    log[at + 4 : at + 8] = b"\xff\xff\xff\xff"
    ends, found = take(WholeRecords(SEGMENT), pieces_of(bytes(log), random.Random(1), 700))
    assert found == log
    for received, given in ends:
        if at + 8 <= received <= SEGMENT:
            assert given == received
        elif received > SEGMENT + 2000 and received % SEGMENT < SEGMENT - 2000:
            assert given in at_ends


@pytest.mark.parametrize("size", [0, 1, 8, 90, SEGMENT + 1, 2**31 - 1, 2**32 - 1])
def test_sizes_that_cannot_be(written_log, size):
    log = bytearray(written_log[: 2 * SEGMENT])
    log[:4] = size.to_bytes(4, "big")
    _, found = take(WholeRecords(SEGMENT), pieces_of(bytes(log), random.Random(2), 4000))
    assert found == log


def test_a_record_in_many_pieces_is_kept_once():
    size = 60_000
    record = size.to_bytes(4, "big") + bytes.fromhex("daa320a7") + bytes(size - 8)
    records = WholeRecords(SEGMENT)
    for at in range(0, size - 100, 100):
        assert not list(records.take(at, memoryview(record)[at : at + 100]))
    ((offset, data),) = records.take(size - 100, memoryview(record)[size - 100 :])
    assert offset == 0
    assert data == record
