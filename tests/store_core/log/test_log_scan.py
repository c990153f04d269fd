# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.message_codec import encode_blank
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import CorruptRecordError
from store_core.files.byte_source import LocalByteSource
from store_core.files.remote_files import RemoteByteSource
from store_core.files.store_directory import StoreDirectory
from store_core.log import log_scan
from store_core.log.commit_log import CommitLog, frames_of, scan_frames, scan_log
from store_core.log.log_scan import BatchSizer, Gap, LogSlice, refuse_gap, scan_slice, skip_gap
from tests.examples import examples
from tests.store_factory import StoreFactory, small_store

SEGMENT = 4096


class MemorySource(RemoteByteSource):
    """Bytes in memory; counts what is read, as a remote file would send it."""

    _identity = None
    _ahead = None

    def __init__(self, data):
        self.path, self.size, self._data = "memory", len(data), bytes(data)
        self.bytes_read = 0

    def read_ahead(self, start, stop):
        """Read nothing ahead: tests of remote sources count that."""

    def read_at(self, start, length):
        start, stop = self._clip(start, length)
        self.bytes_read += stop - start
        return self._data[start:stop]

    def close(self):
        pass


@pytest.fixture(scope="module")
def one_segment(tmp_path_factory):
    """Return data and records of a full segment that a blank record closes."""
    factory = small_store(tmp_path_factory.mktemp("scan"), 40, segment_bytes=SEGMENT)
    records = [r for r in factory.records if r.commit_log_offset < SEGMENT]
    assert len(factory.data) > SEGMENT > records[-1].commit_log_offset + records[-1].total_size
    return bytes(factory.data[:SEGMENT]), records


def slice_of(start=0, stop=SEGMENT, end=SEGMENT, missing=0, base=0, file_size=SEGMENT):
    return LogSlice(
        path="memory",
        from_offset=base,
        file_size=file_size,
        start=base + start,
        stop=base + stop,
        end_offset=base + end,
        missing_bytes=missing,
    )


def parts_of(source, part, rows=5, size=600):
    """Return the (offset, size) of the records, and the gaps, of a slice."""
    records, gaps = [], []
    for found in scan_slice(source, part, BatchSizer(rows, size)):
        if isinstance(found, Gap):
            gaps.append(found)
            continue
        assert 0 < len(found) <= rows
        assert found.ok.all()
        offsets = found.column("commit_log_offset").tolist()
        records += zip(offsets, found.column("total_size").tolist())
    return records, gaps


def spans(records):
    return [(r.commit_log_offset, r.total_size) for r in records]


cut_points = st.lists(st.integers(1, SEGMENT - 1), max_size=5).map(lambda c: sorted(set(c)))


@st.composite
def damages(draw):
    """Return ranges of bytes and their replacements."""
    changes = []
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, SEGMENT - 1))
        length = draw(st.sampled_from([1, 1, 4, 90, 600]))
        value = draw(st.sampled_from([0, 0xFF, 0x7F, 0x80, 1]))
        changes.append((at, min(length, SEGMENT - at), value))
    return changes


def damaged(data, changes):
    changed = bytearray(data)
    for at, length, value in changes:
        changed[at : at + length] = bytes([value]) * length
    return bytes(changed)


@pytest.mark.parametrize("remote", [False, True])
@settings(max_examples=examples(60), deadline=None)
@given(cuts=cut_points, changes=damages(), rows=st.integers(1, 70), size=st.integers(1, 5000))
def test_slices_give_every_record_and_gap_once(
    one_segment, tmp_path_factory, remote, cuts, changes, rows, size
):
    original, records = one_segment
    data = damaged(original, changes)
    if remote:
        source = MemorySource(data)
    else:
        path = tmp_path_factory.getbasetemp() / "slices"
        path.write_bytes(data)
        source = LocalByteSource(str(path))
    with source:
        whole = parts_of(source, slice_of(), rows, size)
        found, gaps = [], []
        for start, stop in zip([0, *cuts], [*cuts, SEGMENT]):
            part_records, part_gaps = parts_of(source, slice_of(start, stop), rows, size)
            found += part_records
            gaps += part_gaps
    assert (found, gaps) == whole
    untouched = [
        (at, length)
        for at, length in spans(records)
        if data[at : at + length] == original[at : at + length]
    ]
    blank = records[-1].commit_log_offset + records[-1].total_size
    assert set(untouched) <= set(found)
    covered = sorted([*found, *((gap.commit_log_offset, gap.bytes_lost) for gap in gaps)])
    at = 0
    for start, length in covered:  # records and gaps follow one another
        assert start == at
        assert length > 0
        at = start + length
    assert at in (blank, SEGMENT)
    for gap in gaps:
        gap_end = gap.commit_log_offset + gap.bytes_lost
        assert not any(gap.commit_log_offset <= start < gap_end for start, _ in untouched)


def test_a_slice_belongs_to_the_start_of_its_records(one_segment):
    data, records = one_segment
    second = records[1].commit_log_offset
    source = MemorySource(data)
    assert parts_of(source, slice_of(0, second))[0] == spans(records[:1])
    assert parts_of(source, slice_of(0, second + 1))[0] == spans(records[:2])
    assert parts_of(source, slice_of(second, second + 1))[0] == spans(records[1:2])
    assert parts_of(source, slice_of(second + 1, second + 2))[0] == []


def test_a_gap_names_place_and_bytes(one_segment):
    data, records = one_segment
    bad = records[2]
    at = bad.commit_log_offset
    changed = damaged(data, [(at + 4, 4, 0xAB)])
    (gap,) = parts_of(MemorySource(changed), slice_of())[1]
    assert gap[:4] == (at, bad.total_size, "memory", at)
    assert "abababab" in gap.reason
    changed = damaged(data, [(at, bad.total_size, 0)])
    (gap,) = parts_of(MemorySource(changed), slice_of())[1]
    assert gap.reason == "no valid record: the bytes are zero"


def test_a_short_file_has_a_gap_at_its_end(one_segment):
    data, records = one_segment
    cut = records[3].commit_log_offset + 10
    for left in (cut, records[3].commit_log_offset, 0):
        found, gaps = parts_of(MemorySource(data[:left]), slice_of())
        whole = [r for r in records if r.commit_log_offset + r.total_size <= left]
        assert found == spans(whole)
        end = sum(r.total_size for r in whole)
        (gap,) = gaps
        assert gap[:2] == (end, SEGMENT - end)


def test_missing_segments_are_a_gap_of_the_slice_that_ends_there(one_segment):
    data, _ = one_segment
    source = MemorySource(data)
    (gap,) = parts_of(source, slice_of(missing=2 * SEGMENT))[1]
    assert gap[:4] == (SEGMENT, 2 * SEGMENT, "memory", SEGMENT)
    (gap,) = parts_of(source, slice_of(SEGMENT - 1, missing=SEGMENT))[1]
    assert gap.bytes_lost == SEGMENT
    assert parts_of(source, slice_of(0, SEGMENT - 1, missing=SEGMENT))[1] == []


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, SEGMENT))
def test_nothing_behind_the_end_of_the_log_is_read(one_segment, end):
    data, records = one_segment
    found, gaps = parts_of(MemorySource(data), slice_of(end=end))
    whole = [r for r in records if r.commit_log_offset + r.total_size <= end]
    assert found == spans(whole)
    lost = end - sum(r.total_size for r in whole)
    blank = records[-1].commit_log_offset + records[-1].total_size
    assert [gap.bytes_lost for gap in gaps] == ([lost] if lost and end - blank < 8 else [])


@pytest.mark.parametrize("start", [0, 1, 200, 2000, 3000, 3500])
def test_old_records_in_a_closing_blank_record_are_not_data(tmp_path, start):
    old = StoreFactory(tmp_path, segment_bytes=SEGMENT)
    while old.left_in_segment > 150:
        old.add(body=b"old")
    new = StoreFactory(tmp_path, segment_bytes=SEGMENT)
    while new.end_offset < 2500:
        new.add(body=b"new text")
    at = next(r.commit_log_offset for r in old.records if r.commit_log_offset > new.end_offset + 8)
    head = bytes(new.data) + encode_blank(SEGMENT - new.end_offset)
    data = head.ljust(at, b"\0") + bytes(old.data[at:])
    source = MemorySource(data.ljust(SEGMENT, b"\0"))
    found, gaps = parts_of(source, slice_of(start))
    assert found == spans(r for r in new.records if r.commit_log_offset >= start)
    assert gaps == []


def test_a_blank_record_amid_records_is_damage(one_segment):
    data, records = one_segment
    at = records[4].commit_log_offset
    changed = bytearray(data)
    changed[at : at + 8] = encode_blank(50)
    found, gaps = parts_of(MemorySource(changed), slice_of())
    assert found == spans(r for r in records if r is not records[4])
    assert [gap[:2] for gap in gaps] == [(at, records[4].total_size)]


def test_damage_right_before_the_closing_blank_is_a_gap(one_segment):
    original, records = one_segment
    last = records[-1]
    at = last.commit_log_offset
    data = damaged(original, [(at + 33, 1, 0xEE)])  # its own physical offset
    found, gaps = parts_of(MemorySource(data), slice_of(), rows=1000, size=SEGMENT)
    assert found == spans(records[:-1])
    assert [(gap.commit_log_offset, gap.bytes_lost) for gap in gaps] == [(at, SEGMENT - at)]


def test_the_first_batches_are_small():
    sizer = BatchSizer(1000, 10)
    assert [sizer.next_rows() for _ in range(5)] == [256, 1000, 1000, 1000, 1000]
    assert BatchSizer(3, 10).next_rows() == 3


def test_a_remote_slice_moves_its_own_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(log_scan, "_MAX_BLANK_BYTES", 1 << 16)
    monkeypatch.setattr(log_scan, "WINDOW_BYTES", 1 << 17)
    size = 4 << 20
    factory = StoreFactory(tmp_path, segment_bytes=size)
    while factory.left_in_segment > 20_000:
        factory.add(body=np.random.default_rng(1).bytes(9_000))
    source = MemorySource(bytes(factory.data).ljust(size, b"\0"))
    whole, gaps = [], []
    for start in range(0, size, size // 4):
        source.bytes_read = 0
        part = slice_of(start, start + size // 4, factory.end_offset, file_size=size)
        found, part_gaps = parts_of(source, part, 1000, 1 << 20)
        whole += found
        gaps += part_gaps
        assert source.bytes_read < size // 4 + 300_000
    assert whole == spans(factory.records)
    assert gaps == []


@pytest.fixture(scope="module")
def holed_log(tmp_path_factory):
    """Return a log of five segments that begins at the second and lacks the fourth, and its end."""
    factory = small_store(tmp_path_factory.mktemp("holed"), 120, segment_bytes=SEGMENT)
    assert 4 * SEGMENT < factory.end_offset < 5 * SEGMENT
    root = factory.write()
    for number in (0, 3):
        factory.segment_path(number * SEGMENT).unlink()
    records = [r for r in factory.records if r.commit_log_offset // SEGMENT not in {0, 3}]
    log = CommitLog(StoreDirectory(str(root)), MessageStoreConfig())
    with closing(log):
        yield log, records, factory.end_offset


def spans_of(parts):
    return [
        span
        for frames in parts
        for span in zip(
            frames.column("commit_log_offset").tolist(), frames.column("total_size").tolist()
        )
    ]


def test_a_scan_gives_all_records_and_what_is_lost_in_between(holed_log):
    log, records, end = holed_log
    parts = list(scan_log(log, SEGMENT, end, sizer=BatchSizer(5, 600)))
    gaps = [part for part in parts if isinstance(part, Gap)]
    assert spans_of(part for part in parts if not isinstance(part, Gap)) == spans(records)
    assert [gap[:2] for gap in gaps] == [(3 * SEGMENT, SEGMENT)]
    assert gaps[0].path.endswith(str(2 * SEGMENT))
    assert (gaps[0].position, gaps[0].reason) == (SEGMENT, "segments are missing after this file")


@pytest.mark.parametrize(
    ("start", "stop", "lost"),
    [
        (0, SEGMENT, SEGMENT),
        (100, SEGMENT + 1, SEGMENT - 100),
        (3 * SEGMENT + 7, 4 * SEGMENT - 9, SEGMENT - 16),
    ],
)
def test_what_is_lost_at_the_head_of_a_range_is_a_gap(holed_log, start, stop, lost):
    gaps = [part for part in scan_log(holed_log[0], start, stop) if isinstance(part, Gap)]
    assert [gap[:2] for gap in gaps[:1]] == [(start, lost)]
    text = f"the segments that held offsets {start} to {start + lost} of the log are missing"
    assert gaps[0].reason == text


@given(st.lists(st.integers(SEGMENT, 5 * SEGMENT), max_size=5), st.integers(1, 20))
@settings(deadline=None)
def test_ranges_that_follow_each_other_give_every_record_of_a_log_once(holed_log, cuts, rows):
    log, records, end = holed_log
    bounds = [SEGMENT, *sorted(min(cut, end) for cut in cuts), end]
    found, lost = [], []
    for start, stop in zip(bounds, bounds[1:]):
        sizer = BatchSizer(rows, 2000)
        found += spans_of(
            scan_frames(log, start, stop, end, on_gap=lost.append, sizer=sizer),
        )
    assert found == spans(records)
    assert sum(gap.bytes_lost for gap in lost) == SEGMENT
    assert all(3 * SEGMENT <= gap.commit_log_offset < 4 * SEGMENT for gap in lost)


def test_a_record_that_reaches_behind_the_stop_is_left_out_unless_the_log_goes_on(holed_log):
    log, records, end = holed_log
    last = records[5]
    stop = last.commit_log_offset + last.total_size - 1
    assert spans_of(scan_frames(log, SEGMENT, stop, on_gap=skip_gap)) == spans(records[:5])
    assert spans_of(scan_frames(log, SEGMENT, stop, end, on_gap=refuse_gap)) == spans(records[:6])


def test_a_refused_gap_is_an_error_that_names_the_place(holed_log):
    log, records, end = holed_log
    frames = scan_frames(log, SEGMENT, end, on_gap=refuse_gap)
    found = []
    with pytest.raises(CorruptRecordError, match="segments are missing") as caught:
        found.extend(part for part in frames)
    assert spans_of(found) == spans(r for r in records if r.commit_log_offset < 3 * SEGMENT)
    assert caught.value.position == SEGMENT


def test_frames_of_known_records_are_those_of_their_segments(holed_log):
    log, records, _ = holed_log
    wanted = records[::7]
    starts = np.array([r.commit_log_offset for r in wanted], np.int64)
    assert spans_of(frames_of(log, starts)) == spans(wanted)
