# SPDX-License-Identifier: Apache-2.0
"""The end of a DLedger log: committed, cut, damaged or swapped records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.dledger_entries import entry_headers, first_older, headers_ok
from store_core.codec.record_frames import RecordFrames, walk_entries
from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.byte_source import LocalByteSource
from store_core.layout import CQ_UNIT, DLEDGER_BLANK_MAGIC, DLEDGER_ENTRY, DLEDGER_MAGIC
from store_core.log import log_scan
from store_core.log.commit_log import scan_log
from store_core.log.dledger_log import UNCOMMITTED
from store_core.log.end_rules import OLDER_ENTRY
from store_core.log.log_scan import DAMAGED_HEADER, Gap, LogSlice
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.dledger_factory import HEADER, DLedgerFactory
from tests.examples import examples
from tests.golden_store import tree_state
from tests.store_core.log.test_log_scan import (
    MemorySource,
    cut_points,
    damaged,
    damages,
    parts_of,
)
from tests.store_factory import small_store

SEGMENT = 4096
CONFIG = MessageStoreConfig()
ALL = 10**9


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    factory = small_store(tmp_path_factory.mktemp("records"), 60, segment_bytes=1 << 20)
    data = bytes(factory.data)
    return [data[r.commit_log_offset : r.commit_log_offset + r.total_size] for r in factory.records]


def read(root, config=CONFIG):
    """Return the places of records, the gaps, and the snapshot's end and its reason."""
    before = tree_state(root)
    with StoreSnapshot(root, config) as snapshot:
        begin = max(snapshot.min_phy_offset, 0)
        records, gaps = [], []
        for found in scan_log(snapshot.log, begin, snapshot.end_offset):
            if isinstance(found, Gap):
                gaps.append(found)
            else:
                places = found.column("commit_log_offset"), found.column("total_size")
                records += zip(*(column.tolist() for column in places))
        end = snapshot.end_offset, snapshot.end_reason
    assert tree_state(root) == before
    return records, gaps, end


def dispatch(root: Path, spans, topic="TopicA", units=16):
    """Write one queue that holds some records."""
    path = root / "consumequeue" / topic / "0"
    path.mkdir(parents=True)
    data = b"".join(
        CQ_UNIT.pack(commit_log_offset=at, message_size=size, tags_code=0) for at, size in spans
    )
    size = units * CQ_UNIT.size
    (path / f"{0:020d}").write_bytes(data[:size].ljust(size, b"\0"))


def change(data: Path, at: int, new: bytes) -> None:
    """Change bytes of the log at a physical offset."""
    path = data / f"{at // SEGMENT * SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(at % SEGMENT)
        file.write(new)


def test_all_that_is_committed_is_read(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records)
    made.write(tmp_path)
    assert len(made.data) > 2 * SEGMENT
    assert read(tmp_path) == (made.spans, [], (made.end_offset, "only zeros follow"))


@pytest.mark.parametrize("committed", [-1, 0, 1, 12, 30, 58, 59, 70])
def test_what_is_not_known_to_be_committed_is_left_out(tmp_path, records, committed):
    made = DLedgerFactory(SEGMENT).add_all(records)
    made.write(tmp_path, committed=committed)
    shown = made.spans[: committed + 1]
    found, gaps, (end, reason) = read(tmp_path)
    assert (found, gaps) == (shown, [])
    assert end == (sum(shown[-1]) if shown else 0)
    assert (reason == UNCOMMITTED) == (committed < 59)
    alone = MessageStoreConfig(d_leger_peers="n0-127.0.0.1:40911;")
    assert read(tmp_path, alone)[0] == made.spans
    others = MessageStoreConfig(d_leger_peers="n0-a:1;n1-b:1;n2-c:1")
    assert read(tmp_path, others)[0] == shown


@pytest.mark.parametrize(("committed", "dispatched"), [(-1, 5), (4, 5), (5, 4), (2, 14), (12, 0)])
def test_what_was_dispatched_is_committed(tmp_path, committed, dispatched):
    of_one_queue = small_store(tmp_path / "records", 0, segment_bytes=1 << 20)
    for number in range(16):
        of_one_queue.add("TopicA", b"body %d" % number, store_timestamp=1000 + number)
    made = DLedgerFactory(1024)
    for record in of_one_queue.records:
        at = record.commit_log_offset
        made.add(bytes(of_one_queue.data[at : at + record.total_size]))
    made.write(tmp_path, committed=committed)
    dispatch(tmp_path, made.spans[: dispatched + 1])
    found, gaps, (end, _) = read(tmp_path)
    assert gaps == []
    assert found == made.spans[: max(committed, dispatched) + 1]
    assert end == sum(found[-1])


def test_a_node_without_checkpoint_shows_what_was_dispatched(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records)
    data = made.write(tmp_path)
    (data.parent / "checkpoint").unlink()
    assert read(tmp_path)[0] == []
    (data.parent / "checkpoint").write_bytes(b"committedIndex = 7\n")
    assert read(tmp_path)[0] == made.spans[:8]
    (data.parent / "checkpoint").write_bytes(b"committedIndex=99999999999999999999999\n\xff\0")
    assert read(tmp_path)[0] == []


def test_entries_of_an_earlier_term_are_left_of_a_log_that_was_cut(tmp_path, records):
    same = [records[1]] * 20
    old = DLedgerFactory(SEGMENT).add_all(same, term=3)
    new = DLedgerFactory(SEGMENT).add_all(same[:8], term=3).add_all(same[:4], term=5)
    mixed = DLedgerFactory(SEGMENT)
    mixed.data, mixed.index = new.data + old.data[len(new.data) :], 99
    mixed.write(tmp_path, committed=99)
    assert read(tmp_path) == (new.spans, [], (new.end_offset, OLDER_ENTRY))


def test_an_index_that_goes_back_is_left_of_a_log_that_was_cut(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records[:6])
    end = made.end_offset
    made.add(records[6], index=3)
    made.write(tmp_path, committed=99)
    assert read(tmp_path)[2] == (end, OLDER_ENTRY)


@pytest.mark.parametrize("field", ["magic", "size", "pos", "body_size"])
def test_a_damaged_header_costs_no_message(tmp_path, records, field):
    made = DLedgerFactory(SEGMENT).add_all(records)
    data = made.write(tmp_path)
    for at, _ in (made.spans[0], made.spans[20], made.spans[-1]):
        change(data, at - HEADER + DLEDGER_ENTRY.at(field), b"\x7f\x7f\x7f")
    found, gaps, _ = read(tmp_path)
    assert found == made.spans
    assert [(g.commit_log_offset, g.bytes_lost) for g in gaps] == [
        (at - HEADER, HEADER) for at, _ in (made.spans[0], made.spans[20], made.spans[-1])
    ]


def test_a_damaged_record_in_the_middle_is_one_gap(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records)
    data = made.write(tmp_path)
    at, size = made.spans[30]
    change(data, at, bytes(60))
    found, (gap,), _ = read(tmp_path)
    assert found == [s for s in made.spans if s[0] != at]
    assert gap[:2] == (at - HEADER, size + HEADER)


@pytest.mark.parametrize("kept", [0, 1, 47, 48, 49, 100])
def test_a_tail_that_was_cut_ends_the_log(tmp_path, records, kept):
    made = DLedgerFactory(SEGMENT).add_all(records)
    at, _ = made.spans[-1]
    end = made.end_offset
    made.data = made.data[: at - HEADER + kept] + bytes(end - (at - HEADER) - kept)
    made.write(tmp_path)
    found, _, (log_end, _) = read(tmp_path)
    assert found == made.spans[:-1]
    assert at - HEADER <= log_end <= at - HEADER + kept


def test_a_file_that_was_cut_short_is_a_gap(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records)
    data = made.write(tmp_path)
    at, size = next(s for s in made.spans if s[0] > SEGMENT + 1500)
    with (data / f"{SEGMENT:020d}").open("r+b") as file:
        file.truncate(at + size - 5 - SEGMENT)
    found, (gap,), _ = read(tmp_path)
    assert found == [s for s in made.spans if not at <= s[0] < 2 * SEGMENT]
    assert gap[:2] == (at - HEADER, 2 * SEGMENT - at + HEADER)


def test_swapped_files_give_no_row(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records)
    data = made.write(tmp_path)
    one, two = (data / f"{n * SEGMENT:020d}" for n in (0, 1))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    found, gaps, _ = read(tmp_path)
    assert found == [s for s in made.spans if s[0] >= 2 * SEGMENT]
    assert sum(g.bytes_lost for g in gaps) == 2 * SEGMENT


def test_a_lost_file_is_a_gap(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records)
    data = made.write(tmp_path)
    (data / f"{SEGMENT:020d}").unlink()
    found, (gap,), _ = read(tmp_path)
    assert found == [s for s in made.spans if not SEGMENT <= s[0] < 2 * SEGMENT]
    assert gap[:2] == (SEGMENT, SEGMENT)


def test_an_empty_log_and_one_of_zeros(tmp_path):
    made = DLedgerFactory(SEGMENT)
    made.write(tmp_path)
    assert read(tmp_path)[:2] == ([], [])
    made.data = bytearray(10)
    made.write(tmp_path)
    assert read(tmp_path)[:2] == ([], [])


def test_the_commit_log_before_goes_on_in_entries(tmp_path, records):
    old = small_store(tmp_path, 60, segment_bytes=SEGMENT)
    old.roll()
    old.write()
    made = DLedgerFactory(SEGMENT, first_offset=old.end_offset).add_all(records)
    made.write(tmp_path)
    found, gaps, (end, _) = read(tmp_path)
    assert gaps == []
    assert found == [(r.commit_log_offset, r.total_size) for r in old.records] + made.spans
    assert end == made.end_offset


def test_paths_of_a_brokers_file(tmp_path, records):
    made = DLedgerFactory(SEGMENT).add_all(records)
    data = made.write(tmp_path)
    data.rename(tmp_path / "elsewhere")
    config = MessageStoreConfig.from_properties(
        {"storePathDLedgerCommitLog": "elsewhere", "dLegerSelfId": "n0", "dLegerPeers": "n0-h:1"}
    )
    assert read(tmp_path, config)[0] == made.spans


# Walks and scans of DLedger logs, against a walk of one entry after the other.


def slice_of(start=0, stop=SEGMENT, end=SEGMENT, missing=0, exactly=False):
    return LogSlice("memory", 0, SEGMENT, start, stop, end, missing, exactly, HEADER)


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


@settings(max_examples=examples(60), deadline=None)
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


@settings(max_examples=examples(60), deadline=None)
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
@settings(max_examples=examples(100), deadline=None)
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
    monkeypatch.setattr(log_scan, "WINDOW_BYTES", 100)
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
