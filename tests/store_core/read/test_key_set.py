# SPDX-License-Identifier: Apache-2.0
"""Sets of many keys answer as Python's sets do."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.java_string import string_hash
from store_core.read.key_match import KeySet, has_any_word, is_any_of

# "Aa" and "BB" have equal hashes in Java, and so have all texts made of such pieces.
texts = st.lists(st.sampled_from(["Aa", "BB", "C", "é", "𝄞", "0"]), max_size=5).map("".join)


@given(
    keys=st.lists(st.none() | texts), asked=st.lists(st.none() | texts), skipped=st.integers(0, 3)
)
def test_it_holds_what_a_set_of_python_holds(keys, asked, skipped):
    held = KeySet(pa.array(keys, pa.string()).slice(skipped))
    strings = pa.array(asked, pa.string()).slice(skipped)
    wanted = {key for key in keys[skipped:] if key is not None}
    expected = [text in wanted if text is not None else False for text in asked[skipped:]]
    assert held.contains(strings).tolist() == expected
    assert is_any_of(strings, held).tolist() == expected


def test_keys_of_one_hash_are_told_apart():
    keys = ["AaAa", "BBBB", "AaBB"]
    assert len({string_hash(key) for key in [*keys, "BBAa"]}) == 1
    held = KeySet(pa.array(keys, pa.large_string()))
    found = held.contains(pa.array(["BBAa", *reversed(keys), "BBAa", None, ""]))
    assert found.tolist() == [False, True, True, True, False, False, False]


def test_words_of_messages():
    held = KeySet(pa.array(["a", "c"]))
    words = pa.array([["b", "c"], [], None, ["b"], ["a", "a"]], pa.list_(pa.string()))
    assert has_any_word(words, held).tolist() == [True, False, False, False, True]


def test_an_empty_set_holds_nothing():
    held = KeySet(pa.array([], pa.string()))
    assert len(held) == 0
    assert held.contains(pa.array(["", "a"])).tolist() == [False, False]
    assert held.contains(pa.array([], pa.string())).tolist() == []
