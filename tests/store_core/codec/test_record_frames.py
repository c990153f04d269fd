from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.message_codec import decode_message
from store_core.codec.record_frames import RecordFrames
from store_core.errors import CorruptRecordError
from store_core.layout.message import HEADER_IPV4
from tests.store_core.codec.record_strategies import record_lists

HOSTS = {"born_host", "store_host"}
FIELDS = [name for name in HEADER_IPV4.dtype.names if name not in HOSTS | {"body_length"}]


def decoded(data, at, offset):
    """Return the record at a position, or None where the scalar codec finds none."""
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


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=40, deadline=None)
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
