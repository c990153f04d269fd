# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_core.codec.message_codec import verify_property_crc
from store_core.message import Message
from store_core.put import put_record_batch
from store_core.results import PutMessageStatus
from tests.examples import examples
from tests.store_core.putting import Log, batch_of, same

OK = PutMessageStatus.PUT_OK
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
TOO_MANY = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED


def rows(count, **columns):
    given_columns = {"topic": ["T"] * count, "body": [b"b"] * count, **columns}
    return pa.record_batch({name: pa.array(values) for name, values in given_columns.items()})


PROPERTIES = [
    b"",
    b"a\1b",
    b"INNER_NUM\0013\2x\1y\2",
    b"INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2WAIT\1false\2",
    b"INNER_MULTI_DISPATCH\1 \2__CRC32#\0019\2",
]


MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(["T", "U", "B", "%LMQ%a", "%RETRY%T"]),
        st.binary(max_size=40),
        queue_id=st.integers(0, 2),
        flag=st.integers(-5, 5),
        sys_flag=st.sampled_from([0, 0, 1, 4, 8, 12]),
        born_timestamp=st.integers(0, 5),
        born_host=st.sampled_from([None, "1.2.3.4:5", "[::1]:6"]),
        store_host=st.sampled_from([None, "[::2]:7"]),
        prepared_transaction_offset=st.integers(0, 9),
        reconsume_times=st.integers(0, 9),
        properties_raw=st.sampled_from(PROPERTIES),
    ),
    min_size=1,
    max_size=25,
)


def made_legal(message):
    inner = b"INNER_NUM" in message.properties_raw
    if inner:
        message.topic = "B"
        message.sys_flag |= 0xC0
    return message


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(messages=MESSAGES, crc=st.booleans(), lmq=st.booleans(), chunk=st.sampled_from([1, 7, 99]))
def test_a_record_batch_is_as_its_messages_one_by_one(
    messages, crc, lmq, chunk, tmp_path_factory, monkeypatch
):
    monkeypatch.setattr(put_record_batch, "_CHUNK_ROWS", chunk)
    directory = tmp_path_factory.mktemp("log")
    logs = [
        Log(directory / name, 700, enabled_append_prop_crc=crc, enable_lmq=lmq) for name in "ab"
    ]
    messages = [made_legal(message) for message in messages]
    for log in logs:
        log.batch_topics = {"B"}
        log.put_ok()
    single = [logs[0].putter.put_message(message) for message in messages]
    assert {result.status for result in single} == {OK}
    result = logs[1].putter.append_batch(batch_of(messages))
    assert (result.status, result.rows, result.row) == (OK, len(messages), -1), result.reason
    assert same(result.commit_log_offsets, [r.append_result.commit_log_offset for r in single])
    assert same(result.queue_offsets, [r.append_result.queue_offset for r in single])
    assert logs[0].bytes() == logs[1].bytes()
    assert logs[0].offsets.simple == logs[1].offsets.simple
    assert logs[0].offsets.batch == logs[1].offsets.batch
    assert logs[1].flush.calls[-1] == (logs[1].queue.max_offset, True)
    for log in logs:
        log.queue.destroy()


def test_topic_and_body_are_enough(log):
    result = log.putter.append_batch(rows(3, body=["é", "b", ""]))
    assert (result.status, result.rows, result.queue_offsets.tolist()) == (OK, 3, [0, 1, 2])
    records = log.records()
    assert [r.body for r in records] == ["é".encode(), b"b", b""]
    assert {(r.queue_id, r.born_timestamp, r.properties_raw) for r in records} == {(0, 1000, b"")}
    assert {len(r.born_host) for r in records} == {8}
    assert log.stats.puts == [(3, log.queue.max_offset, 0)]


def test_types_are_converted_and_nulls_filled(log):
    batch = pa.record_batch(
        {
            "body": pa.array([b"x", b"y"], pa.large_binary()),
            "topic": pa.array(["T", "U"]).dictionary_encode(),
            "queue_id": pa.array([None, 2], pa.int16()),
            "born_timestamp": pa.array([5, None], pa.int64()),
            "born_host": pa.array([bytes(20), None], pa.binary()),
            "properties_raw": pa.array([None, "a\1b\2"], pa.string()),
        }
    )
    assert log.putter.append_batch(batch).rows == 2
    first, second = log.records()
    assert (first.queue_id, second.queue_id) == (0, 2)
    assert (first.born_timestamp, second.born_timestamp) == (5, 1000)
    assert (len(first.born_host), len(second.born_host)) == (20, 8)
    assert (first.properties_raw, second.properties_raw) == (b"", b"a\1b\2")


def test_a_slice_of_a_batch_is_put_from_its_own_first_row(log):
    batch = rows(9, body=[bytes([n]) for n in range(9)], queue_id=[n % 2 for n in range(9)])
    assert log.putter.append_batch(batch.slice(4, 3)).queue_offsets.tolist() == [0, 0, 1]
    assert [r.body for r in log.records()] == [b"\4", b"\5", b"\6"]


@pytest.mark.parametrize(
    ("columns", "row", "status", "reason"),
    [
        ({"topic": ["T", "T", None]}, 2, ILLEGAL, "topic is null"),
        ({"topic": ["T", "t" * 128, "/"]}, 1, ILLEGAL, "128 bytes"),
        ({"topic": [b"T", b"T", b"\xff"]}, 2, ILLEGAL, "not UTF-8"),
        ({"body": [b"", None, b""]}, 1, ILLEGAL, "body is null"),
        ({"body": [b"", bytes(201), b""]}, 1, ILLEGAL, "maxMessageSize is 200"),
        ({"queue_id": [0, -1, 0]}, 1, ILLEGAL, "queue_id -1"),
        ({"flag": [0, 0, 1 << 31]}, 2, ILLEGAL, "flag 2147483648"),
        ({"born_host": [bytes(8), bytes(8), bytes(4)]}, 2, ILLEGAL, "4 bytes, not 8 or 20"),
        ({"properties_raw": [b"", b"INNER_NUM\0015\2", b""]}, 1, ILLEGAL, "INNER_NUM"),
        ({"sys_flag": [0, 0, 0x80]}, 2, ILLEGAL, "inner batch"),
        ({"properties_raw": [b"", b"", bytes(32768)]}, 2, TOO_MANY, "at most 32767"),
    ],
)
def test_the_first_bad_row_is_named_and_nothing_is_appended(tmp_path, columns, row, status, reason):
    log = Log(tmp_path, max_message_size=200)
    result = log.putter.append_batch(rows(3, **columns))
    assert (result.status, result.row, result.rows) == (status, row, 0)
    assert reason in result.reason
    assert (log.records(), log.offsets.simple, log.flush.calls) == ([], {}, [])
    assert log.stats.failures == 1


def test_of_two_bad_rows_the_earlier_is_named(log):
    columns = {"topic": ["T", "T", None], "queue_id": [0, -1, 0], "sys_flag": [0, 0x80, 0]}
    assert log.putter.append_batch(rows(3, **columns)).reason == "queue_id -1 is out of bounds"


@pytest.mark.parametrize(("size", "crc"), [(32767, False), (32747, True), (32746, True)])
def test_properties_fill_their_length_to_the_last_byte(tmp_path, size, crc):
    log = Log(tmp_path, enabled_append_prop_crc=crc)
    raw = b"a\1" + b"v" * (size - 3) + b"\2"
    assert log.putter.append_batch(rows(1, properties_raw=[raw])).status is OK
    too_long = b"a\1" + b"v" * (32766 - 20 * crc)
    assert log.putter.append_batch(rows(1, properties_raw=[too_long])).status is TOO_MANY


def test_rows_that_may_outgrow_their_record_are_refused_beforehand(tmp_path):
    log = Log(tmp_path, enable_lmq=True, max_message_size=1000)
    raw = b"INNER_MULTI_DISPATCH\1%LMQ%a\2"
    bodies = [bytes(10), bytes(900)]
    result = log.putter.append_batch(rows(2, body=bodies, properties_raw=[raw, raw]))
    assert (result.row, result.rows, result.status) == (1, 0, ILLEGAL)
    raw = b"INNER_NUM\0012\2" + b"x" * 32750
    log.batch_topics = {"T"}
    result = log.putter.append_batch(rows(1, properties_raw=[raw], sys_flag=[0xC0]))
    assert (result.row, result.status) == (0, TOO_MANY)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ({"topic": ["T"]}, "topic and body are required"),
        ({"topic": ["T"], "body": [b""], "tags": ["x"]}, "topic, body, tags"),
        ({"topic": ["T"], "body": [b""], "queue_id": ["x"]}, "x"),
    ],
)
def test_columns_that_cannot_be_put(log, batch, reason):
    with pytest.raises(ValueError, match=reason):
        log.putter.append_batch(
            pa.record_batch({name: pa.array(values) for name, values in batch.items()})
        )


def test_nothing_to_put_and_a_store_that_takes_nothing(log):
    result = log.putter.append_batch(rows(1).slice(0, 0))
    assert (result.status, result.rows, log.flush.calls) == (OK, 0, [])
    log.refusal = PutMessageStatus.SERVICE_NOT_AVAILABLE
    result = log.putter.append_batch(rows(2))
    assert (result.status, result.rows, result.row) == (log.refusal, 0, -1)


def test_the_rows_before_a_segment_that_cannot_be_made_stay(tmp_path):
    log = Log(tmp_path, 1024, enable_lmq=True)
    log.put_ok()
    in_the_way = Path(log.queue.directories[0], f"{1024:020d}")
    in_the_way.touch()
    raw = [b"INNER_MULTI_DISPATCH\1%LMQ%a\2"] * 6
    batch = rows(6, body=[bytes(100)] * 6, queue_id=[0, 1] * 3, properties_raw=raw)
    result = log.putter.append_batch(batch)
    assert (result.status, result.rows) == (PutMessageStatus.CREATE_MAPPED_FILE_FAILED, 3)
    assert result.queue_offsets.tolist() == [1, 0, 2]
    assert str(in_the_way) in result.reason
    assert log.offsets.simple == {("T", 0): 3, ("T", 1): 1, ("%LMQ%a", 0): 3}
    assert (
        log.flush.calls[-1][0] == log.records()[-1].commit_log_offset + log.records()[-1].total_size
    )
    in_the_way.unlink()
    rest = log.putter.append_batch(batch.slice(3))
    assert (rest.rows, rest.queue_offsets.tolist()) == (3, [1, 3, 2])
    log.queue.close()


def test_a_row_that_no_segment_holds_stops_the_batch_there(log):
    result = log.putter.append_batch(rows(3, body=[b"", bytes(1000), b""]))
    assert (result.status, result.rows) == (ILLEGAL, 1)
    assert log.offsets.simple == {("T", 0): 1}


def batch(count, size=10, **fields):
    return [Message("T", bytes([n]) * size, **fields) for n in range(count)]


def test_a_batch_lies_in_one_segment(log):
    log.put_ok(body=bytes(700))
    before = log.queue.max_offset
    result = log.putter.put_messages(batch(3, born_host="[::1]:5", properties={"WAIT": "false"}))
    appended = result.append_result
    size = appended.store_size // 3
    assert (appended.commit_log_offset, appended.queue_offset, appended.message_num) == (1024, 1, 3)
    ids = [f"C0A8070800002A9F{offset:016X}" for offset in (1024, 1024 + size, 1024 + 2 * size)]
    assert appended.message_id == ",".join(ids)
    assert [r.queue_offset for r in log.records()] == [0, 1, 2, 3]
    assert [r.body[:1] for r in log.records()[1:]] == [b"\0", b"\1", b"\2"]
    assert before < 1024
    assert log.flush.calls[1:] == [(1024 + 3 * size, False)]
    assert log.stats.puts[1:] == [(3, 3 * size, 0)]
    assert log.put_ok().queue_offset == 4


def test_the_property_crc_of_every_record_is_right(tmp_path):
    log = Log(tmp_path, enabled_append_prop_crc=True)
    messages = [
        Message("T", b"x", properties_raw=raw) for raw in (b"", b"a\1b", b"__CRC32#\0011\2")
    ]
    log.putter.put_messages(messages)
    data = log.bytes()
    for record in log.records():
        at = record.commit_log_offset
        assert verify_property_crc(data[at : at + record.total_size]) is True
    assert [len(r.properties_raw) for r in log.records()] == [20, 24, 20]


@pytest.mark.parametrize(
    ("bad", "status", "reason"),
    [
        (Message("U"), ILLEGAL, "the same topic and queue"),
        (Message("T", queue_id=1), ILLEGAL, "the same topic and queue"),
        (Message("T", sys_flag=8), ILLEGAL, "transaction"),
        (Message("T", sys_flag=0x80), ILLEGAL, "inner batch"),
        (Message("T", properties={"DELAY": "3"}), ILLEGAL, "delayed"),
        (Message("T", properties={"DELAY": "three"}), ILLEGAL, "whole number"),
        (Message("T", properties={"TRAN_MSG": "True"}), ILLEGAL, "transaction"),
        (Message("T", properties={"INNER_NUM": "3"}), ILLEGAL, "INNER_NUM"),
        (Message("T", None), ILLEGAL, "None"),
        (Message("T", properties={"a": "v" * 33000}), TOO_MANY, "fit"),
        (Message("T", bytes(900)), ILLEGAL, "the messages of the batch have 966 bytes"),
        (Message("T", flag=1 << 40), ILLEGAL, "does not fit its field"),
    ],
)  # fmt: skip
def test_all_or_none(tmp_path, bad, status, reason):
    log = Log(tmp_path, 1 << 16, max_message_size=950)
    result = log.putter.put_messages([Message("T"), Message("T"), bad])
    assert (result.status, result.append_result) == (status, None)
    assert reason in result.reason
    assert (log.records(), log.offsets.simple, log.stats.failures) == ([], {}, 1)
    log.queue.close()


def test_a_level_of_zero_is_no_delay(log):
    assert log.putter.put_messages([Message("T", properties={"DELAY": "0"})]).is_appended


def test_a_batch_that_no_segment_holds_changes_nothing(log):
    log.put_ok()
    before = log.bytes()
    result = log.putter.put_messages(batch(10, 50))
    assert (result.status, log.bytes()) == (ILLEGAL, before)
    assert log.put_ok().queue_offset == 1


def test_an_empty_batch_and_a_store_that_is_shut_down(log):
    with pytest.raises(ValueError, match="at least one"):
        log.putter.put_messages([])
    log.refusal = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert log.putter.put_messages(batch(1)).status is log.refusal
