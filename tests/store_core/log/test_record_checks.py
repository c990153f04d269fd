from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.record_crcs import first_invalid
from store_core.codec.record_frames import RecordFrames, walk_records
from tests.golden_store import golden
from tests.store_factory import small_store


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
    data[int(frames.topic_start[70])] ^= 1  # which the body's CRC does not see
    assert first_invalid(frames_of(np.frombuffer(bytes(data), np.uint8))) == 70
    data[int(frames.topic_start[70])] ^= 1
    end = int(frames.properties_start[60] + frames.properties_length[60])
    data[end - 2] = ord("x")  # no digit
    assert first_invalid(frames_of(np.frombuffer(bytes(data), np.uint8))) == 60
