# SPDX-License-Identifier: Apache-2.0
"""Limits and statuses of one pull that the golden stores do not reach."""

from __future__ import annotations

import pytest

from store_core import (
    CorruptRecordError,
    GetMessageStatus,
    MessageStoreConfig,
    StoreSnapshot,
    TagFilter,
)
from store_core.read import get_message
from tests.store_factory import StoreFactory


def _factory(root, count, units_per_file=2000, **fields):
    factory = StoreFactory(root, segment_bytes=1 << 16, units_per_file=units_per_file)
    for number in range(count):
        factory.add(properties={"TAGS": f"t{number}"}, **fields)
    return factory


def _pull(root, offset=0, max_num=32, tags=None, **config):
    sizes = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, **config)
    with StoreSnapshot(root, sizes) as snapshot:
        return snapshot.get_message(
            "group", "TopicA", 0, offset, max_num, TagFilter(tags) if tags else None
        )


def _offsets(result):
    return [message.queue_offset for message in result.messages]


@pytest.mark.parametrize(
    ("queue", "offset", "status", "next_offset"),
    [
        (1, 0, "NO_MESSAGE_IN_QUEUE", 0),
        (1, 7, "NO_MESSAGE_IN_QUEUE", 0),
        (0, -1, "OFFSET_TOO_SMALL", 0),
        (0, 3, "OFFSET_OVERFLOW_ONE", 3),
        (0, 4, "OFFSET_OVERFLOW_BADLY", 3),
        (0, 2, "FOUND", 3),
    ],
)
def test_status_by_offset(tmp_path, queue, offset, status, next_offset):
    with StoreSnapshot(str(_factory(tmp_path, 3).write())) as snapshot:
        result = snapshot.get_message("group", "TopicA", queue, offset, 1)
    assert result.status is GetMessageStatus[status]
    assert result.next_begin_offset == next_offset
    assert len(result.messages) == (status == "FOUND")


def test_count_in_memory_and_on_disk(tmp_path, monkeypatch):
    root = _factory(tmp_path, 60).write()
    assert _offsets(_pull(root, 5, 100)) == list(range(5, 37))
    assert _offsets(_pull(root, 5, 10)) == list(range(5, 15))
    assert len(_pull(root, max_num=100, max_transfer_count_on_message_in_memory=7).messages) == 7
    monkeypatch.setattr(get_message, "_memory_bytes", lambda: 0)
    assert _offsets(_pull(root, 5, 100)) == list(range(5, 13))
    assert len(_pull(root, max_num=100, max_transfer_count_on_message_in_disk=3).messages) == 3


def test_bytes_in_memory_and_on_disk(tmp_path, monkeypatch):
    factory = _factory(tmp_path, 12, body=bytes(1000))
    size = factory.records[0].total_size
    root = factory.write()
    limit = {"max_transfer_bytes_on_message_in_memory": 4 * size}
    assert _pull(root, **limit).buffer_total_size == 4 * size
    limit = {"max_transfer_bytes_on_message_in_memory": 4 * size - 1}
    assert len(_pull(root, **limit).messages) == 3
    assert len(_pull(root, max_transfer_bytes_on_message_in_memory=1).messages) == 1
    monkeypatch.setattr(get_message, "_memory_bytes", lambda: 0)
    assert len(_pull(root, max_transfer_bytes_on_message_in_disk=2 * size).messages) == 2


def test_filter_inspects_800_units(tmp_path):
    root = _factory(tmp_path, 1000).write()
    result = _pull(root, 100, 32, "t950")
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 900)
    assert _offsets(_pull(root, 900, 32, "t950")) == [950]
    assert _offsets(_pull(root, 100, 851, "t950")) == [950]  # as many as requested
    assert _pull(root, 100, 32, "t950", max_filter_message_size=200).next_begin_offset == 132
    assert _pull(root, 100, 4, "t950", max_filter_message_size=200).next_begin_offset == 110


def test_one_queue_file_a_call(tmp_path):
    root = _factory(tmp_path, 40, units_per_file=16).write()
    assert _offsets(_pull(root, 14)) == [14, 15]
    assert _pull(root, 14, 32, "t20").next_begin_offset == 16
    travelled = _pull(root, 14, 32, "t20", travel_cq_file_num_when_get_message=2)
    assert _offsets(travelled) == [20]


def test_missing_queue_file(tmp_path):
    root = _factory(tmp_path, 40, units_per_file=16).write()
    (root / "consumequeue/TopicA/0" / f"{16 * 20:020d}").unlink()
    result = _pull(root, 18)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.OFFSET_FOUND_NULL, 32)


def test_missing_segment(tmp_path):
    factory = StoreFactory(tmp_path, segment_bytes=4096, units_per_file=100)
    for _ in range(60):
        factory.add(body=bytes(100))
    root = factory.write()
    factory.segment_path(4096).unlink()
    lost = [r.queue_offset for r in factory.records if 4096 <= r.commit_log_offset < 8192]
    with StoreSnapshot(root) as snapshot:
        gone = snapshot.get_message("group", "TopicA", 0, lost[0], 2)
        assert _offsets(gone) == [lost[-1] + 1, lost[-1] + 2]
        behind = StoreSnapshot(root, end_offset=8192)
        result = behind.get_message("group", "TopicA", 0, lost[0], 2)
        assert result.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        assert result.next_begin_offset == lost[-1] + 1 == result.max_offset
        assert result.messages == ()


def test_unit_that_points_elsewhere(tmp_path):
    factory = _factory(tmp_path, 5)
    start, size, code = factory.queues["TopicA", 0][2]
    factory.queues["TopicA", 0][2] = (start, size - 1, code)
    root = factory.write()
    with pytest.raises(CorruptRecordError, match=f"has {size} bytes, but its consume queue says"):
        _pull(root)
    factory.queues["TopicA", 0][2] = (start + 1, size, code)
    with pytest.raises(CorruptRecordError, match="at byte"):
        _pull(factory.write())
