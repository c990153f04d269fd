# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from store_core.codec.compression import CorruptBodyError, deflate
from store_core.codec.message_codec import decode_message, properties_to_bytes, string_to_properties
from store_core.message import Message, messages_from_record

RECORDS = json.loads((Path(__file__).parent / "codec" / "records_5x.json").read_text())["records"]


def stored(name):
    fields = RECORDS[name]
    raw = bytes.fromhex(fields["record"])
    return decode_message(raw, 0, fields["commit_log_offset"], name), fields


def with_property(record, name, value):
    properties = string_to_properties(record.properties_raw)
    properties[name] = value
    return replace(record, properties_raw=properties_to_bytes(properties.items()))


@pytest.mark.parametrize("name", sorted(set(RECORDS) - {"inner"}))
def test_a_record_becomes_its_message(name):
    record, fields = stored(name)
    (message,) = messages_from_record(record, "/a/store")
    assert message.topic == fields["topic"]
    assert message.tags == fields["tags"]
    assert message.keys == (fields["keys"].split(" ") if fields["keys"] else None)
    assert message.unique_key == fields["properties"].get("UNIQ_KEY")
    assert message.properties == fields["properties"]
    assert message.properties_raw == record.properties_raw
    assert message.message_id == fields["msg_id"]
    assert message.body == (
        base64.b64decode(fields["body_b64"]) if "body_b64" in fields else record.body
    )
    assert message.store == "/a/store"
    assert (message.store_size, message.sys_flag) == (fields["store_size"], fields["sys_flag"])
    assert (message.queue_id, message.queue_offset) == (fields["queue_id"], fields["queue_offset"])
    assert message.commit_log_offset == fields["commit_log_offset"]
    assert message.born_timestamp == fields["born_timestamp"]
    assert message.store_timestamp == fields["store_timestamp"]
    assert message.flag == fields["flag"]
    assert message.body_crc == fields["body_crc"]


def test_hosts_are_spelled_with_their_port():
    (message,) = messages_from_record(stored("ipv6")[0], "s")
    assert message.born_host == "[fe80:0:0:0:0:0:0:1]:43550"
    assert message.store_host == "[2001:db8:0:1:0:0:0:2]:10911"


def test_a_body_can_stay_as_stored():
    record, _ = stored("zstd")
    (message,) = messages_from_record(record, "s", inflate_body=False)
    assert message.body == record.body


def test_a_damaged_compressed_body_is_an_error():
    record = replace(stored("zlib")[0], body=b"no zlib stream")
    with pytest.raises(CorruptBodyError):
        messages_from_record(record, "s")
    assert messages_from_record(record, "s", inflate_body=False)[0].body == b"no zlib stream"


def test_an_inner_batch_becomes_its_messages():
    record, fields = stored("inner")
    messages = messages_from_record(record, "s")
    for i, (message, want) in enumerate(zip(messages, fields["inner_messages"])):
        assert message.body == base64.b64decode(want["body_b64"])
        assert (message.properties, message.flag) == (want["properties"], want["flag"])
        assert message.tags == want["properties"].get("TAGS")
        assert message.unique_key == want["properties"]["UNIQ_KEY"]
        assert message.queue_offset == 95 + i
        assert message.message_id == fields["msg_id"]
        assert message.store_size == fields["store_size"]
    assert len(messages) == 2


@pytest.mark.parametrize(
    ("inner_base", "first"),
    [("200", 200), ("x", 95), ("", 95), ("9223372036854775808", 95), ("²", 95)],
)
def test_inner_offsets_begin_at_the_property_if_it_is_a_number(inner_base, first):
    record = with_property(stored("inner")[0], "INNER_BASE", inner_base)
    offsets = [message.queue_offset for message in messages_from_record(record, "s")]
    assert offsets == [first, first + 1]


def test_a_compressed_inner_batch_is_inflated_to_be_taken_apart():
    record, _ = stored("inner")
    packed = replace(record, body=deflate(record.body, 0x300), sys_flag=record.sys_flag | 0x301)
    for inflate_body in (True, False):
        bodies = [message.body for message in messages_from_record(packed, "s", inflate_body)]
        assert bodies == [message.body for message in messages_from_record(record, "s")]


@pytest.mark.parametrize("sys_flag", [0x40, 0x80])
def test_one_inner_bit_makes_no_inner_batch(sys_flag):
    record = replace(stored("inner")[0], sys_flag=sys_flag)
    (message,) = messages_from_record(record, "s")
    assert message.body == record.body


def test_tags_keys_and_unique_key_become_properties():
    message = Message("t", tags="a", keys=["k1", "k2"], unique_key="u", properties={"x": "1"})
    want = [("x", "1"), ("TAGS", "a"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "u")]
    assert list(message.properties.items()) == want
    assert (message.tags, message.keys, message.unique_key) == ("a", ["k1", "k2"], "u")


def test_given_names_win_over_properties_and_keep_their_place():
    message = Message(
        "t", tags="new", keys="k3 k4", properties={"TAGS": "old", "KEYS": "k", "x": "1"}
    )
    assert list(message.properties.items()) == [("TAGS", "new"), ("KEYS", "k3 k4"), ("x", "1")]


def test_empty_names_mean_absent():
    message = Message("t", tags="", keys=[], unique_key="", properties={"TAGS": "a", "KEYS": "b"})
    assert message.properties == {}
    assert (message.tags, message.keys, message.unique_key) == (None, None, None)


def test_the_given_properties_are_copied():
    properties = {"x": "1"}
    message = Message("t", tags="a", properties=properties)
    assert properties == {"x": "1"}
    message.properties["TAGS"] = "b"
    assert message.tags == "b"


def test_messages_compare_by_value_and_survive_pickling():
    (message,) = messages_from_record(stored("lz4")[0], "s")
    assert pickle.loads(pickle.dumps(message)) == message
    assert message != Message("t")
    assert message != "t"
    assert "TopicTest" in repr(message)
