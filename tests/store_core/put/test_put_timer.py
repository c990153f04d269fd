# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.message_codec import properties_to_bytes, string_to_properties
from store_core.message import Message
from store_core.results import PutMessageStatus
from tests.examples import examples
from tests.store_core.putting import Log, batch_of

NOW = 1_790_000_000_250
TIMER = b"rmq_sys_wheel_timer"
OK, ILLEGAL = PutMessageStatus.PUT_OK, PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
MAX_LONG = 2**63 - 1


def timer_log(directory, **settings):
    log = Log(directory, schedules=True, timers=True, **settings)
    log.clock.now = NOW
    return log


@pytest.fixture
def log(tmp_path):
    return timer_log(tmp_path)


# Results of 5.3.3's ``transformTimerMessage``: topic and queue, and TIMER_OUT_MS.
@pytest.mark.parametrize(
    ("properties", "out_ms"),
    [
        ({"TIMER_DELAY_SEC": "1"}, NOW // 1000 * 1000 + 1_000),
        ({"TIMER_DELAY_MS": "750"}, NOW // 1000 * 1000),  # an exact step: the one before
        ({"TIMER_DELAY_MS": "751"}, NOW // 1000 * 1000 + 1_000),
        ({"TIMER_DELAY_MS": "1"}, NOW // 1000 * 1000),
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, NOW // 1000 * 1000),
        ({"TIMER_DELIVER_MS": "+" + str(NOW + 5_000)}, NOW // 1000 * 1000 + 5_000),
        ({"TIMER_DELAY_SEC": "259200"}, NOW // 1000 * 1000 + 259_200_000),
        ({"TIMER_DELAY_MS": "900", "TIMER_DELIVER_MS": "1"}, NOW // 1000 * 1000 + 1_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "1"}, NOW // 1000 * 1000 + 2_000),
        ({"TIMER_DELAY_SEC": "2", "DELAY": "0"}, NOW // 1000 * 1000 + 2_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DEL_UNIQKEY": "T+k"}, NOW // 1000 * 1000 + 2_000),
    ],
)
def test_messages_that_wait(log, properties, out_ms):
    log.put_ok("T", queue_id=3, properties={"K": "v", **properties})
    (record,) = log.records()
    assert (record.topic_bytes, record.queue_id) == (TIMER, 0)
    assert record.properties_raw == hash_map_string(
        {"K": "v", **properties, "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "3"}
    )


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_MS": "-5"},
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELIVER_MS": "0"},
        {"TIMER_DELAY_SEC": str(MAX_LONG)},  # times 1000 it is -1000: Java's numbers wrap
        {"TIMER_DELAY_MS": str(MAX_LONG)},
        {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "7"},  # it was delivered already
        {"TIMER_DEL_UNIQKEY": "T+k"},
        {"MY_TIMER_DELAY_SEC": "5"},
    ],
)
def test_messages_that_do_not_wait_stay_as_they_are(log, properties):
    raw = properties_to_bytes(properties.items())
    log.put_ok("T", queue_id=3, properties_raw=raw)
    (record,) = log.records()
    assert (record.topic_bytes, record.queue_id, record.properties_raw) == (b"T", 3, raw)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, "TIMER_DELAY_SEC is 'soon', which is not a number"),
        ({"TIMER_DELAY_SEC": "1.5"}, "not a number"),
        ({"TIMER_DELAY_MS": " 1"}, "not a number"),
        ({"TIMER_DELIVER_MS": "9223372036854775808"}, "not a number"),
        ({"TIMER_DELAY_SEC": "x", "TIMER_DELAY_MS": "1"}, "not a number"),
        ({"TIMER_DELAY_SEC": "259201"}, "timerMaxDelaySec allows 259200000"),
        ({"TIMER_DELIVER_MS": str(MAX_LONG)}, "timerMaxDelaySec"),
        ({"TIMER_DELAY_SEC": "0", "TIMER_DEL_UNIQKEY": "T+k"}, "whose delivery time has passed"),
    ],
)
def test_messages_that_are_refused(log, properties, reason):
    result = log.put("T", properties=properties)
    assert result.status is ILLEGAL
    assert reason in result.reason
    batch = batch_of([Message("T", b"b"), raw_message(properties)])
    refused = log.putter.append_batch(batch)
    assert (refused.status, refused.rows, refused.row) == (ILLEGAL, 0, 1)
    assert refused.reason == result.reason
    assert log.bytes() == b""


def raw_message(properties):
    return Message("T", b"b", properties_raw=properties_to_bytes(properties.items()))


def test_without_a_wheel_timer_messages_are_refused(tmp_path):
    log = timer_log(tmp_path, timer_wheel_enable=False)
    result = log.put("T", properties={"TIMER_DELAY_SEC": "1"})
    assert result.status is PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
    assert "timerWheelEnable" in result.reason
    log.put_ok("T", properties={"TIMER_DELAY_SEC": "1", "DELAY": "1"})
    assert log.records()[0].topic_bytes == b"SCHEDULE_TOPIC_XXXX"


def test_a_delay_level_comes_first(log):
    log.put_ok("T", properties={"TIMER_DELAY_SEC": "1", "DELAY": "2"})
    (record,) = log.records()
    assert (record.topic_bytes, record.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 1)
    assert "TIMER_DELAY_SEC" not in string_to_properties(record.properties_raw)


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_prepared_and_rollback_messages_do_not_wait(log, sys_flag):
    log.put_ok("T", properties={"TIMER_DELAY_SEC": "1"}, sys_flag=sys_flag)
    assert log.records()[0].topic_bytes == b"T"


def test_raw_messages_and_those_of_the_timer_do_not_wait(log):
    message = Message("T", b"b", properties={"TIMER_DELAY_SEC": "1"})
    assert log.putter.put_message(message, is_raw=True).status is OK
    log.put_ok(TIMER.decode(), properties={"TIMER_DELAY_SEC": "1"})
    assert [r.topic_bytes for r in log.records()] == [b"T", TIMER]


def test_a_store_without_rules_keeps_them_as_they_are(tmp_path):
    log = Log(tmp_path, schedules=True)
    log.put_ok("T", properties={"TIMER_DELAY_SEC": "1"})
    assert log.putter.append_batch(batch_of([raw_message({"TIMER_DELAY_SEC": "1"})])).rows == 1
    assert [r.topic_bytes for r in log.records()] == [b"T", b"T"]


@pytest.mark.parametrize(
    ("waiting", "refused"), [(10, {False}), (15, {False, True}), (20, {True}), (10**9, {True})]
)
def test_flow_control(tmp_path, waiting, refused):
    log = timer_log(tmp_path, timer_congest_num_each_slot=10)
    asked = []
    log.timer_rules.waiting_at = lambda time_ms: asked.append(time_ms) or waiting
    found = {
        log.put("T", properties={"TIMER_DELAY_SEC": "5"}).status
        is PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL
        for _ in range(100)
    }
    assert found == refused
    assert set(asked) == {NOW // 1000 * 1000 + 5_000}


NAMES = ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY",
         "TIMER_OUT_MS", "DELAY", "KEYS", "A"]  # fmt: skip
VALUES = ["1", "0", "-1", "2000", "300000", str(NOW + 5), "x", str(MAX_LONG)]
MESSAGES = st.builds(
    lambda topic, queue_id, sys_flag, properties: Message(
        topic, b"b", queue_id=queue_id, sys_flag=sys_flag, properties_raw=properties
    ),
    st.sampled_from(["T", "U", "rmq_sys_wheel_timer", "x" * 300]),
    st.sampled_from([0, 3, -1]),
    st.sampled_from([0, 4, 8]),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4).map(
        lambda p: properties_to_bytes(p.items())
    ),
)


@settings(max_examples=examples(150), deadline=None)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=6))
def test_a_batch_is_stored_as_its_messages_one_by_one(messages, tmp_path_factory):
    one = timer_log(tmp_path_factory.mktemp("one"))
    columns = timer_log(tmp_path_factory.mktemp("columns"))
    first = None
    for number, message in enumerate(messages):
        result = one.putter.put_message(message)
        if result.status is not OK and first is None:
            first = number, result.status
    done = columns.putter.append_batch(batch_of(messages))
    if first is None:
        assert done.rows == len(messages)
        assert columns.bytes() == one.bytes()
    else:
        assert (done.row, done.status) == first
    for log in (one, columns):
        log.queue.close()
