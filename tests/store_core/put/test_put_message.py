# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.message_codec import (
    decode_message,
    encode_message,
    string_to_properties,
    verify_property_crc,
)
from store_core.message import Message
from store_core.put.record_template import new_template, topic_bytes
from store_core.results import PutMessageStatus
from tests.store_core.putting import HOST, Log, queue_offsets_in_order

OK, ILLEGAL = PutMessageStatus.PUT_OK, PutMessageStatus.MESSAGE_ILLEGAL
TOO_MANY = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
NO_HOSTS = (bytes(8), bytes(8))


@pytest.fixture
def log(tmp_path):
    made = Log(tmp_path)
    yield made
    made.queue.close()


@pytest.fixture
def light(tmp_path):
    made = Log(tmp_path, enable_lmq=True, enable_multi_dispatch=True, max_message_size=2000)
    yield made
    made.queue.close()


def test_what_was_put_is_in_the_log(log):
    log.clock.now = 77
    result = log.put(
        "T", b"body", queue_id=3, tags="t", keys=["k"], flag=5, reconsume_times=2,
        born_timestamp=9, born_host="[2001:db8::17]:99",
    )  # fmt: skip
    (record,) = log.records()
    assert result.status is OK
    assert result.append_result.store_size == record.total_size
    assert result.append_result[1:6] == (0, record.total_size, 0, 77, 1)
    assert result.append_result.message_id == "C0A8070800002A9F" + "0" * 16
    assert (record.topic_bytes, record.body, record.queue_id) == (b"T", b"body", 3)
    assert (record.flag, record.sys_flag, record.reconsume_times) == (5, 0x10, 2)
    assert (record.born_timestamp, record.store_timestamp) == (9, 77)
    assert (len(record.born_host), record.store_host) == (20, HOST)
    assert record.properties_raw == b"TAGS\1t\2KEYS\1k\2"
    assert log.stats.puts == [(1, record.total_size, 0)]


def test_without_time_of_birth_and_host_it_is_born_here_and_now(log):
    log.put_ok()
    (record,) = log.records()
    assert (record.born_timestamp, record.born_host, record.store_host) == (1000, HOST, HOST)


def test_queue_offsets_count_each_queue_and_not_the_prepared(log):
    flags = {"none": 0, "prepared": 4, "commit": 8, "rollback": 12, "compressed": 0x301}
    offsets = {name: log.put_ok(sys_flag=flag).queue_offset for name, flag in flags.items()}
    assert offsets == {"none": 0, "prepared": 0, "commit": 1, "rollback": 0, "compressed": 2}
    assert log.put_ok(queue_id=1).queue_offset == 0
    assert log.put_ok("%RETRY%T").queue_offset == 0
    assert log.offsets.simple == {("T", 0): 3, ("T", 1): 1, ("%RETRY%T", 0): 1}
    assert [r.sys_flag for r in log.records()][:5] == list(flags.values())


@pytest.mark.parametrize(
    ("topic", "status"),
    [
        ("t" * 127, OK),
        ("t" * 128, ILLEGAL),
        ("ü" * 64, ILLEGAL),
        ("%RETRY%" + "t" * 248, OK),
        ("%RETRY%" + "t" * 249, ILLEGAL),
        ("", ILLEGAL),
        ("..", ILLEGAL),
        ("../other", ILLEGAL),
        ("a\0b", ILLEGAL),
        ("\ud800", ILLEGAL),
        ("Pipe_2-0|x", OK),
    ],
)
def test_topics(log, topic, status):
    assert log.put(topic).status is status
    assert log.put(topic).status is status  # the known data of the topic agrees
    assert len(log.records()) == (2 if status is OK else 0)
    assert log.stats.failures == (0 if status is OK else 2)


def test_long_topics_where_they_are_allowed_and_refused_where_4x_reads(tmp_path):
    log = Log(tmp_path, max_topic_length=255)
    log.put_ok("ü" * 64)
    assert log.records()[0].magic_code == -626843477
    log = Log(tmp_path / "4x", max_topic_length=255, auto_message_version_on_topic_len=False)
    result = log.put("%RETRY%" + "t" * 121)
    assert (result.status, log.records()) == (ILLEGAL, [])
    assert result.reason.endswith("has 128 bytes, at most 127 are allowed")


@pytest.mark.parametrize("crc", [False, True])
def test_properties_fill_their_length_to_the_last_byte(tmp_path, crc):
    log = Log(tmp_path, enabled_append_prop_crc=crc)
    most = 32767 - 20 * crc
    raw = b"a\1" + b"v" * (most - 3) + b"\2"
    log.put_ok(properties_raw=raw)
    result = log.put(properties_raw=b"x" + raw)
    assert (result.status, result.append_result) == (TOO_MANY, None)
    assert result.reason == "the properties have 32768 bytes, at most 32767 fit"
    assert log.put_ok().queue_offset == 1
    assert len(log.records()[0].properties_raw) == 32767
    assert verify_property_crc(log.bytes()[: log.records()[0].total_size]) is (
        True if crc else None
    )


def test_bodies_and_numbers(tmp_path):
    log = Log(tmp_path, max_message_size=100)
    log.put_ok(body=bytes(100))
    log.put_ok(body=b"")
    assert log.put(body=bytes(101)).reason == "the body has 101 bytes, maxMessageSize is 100"
    assert log.put(body=None).status is ILLEGAL
    assert log.put(queue_id=-1).status is ILLEGAL
    assert log.put(flag=1 << 31).status is ILLEGAL
    assert len(log.records()) == 2
    with pytest.raises(ValueError, match="nowhere"):
        log.put(born_host="nowhere")


def test_first_of_all_the_store_says_whether_it_takes_messages(log):
    log.refusal = PutMessageStatus.SERVICE_NOT_AVAILABLE
    result = log.put("t" * 300)
    assert (result.status, result.is_appended) == (PutMessageStatus.SERVICE_NOT_AVAILABLE, False)
    assert log.records() == []


@pytest.mark.parametrize(("since", "status"), [(0, OK), (999, PutMessageStatus.OS_PAGE_CACHE_BUSY),
                                               (1000, OK), (-9_998_000, OK)])  # fmt: skip
def test_a_put_is_refused_while_another_takes_long(log, since, status):
    log.clock.now = 2000
    log.appender.begin_time_in_lock = since
    assert log.put().status is status


def test_sync_flush_is_asked_for_the_end_of_the_record_unless_nobody_waits(tmp_path):
    log, ends = Log(tmp_path, flush_disk_type="SYNC_FLUSH"), []
    for properties in ({}, {"WAIT": "false"}, {"WAIT": "true"}, {"AWAIT": "false"}):
        appended = log.put_ok(properties=properties)
        ends.append(appended.commit_log_offset + appended.store_size)
    assert log.flush.calls == list(zip(ends, [True, False, True, True]))
    log.flush.status = PutMessageStatus.FLUSH_DISK_TIMEOUT
    result = log.put()
    assert (result.status, result.is_appended) == (PutMessageStatus.FLUSH_DISK_TIMEOUT, True)
    log.queue.close()


def test_inner_batches_go_to_batch_queues_only(log):
    log.batch_topics = {"B"}
    inner = {"sys_flag": 0xC0, "properties": {"INNER_NUM": "5", "a": "1"}}
    assert log.put("T", **inner).status is ILLEGAL
    assert log.put("B", properties={"INNER_NUM": "5"}).status is ILLEGAL
    assert log.put("B", sys_flag=0x80, properties={"INNER_NUM": "many"}).status is ILLEGAL
    assert [log.put_ok("B", **inner).queue_offset for _ in range(2)] == [0, 5]
    assert log.put_ok("B").queue_offset == 10
    assert log.put_ok("B", sys_flag=0xC0, properties={"INNER_NUM": "-3"}).queue_offset == 11
    assert log.offsets.batch == {("B", 0): 12}
    found = [string_to_properties(r.properties_raw) for r in log.records()]
    assert found[1] == {"INNER_NUM": "5", "a": "1", "INNER_BASE": "5"}
    assert (log.offsets.simple, found[2], found[3]["INNER_BASE"]) == ({}, {}, "11")


def test_light_queues_are_numbered(light):
    def put(names, topic="F", **fields):
        return light.put(topic, properties={"INNER_MULTI_DISPATCH": names}, **fields)

    put("%LMQ%a,%LMQ%b,other")
    put("%LMQ%b,%LMQ%b")
    light.put_ok("%LMQ%b")
    put("%LMQ%b", topic="%RETRY%F")
    put("%LMQ%b", sys_flag=4)
    put("%LMQ%b")
    offsets = [
        string_to_properties(r.properties_raw).get("INNER_MULTI_QUEUE_OFFSET")
        for r in light.records()
    ]
    assert offsets == ["0,0,", "1,1", None, None, None, "3"]
    expected = {("F", 0): 3, ("%LMQ%a", 0): 1, ("%LMQ%b", 0): 4, ("%RETRY%F", 0): 1}
    assert light.offsets.simple == expected


def test_the_whole_record_counts_for_light_queues(light):
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    overhead = light.put_ok("F", b"", properties=properties).store_size
    light.put_ok("F", bytes(2000 - overhead), properties=properties)
    assert light.put("F", bytes(2001 - overhead), properties=properties).status is ILLEGAL
    raw = b"a\1" + b"v" * 32720 + b"\2INNER_MULTI_DISPATCH\1%LMQ%a\2"
    assert light.put("F", b"", properties_raw=raw).status is ILLEGAL
    assert light.offsets.simple == {("F", 0): 2, ("%LMQ%a", 0): 2}


def test_without_light_queues_their_names_mean_nothing(log):
    log.put_ok(properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    assert log.records()[0].properties_raw == b"INNER_MULTI_DISPATCH\1%LMQ%a\2"


def test_a_failed_append_uses_no_queue_offset(tmp_path):
    log = Log(tmp_path, 1024, enable_lmq=True)
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    log.put_ok("F", bytes(600), properties=properties)
    result = log.put("F", bytes(1000))
    assert (result.status, result.reason[-34:]) == (
        ILLEGAL,
        "do not fit in a segment, which takes at most 1016"[-34:],
    )
    in_the_way = Path(log.queue.directories[0], f"{1024:020d}")
    in_the_way.touch()
    result = log.put("F", bytes(500), properties=properties)
    assert result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    assert str(in_the_way) in result.reason
    in_the_way.unlink()
    again = log.put_ok("F", bytes(500), properties=properties)
    assert (again.commit_log_offset, again.queue_offset) == (1024, 1)
    assert log.offsets.simple == {("F", 0): 2, ("%LMQ%a", 0): 2}
    log.queue.close()


def test_a_segment_that_cannot_be_written_is_an_unknown_error(log):
    log.put_ok()
    log.queue.last.close()
    assert log.put().status is PutMessageStatus.UNKNOWN_ERROR
    assert log.offsets.simple == {("T", 0): 1}


def test_a_topic_that_is_asked_for_often_is_known_but_not_all_are_remembered(log, monkeypatch):
    monkeypatch.setattr("store_core.put.put_context._MAX_TOPICS", 3)
    for number in range(10):
        log.put_ok(f"T{number}")
    assert len(log.putter._context.facts) <= 3


def test_threads_number_each_queue_in_the_order_of_the_log(tmp_path):
    log = Log(tmp_path, 1 << 14, enable_lmq=True)
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a"}

    def put(number):
        for i in range(60):
            log.put_ok("T", bytes([number]), queue_id=i % 3, properties=names if i % 5 == 0 else {})
            if i % 20 == 0:
                log.putter.put_messages([Message("T", b"x", queue_id=i % 3)] * 4)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = log.records()
    assert len(records) == 6 * (60 + 3 * 4)
    for offsets in queue_offsets_in_order(records).values():
        assert offsets == list(range(len(offsets)))
    light = [
        string_to_properties(r.properties_raw).get("INNER_MULTI_QUEUE_OFFSET") for r in records
    ]
    assert [int(x) for x in light if x is not None] == list(range(72))
    log.queue.close()


@given(
    st.binary(max_size=300),
    st.binary(max_size=50),
    st.binary(max_size=50),
    st.tuples(INTS, INTS, INTS, INTS),
    st.tuples(LONGS, LONGS, LONGS),
    st.tuples(HOSTS, HOSTS),
)
def test_a_draft_is_what_the_general_encoder_makes(topic, body, properties, ints, longs, hosts):
    queue_id, flag, sys_flag, reconsume_times = ints
    born_timestamp, now, prepared_transaction_offset = longs
    fields = {
        "queue_id": queue_id,
        "flag": flag,
        "sys_flag": sys_flag,
        "reconsume_times": reconsume_times,
        "prepared_transaction_offset": prepared_transaction_offset,
    }
    message = Message("other", body, born_timestamp=born_timestamp, **fields)
    assert new_template(message, topic_bytes(topic), properties, hosts, now) == encode_message(
        topic=topic,
        body=body,
        properties_raw=properties,
        commit_log_offset=0,
        queue_offset=0,
        born_timestamp=born_timestamp or now,
        born_host=hosts[0],
        store_timestamp=0,
        store_host=hosts[1],
        **fields,
    )


def test_the_version_goes_by_bytes_not_characters():
    topic = "ü" * 64  # 128 bytes, 64 characters
    draft = new_template(Message(topic), topic_bytes(topic.encode()), b"", NO_HOSTS, 0)
    assert decode_message(draft, 0, 0, "").topic_bytes.decode() == topic
    assert draft[4:8].hex() == "daa320ab"


def test_numbers_that_do_not_fit_and_hosts_of_other_lengths():
    with pytest.raises(struct.error):
        new_template(Message("t", queue_id=1 << 31), topic_bytes(b"t"), b"", NO_HOSTS, 0)
    with pytest.raises(KeyError):
        new_template(Message("t"), topic_bytes(b"t"), b"", (bytes(7), bytes(8)), 0)
