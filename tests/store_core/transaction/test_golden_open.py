"""Every transaction of the real stores: whether it is open, its checks and op messages."""

from __future__ import annotations

import pytest

from store_core import (
    MessageStore,
    MessageStoreConfig,
    StoreSnapshot,
    TransactionalMessageService,
    TransactionState,
)
from store_core.config.config_files import load_consumer_offsets
from store_core.files.store_directory import StoreDirectory
from store_core.services.environment import Environment
from store_core.topics import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from store_core.transaction.open_halves import find_open_halves, read_ops
from store_core.transaction_forms import half_facts
from tests.golden_store import CLUSTER_NAMES, golden
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.crash.messages import messages_in


@pytest.fixture(params=CLUSTER_NAMES)
def store(request):
    return golden(request.param)


@pytest.fixture
def snapshot(store):
    config = MessageStoreConfig.from_properties(store.config_properties)
    with StoreSnapshot(store.root, config) as snapshot:
        yield snapshot


def _offsets(store):
    noted = load_consumer_offsets(StoreDirectory(str(store.root)))
    return [noted[TRANSACTION_GROUP, topic][0] for topic in (HALF_TOPIC, OP_TOPIC)]


def test_open_at_shutdown(store, snapshot):
    found = find_open_halves(snapshot, *_offsets(store))
    expected = sorted(
        (half["queue_offset"], half["commit_log_offset"])
        for row in store.dump("transactions")
        if row["open_at_shutdown"]
        for half in row["half_records"][-1:]
    )
    places = found.open_queue_offset.tolist(), found.open_commit_log_offset.tolist()
    assert list(zip(*places)) == expected
    assert found.without_op.tolist() == []


def test_open_without_what_the_broker_noted(store, snapshot):
    """With offsets lost, only those that were given up, or are open, are left."""
    found = find_open_halves(snapshot, 0, 0)
    expected = sorted(
        row["half_records"][-1]["queue_offset"]
        for row in store.dump("transactions")
        if row["final_state"] in {"pending", "check_exceeded"}
    )
    assert found.open_queue_offset.tolist() == expected


def test_op_messages_and_checks(store, snapshot):
    ops = read_ops(snapshot, 0)
    op_of = dict(zip(ops.named.tolist(), ops.queue_offset[ops.row].tolist()))
    for row in store.dump("transactions"):
        for half in row["half_records"]:
            assert op_of.get(half["queue_offset"]) == half["op_queue_offset"]
            message = snapshot.look_stored_message(half["commit_log_offset"])
            facts = half_facts(message.properties)
            assert facts.transaction_id == row["transaction_id"]
            assert facts.topic == row["topic"]
            assert _text(facts.check_times) == half["check_times"]
            assert _text(facts.prepared_queue_offset) == half["prepared_queue_offset"]
            assert message.store_timestamp == half["store_timestamp"]


def _text(number):
    return None if number is None else str(number)


@pytest.mark.parametrize("in_bulk", [True, False])
def test_what_a_broker_left_open_is_finished(store, tmp_path, in_bulk):
    """The service goes on where the broker stopped: each is asked for and committed once."""
    root = store.copy_to(tmp_path)
    texts = {**store.config_properties, "storePathRootDir": str(root), "transactionTimeOut": "1"}
    config = MessageStoreConfig.from_properties(texts)
    lines = [row for row in store.dump("transactions") if row["open_at_shutdown"]]
    asked = []

    def ask(half):
        asked.append((half.unique_key, half.topic))
        return TransactionState.COMMIT_MESSAGE

    now = max(half["store_timestamp"] for row in lines for half in row["half_records"]) + 60_000
    environment = Environment(lambda: now, lambda _: 0.1, lambda _: 12)
    with (
        nothing_forced(),
        without_threads(),
        MessageStore(config, environment=environment) as opened,
    ):
        dispatch_all(opened)
        service = TransactionalMessageService(opened, ask)
        service.load()
        before = sum(service.metrics.counts().values())
        if in_bulk:
            offsets = service.open_queue_offsets()
            done = service.end_transactions(offsets, TransactionState.COMMIT_MESSAGE)
            assert (done.ended, done.not_open, done.refused) == (len(lines), [], {})
        else:
            assert service.check().asked == len(lines)
            assert sorted(asked) == sorted((row["transaction_id"], row["topic"]) for row in lines)
        dispatch_all(opened)
        assert service.open_queue_offsets().tolist() == []
        assert before - sum(service.metrics.counts().values()) == len(lines)
        found = [
            message.unique_key
            for queue_id in range(2)
            for message in messages_in(opened, lines[0]["topic"], queue_id)
        ]
        service.stop()
    committed = [row for row in store.dump("transactions") if row["final_state"] == "committed"]
    expected = [row["transaction_id"] for row in (*committed, *lines)]
    assert sorted(found) == sorted(expected)
