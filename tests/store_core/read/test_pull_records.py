# SPDX-License-Identifier: Apache-2.0
"""Records in a broker's answer to a pull equal the messages of the same pull."""

from __future__ import annotations

import struct

import pytest

from store_core import CorruptRecordError, GetMessageStatus, MessageStoreConfig, StoreSnapshot
from store_core.codec.message_codec import decode_message
from store_core.log.commit_log import ReadableLog
from store_core.read import get_message
from tests.store_factory import StoreFactory


def _snapshot(root, count, **config):
    factory = StoreFactory(root, segment_bytes=1 << 12, units_per_file=20)
    for number in range(count):
        factory.add(properties={"TAGS": f"t{number % 3}"}, body=b"x" * (number % 50))
        if number % 5 == 0:
            factory.add(queue_id=1)
    sizes = MessageStoreConfig(mapped_file_size_commit_log=1 << 12, **config)
    return StoreSnapshot(str(factory.write()), sizes)


def _records(body):
    at, found = 0, []
    while at < len(body):
        (own,) = struct.unpack_from(">q", body, at + 28)
        record = decode_message(body, at, own, "answer")
        found.append((record.queue_offset, record.body))
        at += record.total_size
    return found


@pytest.mark.parametrize("most", [1, 2, 7, 32, 1000])
def test_same_as_messages(tmp_path, most):
    with _snapshot(tmp_path, 100) as snapshot:
        at = 0
        while True:
            message = snapshot.get_message("g", "TopicA", 0, at, most)
            records = snapshot.pull_records("g", "TopicA", 0, at, most)
            assert records[:4] == (
                message.status,
                message.next_begin_offset,
                message.min_offset,
                message.max_offset,
            )
            assert len(records.body) == message.buffer_total_size
            assert _records(records.body) == [(m.queue_offset, m.body) for m in message.messages]
            if records.status is not GetMessageStatus.FOUND:
                break
            assert records.messages == len(message.messages)
            assert not records.suggest_pulling_from_slave
            at = records.next_begin_offset
    assert at == 100


def test_most_bytes_but_one_record_at_least(tmp_path):
    with _snapshot(tmp_path, 40) as snapshot:
        one = snapshot.pull_records("g", "TopicA", 0, 0, 32, None, 1)
        assert one.messages == 1
        two = snapshot.pull_records("g", "TopicA", 0, 0, 32, None, 2 * len(one.body) + 1)
        assert two.messages == 2


def test_a_unit_of_another_size_is_an_error(tmp_path):
    with _snapshot(tmp_path, 3) as snapshot:
        (path,) = (tmp_path / "consumequeue" / "TopicA" / "0").iterdir()
        data = bytearray(path.read_bytes())
        data[11] ^= 1
        path.write_bytes(data)
    with (
        StoreSnapshot(tmp_path, MessageStoreConfig()) as snapshot,
        pytest.raises(CorruptRecordError, match="its consume queue says"),
    ):
        snapshot.pull_records("g", "TopicA", 0, 0, 32)


def test_a_segment_is_looked_up_once_not_for_each_record(tmp_path, monkeypatch):
    looked_up = []
    records = ReadableLog.records

    def counted(log, segment, end_offset):
        looked_up.append(segment.from_offset)
        return records(log, segment, end_offset)

    monkeypatch.setattr(ReadableLog, "records", counted)
    with _snapshot(tmp_path, 100) as snapshot:
        looked_up.clear()
        found = snapshot.pull_records("g", "TopicA", 0, 0, 32)
    assert found.messages == 20  # those of a file of the queue
    assert len(looked_up) <= 2 * len(set(looked_up)) < 20  # for the check, and for the bytes


def test_a_slave_is_suggested_where_more_follows_than_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(get_message, "_memory_bytes", lambda: 500)
    with _snapshot(tmp_path, 40) as snapshot:
        for offset, expected in ((0, True), (39, False), (40, False)):
            got = snapshot.get_message("g", "TopicA", 0, offset, 1)
            assert got.suggest_pulling_from_slave is expected, offset
            pulled = snapshot.pull_records("g", "TopicA", 0, offset, 1)
            assert pulled.suggest_pulling_from_slave is expected, offset
