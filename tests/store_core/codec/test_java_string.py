# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.java_hash_map import hash_map_string, hash_map_strings
from store_core.codec.java_string import decode_utf8, string_hash, string_hashes, utf16_length
from store_core.codec.message_codec import string_to_properties
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


def java_vectors():
    lines = (Path(__file__).parent / "java_utf8.txt").read_text().splitlines()[1:]
    for line in lines:
        data, units, code = line.split(" ")
        yield bytes.fromhex(data.strip("-")), bytes.fromhex(units.strip("-")), int(code)


VECTORS = list(java_vectors())


@pytest.mark.parametrize(("data", "units", "code"), VECTORS)
def test_decodes_and_hashes_as_java(data, units, code):
    text = decode_utf8(data)
    assert text.encode("utf-16-be", "surrogatepass") == units
    assert utf16_length(text) == len(units) // 2
    assert string_hash(text) == code


def test_an_encoded_surrogate_is_one_replacement_character():
    assert decode_utf8(b"\xed\xa0\x80!") == "\ufffd!"
    assert decode_utf8(b"\xed\xa0") == "\ufffd"
    assert b"\xed\xa0\x80!".decode(errors="replace") != "\ufffd!"  # Python's own answer


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("TagA", 2598919), ("Aa", 2112), ("BB", 2112), ("\U0001f680", 1773027)],
)
def test_known_hash_codes(text, code):
    assert string_hash(text) == code


def test_hashes_a_column_of_java_vectors():
    column = pa.array([data for data, _, _ in VECTORS], pa.binary())
    assert string_hashes(column).tolist() == [code for _, _, code in VECTORS]


def test_column_hashes_nulls_as_zero_whatever_lies_behind_them():
    column = pa.StringArray.from_buffers(
        3,
        pa.py_buffer(np.array([0, 1, 3, 4], np.int32)),
        pa.py_buffer(b"abbc"),
        pa.py_buffer(bytes([0b101])),
    )
    assert string_hashes(column).tolist() == [97, 0, 99]


def test_column_hashes_slices_large_arrays_and_no_rows():
    texts = ["x", None, "Aa", "é", ""]
    for kind in (pa.string(), pa.large_string()):
        assert string_hashes(pa.array(texts, kind)[2:4]).tolist() == [2112, 233]
        assert string_hashes(pa.array([], kind)).tolist() == []


def test_column_hashes_rows_longer_than_a_block():
    texts = ["a" * 200_000, "b", "é" * 70_000, "", "c" * 65_536, "d"]
    assert string_hashes(pa.array(texts)).tolist() == [string_hash(text) for text in texts]


def test_a_character_torn_between_rows_is_two_malformed_ones():
    rows = [b"\xc3", b"\xa9", b"ok"]
    codes = string_hashes(pa.array(rows, pa.binary())).tolist()
    assert codes == [string_hash(decode_utf8(row)) for row in rows]


def test_column_hashes_refuse_numbers():
    with pytest.raises(TypeError, match="int64"):
        string_hashes(pa.array([1]))


@given(st.lists(st.none() | st.text(max_size=12), max_size=60))
def test_column_hashes_equal_scalar_ones(texts):
    want = [0 if text is None else string_hash(text) for text in texts]
    assert string_hashes(pa.array(texts, pa.string())).tolist() == want


@given(st.lists(st.binary(max_size=12), max_size=60))
def test_column_hashes_of_any_bytes_equal_scalar_ones(rows):
    want = [string_hash(decode_utf8(row)) for row in rows]
    assert string_hashes(pa.array(rows, pa.binary())).tolist() == want


@given(
    st.sampled_from([8, 16, 56, 256, 264]).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=30)
    ),
    st.booleans(),
)
def test_column_hashes_of_equally_long_rows_equal_scalar_ones(rows, is_ascii):
    if is_ascii:
        rows = [bytes(byte & 0x7F for byte in row) for row in rows]
    want = [string_hash(decode_utf8(row)) for row in rows]
    assert string_hashes(pa.array(rows, pa.binary())).tolist() == want
    assert string_hashes(pa.array([b"x", *rows], pa.binary())[1:]).tolist() == want


def test_column_hashes_of_many_unique_keys():
    texts = [f"7F00000100002A9F18B40000{number:08X}" for number in range(40_000)]
    assert string_hashes(pa.array(texts)).tolist() == [string_hash(text) for text in texts]


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
def test_what_a_broker_encoded_anew_is_in_this_order(name):
    lines = [line for line in golden(name).dump("messages") if not line.get("blank")]
    delayed = [line for line in lines if line["topic"] == "SCHEDULE_TOPIC_XXXX"]
    assert len(delayed) > 30
    for line in delayed:
        raw = base64.b64decode(line["properties_raw_b64"])
        # UNIQ_KEY and CLUSTER share a bin. UNIQ_KEY came first, as it does in this order.
        assert hash_map_string(dict(sorted(string_to_properties(raw).items(), reverse=True))) == raw


def test_more_names_than_three_quarters_of_the_bins_are_spread_over_twice_as_many():
    # Hash codes 128 and 97 are in bins 0 and 97 of 128, but in bins 128 and 97 of 256.
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
