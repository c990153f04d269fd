# SPDX-License-Identifier: Apache-2.0
"""Transactions in the wrong order, twice, from many threads, and with repeated keys."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from store_core import (
    Message,
    MessageStore,
    MessageStoreConfig,
    ScheduleMessageService,
    TransactionalMessageService,
)
from store_core.errors import StoreClosedError, TransactionError
from store_core.transaction.end_results import EndStatus
from tests.store_core.crash.by_hand import dispatch_all
from tests.store_core.crash.messages import messages_in
from tests.store_core.transaction.transactions_by_hand import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    driven,
    sent_message,
)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("waits_ms", [1, 10_000])
def test_a_commit_after_a_rollback_that_checks_have_passed(root, clock, waits_ms, restart):
    """After 1 ms the op message is not written yet; after 10 s it is."""
    with driven(root, clock) as run:
        place = run.prepare(1)
        assert run.end(place, ROLLBACK).status is EndStatus.ENDED
        run.check(waits_ms)
        if not restart:
            assert run.end(place, COMMIT).status is EndStatus.ALREADY_ENDED
            run.check(waits_ms)
    with driven(root, clock) as run:
        assert run.end(place, COMMIT).status is EndStatus.ALREADY_ENDED
        assert run.committed() == []


def test_a_commit_for_an_old_copy_after_a_rollback_of_the_new_one(run):
    place = run.prepare(1)
    run.check(6001)
    assert run.end(run.asked[0], ROLLBACK, from_check=True).status is EndStatus.ENDED
    run.check(1)
    assert run.end(place, COMMIT).status is EndStatus.ALREADY_ENDED
    assert run.committed() == []


@pytest.mark.parametrize("restart", [False, True])
def test_copies_of_a_key_that_was_given_twice(root, clock, restart):
    with driven(root, clock) as run:
        run.prepare(1)
        run.prepare(1)
        assert run.check(6001).asked == 2
        copies = run.asked
        if not restart:
            assert run.end(copies[0], ROLLBACK, from_check=True).status is EndStatus.ENDED
            assert run.end(copies[1], COMMIT, from_check=True).status is EndStatus.ENDED
    with driven(root, clock) as run:
        if restart:
            assert run.service.open_queue_offsets().tolist() == [2, 3]
            run.end(copies[0], ROLLBACK, from_check=True)
            run.end(copies[1], COMMIT, from_check=True)
        assert run.service.open_queue_offsets().tolist() == []
        assert run.committed() == ["U1"]


def test_an_answer_for_the_first_of_many_copies(run):
    place = run.prepare(1)
    run.prepare(2)
    for _ in range(4):
        run.check(30_000)
    assert run.end(place, COMMIT).status is EndStatus.ENDED
    assert [run.end(half, COMMIT).status for half in run.asked if half.unique_key == "U1"] == [
        EndStatus.ALREADY_ENDED
    ] * 4
    run.check(30_000)
    assert [half.unique_key for half in run.asked[8:]] == ["U2"]
    assert run.committed() == ["U1"]


def test_a_delivery_is_no_commit_of_the_first_message_of_the_log(root, clock):
    """It has a commit's flag, and no place: 0."""
    with driven(root, clock, message_delay_level="1s") as run:
        assert run.prepare(1).commit_log_offset == 0
        run.end(run.prepare(2, DELAY="1"), COMMIT)
        clock[0] += 2000
        ScheduleMessageService(run.store).run_once()
        assert run.committed() == ["U2"]
    with driven(root, clock) as run:
        assert run.service.open_queue_offsets().tolist() == [0]
        run.answers = {"U1": COMMIT}
        run.check(60_000)
        assert sorted(run.committed()) == ["U1", "U2"]


def test_a_commit_of_the_first_message_of_the_log_counts(root, clock):
    with driven(root, clock, stop=False) as run:
        run.end(run.prepare(1), COMMIT)
    with driven(root, clock) as run:
        assert run.ops() == [b"0,"]
        assert run.check(60_000).asked == 0


def test_a_commit_that_a_loss_of_power_tore_is_none(root, clock):
    """No CRC covers properties: the record counts as whole, but its message has lost its key."""
    with driven(root, clock, stop=False) as run:
        run.prepare(1)
        run.end(run.prepare(2), COMMIT)
    tear(root, b"UNIQ_KEY", after="Orders")
    with driven(root, clock) as run:
        assert [half.unique_key for half in open_halves(run)] == ["U1", "U2"]
        run.answers = {"U2": COMMIT}
        run.check(60_000)
        assert run.committed() == [None, "U2"]


def test_a_commit_with_a_delay_level_counts(root, clock):
    """Its properties are encoded again, some with other values."""
    with driven(root, clock, stop=False, message_delay_level="1s 2s") as run:
        run.end(run.prepare(1, DELAY="9"), COMMIT)
    with driven(root, clock, message_delay_level="1s 2s") as run:
        assert run.ops() == [b"0,"]
        assert open_halves(run) == []


def open_halves(run):
    offsets = run.service.open_queue_offsets().tolist()
    return [half for half in run.halves() if half.queue_offset in offsets]


def tear(root, name, after):
    """Zero the properties of the log's last record from a name on."""
    (path,) = (root / "commitlog").iterdir()
    data = bytearray(path.read_bytes())
    begin = data.index(name, data.rindex(after.encode() + bytes(1)))
    data[begin : begin + 20] = bytes(20)
    path.write_bytes(data)


@pytest.mark.parametrize("act", ["check", "stop"])
def test_a_store_that_is_closed_is_not_written(root, clock, act):
    """Another process may have opened it."""
    with driven(root, clock, stop=False) as run:
        run.prepare(1)
        run.check(10_000)
    for path in (root / "config").iterdir():
        path.unlink()
    with pytest.raises(StoreClosedError):
        run.service.metrics_flush_service.run_once()
    if act == "check":
        with pytest.raises(StoreClosedError):
            run.service.check()
    else:
        run.service.shutdown()
    assert list((root / "config").iterdir()) == []


def test_a_store_that_is_opened_again_under_its_service(tmp_path, clock):
    """A rollback that was answered, but not recorded, is still known."""
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path))
    with MessageStore(config, clock=lambda: clock[0]) as store:
        asked = []
        service = TransactionalMessageService(store, asked.append)
        service.load()
        places = [service.prepare_message(sent_message(n)).append_result for n in range(3)]
        service.end_transaction(places[0], COMMIT)
        service.end_transaction(places[1], ROLLBACK)
        store.shutdown()
        service.shutdown()
        store.load()
        store.start()
        service.load()
        assert service.open_queue_offsets().tolist() == [2]
        clock[0] += 10_000
        service.check()
        assert [half.unique_key for half in asked] == ["U2"]
        service.shutdown()


def test_a_service_that_is_not_loaded_ends_nothing(run):
    place = run.prepare(1)
    run.end(place, COMMIT)
    run.service.shutdown()
    for act in (
        lambda: run.service.end_transaction(place, COMMIT),
        lambda: run.service.end_transactions([0], COMMIT),
        lambda: run.service.prepare_message(sent_message(2)),
        run.service.check,
        run.service.open_queue_offsets,
    ):
        with pytest.raises(TransactionError, match=r"load\(\) or start\(\) it"):
            act()
    assert run.committed() == ["U1"]
    run.service.load()
    assert run.end(place, COMMIT).status is EndStatus.ALREADY_ENDED


def test_a_store_has_one_service(run):
    other = TransactionalMessageService(run.store)
    with pytest.raises(TransactionError, match="another service"):
        other.load()
    run.service.shutdown()
    other.load()
    other.shutdown()


def test_a_block_is_entered_once(by_hand):
    block = by_hand.transaction(Message("Orders", b"x"))
    with pytest.raises(TransactionError, match="entered only once"), block, block:
        pass
    with pytest.raises(TransactionError, match="entered only once"), block:
        pass
    dispatch_all(by_hand)
    assert list(messages_in(by_hand, "Orders", 0)) == []


@pytest.mark.parametrize("before", [False, True])
def test_a_service_that_comes_while_a_block_is_open(root, clock, before):
    """``before``: another service was there when the block was opened."""
    with driven(root, clock) as run:
        if not before:
            run.service.shutdown()
        with run.store.transaction(Message("Orders", b"long")):
            if before:
                run.service.shutdown()
            dispatch_all(run.store)
            service = TransactionalMessageService(run.store, lambda _: COMMIT)
            service.load()
            clock[0] += 10_000
            assert service.check().immune == 1
        dispatch_all(run.store)
        clock[0] += 10_000
        assert service.check().asked == 0
        assert len(run.committed()) == 1
        service.shutdown()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_whatever_leaves_a_block_rolls_back(run, error):
    with pytest.raises(error), run.store.transaction(Message("Orders", b"x")):
        raise error
    assert run.check(60_000).asked == 0
    assert run.committed() == []


def test_a_generator_that_is_closed_rolls_back(run):
    def steps():
        with run.store.transaction(Message("Orders", b"x")):
            yield

    started = steps()
    next(started)
    started.close()
    assert run.check(60_000).asked == 0
    assert run.committed() == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("T" * 300, b"x"), "has 300 bytes"),
        (Message("a/b", b"x"), "cannot name a directory"),
        (Message("", b"x"), "cannot name a directory"),
        (Message("Orders", b"x", queue_id=-1), "queue id -1"),
        (Message("Orders", b"x", queue_id=2**31), "the largest possible"),
    ],
)
def test_what_could_never_be_committed_is_not_opened(run, message, reason):
    with pytest.raises(TransactionError, match=reason), run.store.transaction(message):
        pytest.fail("the block ran")
    assert run.service.prepare_message(message).append_result is None
    assert run.halves() == []


def test_a_check_within_a_check_is_not_undone(run, clock):
    """The outer one ends later, and has not come as far."""

    def ask(half):
        if half.properties["TRANSACTION_CHECK_TIMES"] != "1":
            return COMMIT
        clock[0] += 10_000
        dispatch_all(run.store)
        run.service.check()
        return UNKNOWN

    run.service._asked = ask
    run.prepare(1)
    half_offset = run.check(10_000).half_offset
    assert half_offset == 2
    run.service._asked = run._ask
    run.answers = {"U1": COMMIT}
    assert run.check(60_000).asked == 0
    assert run.committed() == ["U1"]


def test_one_answer_of_many_threads_counts(tmp_path):
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(tmp_path))) as store:
        service = TransactionalMessageService(store)
        service.load()
        for number in range(20):
            place = service.prepare_message(sent_message(number)).append_result
            together, statuses = threading.Barrier(6), []

            def answer(state, place=place, together=together, statuses=statuses):
                together.wait()
                statuses.append(service.end_transaction(place, state).status)

            threads = [
                threading.Thread(target=answer, args=(state,)) for state in [COMMIT, ROLLBACK] * 3
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert Counter(statuses) == {EndStatus.ENDED: 1, EndStatus.ALREADY_ENDED: 5}
        service.shutdown()
