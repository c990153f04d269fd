# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.make_store import make_store
from bench.store_content import key_of, tags_codes, topic_of, unique_key_of
from store_core.codec.java_string import string_hash
from store_core.codec.message_codec import decode_message
from store_core.layout import (
    BLANK_MAGIC_CODE,
    CHECKPOINT,
    CQ_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    RECORD_PREFIX,
    index_file_bytes,
)
from store_core.message import Message, messages_from_record

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 2_345
SEGMENT_BYTES = 100_000
UNITS = 90
SLOTS = 300
ENTRIES = 1_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("bench") / "store"
    make_store(
        root,
        messages=MESSAGES,
        body_bytes=30,
        segment_bytes=SEGMENT_BYTES,
        units_per_queue_file=UNITS,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
    )
    return root


def segments(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "commitlog").iterdir())]


def walk(store: Path) -> list[tuple[int, int]]:
    """Return (offset, size) of every record, checking the blank ones."""
    found = []
    for number, data in enumerate(segments(store)):
        assert len(data) == SEGMENT_BYTES
        at = 0
        while True:
            prefix = RECORD_PREFIX.unpack(data, at)
            if prefix.total_size == 0:
                break
            if prefix.magic_code == BLANK_MAGIC_CODE:
                assert prefix.total_size == SEGMENT_BYTES - at
                break
            found.append((number * SEGMENT_BYTES + at, prefix.total_size))
            at += prefix.total_size
    return found


def decoded(store: Path) -> list[Message]:
    data = segments(store)
    messages: list[Message] = []
    for offset, size in walk(store):
        number, at = divmod(offset, SEGMENT_BYTES)
        record = decode_message(data[number], at, offset, "segment", check_crc=True, end=at + size)
        messages += messages_from_record(record, "store")
    return messages


def test_every_message_is_there_in_order(store):
    messages = decoded(store)
    assert len(messages) == MESSAGES
    for number, message in enumerate(messages):
        assert message.topic == topic_of(number)
        assert list(message.keys) == [key_of(number)]
        assert message.unique_key == unique_key_of(number)
        assert message.tags == f"tag{number % 7}"
        assert message.properties["WAIT"] == "true"
        assert len(message.properties) == 4
        assert message.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF


def test_the_small_topic_is_one_percent(store):
    topics = [message.topic for message in decoded(store)]
    assert topics.count("TopicSmall") == MESSAGES // 100
    assert topics.count("TopicTenth") == MESSAGES // 1000


def test_queue_units_point_at_the_records(store):
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for message, (offset, size) in zip(decoded(store), walk(store)):
        queue = expected.setdefault((message.topic, message.queue_id), [])
        assert message.queue_offset == len(queue)
        queue.append((offset, size, string_hash(message.tags)))
    found = {}
    for directory in (store / "consumequeue").glob("*/*"):
        files = sorted(directory.iterdir())
        assert [int(file.name) for file in files] == [
            number * UNITS * CQ_UNIT.size for number in range(len(files))
        ]
        units = [unit for file in files for unit in CQ_UNIT.table(file.read_bytes()).tolist()]
        assert len(units) == UNITS * len(files)
        found[directory.parent.name, int(directory.name)] = [unit for unit in units if unit[1]]
    assert found == expected


def test_the_index_finds_every_key(store):
    entries = [
        (string_hash(f"{message.topic}#{key}"), offset)
        for message, (offset, _) in zip(decoded(store), walk(store))
        for key in (message.unique_key, message.keys[0])
    ]
    expected = [(abs(key_hash), offset) for key_hash, offset in entries]
    files = sorted((store / "index").iterdir())
    assert len(files) == -(-len(entries) // (ENTRIES - 1))
    found = []
    for file in files:
        data = file.read_bytes()
        assert len(data) == index_file_bytes(SLOTS, ENTRIES)
        found += chained_entries(data)
    assert found == expected


def chained_entries(data: bytes) -> list[tuple[int, int]]:
    """Return (hash, offset) by entry number, of those that the slots' chains reach."""
    count = INDEX_HEADER.unpack(data).index_count - 1
    table = INDEX_ENTRY.table(data, index_file_bytes(SLOTS, 0), ENTRIES)
    slots = INDEX_SLOT.table(data, INDEX_HEADER.size, SLOTS)["newest_entry"]
    reached = {}
    for slot, newest in enumerate(slots.tolist()):
        number = newest
        while number:
            entry = table[number]
            assert entry["key_hash"] % SLOTS == slot
            assert entry["previous_entry"] < number
            reached[number] = (int(entry["key_hash"]), int(entry["commit_log_offset"]))
            number = int(entry["previous_entry"])
    assert sorted(reached) == list(range(1, count + 1))
    assert INDEX_HEADER.unpack(data).hash_slot_count == np.count_nonzero(slots)
    return [reached[number] for number in sorted(reached)]


def test_small_files_are_those_of_a_clean_first_run(store):
    checkpoint = CHECKPOINT.unpack((store / "checkpoint").read_bytes())
    last = decoded(store)[-1].store_timestamp
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == last
    assert 0 < checkpoint.index_msg_timestamp < last
    assert checkpoint.confirm_phy_offset == 0
    assert (store / "abort.bak").read_bytes() == b""
    assert not (store / "abort").exists()
    assert (store / "lock").read_bytes() == b"lock"


def test_tags_codes_are_javas_hashes():
    assert tags_codes().tolist() == [string_hash(f"tag{number}") for number in range(7)]


def test_a_segment_shorter_than_a_record_is_refused(tmp_path):
    with pytest.raises(ValueError, match="shorter than one record"):
        make_store(tmp_path / "store", messages=1, body_bytes=100, segment_bytes=100)
