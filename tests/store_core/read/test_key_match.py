# SPDX-License-Identifier: Apache-2.0
"""The rule by which a message has a key: for one message, for many, and for pairs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_frames import RecordFrames
from store_core.read.key_match import has_any_key, have_key, keys_of, text_set
from tests.examples import examples
from tests.store_factory import StoreFactory

WORDS = st.text("aü鍵 ", min_size=1, max_size=3)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS"]), WORDS), min_size=1, max_size=12
)


def _columns(messages):
    with tempfile.TemporaryDirectory() as folder:
        factory = StoreFactory(Path(folder), segment_bytes=1 << 16)
        for properties in messages:
            factory.add(properties=properties)
        starts = np.array([record.commit_log_offset for record in factory.records], np.int64)
        return MessageColumns(RecordFrames(np.frombuffer(bytes(factory.data), np.uint8), 0, starts))


def test_a_key_is_a_word_of_keys_or_the_unique_key():
    assert keys_of({"KEYS": " a  b a ", "UNIQ_KEY": "c d", "TAGS": "t"}) == {"a", "b", "c d"}
    assert keys_of({"TAGS": "t"}) == frozenset()


@settings(max_examples=examples(60), deadline=None)
@given(MESSAGES, st.frozensets(WORDS, max_size=4))
def test_the_rule_is_the_same_for_one_and_for_many(messages, wanted):
    found = has_any_key(_columns(messages), text_set(wanted)).tolist()
    assert found == [not wanted.isdisjoint(keys_of(properties)) for properties in messages]


@settings(max_examples=examples(60), deadline=None)
@given(MESSAGES, st.lists(WORDS, min_size=1, max_size=4))
def test_the_rule_is_the_same_for_pairs(messages, asked):
    row = np.repeat(np.arange(len(messages)), len(asked))
    keys = asked * len(messages)
    is_word = np.array([" " not in key for key in keys])
    found = have_key(_columns(messages), row, pa.array(keys), is_word).tolist()
    assert found == [key in keys_of(messages[at]) for at, key in zip(row.tolist(), keys)]


def test_no_text_equals_a_lone_surrogate():
    assert text_set(["a", "\ud800"]).to_pylist() == ["a"]
