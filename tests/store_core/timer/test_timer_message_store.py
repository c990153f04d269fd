# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest

from store_core import (
    Message,
    PutMessageStatus,
    StoreClosedError,
    StoreConfigError,
    StoreFormatError,
    StoreLockedError,
    TimerMessageStore,
)
from store_core.codec.java_hash_map import hash_map_string
from store_core.codec.java_string import string_hash
from store_core.codec.message_codec import string_to_properties
from store_core.message_store import now_ms
from store_core.state.running_flags import RunningFlag
from tests.store_core.timer.timed_store import (
    START_MS,
    TIMER,
    UNITS_PER_FILE,
    Clock,
    bodies,
    checkpoint_of,
    put_timed,
    queue_of,
    root_of,
    run,
    slot_of,
    timed_config,
    timed_store,
    units_of,
)

DAY_MS, HOUR_MS = 86_400_000, 3_600_000


@pytest.fixture
def clock():
    return Clock(START_MS)


@pytest.fixture
def opened(tmp_path, clock):
    with timed_store(tmp_path / "store", clock) as found:
        yield found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMER_DELAY_SEC", 5),
        ("TIMER_DELAY_MS", 5_000),
        ("TIMER_DELIVER_MS", START_MS + 5_000),
        ("TIMER_DELAY_MS", 4_001),
        ("TIMER_DELAY_MS", 4_999),
    ],
)
def test_a_message_comes_when_its_step_is_over_and_not_before(opened, name, value):
    store, service = opened
    put_timed(store, b"x", queue_id=2, **{name: str(value)})
    for now in (START_MS, START_MS + 4_000, START_MS + 4_999):
        run(store, service, now)
        assert bodies(store, queue_id=2) == []
    run(store, service, START_MS + 5_000)
    assert bodies(store, queue_id=2) == [b"x"]
    run(store, service, START_MS + 60_000)
    assert bodies(store, queue_id=2) == [b"x"]
    assert (service.delivered, service.passed_over) == (1, 0)


def test_what_is_delivered_is_what_rocketmq_makes_of_it(opened, clock):
    """``convert``: the property string still has REAL_TOPIC, and the timer's own properties."""
    store, service = opened
    given = {"KEYS": "a b", "TAGS": "t", "TIMER_DELAY_SEC": "3", "UNIQ_KEY": "u", "é": "ü"}
    message = Message(
        "Orders",
        b"body",
        queue_id=3,
        flag=7,
        sys_flag=8,
        reconsume_times=2,
        born_timestamp=5,
        born_host="[2001:db8::1]:7",
        store_host="10.0.0.1:8",
        prepared_transaction_offset=99,
        properties=given,
    )
    assert store.put_message(message).is_appended
    run(store, service)
    run(store, service, START_MS + 3_456)
    (waited,), (record,) = queue_of(store, TIMER), queue_of(store, "Orders", 3)
    waiting = {
        **given,
        "TIMER_OUT_MS": str(START_MS + 2_000),
        "REAL_TOPIC": "Orders",
        "REAL_QID": "3",
    }
    assert waited.properties_raw == hash_map_string(waiting)
    assert record.properties_raw == hash_map_string(
        {
            **string_to_properties(waited.properties_raw),
            "TIMER_ENQUEUE_MS": str(START_MS),
            "TIMER_DEQUEUE_MS": str(START_MS + 3_456),
        }
    )
    assert (record.topic_bytes, record.queue_id) == (b"Orders", 3)
    assert record.prepared_transaction_offset == 0
    for name in ("body", "flag", "sys_flag", "reconsume_times", "born_timestamp", "born_host"):
        assert getattr(record, name) == getattr(waited, name), name
    assert record.store_host == waited.store_host


def test_a_message_whose_time_came_before_it_was_enqueued_comes_at_once(opened):
    store, service = opened
    put_timed(store, b"late", TIMER_DELAY_MS="1500")
    run(store, service, START_MS + 9_999)
    (record,) = queue_of(store)
    properties = string_to_properties(record.properties_raw)
    assert properties["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    assert properties["TIMER_DEQUEUE_MS"] == str(START_MS + 9_999)
    assert not (root_of(store) / "timerlog").exists()


def test_units_and_slots_are_as_rocketmq_writes_them(opened, clock):
    store, service = opened
    # In two slots alternately: the fifth unit begins the second file.
    for number in range(UNITS_PER_FILE + 1):
        put_timed(store, b"%d" % number, TIMER_DELAY_SEC=str(5 + number % 2))
    run(store, service, START_MS + 1_500)
    service.save()
    units = units_of(root_of(store))
    waiting = queue_of(store, TIMER)
    second = UNITS_PER_FILE * 52 + 16
    assert [unit.prev_pos for unit in units] == [-1, -1, 0, 52, 104]
    assert [unit.magic for unit in units] == [1] * 5
    assert {unit.write_time for unit in units} == {START_MS + 1_000}
    assert [unit.delay for unit in units] == [3_000, 4_000, 3_000, 4_000, 3_000]
    assert [unit.commit_log_offset for unit in units] == [r.commit_log_offset for r in waiting]
    assert [unit.message_size for unit in units] == [r.total_size for r in waiting]
    assert {unit.topic_hash for unit in units} == {string_hash("T")}
    first = (root_of(store) / "timerlog" / f"{0:020d}").read_bytes()
    assert first[-16:] == bytes.fromhex("000000100000000000000000cbd43194")
    assert (root_of(store) / "timerlog" / f"{second:020d}").exists()
    four, five = START_MS + 4_000, START_MS + 5_000
    assert slot_of(root_of(store), four) == (four // 1000, 0, second, 3, 0)
    assert slot_of(root_of(store), five) == (five // 1000, 52, 156, 2, 0)
    assert (root_of(store) / "timerwheel").stat().st_size == 38_707_200
    saved = checkpoint_of(root_of(store))
    assert saved.last_timer_queue_offset == saved.master_timer_queue_offset == 5
    assert saved.last_timer_log_flush_pos == second + 52
    assert saved.last_read_time_ms == START_MS + 1_000
    assert (saved.state_version, saved.timestamp, saved.counter) == (0, START_MS, 1)


def test_messages_of_one_slot_keep_their_order_over_files(opened):
    store, service = opened
    for number in range(5 * UNITS_PER_FILE):
        put_timed(store, b"%d" % number, TIMER_DELAY_SEC=str(2 + number % 3))
    run(store, service)
    run(store, service, START_MS + 10_000)
    found = [int(body) for body in bodies(store)]
    assert found == sorted(range(5 * UNITS_PER_FILE), key=lambda number: (number % 3, number))


def test_a_far_message_goes_round_and_comes_in_time(tmp_path, clock):
    with timed_store(tmp_path, clock, timer_roll_window_slot=10) as (store, service):
        put_timed(store, b"far", TIMER_DELAY_SEC="25")
        put_timed(store, b"less far", TIMER_DELAY_SEC="12")
        run(store, service)
        # More than a third beyond the window: all of it; less: half of it.
        assert [(u.magic, u.delay) for u in units_of(tmp_path)] == [(3, 10_000), (3, 5_000)]
        for _ in range(24):
            clock.now += 1_000
            run(store, service)
        assert bodies(store) == [b"less far"]
        clock.now += 1_000
        run(store, service)
        assert bodies(store) == [b"less far", b"far"]
        assert service.rolled == 3
        rolls = [
            string_to_properties(r.properties_raw).get("TIMER_ROLL_TIMES") for r in queue_of(store)
        ]
        assert rolls == ["1", "2"]
        again = [r for r in queue_of(store, TIMER)][2:]
        assert [string_to_properties(r.properties_raw)["REAL_TOPIC"] for r in again] == ["T"] * 3


def delete(store, key, **properties):
    put_timed(store, b"delete", TIMER_DEL_UNIQKEY=key, **properties)


def test_a_delete_message_deletes_one_of_its_slot(opened):
    store, service = opened
    for name in ("a", "b", "c"):
        put_timed(store, name.encode(), UNIQ_KEY=name, TIMER_DELAY_SEC="5")
    put_timed(store, b"no key", TIMER_DELAY_SEC="5")
    put_timed(store, b"a elsewhere", topic="U", UNIQ_KEY="a", TIMER_DELAY_SEC="5")
    delete(store, "T+a", TIMER_DELAY_SEC="5")
    delete(store, "T+b", TIMER_DELAY_SEC="6")  # of another slot: RocketMQ deletes nothing then
    delete(store, "T+nobody", TIMER_DELAY_SEC="5")
    run(store, service)
    service.save()
    assert slot_of(root_of(store), START_MS + 4_000).count == 5 - 2
    assert {u.magic for u in units_of(root_of(store))} == {1, 5}
    run(store, service, START_MS + 9_000)
    assert bodies(store) == [b"b", b"c", b"no key"]
    assert bodies(store, "U") == [b"a elsewhere"]
    assert (service.delivered, service.passed_over) == (4, 4)


def test_a_delete_message_that_rolls_deletes_in_the_end(tmp_path, clock):
    with timed_store(tmp_path, clock, timer_roll_window_slot=10) as (store, service):
        put_timed(store, b"a", UNIQ_KEY="a", TIMER_DELAY_SEC="25")
        clock.now += 2_000
        delete(store, "T+a", TIMER_DELIVER_MS=str(START_MS + 25_000))
        for _ in range(40):
            run(store, service)
            clock.now += 1_000
        assert bodies(store) == []
        assert service.rolled == 4


def test_a_delete_message_that_is_late_is_not_delivered(opened):
    store, service = opened
    delete(store, "T+a", TIMER_DELAY_SEC="1")
    run(store, service, START_MS + 9_000)
    assert bodies(store) == []
    assert service.passed_over == 1


def test_what_cannot_be_delivered_is_passed_over(opened):
    store, service = opened
    for raw in (
        b"TIMER_OUT_MS\1soon\2REAL_TOPIC\1T\2REAL_QID\0010\2",
        b"REAL_TOPIC\1T\2REAL_QID\0010\2",
        b"TIMER_OUT_MS\1%d\2REAL_TOPIC\1T\2REAL_QID\1x\2" % START_MS,
        b"TIMER_OUT_MS\1%d\2REAL_QID\0010\2" % START_MS,
    ):
        assert store.put_message(Message(TIMER, b"?", properties_raw=raw)).is_appended
    put_timed(store, b"good", TIMER_DELAY_SEC="2")
    run(store, service)
    run(store, service, START_MS + 5_000)
    assert bodies(store) == [b"good"]
    assert (service.delivered, service.passed_over) == (1, 4)


def test_a_message_that_became_too_large_is_passed_over_as_by_rocketmq(opened):
    store, service = opened
    room = 32_767 - len("TIMER_OUT_MS11790000000000") - len("REAL_TOPIC1T2REAL_QID102") - 60
    put_timed(store, b"before", TIMER_DELAY_SEC="5")
    put_timed(store, b"large", TIMER_DELAY_SEC="5", LARGE="x" * room)
    put_timed(store, b"after", TIMER_DELAY_SEC="5")
    run(store, service)
    run(store, service, START_MS + 9_000)
    assert bodies(store) == [b"before", b"after"]
    assert (service.delivered, service.passed_over) == (2, 1)


@pytest.mark.parametrize("enqueued", [True, False])
def test_a_store_that_takes_nothing_gets_all_later(opened, enqueued):
    store, service = opened
    for number in range(3):
        put_timed(store, b"%d" % number, TIMER_DELAY_SEC="5")
    if enqueued:
        run(store, service)
    store.flags.set(RunningFlag.DISK_FULL)
    assert store.wait_for_dispatch()
    for _ in range(2):
        assert not service.run_once(START_MS + 9_000)
    assert "SERVICE_NOT_AVAILABLE" in service.refusal
    store.flags.clear(RunningFlag.DISK_FULL)
    run(store, service, START_MS + 9_000)
    assert bodies(store) == [b"0", b"1", b"2"]
    assert service.refusal == ""


def test_what_follows_a_refused_message_is_enqueued_once(opened):
    store, service = opened
    put_timed(store, b"late", TIMER_DELAY_SEC="1")
    put_timed(store, b"waits", TIMER_DELAY_SEC="30")
    store.flags.set(RunningFlag.DISK_FULL)
    assert store.wait_for_dispatch()
    assert not service.run_once(START_MS + 9_000)
    assert service.queue_offset == 0
    store.flags.clear(RunningFlag.DISK_FULL)
    run(store, service, START_MS + 9_000)
    run(store, service, START_MS + 60_000)
    assert bodies(store) == [b"late", b"waits"]


def test_a_clock_that_is_set_back_loses_nothing(opened, clock):
    store, service = opened
    run(store, service, START_MS + 3_600_000)
    service.finish()
    put_timed(store, b"x", TIMER_DELAY_SEC="5")  # before the slots that were read
    run(store, service, START_MS)
    assert bodies(store) == []
    run(store, service, START_MS + 3_601_000)
    assert bodies(store) == [b"x"]


def test_after_the_clock_was_an_hour_ahead_nothing_waits_for_that_hour(opened, clock):
    store, service = opened
    run(store, service, START_MS + HOUR_MS)
    clock.now = START_MS + HOUR_MS
    put_timed(store, b"put while it was ahead", TIMER_DELAY_SEC="2")
    run(store, service, START_MS + HOUR_MS)
    clock.now = START_MS
    put_timed(store, b"later", TIMER_DELAY_SEC="7")
    put_timed(store, b"soon", TIMER_DELAY_SEC="5")
    put_timed(store, b"beyond", TIMER_DELAY_SEC="3700")
    for now, expected in (
        (0, []),
        (4_999, []),
        (5_000, [b"soon"]),
        (6_999, [b"soon"]),
        (7_000, [b"soon", b"later"]),
        (HOUR_MS + 2_000, [b"soon", b"later", b"put while it was ahead"]),
        (HOUR_MS + 100_000, [b"soon", b"later", b"put while it was ahead", b"beyond"]),
    ):
        run(store, service, START_MS + now)
        assert bodies(store) == expected
        service.finish()  # a service that goes on reads the files again
    assert (service.delivered, service.passed_over) == (4, 0)


def test_of_those_one_may_cancel_another(opened, clock):
    store, service = opened
    run(store, service, START_MS + HOUR_MS)
    put_timed(store, b"cancelled", TIMER_DELAY_SEC="5", UNIQ_KEY="u")
    put_timed(store, b"kept", TIMER_DELAY_SEC="5", UNIQ_KEY="v")
    put_timed(store, b"", TIMER_DELAY_SEC="5", TIMER_DEL_UNIQKEY="T+u")
    run(store, service, START_MS)
    run(store, service, START_MS + 5_000)
    run(store, service, START_MS + 2 * HOUR_MS)
    assert bodies(store) == [b"kept"]


def test_those_a_kill_finds_again(tmp_path, clock):
    """Messages delivered before a save are not repeated, however many files of units followed."""
    with timed_store(tmp_path, clock) as (store, service):
        run(store, service, START_MS + HOUR_MS)
        for delay in ("9", "5", "6"):
            put_timed(store, delay.encode(), TIMER_DELAY_SEC=delay)
        for number in range(5 * UNITS_PER_FILE):
            put_timed(store, b"%d" % number, "far", TIMER_DELAY_SEC="4000")
        run(store, service, START_MS + 6_000)
        assert bodies(store) == [b"5", b"6"]
        service.save()
        assert checkpoint_of(tmp_path).master_timer_queue_offset == 0, "a broker enqueues it, too"
        service._close_files()  # as by a kill
    with timed_store(tmp_path, clock) as (store, service):
        run(store, service, START_MS + 8_999)
        assert bodies(store) == [b"5", b"6"]
        run(store, service, START_MS + 9_000)
        run(store, service, START_MS + 4_002_000)
        assert bodies(store) == [b"5", b"6", b"9"]
        assert sorted(bodies(store, "far"), key=int) == [b"%d" % n for n in range(20)]


def test_a_clock_that_is_set_back_makes_nothing_early(opened, clock):
    """RocketMQ keeps the later time, and delivers later puts immediately."""
    store, service = opened
    run(store, service, START_MS + 10_000)
    put_timed(store, b"x", TIMER_DELAY_SEC="5")
    for now in (START_MS + 1_000, START_MS + 4_999):
        run(store, service, now)
        assert bodies(store) == []


def test_the_waiting_count_and_flow_control(tmp_path, clock):
    with timed_store(tmp_path, clock, timer_congest_num_each_slot=2) as (store, service):
        for number in range(4):
            put_timed(store, b"%d" % number, TIMER_DELAY_SEC="5")
        run(store, service)
        assert service.waiting == 4
        message = Message("T", b"x", properties={"TIMER_DELAY_SEC": "5"})
        result = store.put_message(message)
        assert result.status is PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL
        assert "timerCongestNumEachSlot" in result.reason
        put_timed(store, b"elsewhere", TIMER_DELAY_SEC="7")
        service.finish()
        put_timed(store, b"nobody counts", TIMER_DELAY_SEC="5")


def test_another_precision(tmp_path, clock):
    with timed_store(tmp_path, clock, timer_precision_ms=100) as (store, service):
        put_timed(store, b"x", TIMER_DELAY_MS="1234")
        run(store, service)
        for now, expected in ((1_299, []), (1_300, [b"x"])):
            run(store, service, START_MS + now)
            assert bodies(store) == expected
        service.save()
        assert slot_of(tmp_path, START_MS + 1_200, 100).time == (START_MS + 1_200) // 100


def test_a_window_that_no_unit_can_hold_is_refused(tmp_path):
    with timed_store(tmp_path) as (store, _):
        store.config = timed_config(tmp_path, timer_precision_ms=60_000)
        with pytest.raises(StoreConfigError, match="timerRollWindowSlot"):
            TimerMessageStore(store)


def test_a_wheel_of_another_length_is_refused(tmp_path, clock):
    (tmp_path / "timerwheel").write_bytes(bytes(100))
    with timed_store(tmp_path, clock) as (_, service):
        with pytest.raises(StoreFormatError, match="timerwheel: the file has 100 bytes"):
            service.start()
        assert not service.is_running
        (tmp_path / "timerwheel").unlink()


def test_two_services_of_one_store_are_refused(opened):
    store, service = opened
    with service, pytest.raises(StoreLockedError, match="another service"):
        TimerMessageStore(store).start()
    with TimerMessageStore(store):
        pass


def test_the_thread_delivers_by_the_clock(tmp_path):
    """With steps of 10 ms, so that it takes no second."""
    with timed_store(tmp_path, now_ms, timer_precision_ms=10) as (store, service), service:
        wanted = now_ms() + 40
        put_timed(store, b"x", TIMER_DELIVER_MS=str(wanted))
        deadline = time.monotonic() + 10
        while not service.delivered:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert store.wait_for_dispatch()
        (record,) = queue_of(store)
        assert record.store_timestamp >= wanted
    assert checkpoint_of(tmp_path).last_timer_queue_offset == 1


def test_a_closed_store_is_not_saved(tmp_path, clock):
    with timed_store(tmp_path, clock) as (store, service):
        put_timed(store, b"x", TIMER_DELAY_SEC="5")
        run(store, service)
        store.shutdown()
        with pytest.raises(StoreClosedError):
            service.save()
        store.load()
        store.start()
        run(store, service, START_MS + 9_000)
        assert bodies(store) == [b"x"]
        store.shutdown()
        with store:  # no other service came in between: it still knows the delivered messages
            run(store, service, START_MS + 10_000)
            service.finish()
            assert bodies(store) == [b"x"]
        store.load()
        store.start()
