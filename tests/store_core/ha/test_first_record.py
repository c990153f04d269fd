"""Byte 0 of a log, made of the rest of its first record."""

from __future__ import annotations

from collections import deque

import pytest

from store_core.errors import HAError
from store_core.ha.frame_reader import FirstRecord
from store_core.message import Message
from store_core.message_store import MessageStore
from tests.store_core.ha.stores import log_bytes, store_config


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
    with pytest.raises(HAError, match="no record at offset 65536"):  # its own offset is another
        FirstRecord("m:1", 65536).take(65536, memoryview(log))
    with pytest.raises(HAError, match="no record at offset 0"):
        FirstRecord("m:1", 65536).take(0, memoryview(bytes(200)))
