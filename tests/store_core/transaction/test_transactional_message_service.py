# SPDX-License-Identifier: Apache-2.0
"""Opening, ending and checking transactions, by every rule of a broker, and the differences."""

from __future__ import annotations

import json

import pytest

from store_core import (
    Message,
    MessageStore,
    MessageStoreConfig,
    TransactionalMessageService,
)
from store_core.config.config_files import load_consumer_offsets
from store_core.errors import TransactionError
from store_core.files.store_directory import StoreDirectory
from store_core.state.running_flags import RunningFlag
from store_core.topics import DISCARD_TOPIC, TRANSACTION_GROUP
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


def test_commit_and_rollback(run, clock):
    first, second = run.prepare(1), run.prepare(2)
    assert run.committed() == []
    assert run.service.metrics.counts() == {"Orders": 2}
    assert run.end(first, COMMIT).status is EndStatus.ENDED
    assert run.end(second, ROLLBACK).status is EndStatus.ENDED
    assert run.committed() == ["U1"]
    assert run.service.metrics.counts() == {"Orders": 0}
    assert run.ops() == []
    clock[0] += 3000
    run.service.op_batch_service.run_once()
    assert run.ops() == [b"0,1,"]
    result = run.check(10_000)
    assert (result.asked, result.half_offset, result.op_offset) == (0, 2, 1)


def test_an_answer_counts_once(run):
    place = run.prepare(1)
    assert run.end(place, COMMIT).status is EndStatus.ENDED
    assert run.end(place, COMMIT).status is EndStatus.ALREADY_ENDED
    assert run.end(place, ROLLBACK).status is EndStatus.ALREADY_ENDED
    run.check(10_000)
    assert run.end(place, COMMIT).status is EndStatus.ALREADY_ENDED
    assert run.committed() == ["U1"]


def test_answers_that_do_not_fit(run):
    place = run.prepare(1)
    run.prepare(2)
    assert run.end(place, UNKNOWN).status is EndStatus.IGNORED
    assert run.end(place, COMMIT, producer_group="others").status is EndStatus.NOT_FOUND
    assert run.end(place, COMMIT, producer_group="writers").status is EndStatus.ENDED
    commit = run.store.get_message("g", "Orders", 1, 0, 1).messages[0]
    result = run.end(commit, COMMIT)
    assert result.status is EndStatus.NOT_FOUND
    assert "no half message" in result.reason
    wrong = Message("x", queue_offset=7, commit_log_offset=place.commit_log_offset)
    assert "queue offset 0, not 7" in run.end(wrong, COMMIT).reason


def test_a_check_asks_and_takes_the_answer(run):
    run.prepare(1)
    run.prepare(2)
    run.answers = {"U1": COMMIT}
    assert run.check(5999).asked == 0
    result = run.check(2)
    assert (result.asked, result.half_offset) == (2, 2)
    assert [half.unique_key for half in run.asked] == ["U1", "U2"]
    asked = run.asked[0]
    assert (asked.topic, asked.queue_id, asked.queue_offset) == ("Orders", 1, 2)
    assert run.committed() == ["U1"]
    copies = [half.properties.get("TRANSACTION_CHECK_TIMES") for half in run.halves()]
    assert copies == [None, None, "1", "1"]
    later = run.check(30_000)
    assert (later.asked, later.half_offset) == (1, 4)
    assert run.halves()[-1].properties["TRANSACTION_CHECK_TIMES"] == "2"


def test_an_answer_that_comes_later(run):
    run.prepare(1)
    run.check(6001)
    assert run.end(run.asked[0], COMMIT, from_check=True).status is EndStatus.ENDED
    assert run.check(30_000).asked == 0
    assert run.committed() == ["U1"]


def test_the_producer_answers_for_an_old_copy(run, clock):
    """RocketMQ's op message names an old copy: it checks again, and delivers twice."""
    place = run.prepare(1)
    run.check(6001)
    assert run.end(place, COMMIT).status is EndStatus.ENDED
    assert run.end(run.asked[0], COMMIT, from_check=True).status is EndStatus.ALREADY_ENDED
    clock[0] += 3000
    run.service.op_batch_service.run_once()
    assert run.ops() == [b"1,"]
    run.answers = {"U1": COMMIT}
    assert run.check(30_000).asked == 0
    assert run.committed() == ["U1"]


def test_messages_checked_too_often_are_given_up(root, clock):
    with driven(root, clock, transaction_check_max=3) as run:
        run.prepare(1)
        assert [run.check(30_000).asked for _ in range(4)] == [1, 1, 1, 0]
        assert run.service.metrics.counts() == {"Orders": 0}
        (kept,) = messages_in(run.store, DISCARD_TOPIC, 0)
        assert kept.body == b"order 1"
        assert kept.properties["TRANSACTION_CHECK_TIMES"] == "3"
        assert len(run.service.open_queue_offsets()) == 0
        # An answer that comes too late still counts, once.
        assert run.end(run.asked[-1], COMMIT).status is EndStatus.ENDED
        assert run.end(run.asked[0], COMMIT).status is EndStatus.ALREADY_ENDED
        assert run.committed() == ["U1"]


def test_messages_older_than_the_log_is_kept_are_given_up(run):
    run.prepare(1)
    assert run.check(72 * 3_600_000 + 1).discarded == 1
    assert len(list(messages_in(run.store, DISCARD_TOPIC, 0))) == 1


def test_immune_messages_are_not_asked_for_and_not_given_up(root, clock):
    """RocketMQ counts each copy as a check, and discards the message without having asked."""
    with driven(root, clock, transaction_check_max=3) as run:
        run.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="300")
        run.prepare(2)
        run.answers = {"U1": COMMIT, "U2": ROLLBACK}
        results = [run.check(30_000) for _ in range(9)]
        assert [result.immune for result in results] == [1] * 9
        assert [half.unique_key for half in run.asked] == ["U2"]
        copy = run.halves()[-1].properties
        assert (copy["TRAN_PREPARED_QUEUE_OFFSET"], copy["WAIT"]) == ("0", "false")
        assert "TRANSACTION_CHECK_TIMES" not in copy
        assert run.check(31_000).asked == 1
        assert run.asked[-1].properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert run.committed() == ["U1"]


def test_counters_of_a_broker_that_counted_immune_copies(root, clock):
    with driven(root, clock, transaction_check_max=3) as run:
        half = sent_message(
            1,
            CHECK_IMMUNITY_TIME_IN_SECONDS="60",
            TRAN_PREPARED_QUEUE_OFFSET="0",
            TRANSACTION_CHECK_TIMES="3",
        )
        run.service.prepare_message(half)
        assert run.check(61_000).asked == 1
        assert run.asked[0].properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_a_late_answer_that_nobody_asked_for(run, clock):
    place = run.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    clock[0] += 10_001
    assert run.end(place, COMMIT).status is EndStatus.ILLEGAL_OPERATION
    assert run.end(place, COMMIT, from_check=True).status is EndStatus.ENDED


@pytest.mark.parametrize("immunity", ["-1", "x"])
def test_immunity_that_is_no_number_is_the_timeout(run, immunity):
    run.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS=immunity)
    assert run.check(5000).immune == 1
    assert run.check(1001).asked == 1


def test_a_clock_that_was_set_back(run, clock):
    run.prepare(1)
    clock[0] -= 100_000
    assert run.check(0).asked == 0  # stored after the check began
    clock[0] += 200_000
    assert run.check(0).asked == 1


def test_a_restart_goes_on(root, clock):
    with driven(root, clock) as run:
        places = [run.prepare(number) for number in range(4)]
        run.end(places[0], COMMIT)
        run.check(6001)
        run.end(run.asked[0], ROLLBACK, from_check=True)
    noted = load_consumer_offsets(StoreDirectory(str(root)))
    assert noted[TRANSACTION_GROUP, "RMQ_SYS_TRANS_HALF_TOPIC"] == {0: 4}
    metrics = json.loads((root / "config" / "transactionMetrics").read_text())
    assert metrics["transactionCount"]["Orders"]["count"] == 2
    with driven(root, clock) as run:
        assert run.service.open_queue_offsets().tolist() == [5, 6]
        assert run.end(places[0], COMMIT).status is EndStatus.ALREADY_ENDED
        assert run.end(places[2], COMMIT).status is EndStatus.ENDED  # an old copy
        run.answers = {"U3": COMMIT}
        assert run.check(30_000).asked == 1
        assert sorted(run.committed()) == ["U0", "U2", "U3"]
        assert run.service.metrics.counts() == {"Orders": 0}


def test_offsets_of_other_groups_stay(root, clock):
    path = root / "config" / "consumerOffset.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"offsetTable":{"Orders@readers":{0:5,1:7}},"groupTopicMap":{"a":["b"]}}')
    with driven(root, clock) as run:
        run.end(run.prepare(1), COMMIT)
        run.check(10_000)
    noted = load_consumer_offsets(StoreDirectory(str(root)))
    assert noted["readers", "Orders"] == {0: 5, 1: 7}
    assert noted[TRANSACTION_GROUP, "RMQ_SYS_TRANS_HALF_TOPIC"] == {0: 1}
    assert json.loads(path.read_text())["groupTopicMap"] == {"a": ["b"]}


def test_a_crash_between_commit_and_op_message(root, clock):
    """All data of the service in memory is gone: a service that is not stopped writes nothing."""
    with driven(root, clock, stop=False) as run:
        run.end(run.prepare(1), COMMIT)
        run.prepare(2)
        assert run.ops() == []
    with driven(root, clock) as run:
        assert run.ops() == [b"0,"]
        run.answers = {"U1": COMMIT, "U2": COMMIT}
        assert [half.unique_key for half in run.asked] == []
        run.check(60_000)
        assert [half.unique_key for half in run.asked] == ["U2"]
        assert run.committed() == ["U1", "U2"] or run.committed() == ["U2", "U1"]


def test_a_crash_after_a_copy_was_put(root, clock):
    """Both copies are after the saved offset: the newest stands for the transaction."""
    with driven(root, clock, stop=False) as run:
        run.prepare(1)
        run.service._persist_offsets = lambda: None
        run.check(6001)
    with driven(root, clock) as run:
        assert run.service.open_queue_offsets().tolist() == [1]
        run.answers = {"U1": COMMIT}
        run.check(30_000)
        assert len(run.asked) == 1
        assert run.committed() == ["U1"]


def test_op_messages_of_release_4(root, clock):
    with driven(root, clock, transaction_op_format=4) as run:
        run.end(run.prepare(1), COMMIT)
        run.end(run.prepare(2), ROLLBACK)
        run.service.op_batch_service.run_once()
        assert run.ops() == [b"0", b"1"]
        assert "__transactionId__" not in run.halves()[0].properties
        assert run.check(10_000).op_offset == 2


def test_a_commit_with_a_delay_level(run):
    place = run.prepare(1, DELAY="2")
    run.end(place, COMMIT)
    (waiting,) = messages_in(run.store, "SCHEDULE_TOPIC_XXXX", 1)
    assert waiting.properties["REAL_TOPIC"] == "Orders"
    assert "TRAN_MSG" not in waiting.properties
    assert waiting.prepared_transaction_offset == place.commit_log_offset


def test_blocks(run):
    with run.store.transaction(Message("Orders", b"paid"), "writers") as paid:
        assert run.committed() == []
    assert run.committed() == [paid.transaction_id]
    assert paid.commit_result.is_appended
    with pytest.raises(ZeroDivisionError), run.store.transaction(Message("Orders", b"not paid")):
        raise ZeroDivisionError
    assert run.committed() == [paid.transaction_id]
    assert run.check(60_000).asked == 0


def test_a_block_that_is_open_is_not_asked_for(run):
    with run.store.transaction(Message("Orders", b"long"), "writers"):
        assert run.check(60_000).immune == 1
    assert run.asked == []
    assert len(run.committed()) == 1
    assert run.check(60_000).asked == 0


def test_blocks_without_a_service(by_hand):
    with by_hand.transaction(Message("Orders", b"paid")) as paid:
        pass
    with pytest.raises(ValueError, match="no"), by_hand.transaction(Message("Orders", b"no")):
        raise ValueError("no")
    dispatch_all(by_hand)
    (found,) = messages_in(by_hand, "Orders", 0)
    assert found.unique_key == paid.transaction_id
    assert found.properties["PGROUP"] == "DEFAULT_PRODUCER"
    ops = [message.body for message in messages_in(by_hand, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)]
    assert ops == [b"0,", b"1,"]


def test_a_block_in_a_store_that_is_closed(root, clock):
    with driven(root, clock) as run:
        block = run.store.transaction(Message("Orders", b"x"))
    with pytest.raises(TransactionError, match="was shut down"), block:
        pass


def test_blocks_are_refused_with_the_reason(run):
    large = run.store.transaction(Message("Orders", bytes(5 << 20)))
    with pytest.raises(TransactionError, match="was not opened: MESSAGE_ILLEGAL"), large:
        pass
    block = run.store.transaction(Message("Orders", b"x"))
    with pytest.raises(TransactionError, match="stays open"), block:
        run.store.flags.set(RunningFlag.NOT_WRITEABLE)
    run.store.flags.clear(RunningFlag.NOT_WRITEABLE)
    assert len(run.service.open_queue_offsets()) == 0  # not dispatched
    assert run.check(6001).asked == 1


def test_a_key_that_was_given_twice(root, clock):
    """Two messages, not two copies of one: both remain, even after a restart."""
    with driven(root, clock) as run:
        places = [run.prepare(1), run.prepare(1)]
    with driven(root, clock) as run:
        assert run.service.open_queue_offsets().tolist() == [0, 1]
        assert [run.end(place, COMMIT).status for place in places] == [EndStatus.ENDED] * 2
        assert run.committed() == ["U1", "U1"]


def test_half_messages_without_a_key(root, clock):
    """A broker of 4.x or 5.x gives them one; older ones, and other writers, may not have."""
    with driven(root, clock) as run:
        message = sent_message(1)
        del message.properties["UNIQ_KEY"]
        run.service.prepare_message(message)
        run.check(6001)
        assert len(run.asked[0].unique_key) == 32
        run.end(run.asked[0], ROLLBACK, from_check=True)
        message.properties_raw = b"TRAN_MSG\x01true\x02PGROUP\x01writers\x02"
        place = run.service.prepare_message(message).append_result
        assert [run.check(30_000).asked for _ in range(3)] == [1, 1, 1]
        assert run.end(place, COMMIT).status is EndStatus.ENDED
        assert run.end(run.asked[-1], COMMIT).status is EndStatus.ALREADY_ENDED
        assert run.check(30_000).asked == 0
        assert run.committed() == [None]


def test_an_old_copy_without_a_key_is_not_taken_for_the_transaction(root, clock):
    """After a restart nothing joins the copies: the producer is asked for the newest one."""
    with driven(root, clock) as run:
        message = sent_message(1)
        message.properties_raw = b"TRAN_MSG\x01true\x02PGROUP\x01writers\x02"
        place = run.service.prepare_message(message).append_result
        run.check(6001)
        newest = run.asked[-1]
    with driven(root, clock) as run:
        assert run.end(place, COMMIT).status is EndStatus.ALREADY_ENDED
        assert run.end(newest, COMMIT).status is EndStatus.ENDED
        assert run.committed() == [None]


def test_what_is_not_dispatched_is_not_taken_for_nothing(by_hand, monkeypatch):
    monkeypatch.setattr(by_hand, "wait_for_dispatch", lambda: False)
    with pytest.raises(TransactionError, match="not dispatched"):
        TransactionalMessageService(by_hand).load()


def test_a_service_that_is_not_loaded_ends_nothing(run):
    place = run.prepare(1)
    run.service.shutdown()
    for call in (
        lambda: run.service.end_transaction(place, COMMIT),
        lambda: run.service.end_transactions([0], COMMIT),
        lambda: run.service.prepare_message(sent_message(2)),
        run.service.check,
    ):
        with pytest.raises(TransactionError, match="load"):
            call()
    run.service.load()
    assert run.end(place, COMMIT).status is EndStatus.ENDED


def test_a_store_that_is_opened_anew(root, clock):
    """A broker, or another process, may have gone on meanwhile: the known state is read again."""
    config = MessageStoreConfig(store_path_root_dir=str(root))
    with MessageStore(config, clock=lambda: clock[0]) as store:
        service = TransactionalMessageService(store)
        service.load()
        places = [service.prepare_message(sent_message(n)).append_result for n in range(3)]
        service.end_transaction(places[0], ROLLBACK)  # its op message waits
        store.shutdown()
        with MessageStore(config, clock=lambda: clock[0]) as same:
            between = TransactionalMessageService(same)
            between.load()
            between.end_transaction(places[1], COMMIT)
            between.shutdown()
        store.load()
        store.start()
        assert service.end_transaction(places[0], COMMIT).status is EndStatus.ALREADY_ENDED
        assert service.end_transaction(places[1], COMMIT).status is EndStatus.ALREADY_ENDED
        assert service.end_transaction(places[2], COMMIT).status is EndStatus.ENDED
        service.shutdown()


def test_a_stop_writes_nothing_over_what_others_noted(root, clock):
    with driven(root, clock) as run:
        place = run.prepare(1)
        run.store.shutdown()
        with driven(root, clock) as between:
            between.end(place, COMMIT)
            between.check(6001)
        path = root / "config" / "consumerOffset.json"
        noted = path.read_bytes()
        run.store.load()
        run.store.start()
        run.service.shutdown()
        assert path.read_bytes() == noted
