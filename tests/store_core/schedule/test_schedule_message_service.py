# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import (
    Message,
    MessageStore,
    PutMessageStatus,
    ScheduleMessageService,
    StoreClosedError,
    StoreReadError,
)
from store_core.codec.java_string import java_integer
from store_core.codec.message_codec import string_to_properties
from store_core.errors import StoreFormatError
from store_core.read import queue_records
from store_core.schedule import schedule_message_service as module
from store_core.state.running_flags import RunningFlag
from tests.store_core.schedule.delayed_store import (
    SCHEDULE,
    START_MS,
    Clock,
    bodies,
    config_of,
    delayed_store,
    deliver,
    put_delayed,
    queue_of,
)

LEVEL_MS = {1: 1_000, 2: 2_000, 3: 10_000, 4: 3_600_000}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(tmp_path, clock):
    with delayed_store(tmp_path / "store", clock) as found:
        yield found


def offset_file(store):
    return Path(store.config.store_path_root_dir, "config", "delayOffset.json")


def test_a_message_is_delivered_when_it_is_due_and_not_before(opened, clock):
    store, service = opened
    for number in range(3):
        put_delayed(store, 1, b"%d" % number, queue_id=2)
        clock.now += 10
    deliver(store, service, START_MS + 999)
    assert bodies(store, queue_id=2) == []
    deliver(store, service, START_MS + 1_010)
    assert bodies(store, queue_id=2) == [b"0", b"1"]
    assert service.offsets == {1: 2}
    deliver(store, service, START_MS + 1_020)
    assert bodies(store, queue_id=2) == [b"0", b"1", b"2"]
    assert [record.queue_offset for record in queue_of(store, queue_id=2)] == [0, 1, 2]


def test_delivered_records_keep_all_but_topic_and_queue(opened, clock):
    store, service = opened
    message = Message(
        "%RETRY%G",
        b"body",
        queue_id=0,
        flag=7,
        sys_flag=8,  # a committed one
        reconsume_times=2,
        born_timestamp=5,
        born_host="[2001:db8::1]:7",
        store_host="10.0.0.1:8",
        prepared_transaction_offset=99,
        properties={"DELAY": "2", "RETRY_TOPIC": "T", "KEYS": "k"},
    )
    assert store.put_message(message).is_appended
    put_delayed(store, 2, b"other host")
    deliver(store, service, clock.now + 2_000)
    (waited, _), (record,) = queue_of(store, SCHEDULE, 1), queue_of(store, "%RETRY%G")
    assert record.topic_bytes == b"%RETRY%G"
    assert record.prepared_transaction_offset == 0
    for name in ("body", "properties_raw", "flag", "sys_flag", "reconsume_times"):
        assert getattr(record, name) == getattr(waited, name), name
    for name in ("born_timestamp", "born_host", "store_host", "body_crc"):
        assert getattr(record, name) == getattr(waited, name), name
    assert string_to_properties(record.properties_raw)["REAL_TOPIC"] == "%RETRY%G"


@pytest.mark.parametrize("back", [1, 3_000, 10**9])
def test_a_clock_that_was_set_back_delays_no_longer_than_the_level(opened, clock, back):
    store, service = opened
    put_delayed(store, 2, b"x")
    deliver(store, service, START_MS - back)
    # RocketMQ's guard: a time further ahead than the delay itself is due immediately.
    assert bodies(store) == [b"x"]


def test_a_clock_that_was_set_forth_delivers_all(opened, clock):
    store, service = opened
    for level in LEVEL_MS:
        put_delayed(store, level, b"%d" % level)
    deliver(store, service, START_MS + 10**10)
    assert bodies(store) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("most", [(1, 1 << 22), (3, 1 << 22), (1 << 14, 500)])
def test_a_backlog_over_many_segments_comes_in_batches_and_in_order(
    tmp_path, clock, most, monkeypatch
):
    monkeypatch.setattr(module, "_MOST_UNITS", most[0])
    monkeypatch.setattr(queue_records, "_MOST_BYTES", most[1])
    with delayed_store(tmp_path, clock, mapped_file_size_commit_log=2048) as (store, service):
        for number in range(60):
            put_delayed(store, 1 + number % 2, b"%d" % number, queue_id=number % 3)
        assert store.max_phy_offset > 3 * 2048
        deliver(store, service, clock.now + 2_000)
        for queue_id in range(3):
            found = [int(body) for body in bodies(store, queue_id=queue_id)]
            assert sorted(found) == list(range(queue_id, 60, 3))
            for level in (0, 1):
                of_level = [number for number in found if number % 2 == level]
                assert of_level == sorted(of_level)
        assert service.offsets == {1: 30, 2: 30}


def test_what_rocketmq_passes_over_is_passed_over(opened, clock, caplog):
    store, service = opened
    for topic, raw in [
        (SCHEDULE, b"DELAY\0011\2REAL_QID\0010\2"),
        (SCHEDULE, b"DELAY\0011\2REAL_TOPIC\1T\2"),
        (SCHEDULE, b"DELAY\0011\2REAL_TOPIC\1T\2REAL_QID\1x\2"),
        (SCHEDULE, b"DELAY\0011\2REAL_TOPIC\1RMQ_SYS_TRANS_HALF_TOPIC\2REAL_QID\0010\2"),
        ("T", b"DELAY\0011\2n\1good\2"),
    ]:
        assert store.put_message(Message(topic, b"b", properties_raw=raw)).is_appended
    with caplog.at_level(logging.WARNING):
        deliver(store, service, clock.now + 1_000)
    assert bodies(store) == [b"b"]
    assert (service.delivered, service.skipped, service.offsets) == (1, 4, {1: 5})
    assert "level 1: 4 messages cannot be delivered" in caplog.text


def test_a_record_that_is_gone_is_passed_over(opened, clock):
    store, service = opened
    for number in range(3):
        put_delayed(store, 1, b"%d" % number)
    assert store.wait_for_dispatch()
    place = queue_of(store, SCHEDULE, 0)[1].commit_log_offset
    (log,) = Path(store.config.store_path_root_dir, "commitlog").glob("0*0")
    with log.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(8), place)
    deliver(store, service, clock.now + 1_000)
    assert bodies(store) == [b"0", b"2"]
    assert (service.delivered, service.skipped) == (2, 1)


def test_without_its_extension_unit_a_message_is_due_by_its_store_time(tmp_path, clock):
    settings = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 2000}
    with delayed_store(tmp_path / "store", clock, **settings) as (store, service):
        put_delayed(store, 2, b"0")
        clock.now += 500
        put_delayed(store, 2, b"1")
        deliver(store, service, START_MS + 1_999)
        assert bodies(store) == []
        for file in (tmp_path / "store" / "consumequeue_ext" / SCHEDULE / "1").iterdir():
            file.unlink()
        deliver(store, service, START_MS + 1_999)
        assert bodies(store) == []
        deliver(store, service, START_MS + 2_000)
        assert bodies(store) == [b"0"]
        deliver(store, service, START_MS + 2_500)
        assert bodies(store) == [b"0", b"1"]


def test_a_refused_message_holds_its_level_up_and_no_other(opened, clock, caplog):
    store, service = opened
    bad = Message(
        SCHEDULE, b"", queue_id=0, properties_raw=b"DELAY\0011\2REAL_TOPIC\1a/b\2REAL_QID\0010\2"
    )
    put_delayed(store, 1, b"first")
    assert store.put_message(bad).is_appended
    put_delayed(store, 1, b"behind")
    put_delayed(store, 2, b"other level")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            deliver(store, service, clock.now + 2_000)
    assert bodies(store) == [b"first", b"other level"]
    assert service.offsets == {1: 1, 2: 1}
    assert "'a/b' cannot name a directory" in service.refusals[1]
    assert caplog.text.count("level 1 waits") == 1


def test_what_cannot_be_put_now_is_put_later_and_once(opened, clock):
    store, service = opened
    for number in range(3):
        put_delayed(store, 1, b"%d" % number)
    store.flags.set(RunningFlag.NOT_WRITEABLE)
    deliver(store, service, clock.now + 1_000)
    assert (bodies(store), service.offsets) == ([], {1: 0})
    assert "SERVICE_NOT_AVAILABLE" in service.refusals[1]
    store.flags.clear(RunningFlag.NOT_WRITEABLE)
    deliver(store, service, clock.now + 1_000)
    assert bodies(store) == [b"0", b"1", b"2"]
    assert service.refusals == {}


def test_the_rows_before_a_full_disk_are_delivered_once(opened, clock, monkeypatch):
    store, service = opened
    for number in range(5):
        put_delayed(store, 1, b"%d" % number)
    append = store.raw_append_batch

    def two_at_most(batch):
        done = append(batch.slice(0, 2))
        status = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        return replace(done, status=status, reason="full") if batch.num_rows > 2 else done

    monkeypatch.setattr(store, "raw_append_batch", two_at_most)
    assert store.wait_for_dispatch()
    assert service.run_once(clock.now + 1_000)
    assert service.refusals == {1: "CREATE_MAPPED_FILE_FAILED: full"}
    assert service.offsets == {1: 2}
    deliver(store, service, clock.now + 1_000)
    assert bodies(store) == [b"0", b"1", b"2", b"3", b"4"]
    assert service.refusals == {}


def test_a_level_that_fails_keeps_no_other_from_its_messages(opened, clock, monkeypatch):
    store, service = opened
    for level in (1, 2):
        put_delayed(store, level, b"%d" % level)
    assert store.wait_for_dispatch()
    monkeypatch.setattr(module, "delivered_rows", _failing_once(module.delivered_rows))
    with pytest.raises(StoreReadError):
        service.run_once(clock.now + 2_000)
    assert service.offsets == {1: 0, 2: 1}


def _failing_once(real):
    failures = [StoreReadError("a", "b")]

    def called(frames):
        if failures:
            raise failures.pop()
        return real(frames)

    return called


def test_a_restart_goes_on_and_a_kill_repeats_what_came_after_the_last_save(tmp_path, clock):
    root = tmp_path / "store"
    with delayed_store(root, clock) as (store, service):
        for number in range(4):
            put_delayed(store, 1, b"%d" % number)
            clock.now += 100
        deliver(store, service, START_MS + 1_000)
        service.save()
        deliver(store, service, START_MS + 1_100)  # and no save after that
    with delayed_store(root, clock) as (store, service):
        deliver(store, service, START_MS + 1_200)
        assert bodies(store) == [b"0", b"1", b"1", b"2"]
        service.save()
    with delayed_store(root, clock) as (store, service):
        deliver(store, service, START_MS + 10_000)
        assert bodies(store) == [b"0", b"1", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("table", "expected"),
    [("{1:9,2:1}", {1: 3, 2: 0}), ("{1:-5}", {1: 0}), ("{1:2,7:5}", {1: 2, 7: 5})],
)
def test_offsets_are_brought_into_the_range_of_their_queues(opened, table, expected):
    store, service = opened
    for _ in range(3):
        put_delayed(store, 1, b"x")
    assert store.wait_for_dispatch()
    offset_file(store).parent.mkdir()
    offset_file(store).write_text(f'{{"offsetTable":{table}}}')
    service.load()
    assert service.offsets == expected


def test_without_the_file_all_is_delivered_once_more(opened, clock):
    store, service = opened
    put_delayed(store, 1, b"x")
    deliver(store, service, clock.now + 1_000)
    deliver(store, ScheduleMessageService(store), clock.now + 1_000)
    assert bodies(store) == [b"x", b"x"]


@pytest.mark.parametrize("torn", ['{"offsetTa', "", " "])
def test_a_torn_file_is_read_from_its_backup_and_two_torn_ones_are_refused(opened, clock, torn):
    store, service = opened
    for _ in range(2):
        put_delayed(store, 1, b"x")
    assert store.wait_for_dispatch()
    offset_file(store).parent.mkdir()
    backup = offset_file(store).with_name("delayOffset.json.bak")
    offset_file(store).write_text(torn)
    backup.write_text('{\n\t"offsetTable":{1:1\n\t}\n}')
    deliver(store, service, clock.now + 1_000)
    assert bodies(store) == [b"x"]
    service.save()
    assert offset_file(store).read_text() == '{\n\t"offsetTable":{1:2\n\t}\n}'
    assert backup.read_text() == '{\n\t"offsetTable":{1:1\n\t}\n}'
    for path in (offset_file(store), backup):
        path.write_text("{")
    with pytest.raises(StoreFormatError, match="not what a broker writes"):
        ScheduleMessageService(store).start()


def test_a_torn_file_without_a_backup_is_refused_before_anything_is_delivered(opened, clock):
    store, service = opened
    put_delayed(store, 1, b"x")
    assert store.wait_for_dispatch()
    offset_file(store).parent.mkdir()
    offset_file(store).write_text('{"offsetTa')
    with pytest.raises(StoreFormatError, match=r"delayOffset\.json: not what a broker writes"):
        deliver(store, service, clock.now + 1_000)
    assert bodies(store) == []


def test_the_file_is_saved_when_it_says_less_and_after_the_log(opened, clock, monkeypatch):
    store, service = opened
    service.load()
    service.save()
    assert not offset_file(store).exists()
    put_delayed(store, 1, b"x")
    deliver(store, service, clock.now + 1_000)
    flushed = []
    flush = store.flush
    monkeypatch.setattr(
        store, "flush", lambda: flushed.append(offset_file(store).exists()) or flush()
    )
    service.save()
    service.save()
    assert flushed == [False]
    assert offset_file(store).read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n'
        f'\t\t"timestamp":{clock.now}\n\t}},\n\t"offsetTable":{{1:1\n\t}}\n}}'
    )


def test_it_is_saved_each_interval(tmp_path, clock):
    with delayed_store(tmp_path / "s", clock, flush_delay_offset_interval=1) as (store, service):
        put_delayed(store, 1, b"x")
        deliver(store, service, clock.now + 1_000)
        assert '"offsetTable":{1:1' in offset_file(store).read_text()


def test_the_files_of_a_closed_store_are_not_written(tmp_path, clock):
    with delayed_store(tmp_path / "store", clock) as (store, service):
        put_delayed(store, 1, b"x")
        deliver(store, service, clock.now + 1_000)
    with pytest.raises(StoreClosedError):
        service.save()
    with pytest.raises(StoreClosedError):
        service.run_once()
    assert not offset_file(store).exists()


def test_the_thread_delivers_and_saves_at_its_end(tmp_path):
    config = config_of(tmp_path / "store", message_delay_level="0s 1h")
    with MessageStore(config) as store:
        service = ScheduleMessageService(store)
        service._first_delay_s = 0
        with service:
            assert service.is_running
            put_delayed(store, 1, b"now")
            put_delayed(store, 2, b"later")
            deadline = time.monotonic() + 20
            while service.delivered < 1 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert not service.is_running
        assert '"offsetTable":{1:1,2:0' in offset_file(store).read_text()
        assert store.wait_for_dispatch()
        assert bodies(store) == [b"now"]


def test_it_goes_on_where_the_file_says_after_a_shutdown(opened, clock):
    store, service = opened
    for number in range(3):
        put_delayed(store, 1, b"%d" % number)
    service._first_delay_s = 3600
    deliver(store, service, clock.now + 1_000)
    service.start()
    deliver(store, service, clock.now + 1_000)
    service.shutdown()
    # A broker delivers the last one again, as after its kill, and records less.
    text = offset_file(store).read_text()
    offset_file(store).write_text(text.replace("{1:3", "{1:2"))
    deliver(store, service, clock.now + 1_000)
    assert bodies(store) == [b"0", b"1", b"2", b"2"]


RAW = st.lists(
    st.sampled_from(
        [
            *[b"DELAY\0011\2", b"REAL_TOPIC\1T\2", b"REAL_TOPIC\1gr\xc3\xb6\xc3\x9fe\2"],
            *[b"REAL_QID\0010\2", b"REAL_QID\1+1\2", b"REAL_QID\1-\2", b"KEYS\1k l\2"],
            *[b"REAL_TOPIC\1RMQ_SYS_TRANS_HALF_TOPIC\2", b"x\1\xff\2", b"\2", b"WAIT\1false\2"],
        ]
    ),
    max_size=6,
).map(b"".join)
WAITING = st.lists(
    st.builds(
        Message,
        st.just(SCHEDULE),
        st.binary(max_size=9),
        properties_raw=st.builds(lambda raw: b"REAL_QID\0012\2REAL_TOPIC\1U\2" + raw, RAW) | RAW,
        flag=st.integers(-3, 3),
        sys_flag=st.sampled_from([0, 1, 8]),
        born_timestamp=st.integers(1, 9),
        born_host=st.sampled_from(["1.2.3.4:5", "[::1]:6"]),
        store_host=st.sampled_from(["1.2.3.4:5", "[::2]:7"]),
        reconsume_times=st.integers(0, 3),
        prepared_transaction_offset=st.integers(0, 9),
    ),
    max_size=12,
)


def time_up(record):
    """Return topic and queue to which RocketMQ delivers a due record; None if to none."""
    properties = string_to_properties(record.properties_raw)
    topic, queue_id = properties.get("REAL_TOPIC"), java_integer(properties.get("REAL_QID", ""), 32)
    if topic in (None, "RMQ_SYS_TRANS_HALF_TOPIC") or queue_id is None:
        return None
    return topic, queue_id


@settings(max_examples=12, deadline=None)
@given(waiting=WAITING, most=st.sampled_from([1, 3, 1 << 14]))
def test_batches_deliver_what_messages_one_by_one_would(waiting, most, tmp_path_factory):
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_UNITS", most)
        root = tmp_path_factory.mktemp("delayed")
        with delayed_store(root / "s", clock, message_delay_level="0s") as (store, service):
            for message in waiting:
                assert store.put_message(message).is_appended
            deliver(store, service)
            expected = {}
            for record in queue_of(store, SCHEDULE, 0):
                real = time_up(record)
                if real is not None:
                    expected.setdefault(real, []).append(record)
            assert service.delivered == sum(map(len, expected.values()))
            assert service.delivered + service.skipped == len(waiting)
            for (topic, queue_id), records in expected.items():
                found = queue_of(store, topic, queue_id)
                assert [record.topic_bytes for record in found] == [topic.encode()] * len(records)
                assert [record.queue_id for record in found] == [queue_id] * len(records)
                assert [same_but_target(record) for record in found] == [
                    same_but_target(record) for record in records
                ]


def same_but_target(record):
    return (
        record.body,
        record.properties_raw,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
    )


def test_a_store_puts_delayed_messages_only_where_it_is_told_to(tmp_path, clock):
    config = config_of(tmp_path / "store")
    raw = b"DELAY\0011\2"
    with MessageStore(config, clock=clock, handle_schedule_message=False) as store:
        store.put_message(Message("T", b"1", properties_raw=raw))
        batch = pa.record_batch({"topic": ["T"], "body": [b"2"], "properties_raw": [raw]})
        store.append_batch(batch)
        assert store.wait_for_dispatch()
        assert [record.properties_raw for record in queue_of(store)] == [raw, raw]
    with MessageStore(config, clock=clock) as store:
        store.raw_put_message(Message("T", b"3", properties_raw=raw))
        store.raw_append_batch(batch)
        store.append_batch(batch)
        assert store.wait_for_dispatch()
        assert bodies(store) == [b"1", b"2", b"3", b"2"]
        assert bodies(store, SCHEDULE) == [b"2"]
