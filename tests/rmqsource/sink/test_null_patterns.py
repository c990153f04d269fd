# SPDX-License-Identifier: Apache-2.0
"""Nulls at every place of a row: the row's other values are not lost with them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import Message
from store_core.codec.message_codec import string_to_properties
from store_core.codec.property_columns import joined_words, properties_block
from tests.rmqsource.sink.support import batch_of, convert

words = st.sampled_from(["a", "b", "ccc", "", None])
texts = st.sampled_from(["x", "yy", "", None])
maps = st.none() | st.dictionaries(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "n", "m"]), texts, max_size=4
)
raws = st.sampled_from([None, None, b"", b"KEYS\1a b\2n\1v\2", b"UNIQ_KEY\1u\2TAGS\1x"])
rows = st.fixed_dictionaries(
    {
        "keys": st.none() | st.lists(words, max_size=4),
        "tags": texts,
        "unique_key": texts,
        "sharding_key": texts,
        "properties": maps,
        "properties_raw": raws,
    }
)
NAMES = {"keys": "KEYS", "tags": "TAGS", "unique_key": "UNIQ_KEY", "sharding_key": "__SHARDINGKEY"}


def expected(row):
    """Return the properties of a row, and whether its unique key is made up."""
    raw, given_map = row["properties_raw"], row["properties"] or {}
    found = {name: value for name, value in given_map.items() if value}
    if raw is not None:
        found = string_to_properties(raw)
    for column, name in NAMES.items():
        value = row[column]
        if value is None:
            continue
        if column == "keys":
            value = " ".join(word for word in value if word is not None)
        found.pop(name, None)
        if value:
            found[name] = value
    is_made = raw is None and row["unique_key"] is None and "UNIQ_KEY" not in found
    return found, is_made


def in_words(properties):
    """Return properties with a list of words for KEYS; without blank ones."""
    return {name: value.split() for name, value in properties.items() if value.split()}


@given(st.lists(rows, min_size=1, max_size=6), st.sets(st.sampled_from(sorted(NAMES))))
def test_rows_of_the_sink_keep_all_that_is_not_null(given_rows, left_out):
    names = [name for name in (*NAMES, "properties", "properties_raw") if name not in left_out]
    columns = {name: [row[name] for row in given_rows] for name in names}
    for name in ("properties",):
        columns[name] = [None if m is None else list(m.items()) for m in columns[name]]
    count = len(given_rows)
    records = convert(batch_of(topic=["A"] * count, body=[b"1"] * count, **columns))
    for row, record in zip(given_rows, records):
        wanted, is_made = expected({**row, **dict.fromkeys(left_out)})
        found = string_to_properties(record.properties_raw)
        if is_made:
            assert len(found.pop("UNIQ_KEY")) == 32
        assert in_words(found) == in_words(wanted)


@given(st.lists(st.none() | st.lists(words, max_size=4)), st.data())
def test_words_without_their_nulls(lists, data):
    first = data.draw(st.integers(0, len(lists)))
    stop = data.draw(st.integers(first, len(lists)))
    array = pa.array(lists, pa.list_(pa.string())).slice(first, stop - first)
    assert joined_words(array).to_pylist() == [
        None if found is None else " ".join(word for word in found if word is not None)
        for found in lists[first:stop]
    ]


def test_a_block_for_a_batch_of_records_keeps_keys_beside_a_null():
    keys = pa.array([["a", None, "b"], [None], None], pa.list_(pa.string()))
    maps = pa.array([[("x", None), ("y", "1")], None, []], pa.map_(pa.string(), pa.string()))
    assert properties_block(maps, {"KEYS": keys}).to_pylist() == [b"y\0011\2KEYS\1a b\2", b"", b""]


def test_a_message_does_not_lose_its_keys_silently():
    with pytest.raises(TypeError, match="NoneType"):
        Message("A", b"", keys=["a", None, "b"])
