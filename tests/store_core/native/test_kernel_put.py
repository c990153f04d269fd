# SPDX-License-Identifier: Apache-2.0
"""A message put through the kernel is stored, or refused, as without it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.record_encoder import patch_record
from store_core.message import Message
from store_core.put.record_template import new_template, plain_template, topic_bytes
from tests.both_paths import KERNEL, PATHS, needs_kernel, running
from tests.examples import examples
from tests.store_core.putting import Log

pytestmark = needs_kernel
HOSTS = (bytes(range(8)), bytes(range(20)))
_LONG = "v" * 16400
MARKS = (b"DELAY\1", b"INNER_")


names = st.sampled_from(
    ["TAGS", "KEYS", "WAIT", "a", "", "ü", "DELAY", "INNER_NUM", "INNER_MULTI_DISPATCH", "__CRC32#",
     "TIMER_DELAY_MS", "\ud800", "x\1y", 7]
)  # fmt: skip
values = st.sampled_from(
    ["", "true", "false", "1", "3", "€ 𝄞", "a\2b", "\udfff", None, "v" * 16400]
)
numbers = st.sampled_from([0, 0, 0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, True, 1.5, "1"])
raws = st.sampled_from(
    [None, None, b"", b"a\1b\2", b"a\1b", b"DELAY\1" b"2\2", b"WAIT\1no\2", b"x\1" + b"v" * 32766,
     b"__CRC32#\1" b"0000000012\2", bytearray(b"a\1b\2"), "a\1b\2"]
)  # fmt: skip
topics = st.sampled_from(["T", "ü", "t" * 127, "t" * 200, "batch", "%LMQ%x", "SCHEDULE_TOPIC_XXXX"])
bodies = st.sampled_from([b"", b"body", bytes(3000), bytearray(b"b"), memoryview(b"b"), None, "b"])
messages = st.fixed_dictionaries(
    {},
    optional={
        "topic": topics,
        "body": bodies,
        "properties": st.dictionaries(names, values, max_size=4),
        "properties_raw": raws,
        "queue_id": numbers,
        "flag": numbers,
        "sys_flag": st.sampled_from([0, 0, 4, 8, 0x10, 0x30, 0x80, -1, 2**31]),
        "born_timestamp": numbers,
        "born_host": st.sampled_from([None, "1.2.3.4:5", "[::1]:9", "nowhere"]),
        "reconsume_times": numbers,
        "prepared_transaction_offset": numbers,
    },
)  # fmt: skip


def outcome(log, fields):
    message = Message(**{"topic": "T", "body": b"b", **fields})
    try:
        return log.putter.put_message(message)
    except (TypeError, ValueError, AttributeError) as err:
        return type(err), str(err)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(messages, min_size=1, max_size=6), st.booleans(), st.booleans(), st.data())
def test_any_messages_are_stored_the_same(tmp_path_factory, given, crc, is_sync, drawn):
    more = {"flush_disk_type": "SYNC_FLUSH"} if is_sync else {}
    options = {"enabled_append_prop_crc": crc, "max_message_size": 2000, "max_topic_length": 150,
               "schedules": True, "timers": drawn.draw(st.booleans()), **more}  # fmt: skip
    found = []
    for kernel in PATHS:
        log = Log(tmp_path_factory.mktemp("log"), **options)
        log.batch_topics = {"batch"}
        with running(kernel):
            outcomes = [outcome(log, fields) for fields in given]
        found.append((outcomes, log.bytes(), log.flush.calls, log.stats.puts, log.stats.failures,
                      log.offsets.simple, log.offsets.batch))  # fmt: skip
        log.queue.close()
    assert found[0] == found[1]


def template(message, most_body=99):
    return plain_template(message, topic_bytes(b"T"), HOSTS, MARKS, most_body, 5)


def test_an_ordinary_message_takes_the_kernel():
    message = Message("T", b"body", tags="t", keys=["k", "l"], flag=5, sys_flag=0x31, born_host="x")
    raw = b"TAGS\1t\2KEYS\1k l\2"
    assert template(message) == new_template(message, topic_bytes(b"T"), raw, HOSTS, 5)
    message.properties_raw = b"a\1b\2"
    assert template(message) == new_template(message, topic_bytes(b"T"), b"a\1b\2", HOSTS, 5)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "fields",
    [
        {"body": bytes(100)},
        {"body": bytearray(1)},
        {"queue_id": 2**31},
        {"flag": 1.0},
        {"sys_flag": 0x80},
        {"born_timestamp": 2**63},
        {"properties": {"DELAY": "1"}},
        {"properties": {"a": "INNER_"}},
        {"properties": {"a": Text("b")}},
        {"properties": {"a": "\ud800"}},
        {"properties": {str(number): "" for number in range(65)}},
        {"properties": {"a": "v" * 32765}},
        {"properties_raw": bytes(32768)},
        {"properties_raw": bytearray(1)},
    ],
)
def test_an_unusual_message_is_left_to_python(fields):
    assert template(Message("T", **{"body": b"b", **fields})) is None


def test_the_longest_properties_and_body_take_the_kernel():
    message = Message("T", bytes(99), properties={"a": "v" * 32764})
    raw = b"a\1" + b"v" * 32764 + b"\2"
    assert template(message) == new_template(message, topic_bytes(b"T"), raw, HOSTS, 5)


@settings(max_examples=examples(50))
@given(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3), st.sampled_from([8, 20]))
def test_a_record_is_completed_the_same(values, host):
    message = Message("T", b"b")
    records = []
    for kernel in PATHS:
        record = new_template(message, topic_bytes(b"T"), b"", (bytes(host), bytes(8)), 5)
        with running(kernel):
            patch_record(record, *values)
        records.append(record)
    assert records[0] == records[1]


def test_what_does_not_fit_is_refused():
    assert not KERNEL.patch_put(bytearray(90), 1, 2, 3)
    assert not KERNEL.patch_put(bytearray(91), 1, 2, 2**63)
    assert not KERNEL.patch_put(bytes(91), 1, 2, 3)
    with pytest.raises(TypeError, match="expected 14 arguments"):
        KERNEL.encode_put()
