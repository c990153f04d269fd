# SPDX-License-Identifier: Apache-2.0
"""A search for the places of many keys gives the places of single searches."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import CorruptRecordError, MessageStoreConfig, StoreSnapshot
from store_core.layout import TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_core.read import find_offsets
from tests.examples import examples
from tests.golden_store import golden
from tests.store_factory import PARTLY_INDEXED, StoreFactory, partly_indexed, small_store

SIZES = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)


def _pairs(root, topic, keys, *times, config=SIZES):
    with StoreSnapshot(root, config) as snapshot:
        found = snapshot.find_offsets(topic, keys, *times)
    assert found.key_index.dtype == found.commit_log_offset.dtype == np.int64
    return list(zip(found.key_index.tolist(), found.commit_log_offset.tolist()))


def _one_by_one(snapshot, topic, keys, *times):
    return [
        (number, offset)
        for number, key in enumerate(keys)
        for offset in sorted(
            {m.commit_log_offset for m in snapshot.find_messages(topic, [key or ""], *times)}
        )
    ]


def test_keys_of_all_kinds(tmp_path):
    factory = StoreFactory(tmp_path)
    for keys in ("Aa", "BB", "Aa x", "x BB Aa", "Aa Aa", "ü x"):
        factory.add(properties={"KEYS": keys})
    factory.add(properties={"UNIQ_KEY": "BB"})
    factory.add(properties={"UNIQ_KEY": "a b", "KEYS": "BB"})
    at = [record.commit_log_offset for record in factory.records]
    root = factory.write()
    keys = ["BB", "Aa", "", "none", "\ud800", "x", "Aa", "Aa x", "a b", "ü", "k" * 40_000]
    expected = {0: (1, 3, 6, 7), 1: (0, 2, 3, 4), 5: (2, 3, 5), 6: (0, 2, 3, 4), 8: (7,), 9: (5,)}
    pairs = [(number, at[row]) for number, rows in expected.items() for row in rows]
    assert _pairs(root, "TopicA", keys) == pairs
    texts = [key if key != "\ud800" else None for key in keys]
    for given_as in (pa.array(texts), pa.chunked_array([texts[:2], texts[2:]]), np.array(texts)):
        assert _pairs(root, "TopicA", given_as) == pairs
    assert _pairs(root, "TopicA", pa.array(texts, pa.large_string())) == pairs
    assert _pairs(root, "TopicA", "BB") == [(0, at[row]) for row in expected[0]]
    assert _pairs(root, "TopicA", []) == []
    assert _pairs(root, "\ud800", ["Aa"]) == []


@pytest.mark.parametrize("config", [SIZES, None], ids=["index", "scan"])
def test_times_and_transactions(tmp_path, config):
    factory = StoreFactory(tmp_path)
    for flag in (0, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE, 8, 0):
        factory.add(properties={"KEYS": "k"}, sys_flag=flag)
    at = [record.commit_log_offset for record in factory.records]
    time = factory.records[3].store_timestamp
    root = factory.write()
    assert _pairs(root, "TopicA", ["k"], config=config) == [(0, at[row]) for row in (0, 3, 4)]
    assert _pairs(root, "TopicA", ["k"], time, config=config) == [(0, at[3]), (0, at[4])]
    assert _pairs(root, "TopicA", ["k"], None, time, config=config) == [(0, at[0]), (0, at[3])]


def test_damage_is_met_where_the_index_leads_to_it(tmp_path):
    factory = small_store(tmp_path, 30, entries=256)
    root = factory.write()
    sizes = MessageStoreConfig(max_hash_slot_num=8, max_index_num=256)
    record = factory.records[7]
    path = factory.segment_path(record.commit_log_offset)
    data = bytearray(path.read_bytes())
    data[record.commit_log_offset % 4096 + 4] ^= 1  # its magic code
    path.write_bytes(bytes(data))
    assert len(_pairs(root, "TopicA", ["k1", "k29"], config=sizes)) == 2
    with pytest.raises(CorruptRecordError, match="no valid record"):
        _pairs(root, "TopicA", ["k1", "k7"], config=sizes)


@pytest.mark.parametrize("name", ["classic-5x", "batch-5x", "crashed-5x", "expired-5x"])
def test_golden_stores(name):
    store = golden(name)
    with StoreSnapshot(store.root) as snapshot:
        for topic in sorted(
            {key[0] for key in (*snapshot.queue_paths, *snapshot.batch_queue_paths)}
        ):
            messages = snapshot.get_message("group", topic, 0, 0, 32).messages
            keys = [key for m in messages[:6] for key in (m.unique_key, *(m.keys or ())) if key]
            found = snapshot.find_offsets(topic, keys)
            pairs = list(zip(found.key_index.tolist(), found.commit_log_offset.tolist()))
            assert pairs == _one_by_one(snapshot, topic, keys)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=40),
    st.integers(0, 40),
    st.integers(1, 20),
    st.sampled_from([0, 64, 1 << 20]),
)
def test_equals_one_key_at_a_time(keys_of_messages, indexed, chunk, few):
    chunk_before, few_before = find_offsets._CHUNK_RECORDS, find_offsets._FEW
    find_offsets._CHUNK_RECORDS, find_offsets._FEW = chunk, few
    try:
        with tempfile.TemporaryDirectory() as folder:
            factory = partly_indexed(Path(folder), keys_of_messages, indexed)
            with StoreSnapshot(str(factory.write()), PARTLY_INDEXED) as snapshot:
                asked = [f"k{key}" for key in (3, 0, 1, 2, 3, 4, 5, 6)]
                found = snapshot.find_offsets("TopicA", asked)
                pairs = list(zip(found.key_index.tolist(), found.commit_log_offset.tolist()))
                assert pairs == _one_by_one(snapshot, "TopicA", asked)
    finally:
        find_offsets._CHUNK_RECORDS, find_offsets._FEW = chunk_before, few_before
