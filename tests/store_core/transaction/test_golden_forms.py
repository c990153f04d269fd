"""Forms of transactions, rebuilt from what a real broker was given: the same bytes."""

from __future__ import annotations

import pytest

from store_core import Message
from store_core.codec.properties import split_properties, string_to_properties
from store_core.layout.message import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from store_core.topics import CHECK_TIMES, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
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
from tests.golden_store import CLUSTER_NAMES
from tests.store_core.transaction.golden_records import (
    as_message,
    bytes_of,
    golden_records,
    release_of,
    stored_bytes,
)

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
