# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqsource.sink.errors import SinkRowError
from store_core import MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.codec.java_string import java_integer
from store_core.codec.message_codec import string_to_properties
from store_core.message import Message
from store_core.put.put_properties import (
    RESERVED_PROPERTIES,
    property_string,
    property_value,
    queue_names,
    reserved_fault,
    reserved_faults,
    set_property,
    waits_for_flush,
    with_light_offsets,
)
from store_core.results import PutMessageStatus
from store_core.tools.check.store_check import check_store
from tests.rmqsource.sink.support import batch_of, convert

PAIRS = st.lists(
    st.tuples(st.sampled_from(["A", "AB", "WAIT"]), st.sampled_from(["1", "true", "x"]))
)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TOPICS = ("A", SCHEDULE, "%RETRY%g")
RESERVED = sorted(
    {r.name for r in RESERVED_PROPERTIES} | {"INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"}
)
ODD = (
    "", " ", "0", "1", "+7", "-3", "007", "abc", "1.5", "1e3", "0x10", "1 ", " 1", "\u0663", "\0",
    "32767", "32768", "-32768", "-32769", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "9" * 400, "0" * 40 + "5", "--1", "+", "%LMQ%a", "%LMQ%a,%LMQ%b", "1,2",
    ",", "a,%LMQ%a", "..", "%LMQ%a/b", "%LMQ%" + "x" * 300, "3,x", "\ufffd",
)  # fmt: skip
entries = st.lists(
    st.tuples(st.sampled_from([*RESERVED, "DELAYED", "XINNER_NUM", "k"]), st.sampled_from(ODD)),
    max_size=4,
)


def raw_of(pairs, closed):
    text = "\2".join(f"{name}\1{value}" for name, value in pairs)
    return (text + "\2" * (closed and bool(text))).encode()


def test_properties_are_stored_in_their_order_and_raw_ones_unchanged():
    message = Message("T", properties={"b": "1", "a": "ü\ud800"}, tags="t")
    assert property_string(message) == "b\x011\2a\1ü?\2TAGS\1t\2".encode()
    assert property_string(Message("T")) == b""
    raw = b"\2no pair\2a\1\2a\0011"
    assert property_string(Message("T", properties={"x": "y"}, properties_raw=raw)) == raw


def test_a_property_that_is_no_string_is_told():
    with pytest.raises(TypeError, match="property 'b' is 1: names and values"):
        property_string(Message("T", properties={"a": "x", "b": 1}))
    with pytest.raises(TypeError, match="property 'a' is None"):
        property_string(Message("T", properties={"a": None}))


@given(PAIRS, st.booleans(), st.sampled_from(["A", "AB", "C"]))
def test_a_property_is_set_once_and_the_others_stay(pairs, closed, name):
    raw = raw_of(pairs, closed)
    done = set_property(raw, name, "new")
    assert string_to_properties(done) == {**string_to_properties(raw), name: "new"}
    assert done.count(b"new") == 1
    assert done.endswith(b"\2")
    place = [n for n, _ in pairs].index(name) if name in dict(pairs) else len(pairs)
    assert done.split(b"\2")[place] == name.encode() + b"\1new"


@given(PAIRS, st.booleans())
def test_only_wait_says_that_nobody_waits(pairs, closed):
    raw = raw_of(pairs, closed)
    assert waits_for_flush(raw) == (dict(pairs).get("WAIT", "true") == "true")
    assert property_value(raw, "A") == dict(pairs).get("A")


@pytest.mark.parametrize(
    ("value", "names"), [("%LMQ%a,b,,", ["%LMQ%a", "b"]), (" ", []), (",x", ["", "x"]), (",", [])]
)
def test_names_of_light_queues(value, names):
    assert queue_names(f"INNER_MULTI_DISPATCH\1{value}\2".encode()) == names
    assert queue_names(b"INNER_MULTI_DISPATCHED\1x\2") == []


def test_offsets_stand_where_the_light_queues_are_named():
    names = ["%LMQ%a", "other", "%LMQ%b", "%LMQ%a"]
    raw, light = with_light_offsets(b"x\0011", names, {"%LMQ%a": 5, "%LMQ%b": 12}.__getitem__)
    assert raw == b"x\0011\2INNER_MULTI_QUEUE_OFFSET\0015,,12,5\2"
    assert light == ["%LMQ%a", "%LMQ%b"]


# Properties that a broker could not read are refused in every way to put, for the same reasons.


def raw_properties(pairs):
    return b"".join(f"{name}\1{value}\2".encode() for name, value in pairs)


@given(st.lists(st.tuples(st.sampled_from(TOPICS), entries), max_size=8))
def test_columns_and_single_messages_have_the_same_faults(messages):
    raw = [raw_properties(pairs) for _, pairs in messages]
    code = np.array([TOPICS.index(topic) for topic, _ in messages], np.int32)
    faults = reserved_faults(pa.array(raw, pa.binary()), TOPICS, code)
    wanted = [reserved_fault(topic, one) for (topic, _), one in zip(messages, raw)]
    assert faults == {row: fault for row, fault in enumerate(wanted) if fault is not None}


@given(st.text("0123456789+- \u0663x", max_size=24), st.sampled_from([16, 32, 64]))
@example("-32768", 16)
@example("32768", 16)
@example("0" * 30 + "1", 16)
def test_java_integers(text, bits):
    digits = text[1:] if text[:1] in ("+", "-") else text
    is_number = digits != "" and digits.isascii() and digits.isdigit()
    number = int(text) if is_number else 0
    fits = is_number and -(1 << bits - 1) <= number < 1 << bits - 1
    assert java_integer(text, bits) == (number if fits else None)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "light"])
def store(request, tmp_path_factory):
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path_factory.mktemp("reserved")),
        mapped_file_size_commit_log=1 << 20,
        max_hash_slot_num=8,
        max_index_num=64,
        enable_lmq=request.param,
        enable_multi_dispatch=request.param,
    )
    with MessageStore(config, handle_schedule_message=False) as opened:
        yield opened


def sink_takes(topic, raw, as_map):
    if as_map:
        pairs = [e.partition(b"\1") for e in raw.split(b"\2") if e]
        given_map = [(n.decode(), v.decode()) for n, _, v in pairs]
        batch = batch_of(topic=[topic], body=[b"1"], properties=[given_map])
    else:
        batch = batch_of(topic=[topic], body=[b"1"], properties_raw=[raw])
    column = ""
    try:
        convert(batch, systemTopics="true", compatibility="5")
    except SinkRowError as err:
        column = err.column
    assert column in ("", "properties" if as_map else "properties_raw")
    return not column


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("name", RESERVED)
def test_every_way_in_takes_and_refuses_the_same(store, topic, name):
    other = {"INNER_BASE": "INNER_NUM", "INNER_MULTI_DISPATCH": "INNER_MULTI_QUEUE_OFFSET"}
    beside = {"INNER_MULTI_QUEUE_OFFSET": ("INNER_MULTI_DISPATCH", "%LMQ%q")}
    light = store.config.enable_lmq
    for value in ODD:
        raw = raw_properties([(name, value)] + ([beside[name]] if name in beside else []))
        if name in other:
            raw += raw_properties([(other[name], "1")])
        message = Message(topic, b"1", properties_raw=raw)
        statuses = [store.put_message(message).status]
        batch = pa.record_batch({"topic": [topic], "body": [b"1"], "properties_raw": [raw]})
        statuses.append(store.append_batch(batch).status)
        assert len(set(statuses)) == 1, (value, statuses)
        assert statuses[0] in (PutMessageStatus.PUT_OK, PutMessageStatus.MESSAGE_ILLEGAL)
        is_put = statuses[0] is PutMessageStatus.PUT_OK
        if name != "DELAY":  # no batch accepts delayed messages
            assert store.put_messages([message]).is_appended == is_put or light, value
        if not light:  # it assigns the offsets of light queues itself
            assert sink_takes(topic, raw, as_map=False) == is_put, value
            if "\0" not in value:
                assert sink_takes(topic, raw, as_map=True) == is_put, value


def test_each_reserved_property_is_refused_where_it_counts_and_only_there():
    assert "INNER_NUM" in (reserved_fault("A", b"INNER_NUM\1x\2") or "")
    assert reserved_fault("A", b"INNER_BASE\1x\2") is None
    assert "INNER_BASE" in (reserved_fault("A", b"INNER_NUM\0012\2INNER_BASE\1x\2") or "")
    assert reserved_fault("A", b"DELAY\1abc\2") is None
    assert "DELAY" in (reserved_fault(SCHEDULE, b"DELAY\1abc\2") or "")
    assert reserved_fault(SCHEDULE, b"DELAY\0013\2") is None
    light = b"INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2INNER_MULTI_QUEUE_OFFSET\0011,x\2"
    assert "INNER_MULTI_QUEUE_OFFSET" in (reserved_fault("A", light) or "")


def test_a_prepared_inner_batch_keeps_no_base_that_is_no_number(store):
    prepared = Message("A", b"1", sys_flag=0x84, properties_raw=b"INNER_NUM\0012\2INNER_BASE\1x\2")
    assert store.put_message(prepared).status is PutMessageStatus.MESSAGE_ILLEGAL


def test_refusals_of_the_sink_count_rows_by_column():
    batch = batch_of(
        topic=["A"] * 3,
        body=[b"1"] * 3,
        properties=[[("INNER_NUM", "7")], [("a", "b")], None],
        properties_raw=[None, None, b"INNER_NUM\1abc\2INNER_BASE\1abc\2"],
    )
    assert len(convert(batch, badRows="drop")) == 1
    with pytest.raises(SinkRowError, match="INNER_NUM"):
        convert(batch)


@pytest.mark.parametrize("crc", [False, True])
def test_the_crc_of_another_record_is_not_stored(tmp_path, crc):
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=1 << 16,
        enabled_append_prop_crc=crc,
    )
    stale = b"__CRC32#\x010123456789\2"
    given_raw = [stale, b"a\x01b\2" + stale, stale * 2, stale + b"a\x01b\2" + stale, b"x" * 9]
    with MessageStore(config) as opened:
        for raw in given_raw:
            assert opened.put_message(Message("A", b"1", properties_raw=raw)).is_appended
            assert opened.put_messages([Message("A", b"1", properties_raw=raw)]).is_appended
        assert opened.put_message(
            Message("A", b"1", properties={"a": "b", "__CRC32#": "0123456789"})
        ).is_appended
        columns = {"topic": ["A"] * 5, "body": [b"1"] * 5, "properties_raw": given_raw}
        assert opened.append_batch(pa.record_batch(columns)).rows == 5
    with StoreSnapshot(tmp_path) as snapshot:
        assert [str(finding) for finding in check_store(snapshot).findings] == []
        assert len(snapshot.get_message("g", "A", 0, 0, 32).messages) == 16
