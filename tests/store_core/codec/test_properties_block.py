from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.properties import properties_to_bytes
from store_core.codec.property_columns import properties_block

MAP = pa.map_(pa.string(), pa.string())
name = st.sampled_from(["KEYS", "TAGS", "a", "ü", ""])
value = st.sampled_from(["v", "", "k1 k2", "北京"])
rows = st.lists(
    st.tuples(
        st.none() | st.lists(st.tuples(name, st.none() | value), max_size=4),
        st.none() | value,
        st.none() | st.lists(st.sampled_from(["k1", "k2", "k1"]), max_size=3),
    ),
    max_size=6,
)


def expected(pairs, tags, keys):
    given_values = {"TAGS": tags, "KEYS": None if keys is None else " ".join(keys)}
    kept = [(k, v) for k, v in pairs or [] if k and v and given_values.get(k) is None]
    return properties_to_bytes(kept + [(k, v) for k, v in given_values.items() if v])


@given(rows, st.integers(0, 2))
def test_equals_the_rows_encoded_one_by_one(given_rows, skipped):
    maps, tags, keys = (
        pa.array([row[i] for row in given_rows], kind).slice(skipped)
        for i, kind in enumerate([MAP, pa.string(), pa.list_(pa.string())])
    )
    block = properties_block(maps, {"TAGS": tags, "KEYS": keys})
    assert block.type == pa.binary()
    assert block.to_pylist() == [expected(*row) for row in given_rows[skipped:]]


@given(st.lists(st.tuples(value, st.none() | value), min_size=1, max_size=6))
def test_without_maps_it_is_as_with_empty_ones(given_rows):
    tags, keys = (pa.array([row[i] for row in given_rows], pa.string()) for i in range(2))
    named = {"TAGS": tags, "KEYS": keys, "a": pa.array(["x"] * len(tags))}
    none = pa.array([None] * len(given_rows), MAP)
    assert properties_block(None, named).equals(properties_block(none, named))
