# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import struct
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.java_string import decode_utf8
from store_core.codec.message_codec import (
    StoredRecord,
    body_crc,
    crc_digits,
    decode_message,
    encode_blank,
    encode_message,
    encode_record,
    properties_to_bytes,
    split_keys,
    split_properties,
    string_to_properties,
    verify_property_crc,
)
from store_core.codec.message_id import format_host
from store_core.codec.property_columns import (
    PropertyColumns,
    properties_block,
    utf8_column,
    words_column,
)
from store_core.errors import CorruptRecordError
from store_core.layout import (
    BORNHOST_V6_FLAG,
    HEADER_IPV4,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOST_V6_FLAG,
)
from tests.examples import examples
from tests.store_core.codec.record_strategies import odd_bytes, property_bytes, usual

RECORDS = json.loads((Path(__file__).parent / "records_5x.json").read_text())["records"]
PATH = "commitlog/00000000000000000000"
# Topic TopicA, body aa, tags TagA, keys "k0 common", unique key U0.
GOLDEN = bytes.fromhex(
    "00000088DAA320A7078A19D700000000000000000000000000000000"
    "0000000000000000000000000000018BCFE568000A01020300003039000001A1FB7112C2C0A8070800002A9F"
    "000000000000000000000000000000026161"
    "06546F706963410025"
    "4B455953016B3020636F6D6D6F6E02554E49515F4B45590155300254414753015461674102"
)
host = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
int4 = st.integers(-(2**31), 2**31 - 1)
int8 = st.integers(-(2**63), 2**63 - 1)
messages = st.fixed_dictionaries(
    {
        "topic": st.binary(max_size=300),
        "body": st.binary(max_size=100),
        "properties_raw": st.binary(max_size=100),
        "commit_log_offset": int8,
        "queue_offset": int8,
        "queue_id": int4,
        "born_timestamp": int8,
        "born_host": host,
        "store_timestamp": int8,
        "store_host": host,
        "flag": int4,
        "sys_flag": int4,
        "reconsume_times": int4,
        "prepared_transaction_offset": int8,
    }
)
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


def damaged(at, patch):
    return GOLDEN[:at] + patch + GOLDEN[at + len(patch) :]


def refuse(record, match, **options):
    with pytest.raises(CorruptRecordError, match=match) as caught:
        decode_message(record, 0, 0, PATH, **options)
    assert (caught.value.path, caught.value.position) == (PATH, 0)


def test_decodes_a_record_of_a_real_store():
    record = decode_message(GOLDEN, 0, 0, PATH, check_crc=True)
    assert record == StoredRecord(
        total_size=136,
        magic_code=MESSAGE_MAGIC_CODE,
        body_crc=0x078A19D7,
        queue_id=0,
        flag=0,
        queue_offset=0,
        commit_log_offset=0,
        sys_flag=0,
        born_timestamp=1700000000000,
        born_host=bytes.fromhex("0A01020300003039"),
        store_timestamp=1795219854018,
        store_host=bytes.fromhex("C0A8070800002A9F"),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"aa",
        topic_bytes=b"TopicA",
        properties_raw=b"KEYS\x01k0 common\x02UNIQ_KEY\x01U0\x02TAGS\x01TagA\x02",
    )


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_decodes_and_encodes_records_of_all_kinds(name):
    fields = RECORDS[name]
    raw = bytes.fromhex(fields["record"])
    record = decode_message(raw, 0, fields["commit_log_offset"], PATH, check_crc=True)
    assert encode_record(record) == raw
    assert record.total_size == fields["store_size"]
    assert record.magic_code & 0xFFFFFFFF == int(fields["magic"], 16)
    assert record.topic_bytes.decode() == fields["topic"]
    for host_name in ("born_host", "store_host"):
        ip, port = fields[host_name]["ip"], fields[host_name]["port"]
        text = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        assert format_host(getattr(record, host_name)) == text
    same = (
        "body_crc queue_id flag queue_offset sys_flag born_timestamp store_timestamp "
        "reconsume_times prepared_transaction_offset"
    )
    for name_of_field in same.split():
        assert getattr(record, name_of_field) == fields[name_of_field]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_decodes_inside_any_buffer(kind):
    buf = kind(b"\x00" * 7 + GOLDEN + b"\x00" * 5)
    assert decode_message(buf, 7, 0, PATH).body == b"aa"
    assert decode_message(np.frombuffer(buf, np.uint8), 7, 0, PATH).body == b"aa"


@given(messages)
def test_what_is_encoded_is_decoded(fields):
    raw = encode_message(**fields)
    record = decode_message(b"xyz" + raw, 3, fields["commit_log_offset"], PATH, check_crc=True)
    assert encode_record(record) == raw
    got = asdict(record)
    got["topic"] = got.pop("topic_bytes")
    v6_flags = BORNHOST_V6_FLAG | STOREHOST_V6_FLAG
    assert bool(record.sys_flag & BORNHOST_V6_FLAG) == (len(fields["born_host"]) == 20)
    assert bool(record.sys_flag & STOREHOST_V6_FLAG) == (len(fields["store_host"]) == 20)
    want_flags = fields.pop("sys_flag") & ~v6_flags
    assert record.sys_flag & ~v6_flags == want_flags
    assert {name: got[name] for name in fields} == fields
    v2 = len(fields["topic"]) > 127
    assert record.magic_code == (MESSAGE_MAGIC_CODE_V2 if v2 else MESSAGE_MAGIC_CODE)


def test_a_record_cut_off_anywhere_is_refused():
    for length in range(len(GOLDEN)):
        refuse(GOLDEN[:length], "readable", check_crc=True)
        refuse(GOLDEN, "readable", end=length)


@pytest.mark.parametrize("position", [-1, 137, 10**20])
def test_a_position_outside_the_buffer_is_refused(position):
    with pytest.raises(CorruptRecordError, match="no record begins here"):
        decode_message(GOLDEN, position, 0, PATH)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, 90])
def test_a_size_below_the_smallest_record_is_refused(size):
    refuse(damaged(0, struct.pack(">i", size)), f"record of {size} bytes")


@pytest.mark.parametrize("change", [-1, 1])
def test_a_size_that_contradicts_the_lengths_is_refused(change):
    refuse(damaged(0, struct.pack(">i", 136 + change)) + b"\x00", "properties length 37")


def test_other_magic_codes_are_refused():
    refuse(bytes(200), "magic code 0x00000000")
    refuse(encode_blank(136) + bytes(128), "blank record")
    refuse(damaged(4, struct.pack(">i", MESSAGE_MAGIC_CODE_V2)), "topic length 1620")


@pytest.mark.parametrize("length", [-(2**31), -1, 48, 2**31 - 1])
def test_a_wrong_body_length_is_refused(length):
    patch = struct.pack(">i", length)
    refuse(damaged(HEADER_IPV4.at("body_length"), patch), f"body length {length}")


@pytest.mark.parametrize("length", [-128, -1, 44, 127])
def test_a_wrong_topic_length_is_refused(length):
    refuse(damaged(90, struct.pack(">b", length)), f"topic length {length}")


@pytest.mark.parametrize("length", [-(2**15), -1, 36, 38, 2**15 - 1])
def test_a_wrong_properties_length_is_refused(length):
    refuse(damaged(97, struct.pack(">h", length)), f"properties length {length}")


def test_host_flags_that_make_the_header_too_long_are_refused():
    record = encode_message(
        topic=b"", body=b"", properties_raw=b"", commit_log_offset=0, queue_offset=0, queue_id=0,
        born_timestamp=0, born_host=bytes(8), store_timestamp=0, store_host=bytes(8),
    )  # fmt: skip
    assert decode_message(record, 0, 0, PATH).total_size == 91
    refuse(record[:36] + struct.pack(">i", 0x30) + record[40:], "header is longer")


def test_a_record_that_says_it_is_elsewhere_is_refused():
    with pytest.raises(CorruptRecordError, match="at offset 0, but it is at 65536"):
        decode_message(GOLDEN, 0, 65536, PATH)


def test_the_crc_of_the_body_is_compared_on_demand():
    changed = damaged(88, b"b")
    assert decode_message(changed, 0, 0, PATH).body == b"ba"
    refuse(changed, "CRC of the body", check_crc=True)


def test_the_crc_of_an_empty_body_is_not_compared():
    record = replace(decode_message(GOLDEN, 0, 0, PATH), body=b"", body_crc=77)
    assert decode_message(encode_record(record), 0, 0, PATH, check_crc=True).body_crc == 77


def test_an_error_names_the_place_in_the_file():
    with pytest.raises(CorruptRecordError, match="at byte 4096") as caught:
        decode_message(b"", 0, 4096, PATH, file_position=4096)
    assert caught.value.position == 4096


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_magic_code_are_decoded_or_refused(noise):
    raw = struct.pack(">ii", len(noise) + 8, MESSAGE_MAGIC_CODE) + noise
    with pytest.raises(CorruptRecordError):
        decode_message(raw, 0, 2**62 + 12345, PATH)


def test_a_flipped_bit_never_crashes():
    for at in range(len(GOLDEN)):
        for bit in range(8):
            changed = damaged(at, bytes([GOLDEN[at] ^ 1 << bit]))
            try:
                assert encode_record(decode_message(changed, 0, 0, PATH)) == changed
            except CorruptRecordError as error:
                assert error.reason  # noqa: PT017 (either outcome is right)


def test_crc_as_rocketmq():
    assert body_crc(b"hello") == 907060870
    assert body_crc(b"") == 0


def test_blank_records():
    assert encode_blank(4096).hex() == "00001000cbd43194"
    with pytest.raises(ValueError, match="at least 8"):
        encode_blank(7)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"born_host": bytes(4)}, "8 or 20"),
        ({"store_host": bytes(16)}, "8 or 20"),
        ({"topic": bytes(128), "magic_code": MESSAGE_MAGIC_CODE}, "version 1"),
        ({"topic": bytes(32768)}, "longer than 32767"),
        ({"properties_raw": bytes(32768)}, "longer than 32767"),
    ],
)
def test_encoding_refuses_what_does_not_fit(change, match):
    fields = {
        "topic": b"t", "body": b"", "properties_raw": b"", "commit_log_offset": 0,
        "queue_offset": 0, "queue_id": 0, "born_timestamp": 0, "born_host": bytes(8),
        "store_timestamp": 0, "store_host": bytes(8),
    }  # fmt: skip
    with pytest.raises(ValueError, match=match):
        encode_message(**{**fields, **change})


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
def test_encoded_properties_are_decoded(pairs, closing_separator):
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


@settings(max_examples=examples(150), deadline=None)
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


@settings(max_examples=examples(150), deadline=None)
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


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(usual, max_size=12))
def test_usual_blocks_equal_the_scalar_codec(rows):
    check(rows)


@settings(max_examples=examples(150), deadline=None)
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
