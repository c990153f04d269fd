from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.java_string import decode_utf8
from store_core.codec.message_codec import (
    crc_digits,
    properties_to_bytes,
    split_keys,
    split_properties,
    string_to_properties,
    verify_property_crc,
)
from store_core.codec.property_columns import (
    PropertyColumns,
    properties_block,
    utf8_column,
    words_column,
)
from tests.store_core.codec.record_strategies import odd_bytes, property_bytes, usual

RECORDS = json.loads((Path(__file__).parent / "records_5x.json").read_text())["records"]
names_and_values = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=6
)
NAMES = ["KEYS", "TAGS", "UNIQ_KEY", "a", "ab", "b", "ü", "n7", "none", "\ufffd"]
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


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),  # no closing separator
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01\x02b\x01c\x02", {"b": "c"}),  # empty value
        (b"\x01v\x02b\x01c\x02", {"b": "c"}),  # empty name
        (b"novalue\x02b\x01c", {"b": "c"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),  # the first separator counts
        (b"a\x01\x01\x02", {"a": "\x01"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"\xed\xa0\x80\x01\xe2\x82\x02", {"\ufffd": "\ufffd"}),
    ],
)
def test_decodes_as_rocketmq(data, properties):
    assert string_to_properties(data) == properties


def test_of_repeated_names_the_last_value_wins_at_the_first_place():
    data = b"a\x011\x02b\x012\x02a\x013\x02"
    assert split_properties(data) == [("a", "1"), ("b", "2"), ("a", "3")]
    assert list(string_to_properties(data).items()) == [("a", "3"), ("b", "2")]


@given(st.lists(st.tuples(names_and_values, names_and_values)), st.booleans())
def test_what_is_encoded_is_decoded(pairs, closing_separator):
    data = properties_to_bytes(pairs, closing_separator)
    assert split_properties(data) == pairs
    assert data.endswith(b"\x02") == (closing_separator and bool(pairs))


def test_splits_keys_at_single_spaces():
    assert split_keys(" k1  k2\tx k1 ") == ["k1", "k2\tx", "k1"]
    assert split_keys("") == []


def test_digits_of_the_crc_are_stored_in_reverse():
    assert crc_digits(166042575) == b"5752406610"
    assert crc_digits(0) == b"0000000000"


@pytest.mark.parametrize("name", ["prop_crc", "inner"])
def test_verifies_the_crc_of_real_records(name):
    record = bytes.fromhex(RECORDS[name]["record"])
    assert verify_property_crc(record) is True
    for at in (20, 90, len(record) - 30, len(record) - 2):
        damaged = bytearray(record)
        damaged[at] ^= 1
        assert verify_property_crc(bytes(damaged)) is False


def test_a_record_without_the_tail_has_no_verdict():
    assert verify_property_crc(bytes.fromhex(RECORDS["ipv6"]["record"])) is None
    assert verify_property_crc(b"") is None


def test_the_tail_must_be_a_property_of_its_own():
    tail = b"__CRC32#\x010123456789\x02"
    assert verify_property_crc(bytes(88) + b"\x00\x14" + tail) is False  # the only property
    assert verify_property_crc(bytes(88) + b"\x00\x15x" + tail) is None  # name x__CRC32#
    assert verify_property_crc(bytes(88) + b"\x00\x18a\x01b\x02" + tail) is False
    assert verify_property_crc(tail) is None


def check(rows):
    """Compare a block of rows with the scalar codec."""
    expected = [string_to_properties(row) for row in rows]
    columns = PropertyColumns(pa.array(rows, pa.binary()))
    mapped = columns.map_column()
    mapped.validate(full=True)
    assert mapped.type == pa.map_(pa.string(), pa.string())
    assert [sorted(pairs) for pairs in mapped.to_pylist()] == [
        sorted(properties.items()) for properties in expected
    ]
    for name in NAMES[:-1]:
        values = columns.values_of(name)
        values.validate(full=True)
        assert values.to_pylist() == [properties.get(name) for properties in expected]
        assert columns.holds(name) == any(name in properties for properties in expected)


@settings(max_examples=150, deadline=None)
@given(st.lists(property_bytes, max_size=8))
def test_arbitrary_blocks_equal_the_scalar_codec(rows):
    check(rows)


REPEATING = [
    [b"a\1x\2UNIQ_KEY\1%d\2a\1y\2WAIT\1true\2UNIQ_KEY\1batch\2" % n for n in range(5)],
    [b"a\1x\2a\1y\2", b"b\1x\2a\1y\2", b"a\1x\2a\1y\2"],
    [b"a\1x\2a\1y\2a\1z\2", b"b\1x\2", b""],
    [b"namesake1\1x\2namesake2\1y\2namesake1\1z\2"],
    [b"n%d\1x\2n%d\1y\2" % (n % 2, n % 3) for n in range(9)],
]


@pytest.mark.parametrize("rows", REPEATING)
def test_repeated_names_keep_their_first_place_and_their_last_value(rows):
    mapped = PropertyColumns(pa.array(rows, pa.binary())).map_column()
    assert mapped.to_pylist() == [list(string_to_properties(row).items()) for row in rows]


_ALIKE = {"namesake1": ["namesake1", "namesake2"], "UNIQ_KEY": ["UNIQ_KEY"], "a": ["a", "b"]}


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.sampled_from(["KEYS", "a", *_ALIKE]), min_size=1, max_size=5))
def test_rows_of_the_same_names_or_of_nearly_the_same_equal_the_scalar_codec(data, names):
    rows = []
    for _ in range(data.draw(st.integers(1, 6))):
        own = [data.draw(st.sampled_from(_ALIKE.get(name, [name]))) for name in names]
        values = [data.draw(st.sampled_from(["x", "yy"])) for _ in own]
        rows.append("".join(f"{n}\1{v}\2" for n, v in zip(own, values)).encode())
    check(rows)
    columns = PropertyColumns(pa.array(rows, pa.binary()))
    for name in ("namesake1", "namesake2", "namesake3"):
        expected = [string_to_properties(row).get(name) for row in rows]
        assert columns.values_of(name).to_pylist() == expected
        assert columns.holds(name) == any(value is not None for value in expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(usual, max_size=12))
def test_usual_blocks_equal_the_scalar_codec(rows):
    check(rows)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("\0\1\2ab", max_size=8).map(str.encode), max_size=6))
def test_separators_anywhere_equal_the_scalar_codec(rows):
    check(rows)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [b""],
        [b"", b"a\1b\2", b""],
        [b"a\1b", b"\2a\1c\2"],  # a row without its end before one that begins with an end
        [b"a\1b", b"\1c\2"],
        [b"a\1b\2a\1c\2"],
        [b"a\1b\1c\2"],
        [b"ab\1x\2", b"ab\1y"],
        [b"a\1" + b"v" * 5000, b"\2\2\2"],
        [b"a\1b\0c\2", b"\0\1\0\2"],
        [b"\1\2", b"\1", b"\2", b"\1\1", b"\2\2"],
        [b"x%d\1v\2" % i for i in range(200)],
        [b"".join(b"x%d\1v%d\2" % (i % 70, i) for i in range(100))],
        [b"\xff\1v\2\xfe\1w\2"],
    ],
)
def test_odd_blocks(rows):
    check(rows)


@given(st.lists(st.none() | odd_bytes | st.text().map(str.encode)))
def test_bytes_become_text_as_in_java(rows):
    expected = [None if row is None else decode_utf8(row) for row in rows]
    assert utf8_column(pa.array(rows, pa.binary())).to_pylist() == expected


@given(st.lists(st.none() | st.text("ab  ", max_size=8) | st.text(max_size=5)))
def test_words_are_those_that_the_index_sees(rows):
    words = words_column(pa.array(rows, pa.string()))
    words.validate(full=True)
    assert words.to_pylist() == [None if row is None else split_keys(row) for row in rows]


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
