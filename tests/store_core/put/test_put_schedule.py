# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.message_codec import properties_to_bytes, string_to_properties
from store_core.message import Message
from store_core.results import PutMessageStatus
from tests.examples import examples
from tests.golden_store import golden
from tests.store_core.putting import Log, batch_of, golden_message

OK, ILLEGAL = PutMessageStatus.PUT_OK, PutMessageStatus.MESSAGE_ILLEGAL
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path, schedules=True)


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
def test_delayed_messages_are_stored_as_a_broker_stored_them(name, tmp_path):
    store = golden(name)
    levels = store.config_properties["messageDelayLevel"]
    lines = [m for m in store.dump("messages") if m.get("topic") == SCHEDULE]
    log = Log(tmp_path / "one", schedules=True, message_delay_level=levels)
    columns = Log(tmp_path / "columns", schedules=True, message_delay_level=levels)
    messages = []
    for line in lines:
        message = golden_message(line)
        raw = base64.b64decode(line["properties_raw_b64"])
        properties = string_to_properties(raw)
        message.topic, message.queue_id = (
            properties.pop("REAL_TOPIC"),
            int(properties.pop("REAL_QID")),
        )
        if properties["DELAY"] == "6":
            properties["DELAY"] = "9"  # requested delay, with six levels
        message.properties_raw = properties_to_bytes(sorted(properties.items(), reverse=True))
        messages.append(message)
    assert {log.putter.put_message(message).status for message in messages} == {OK}
    assert columns.putter.append_batch(batch_of(messages)).rows == len(lines)
    found = log.records()
    assert log.bytes() == columns.bytes()
    for record, line in zip(found, lines):
        assert record.topic_bytes == SCHEDULE.encode()
        assert record.queue_id == line["queue_id"]
        assert record.properties_raw == base64.b64decode(line["properties_raw_b64"])


@pytest.mark.parametrize("level", ["0", "-1", "+0"])
def test_level_zero_and_below_is_no_delay(log, level):
    log.put_ok("T", properties={"DELAY": level})
    assert log.records()[0].topic_bytes == b"T"


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_prepared_and_rollback_messages_are_not_delayed(log, sys_flag):
    log.put_ok("T", sys_flag=sys_flag, properties={"DELAY": "1"})
    assert log.records()[0].topic_bytes == b"T"


def test_the_queue_offset_is_that_of_the_schedule_topic(log):
    offsets = [log.put_ok("T", queue_id=n, properties={"DELAY": "+3"}).queue_offset for n in (0, 7)]
    assert offsets == [0, 1]
    record = log.records()[1]
    assert (record.topic_bytes, record.queue_id) == (SCHEDULE.encode(), 2)
    properties = string_to_properties(record.properties_raw)
    assert properties == {"DELAY": "+3", "REAL_TOPIC": "T", "REAL_QID": "7"}


def test_times_of_the_timer_wheel_do_not_count_beside_a_level(log):
    timer = {"TIMER_DELIVER_MS": "1", "TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "3"}
    log.put_ok("T", properties={**timer, "DELAY": "1"})
    assert set(string_to_properties(log.records()[0].properties_raw)) == {
        "DELAY",
        "REAL_TOPIC",
        "REAL_QID",
    }


def test_what_is_in_the_schedule_topic_stays_as_it_is(log):
    raw = b"REAL_TOPIC\1T\2DELAY\0012\2x\1y"
    log.put_ok(SCHEDULE, queue_id=1, properties_raw=raw)
    log.putter.put_message(Message("T", properties_raw=raw), is_raw=True)
    batch = pa.record_batch({"topic": ["T"], "body": [b"b"], "properties_raw": [raw]})
    assert log.putter.append_batch(batch, is_raw=True).rows == 1
    assert [record.properties_raw for record in log.records()] == [raw] * 3
    assert [record.topic_bytes for record in log.records()] == [SCHEDULE.encode(), b"T", b"T"]


@pytest.mark.parametrize("level", ["", "x", "1.5", "2147483648"])
def test_a_level_that_is_no_number_is_refused(log, level):
    message = Message("T", properties_raw=f"DELAY\1{level}\2a\1b\2".encode())
    expected = OK if level == "" else ILLEGAL  # an empty value does not count
    result = log.putter.put_message(message)
    assert result.status is expected
    columns = log.putter.append_batch(batch_of([Message("T", properties_raw=b""), message]))
    assert columns.status is expected
    assert columns.row == (-1 if expected is OK else 1)
    assert result.reason == columns.reason
    assert expected is OK or "a delay level is a whole number" in result.reason


def test_a_message_is_refused_for_its_own_topic_and_queue(log):
    delayed = b"DELAY\0011\2"
    for bad in (
        Message("a/b", properties_raw=delayed),
        Message("x" * 200, properties_raw=delayed),
        Message("T", queue_id=-1, properties_raw=delayed),
        Message("T", b"", sys_flag=0x80, properties_raw=delayed + b"INNER_NUM\0012\2"),
    ):
        assert log.putter.put_message(bad).status is ILLEGAL
        assert log.putter.append_batch(batch_of([bad])).status is ILLEGAL
    assert log.records() == []


LEVELS = [b"DELAY\1" + level + b"\2" for level in (b"1", b"3", b"99", b"0", b"-4", b"x")]
OTHERS = [
    b"KEYS\1k\2",
    b"REAL_TOPIC\1old\2",
    b"XDELAY\0012\2",
    b"TIMER_DELAY_MS\0015\2",
    b"\2",
    b"\xff\1a\2",
]
RAW = st.lists(st.sampled_from([*LEVELS, *OTHERS]), max_size=5).map(b"".join)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(["T", "größe", SCHEDULE, "U"]),
        st.binary(max_size=5),
        queue_id=st.integers(0, 2),
        sys_flag=st.sampled_from([0, 8, 4]),
        born_timestamp=st.just(7),
        properties_raw=st.builds(lambda raw, cut: raw[: len(raw) - cut], RAW, st.integers(0, 1)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(messages=MESSAGES)
def test_columns_are_delayed_as_messages_one_by_one(messages, tmp_path_factory):
    directory = tmp_path_factory.mktemp("log")
    logs = [Log(directory / name, schedules=True) for name in "ab"]
    for log in logs:
        log.put_ok()
    refused = -1
    for number, message in enumerate(messages):
        if not logs[0].putter.put_message(message).is_appended:
            refused = number
            break
    result = logs[1].putter.append_batch(batch_of(messages))
    assert result.row == refused
    if refused < 0:
        assert logs[0].bytes() == logs[1].bytes()
