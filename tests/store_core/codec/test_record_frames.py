# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.crc32 import first_invalid
from store_core.codec.message_codec import decode_message, encode_blank
from store_core.codec.record_frames import RecordFrames, is_record, magic_code_hits, walk_records
from store_core.errors import CorruptRecordError
from store_core.layout import HEADER_IPV4, MESSAGE_MAGIC_CODE, RECORD_PREFIX
from tests.examples import examples
from tests.golden_store import golden
from tests.store_core.codec.record_strategies import record_lists
from tests.store_factory import small_store

HOSTS = {"born_host", "store_host"}
FIELDS = [name for name in HEADER_IPV4.dtype.names if name not in HOSTS | {"body_length"}]
ALL = 10**9


def decoded(data, at, offset):
    """Return the record at a position, or None if the scalar codec finds none."""
    try:
        return decode_message(data, at, offset, "")
    except CorruptRecordError:
        return None


def assert_equal_to_scalar(frames, data, base):
    for row, at in enumerate(frames.position.tolist()):
        record = decoded(data, at, base + at)
        assert bool(frames.ok[row]) == (record is not None)
        if record is None:
            continue
        for field in FIELDS:
            assert int(frames.column(field)[row]) == getattr(record, field)
        for part, name in (("body", "body"), ("topic", "topic_bytes")):
            start = int(getattr(frames, f"{part}_start")[row])
            length = int(getattr(frames, f"{part}_length")[row])
            assert bytes(data[start : start + length]) == getattr(record, name)
        start = int(frames.properties_start[row])
        length = int(frames.properties_length[row])
        assert bytes(data[start : start + length]) == record.properties_raw


@settings(max_examples=examples(40), deadline=None)
@given(record_lists, st.data())
def test_frames_of_changed_bytes_equal_the_scalar_codec(placed, draw):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    changed = bytearray(data)
    for at in draw.draw(st.lists(st.integers(0, max(len(data) - 1, 0)), max_size=4)):
        if changed:
            changed[at] = draw.draw(st.integers(0, 255))
    buffer = np.frombuffer(bytes(changed), np.uint8)
    assert_equal_to_scalar(RecordFrames(buffer, base, positions), bytes(changed), base)


@settings(max_examples=examples(60), deadline=None)
@given(record_lists, st.data())
def test_any_position_of_any_length_is_judged(placed, draw):
    data, _, records = placed
    base = records[0].commit_log_offset if records else 0
    length = draw.draw(st.integers(0, len(data)))
    found = draw.draw(st.lists(st.integers(0, len(data) + 200), max_size=8))
    positions = np.array(sorted(found), np.int64)
    frames = RecordFrames(data[:length], base, positions)
    assert_equal_to_scalar(frames, data[:length].tobytes(), base)


@pytest.mark.parametrize("length", [0, 1, 2, 87, 88])
def test_no_record_fits_few_bytes(length):
    frames = RecordFrames(np.zeros(length, np.uint8), 0, np.array([0, 1, 500], np.int64))
    assert not frames.ok.any()
    assert frames.column("total_size").tolist() == [0, 0, 0]


@settings(max_examples=examples(40), deadline=None)
@given(record_lists, st.data())
def test_taken_rows_are_those_rows(placed, draw):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    frames = RecordFrames(data, base, positions)
    rows = sorted(draw.draw(st.sets(st.integers(0, len(records) - 1)))) if records else []
    taken = frames.take(np.array(rows, np.int64))
    assert len(taken) == len(rows)
    for field in FIELDS:
        assert taken.column(field).tolist() == frames.column(field)[rows].tolist()
    for field in HOSTS:
        stored = {}
        for group_rows, raw in taken.hosts(field):
            numbers = range(len(rows)) if group_rows is None else group_rows.tolist()
            stored.update(zip(numbers, (bytes(host) for host in raw)))
        assert [stored[i] for i in range(len(rows))] == [getattr(records[r], field) for r in rows]


@settings(max_examples=examples(40), deadline=None)
@given(record_lists)
def test_pieces_of_a_segment_have_a_base_for_each_row(placed):
    data, positions, records = placed
    parts, places = [], []
    for at, record in zip(positions.tolist(), records):
        places.append(sum(map(len, parts)) + 3)
        parts.append(b"???" + data[at : at + record.total_size].tobytes())
    place = np.array(places, np.int64)
    offsets = np.array([record.commit_log_offset for record in records], np.int64)
    packed = np.frombuffer(b"".join(parts), np.uint8)
    frames = RecordFrames(packed, offsets - place, place)
    assert frames.ok.all()
    assert frames.take(np.arange(len(records))).ok.all()


def as_array(data):
    return np.frombuffer(bytes(data), np.uint8)


@settings(max_examples=examples(60), deadline=None)
@given(record_lists, st.integers(1, 4), st.integers(1, 400))
def test_batches_follow_each_other(placed, rows, size):
    data, positions, records = placed
    at, found = 0, []
    while at < len(data):
        walk = walk_records(data, at, len(data), rows, size)
        assert 0 < len(walk.starts) <= rows
        assert not walk.failed
        assert not walk.blank
        last = records[len(found) + len(walk.starts) - 1].total_size
        assert walk.stop - at - last < size
        found += walk.starts.tolist()
        at = walk.stop
    assert found == positions.tolist()


@settings(max_examples=examples(60), deadline=None)
@given(record_lists, st.data())
def test_records_that_start_behind_stop_are_not_walked(placed, draw):
    data, positions, _ = placed
    stop = draw.draw(st.integers(0, len(data)))
    walk = walk_records(data, 0, stop, ALL, ALL)
    assert walk.starts.tolist() == [at for at in positions.tolist() if at < stop]


@settings(max_examples=examples(60), deadline=None)
@given(record_lists, st.integers(0, 9))
def test_a_blank_record_and_a_failure_stop_the_walk(placed, left):
    data, positions, _ = placed
    blank = walk_records(as_array(data.tobytes() + encode_blank(8 + left)), 0, ALL, ALL, ALL)
    assert (blank.starts.tolist(), blank.stop) == (positions.tolist(), len(data))
    assert (blank.blank, blank.failed) == (True, False)
    zeros = walk_records(as_array(data.tobytes() + bytes(left)), 0, ALL, ALL, ALL)
    assert (zeros.stop, zeros.blank, zeros.failed) == (len(data), False, left > 0)


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 90])
def test_an_impossible_size_fails(size):
    data = RECORD_PREFIX.pack(total_size=size, magic_code=MESSAGE_MAGIC_CODE) + bytes(200)
    walk = walk_records(as_array(data), 0, len(data), 10, ALL)
    assert (len(walk.starts), walk.stop, walk.failed) == (0, 0, True)


@settings(max_examples=examples(40), deadline=None)
@given(record_lists, st.binary(max_size=12))
def test_every_record_is_among_the_hits_and_judged_as_by_the_scalar_codec(placed, garbage):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    moved = as_array(garbage + data.tobytes())
    hits = list(magic_code_hits(moved))
    assert hits == sorted(hits)
    assert {at + len(garbage) for at in positions.tolist()} <= set(hits)
    for at in hits:
        offset = base - len(garbage) + at
        is_one = decoded(moved, at, offset) is not None
        assert is_record(moved, base - len(garbage), at) == is_one


@given(st.binary(max_size=120), st.integers(-5, 130))
def test_garbage_is_no_record(data, at):
    assert not is_record(as_array(data), 0, at)


def frames_of(data, base=0):
    walk = walk_records(data, 0, len(data), 1 << 20, 1 << 30)
    return RecordFrames(data, base, walk.starts)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    factory = small_store(tmp_path_factory.mktemp("s"), 30, segment_bytes=1 << 16)
    return factory, frames_of(np.frombuffer(bytes(factory.data), np.uint8))


def test_good_records_are_all_valid(records):
    assert first_invalid(records[1]) == 30


@given(st.data())
def test_a_changed_body_byte_is_found(records, data):
    factory, frames = records
    row = data.draw(st.sampled_from(np.flatnonzero(frames.body_length).tolist()))
    at = int(frames.body_start[row]) + data.draw(st.integers(0, int(frames.body_length[row]) - 1))
    changed = bytearray(factory.data)
    changed[at] ^= 1
    found = frames_of(np.frombuffer(bytes(changed), np.uint8))
    assert first_invalid(found) == row
    assert first_invalid(found, check_crc=False) == 30


def test_a_record_with_its_own_crc_is_checked_whole():
    path = golden("batch-5x").root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    frames = frames_of(np.frombuffer(bytes(data), np.uint8))
    assert first_invalid(frames) == len(frames) > 100
    data[int(frames.topic_start[70])] ^= 1  # which the body's CRC does not cover
    assert first_invalid(frames_of(np.frombuffer(bytes(data), np.uint8))) == 70
    data[int(frames.topic_start[70])] ^= 1
    end = int(frames.properties_start[60] + frames.properties_length[60])
    data[end - 2] = ord("x")  # no digit
    assert first_invalid(frames_of(np.frombuffer(bytes(data), np.uint8))) == 60
