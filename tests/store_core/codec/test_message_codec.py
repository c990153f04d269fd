from __future__ import annotations

import json
import struct
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.message_codec import (
    StoredRecord,
    body_crc,
    decode_message,
    encode_blank,
    encode_message,
    encode_record,
)
from store_core.codec.message_id import format_host
from store_core.errors import CorruptRecordError
from store_core.layout import (
    BORNHOST_V6_FLAG,
    HEADER_IPV4,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOST_V6_FLAG,
)

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
    with pytest.raises(CorruptRecordError, match="at offset 0, but lies at 65536"):
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
