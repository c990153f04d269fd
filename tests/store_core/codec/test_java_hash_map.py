from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.java_hash_map import hash_map_string, hash_map_strings
from store_core.codec.properties import string_to_properties
from tests.golden_store import golden

NAMES = st.sampled_from(["A", "B", "KEYS", "TAGS", "größe", "Aa", "BB", "X" * 20, "AaAa", "BBBB"])
PARTS = st.lists(
    st.tuples(NAMES, st.text("ab ö价🚀\0", min_size=1)),
    max_size=8,
)
ROWS = st.lists(
    st.one_of(
        PARTS.map(lambda p: "".join(f"{n}\1{v}\2" for n, v in p).encode()),
        st.binary(max_size=12).map(lambda raw: raw + b"\2"),
    ),
    max_size=8,
)


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
def test_what_a_broker_encoded_anew_is_in_this_order(name):
    lines = [line for line in golden(name).dump("messages") if not line.get("blank")]
    delayed = [line for line in lines if line["topic"] == "SCHEDULE_TOPIC_XXXX"]
    assert len(delayed) > 30
    for line in delayed:
        raw = base64.b64decode(line["properties_raw_b64"])
        # UNIQ_KEY and CLUSTER share a bin, the first one came first: so it does in this order.
        assert hash_map_string(dict(sorted(string_to_properties(raw).items(), reverse=True))) == raw


def test_more_names_than_three_quarters_of_the_bins_are_spread_over_twice_as_many():
    # Hash codes 128 and 97 are bins 0 and 97 of 128, but 128 and 97 of 256.
    few = {"\x80": "1", "a": "2"}
    many = {**few, **{chr(0x4E00 + number): "x" for number in range(95)}}
    assert hash_map_string(few) == "\x80\0011\2a\0012\2".encode()
    assert hash_map_string(many).index(b"a\1") < hash_map_string(many).index("\x80\1".encode())


@given(rows=ROWS, dropped=st.sampled_from([(), ("TAGS", "größe")]))
def test_a_column_is_as_its_rows_one_by_one(rows, dropped):
    expected = []
    for raw in rows:
        found = string_to_properties(raw)
        expected.append(hash_map_string({n: v for n, v in found.items() if n not in dropped}))
    assert hash_map_strings(pa.array(rows, pa.binary()), dropped).to_pylist() == expected


def test_a_column_with_rows_of_many_names():
    rows = ["".join(f"{n}\1v\2" for n in range(count)).encode() for count in (3, 96, 97, 400)]
    expected = [hash_map_string(string_to_properties(raw)) for raw in rows]
    assert hash_map_strings(pa.array(rows, pa.binary())).to_pylist() == expected
