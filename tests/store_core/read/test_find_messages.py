# SPDX-License-Identifier: Apache-2.0
"""Exact search by key: gaps of the index are scanned, and its entries are checked."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import CorruptRecordError, MessageStoreConfig, StoreSnapshot
from store_core.layout import (
    CHECKPOINT,
    INDEX_HEADER,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from tests.examples import examples
from tests.store_factory import PARTLY_INDEXED, StoreFactory, partly_indexed, small_store

SIZES = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)


def _find(root, topic, keys, *times, config=SIZES):
    with StoreSnapshot(root, config) as snapshot:
        return [m.commit_log_offset for m in snapshot.find_messages(topic, keys, *times)]


def _expected(factory, topic, key):
    properties = f"KEYS\x01{key} all\x02".encode()
    return [
        r.commit_log_offset
        for r in factory.records
        if r.topic_bytes == topic.encode() and properties in r.properties_raw
    ]


def test_equal_hashes_are_told_apart(tmp_path):
    factory = StoreFactory(tmp_path)
    for key in ("Aa", "BB", "Aa x", "x BB Aa"):
        factory.add(properties={"KEYS": key})
    factory.add(properties={"UNIQ_KEY": "BB"})
    at = [record.commit_log_offset for record in factory.records]
    root = factory.write()
    assert _find(root, "TopicA", ["Aa"]) == [at[0], at[2], at[3]]
    assert _find(root, "TopicA", ["BB"]) == [at[1], at[3], at[4]]
    assert _find(root, "TopicA", "BB") == [at[1], at[3], at[4]]
    assert _find(root, "TopicA", ["BB", "x", "", "none"]) == at[1:]
    assert _find(root, "TopicA", []) == []
    assert _find(root, "TopicA", ["\ud800", "Aa"]) == _find(root, "TopicA", ["Aa"])
    assert _find(root, "\ud800", ["Aa"]) == []


def test_times_are_inclusive(tmp_path):
    factory = small_store(tmp_path)
    times = [r.store_timestamp for r in factory.records if r.topic_bytes == b"TopicA"]
    root = factory.write()
    assert len(_find(root, "TopicA", ["all"], times[3], times[8])) == 6
    assert len(_find(root, "TopicA", ["all"], times[3])) == len(times) - 3
    assert len(_find(root, "TopicA", ["all"], None, times[3])) == 4


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
def test_lost_index_files(tmp_path, lost):
    factory = small_store(tmp_path)
    root = factory.write()
    files = sorted((root / "index").iterdir())
    assert len(files) == 2
    for number in lost:
        files[number].unlink()
    for topic, key in [("TopicA", "k1"), ("TopicA", "k31"), ("TopicA", "k59"), ("TopicB", "k0")]:
        expected = _expected(factory, topic, key)
        assert len(expected) == 1
        assert _find(root, topic, [key]) == expected
    of_topic = [r.commit_log_offset for r in factory.records if r.topic_bytes == b"TopicA"]
    assert _find(root, "TopicA", ["all"]) == of_topic


def test_tail_that_is_not_indexed(tmp_path):
    factory = small_store(tmp_path, 30)
    indexed = list(factory._indexed)
    for _ in range(600):  # more than is kept between queries
        factory.add("TopicA", bytes(100), properties={"KEYS": "k1 late"})
    factory._indexed = indexed
    root = factory.write()
    assert len(_find(root, "TopicA", ["late"])) == 600
    assert len(_find(root, "TopicA", ["k1"])) == 601


def test_crashed_store_distrusts_what_was_not_flushed(tmp_path):
    factory = small_store(tmp_path)
    root = factory.write(abort=b"123")
    for file in (root / "index").iterdir():
        data = bytearray(file.read_bytes())
        data[40:72] = bytes(32)  # slots were not flushed
        file.write_bytes(bytes(data))
    assert _find(root, "TopicA", ["k31"]) == _expected(factory, "TopicA", "k31")


@pytest.mark.parametrize("said", [1, 1_600_000_000_000])
def test_a_wrong_time_calls_no_index_file_flushed(tmp_path, said):
    factory = small_store(tmp_path, 59)
    factory.add("TopicA", properties={"KEYS": "last"}, store_timestamp=said)
    root = factory.write(abort=b"123")
    first, *_, last = sorted((root / "index").iterdir())
    full_ms = INDEX_HEADER.unpack(first.read_bytes()[: INDEX_HEADER.size]).end_timestamp
    times = (full_ms, full_ms, full_ms, 0, 0, 0)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*times).ljust(4096, b"\0"))
    data = bytearray(last.read_bytes())
    for at in range(40, 72, 4):  # slots were flushed before their last entries
        entry = 72 + int.from_bytes(data[at : at + 4], "big") * 20
        previous = data[entry + 16 : entry + 20]
        data[at : at + 4] = previous if any(previous) else data[at : at + 4]
    last.write_bytes(bytes(data))
    for key in ("k55", "k56", "k58"):
        assert _find(root, "TopicA", [key]) == _expected(factory, "TopicA", key) != []


def test_never_dispatched_messages_are_left_out(tmp_path):
    factory = StoreFactory(tmp_path)
    for flag in (0, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE, 8):
        factory.add(properties={"KEYS": "k"}, sys_flag=flag)
    kept = [factory.records[i].commit_log_offset for i in (0, 3)]
    assert _find(factory.write(), "TopicA", ["k"]) == kept
    assert _find(factory.write(), "TopicA", ["k"], config=None) == kept  # no sizes: a scan


def test_an_index_file_that_may_not_be_flushed_and_whose_first_records_expired(tmp_path):
    factory = small_store(tmp_path, segment_bytes=2048)
    root = factory.write(abort=b"1")
    (root / "commitlog" / f"{0:020d}").unlink()
    left = [r.commit_log_offset for r in factory.records if r.commit_log_offset >= 2048]
    found = [_find(root, topic, ["all"]) for topic in ("TopicA", "TopicB")]
    assert sorted(found[0] + found[1]) == left


def test_lost_segment_is_an_error_only_where_it_is_scanned(tmp_path):
    factory = small_store(tmp_path, entries=256)
    root = factory.write()
    sizes = MessageStoreConfig(max_hash_slot_num=8, max_index_num=256)
    factory.segment_path(4096).unlink()
    assert _find(root, "TopicA", ["k1"], config=sizes) == _expected(factory, "TopicA", "k1")
    with pytest.raises(CorruptRecordError, match="missing"):
        _find(root, "Unknown", ["k1"], config=sizes)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=40), st.integers(0, 40))
def test_equals_a_walk(keys_of_messages, indexed):
    with tempfile.TemporaryDirectory() as folder:
        factory = partly_indexed(Path(folder), keys_of_messages, indexed)
        root = factory.write()
        for key in range(6):
            expected = [
                record.commit_log_offset
                for record, keys in zip(factory.records, keys_of_messages)
                if key in keys
            ]
            assert _find(root, "TopicA", [f"k{key}"], config=PARTLY_INDEXED) == expected
