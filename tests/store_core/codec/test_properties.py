from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.properties import (
    crc_digits,
    properties_to_bytes,
    split_keys,
    split_properties,
    string_to_properties,
    verify_property_crc,
)

RECORDS = json.loads((Path(__file__).parent / "records_5x.json").read_text())["records"]
names_and_values = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=6
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
