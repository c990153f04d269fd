# SPDX-License-Identifier: Apache-2.0
"""Forms of transactions, rebuilt from a real broker's input: the bytes are the same."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from store_core import (
    Message,
    MessageStore,
    MessageStoreConfig,
    StoreSnapshot,
    TransactionalMessageService,
    TransactionState,
)
from store_core.codec.message_codec import (
    StoredRecord,
    encode_record,
    split_properties,
    string_to_properties,
)
from store_core.codec.message_id import parse_host
from store_core.codec.record_encoder import patch_record
from store_core.config.config_files import load_consumer_offsets
from store_core.files.store_directory import StoreDirectory
from store_core.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from store_core.message import message_from_record
from store_core.put.put_properties import property_string
from store_core.put.record_template import host_bytes, new_template, topic_bytes
from store_core.services.environment import Environment
from store_core.topics import CHECK_TIMES, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from store_core.transaction.open_halves import find_open_halves, read_ops
from store_core.transaction_forms import (
    PREPARED_QUEUE_OFFSET,
    TRANSACTION_ID,
    checked_half,
    commit_message,
    discarded_half,
    half_facts,
    half_message,
    immune_half,
    op_bodies,
    op_message,
    op_offsets,
)
from tests.golden_store import CLUSTER_NAMES, golden
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.crash.messages import messages_in

_ADDED = ("REAL_TOPIC", "REAL_QID", TRANSACTION_ID)


@pytest.fixture(params=CLUSTER_NAMES)
def name(request):
    return request.param


def _halves(name):
    found = {}
    for record in golden_records(name):
        if record.topic_bytes.decode() == HALF_TOPIC:
            properties = string_to_properties(record.properties_raw)
            found.setdefault(properties["UNIQ_KEY"], []).append((record, properties))
    return found


def test_half_messages(name):
    count = 0
    for copies in _halves(name).values():
        record, properties = copies[0]
        facts = half_facts(properties)
        given = Message(
            facts.topic,
            record.body,
            queue_id=facts.queue_id,
            sys_flag=TRANSACTION_MASK & 4,
            born_timestamp=record.born_timestamp,
            born_host=as_message(record).born_host,
            properties={
                k: v for k, v in split_properties(record.properties_raw) if k not in _ADDED
            },
        )
        assert stored_bytes(half_message(given, release_of(name)), record) == bytes_of(record)
        count += 1
    assert count >= 20


def test_copies_for_another_check(name):
    kinds = set()
    for copies in _halves(name).values():
        for (before, _), (record, properties) in zip(copies, copies[1:]):
            is_immune = PREPARED_QUEUE_OFFSET in properties
            kinds.add(is_immune)
            form = immune_half if is_immune else checked_half
            made = form(as_message(before), int(properties[CHECK_TIMES]))
            assert stored_bytes(made, record) == bytes_of(record)
    assert kinds == {True, False}


def test_commits(name):
    halves = {
        record.commit_log_offset: record
        for copies in _halves(name).values()
        for record, _ in copies
    }
    count = 0
    for record in golden_records(name):
        if record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT_TYPE:
            half = halves[record.prepared_transaction_offset]
            assert stored_bytes(commit_message(as_message(half)), record) == bytes_of(record)
            count += 1
    assert count >= 8


def test_op_messages(name):
    release = release_of(name)
    names = []
    for record in golden_records(name):
        if record.topic_bytes.decode() == OP_TOPIC:
            offsets = op_offsets(record.body)
            (body,), counts = op_bodies(_array(offsets), 4096, release)
            assert counts.tolist() == [len(offsets)]
            made = op_message(body, record.queue_id, record.born_timestamp, release)
            assert stored_bytes(made, record) == bytes_of(record)
            names += offsets
    assert len(names) >= 11


def test_discarded_copies(name):
    by_key = _halves(name)
    count = 0
    for record in golden_records(name):
        if record.topic_bytes.decode() == DISCARD_TOPIC:
            key = string_to_properties(record.properties_raw)["UNIQ_KEY"]
            last, _ = by_key[key][-1]
            made = discarded_half(as_message(last))
            assert stored_bytes(made, record) == bytes_of(record)
            count += 1
    assert count >= 3


def _array(offsets):
    import numpy as np

    return np.array(offsets, np.int64)


# The records of real transactions: decoded, and as bytes; and the bytes that ours become.


@functools.cache
def golden_records(name: str) -> tuple[StoredRecord, ...]:
    """Return all records of a golden store, in order."""
    return tuple(_records(name))


def _records(name: str) -> Iterator[StoredRecord]:
    store = golden(name)
    config = MessageStoreConfig.from_properties(store.config_properties)
    with StoreSnapshot(store.root, config) as snapshot, snapshot._reading() as readable:
        for row in store.dump("messages"):
            if not row.get("blank"):
                yield readable.reader.read(row["commit_log_offset"])


def release_of(name: str) -> int:
    """Return the release that wrote a golden store: 5 or 4."""
    return 4 if name.endswith("4x") else 5


def as_message(record: StoredRecord) -> Message:
    """Return a record as a message, with its body as stored."""
    return message_from_record(record, "")


def bytes_of(record: StoredRecord) -> bytes:
    """Return the bytes of a record in the log."""
    return encode_record(record)


def stored_bytes(form: Message, like: StoredRecord) -> bytes:
    """Return the record of a message at the place and the time of another record."""
    raw = property_string(form)
    hosts = host_bytes(form.born_host, form.store_host, like.store_host)
    draft = new_template(form, topic_bytes(form.topic.encode()), raw, hosts, like.born_timestamp)
    patch_record(draft, like.queue_offset, like.commit_log_offset, like.store_timestamp)
    return bytes(draft)


def host_of(text: str) -> bytes:
    """Return the bytes of ``ip:port``."""
    return parse_host(text)


# Every transaction of the real stores: whether it is open, its checks and op messages.


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
    """If offsets are lost, only discarded and open transactions are left."""
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
    """The service goes on where the broker stopped: each is checked and committed once."""
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
        service.shutdown()
    committed = [row for row in store.dump("transactions") if row["final_state"] == "committed"]
    expected = [row["transaction_id"] for row in (*committed, *lines)]
    assert sorted(found) == sorted(expected)
