"""Walks and scans of DLedger logs, against a walk of one entry after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.dledger_entries import entry_headers, first_older, headers_ok
from store_core.codec.record_frames import RecordFrames, walk_entries
from store_core.files.byte_source import LocalByteSource
from store_core.layout.dledger import DLEDGER_BLANK_MAGIC, DLEDGER_ENTRY, DLEDGER_MAGIC
from store_core.log import segment_records
from store_core.log.log_scan import DAMAGED_HEADER, LogSlice
from tests.dledger_factory import HEADER, DLedgerFactory
from tests.store_core.log.test_log_scan import (
    MemorySource,
    cut_points,
    damaged,
    damages,
    parts_of,
)
from tests.store_factory import small_store

SEGMENT = 4096
ALL = 10**9


def slice_of(start=0, stop=SEGMENT, end=SEGMENT, missing=0, exactly=False):
    return LogSlice("memory", 0, SEGMENT, start, stop, end, missing, exactly, HEADER)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    factory = small_store(tmp_path_factory.mktemp("entries"), 60, segment_bytes=1 << 20)
    data = bytes(factory.data)
    places = [(r.commit_log_offset, r.total_size) for r in factory.records]
    return [data[at : at + size] for at, size in places]


@pytest.fixture(scope="module")
def one_segment(records):
    """Return the bytes of a full segment that a blank closes, and the places of its records."""
    factory = DLedgerFactory(SEGMENT).add_all(records)
    assert len(factory.data) > SEGMENT
    return bytes(factory.data[:SEGMENT]), [s for s in factory.spans if s[0] < SEGMENT]


def one_by_one(data):
    """Return the places of records, and whether a blank ends them: entry after entry."""
    at, found = 0, []
    while at + HEADER <= len(data):
        entry = DLEDGER_ENTRY.unpack(data, at)
        if entry.magic == DLEDGER_BLANK_MAGIC:
            return found, True
        if entry.magic != DLEDGER_MAGIC or entry.size == 0:
            return found, False
        found.append((at + HEADER, entry.body_size))
        at += entry.size
    return found, False


def as_array(data):
    return np.frombuffer(bytes(data), np.uint8)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 60),
    same=st.booleans(),
    rows=st.integers(1, 400),
    size=st.integers(1, 9000),
)
def test_the_walk_finds_what_entry_after_entry_does(records, count, same, rows, size):
    chosen = records[:1] * (10 * count) if same else records[:count]
    factory = DLedgerFactory(1 << 20).add_all(chosen)
    data, at, found = as_array(factory.data), 0, []
    while at < len(data):
        walk = walk_entries(data, at, len(data), rows, size)
        assert 0 < len(walk.starts) <= rows
        assert not walk.failed
        frames = RecordFrames(data, 0, walk.starts)
        assert frames.ok.all()
        headers = entry_headers(frames)
        assert headers_ok(headers, frames).all()
        assert [tuple(h) for h in headers.tolist()] == [
            tuple(DLEDGER_ENTRY.unpack(data, start - HEADER)) for start in walk.starts.tolist()
        ]
        found += zip(walk.starts.tolist(), frames.column("total_size").tolist())
        at = walk.stop
    assert (found, False) == one_by_one(factory.data)
    assert found == factory.spans


@settings(max_examples=60, deadline=None)
@given(stop=st.integers(0, SEGMENT))
def test_entries_that_begin_behind_stop_are_not_walked(one_segment, stop):
    data, spans = one_segment
    walk = walk_entries(as_array(data), 0, stop, ALL, ALL)
    assert walk.starts.tolist() == [at for at, _ in spans if at - HEADER < stop]


@pytest.mark.parametrize("left", [8, 9, 47, 48, 55, 56, 57, 200])
def test_a_blank_of_any_size_ends_the_walk(records, left):
    factory = DLedgerFactory(1 << 20).add_all(records[:3])
    blank = DLEDGER_BLANK_MAGIC.to_bytes(4, "big", signed=True) + left.to_bytes(4, "big")
    data = as_array(bytes(factory.data) + blank + bytes(left - 8))
    walk = walk_entries(data, 0, ALL, ALL, ALL)
    assert (walk.stop, walk.blank, walk.failed) == (len(factory.data), True, False)
    assert len(walk.starts) == 3
    zeros = walk_entries(as_array(bytes(factory.data) + bytes(left)), 0, ALL, ALL, ALL)
    assert (zeros.stop, zeros.blank, zeros.failed) == (len(factory.data), False, True)


@pytest.mark.parametrize("remote", [False, True])
@settings(max_examples=100, deadline=None)
@given(cuts=cut_points, changes=damages(), rows=st.integers(1, 70), size=st.integers(1, 5000))
def test_slices_give_every_record_and_gap_once(
    one_segment, tmp_path_factory, remote, cuts, changes, rows, size
):
    original, spans = one_segment
    data = damaged(original, changes)
    if remote:
        source = MemorySource(data)
    else:
        path = tmp_path_factory.getbasetemp() / "entry-slices"
        path.write_bytes(data)
        source = LocalByteSource(str(path))
    with source:
        whole = parts_of(source, slice_of(), rows, size)
        found, gaps = [], []
        for start, stop in zip([0, *cuts], [*cuts, SEGMENT]):
            part_records, part_gaps = parts_of(source, slice_of(start, stop), rows, size)
            found += part_records
            gaps += part_gaps
    assert found == whole[0]
    assert gaps == whole[1]
    untouched = [s for s in spans if data[s[0] : sum(s)] == original[s[0] : sum(s)]]
    assert set(untouched) <= set(found)
    lost = [(gap.commit_log_offset, gap.bytes_lost) for gap in gaps]
    with_headers = [(at - HEADER, length + HEADER) for at, length in found]
    is_gap = {at for at, length in lost if length == HEADER and (at, length) not in with_headers}
    at = 0
    for start, length in sorted([*with_headers, *((a, n) for a, n in lost if a not in is_gap)]):
        if (start, length) in with_headers or start == at:
            assert start == at
            at = start + length
    assert at in (spans[-1][0] + spans[-1][1], SEGMENT)


def test_a_last_entry_of_set_bits_is_a_gap_and_no_blank(one_segment):
    data, spans = one_segment
    start = spans[-1][0] - HEADER
    found, gaps = parts_of(MemorySource(damaged(data, [(start, 62, 0xFF)])), slice_of())
    assert found == spans[:-1]
    (gap,) = gaps
    assert (gap.commit_log_offset, gap.bytes_lost) == (start, SEGMENT - start)


def test_a_damaged_header_is_a_gap_and_its_record_is_read(one_segment):
    data, spans = one_segment
    for field in ("magic", "size", "pos", "body_size"):
        at = spans[2][0] - HEADER + DLEDGER_ENTRY.at(field)
        changed = damaged(data, [(at, 4, 0x55)])
        found, gaps = parts_of(MemorySource(changed), slice_of())
        assert found == spans
        (gap,) = gaps
        assert gap[:4] == (spans[2][0] - HEADER, HEADER, "memory", spans[2][0] - HEADER)
        assert gap.reason == DAMAGED_HEADER


def test_a_damaged_record_is_lost_with_its_header(one_segment):
    data, spans = one_segment
    at, size = spans[2]
    found, (gap,) = parts_of(MemorySource(damaged(data, [(at + 4, 4, 0xAB)])), slice_of())
    assert found == [*spans[:2], *spans[3:]]
    assert gap[:2] == (at - HEADER, size + HEADER)


def test_a_batch_of_a_stream_begins_where_the_last_record_ended(one_segment):
    data, spans = one_segment
    end = sum(spans[3])
    for start in (end, spans[4][0]):
        found, gaps = parts_of(MemorySource(data), slice_of(start, exactly=True))
        assert (found, gaps) == (spans[4:], [])
    changed = damaged(data, [(spans[4][0], 90, 0)])
    _, (gap,) = parts_of(MemorySource(changed), slice_of(end, exactly=True))
    assert gap.commit_log_offset == end
    assert parts_of(MemorySource(changed), slice_of(end))[1] == []


def test_windows_of_a_remote_file_hold_whole_entries(one_segment, monkeypatch):
    data, spans = one_segment
    monkeypatch.setattr(segment_records, "WINDOW_BYTES", 100)
    source = MemorySource(data)
    assert parts_of(source, slice_of()) == (spans, [])
    assert source.bytes_read < 3 * SEGMENT


def test_an_entry_of_an_earlier_term_or_index_is_older():
    def headers(*pairs):
        made = np.zeros(len(pairs), DLEDGER_ENTRY.dtype)
        made["index"], made["term"] = zip(*pairs)
        return made

    assert first_older(headers((4, 1), (5, 1), (6, 2)), 3, 1) == 3
    assert first_older(headers((4, 1), (5, 2), (6, 1)), 3, 1) == 2
    assert first_older(headers((3, 1)), 3, 1) == 0
    assert first_older(headers((4, 0)), 3, 1) == 0
    assert first_older(headers((9, 3)), -1, -1) == 1
    assert first_older(np.zeros(0, DLEDGER_ENTRY.dtype), 3, 1) == 0
