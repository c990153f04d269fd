# SPDX-License-Identifier: Apache-2.0
"""A real broker serves messages that the sink wrote, and appends; this project reads both.

Each store is served once, all at the same time: a broker mostly waits.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from contextlib import ExitStack
from typing import Any

import pytest

import rmqsource
from store_core.layout import SCHEDULE_TOPIC
from tests.golden_store import golden
from tests.interop import java_cluster
from tests.interop.broker_messages import ROW, Row
from tests.interop.served_store import (
    CASES,
    SENT,
    SENT_TO,
    ServedStore,
    all_messages,
    assert_sound,
)

pytestmark = pytest.mark.interop

_ADDED_ON_THE_WAY = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
_DELAY_PROPERTIES = {"DELAY", "REAL_TOPIC", "REAL_QID", "WAIT"}


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def _digest(row: dict[str, Any]) -> str:
    """RocketMQ's decoder gives no body if it is empty."""
    found: str | None = row["body_sha256"]
    return found or hashlib.sha256(b"").hexdigest()


def _properties(row: dict[str, Any]) -> dict[str, str]:
    return {k: v for k, v in row["properties"].items() if k not in _ADDED_ON_THE_WAY}


@pytest.fixture(scope="module")
def all_served(spark, tmp_path_factory):
    rmqsource.register(spark)
    stores = {case.name: ServedStore(case, tmp_path_factory.mktemp(case.name)) for case in CASES}
    for release in java_cluster.ALL_RELEASES:
        java_cluster.build(release)
    with ExitStack() as stack:
        brokers = {}
        for name, store in stores.items():
            store.write(spark)
            brokers[name] = stack.enter_context(store.start())
        for name, broker in brokers.items():
            stores[name].served = broker.wait()
    return stores


@pytest.fixture(params=[case.name for case in CASES])
def store(request, all_served):
    return all_served[request.param]


def test_the_broker_finds_everything_in_order(store):
    assert store.served.ok, store.served.said
    (ready,) = store.served.events_of("ready")
    assert ready["created_topics"] == []
    assert ready["max_phy_offset"] >= store.commit.end_offset


def test_every_message_is_received_once_as_it_was_written(store):
    wanted = {(row.topic, row.number): row for row in store.rows if store.is_due(row)}
    for mode in ("PULL", "CLUSTERING"):
        found = [
            row
            for row in store.served.received
            if row["mode"] == mode and row["expression"] == "*" and ROW in row["properties"]
        ]
        assert len(found) == len(wanted)
        assert {(row["topic"], row["flag"]) for row in found} == set(wanted)
        assert len({row["msg_id"] for row in found}) == len(found)
        for row in found:
            _compare(row, wanted[row["topic"], row["flag"]], store)


def _compare(got: dict[str, Any], row: Row, store: ServedStore) -> None:
    properties = _properties(got)
    assert properties.pop("UNIQ_KEY") == got["msg_id"]
    if row.delay_level is not None:
        properties = {k: v for k, v in properties.items() if k not in _DELAY_PROPERTIES}
        assert got["store_timestamp"] >= store.commit.store_timestamp + store.delay_ms(row)
    else:
        assert got["store_timestamp"] == store.commit.store_timestamp
    assert properties == row.stored_properties()
    assert _digest(got) == row.digest
    assert got["born_timestamp"] == row.born_timestamp_ms
    assert row.queue_id in (None, got["queue_id"])
    if row.born_host:
        host, _, _port = row.born_host.rpartition(":")
        assert got["born_host"].strip("[]") in (host.strip("[]"), "2001:db8:0:0:0:0:0:7")


def test_rows_keep_their_order(store):
    last: dict[tuple[str, int], int] = {}
    delayed = {(row.topic, row.number) for row in store.rows if row.delay_level is not None}
    for row in store.served.received:
        if row["mode"] != "PULL" or ROW not in row["properties"]:
            continue
        if (row["topic"], row["flag"]) in delayed:
            continue
        queue = row["topic"], row["queue_id"]
        assert last.get(queue, -1) < row["flag"]
        last[queue] = row["flag"]
    assert sum(topic == "shipments" for topic, _ in last) == len({i * i % 6 for i in range(6)})


def test_what_is_not_due_waits(store):
    waiting = [row for row in store.rows if not store.is_due(row)]
    with store.open() as snapshot:
        schedule = [m for m in all_messages(snapshot) if m.topic == SCHEDULE_TOPIC]
    never = [m.body for m in schedule if m.queue_id == store.case.levels[-1] - 1]
    assert never[-len(waiting) :] == [row.body for row in waiting]


def test_queries_answer(store):
    asked = {(event["topic"], event["key"]): event for event in store.served.events_of("key")}
    for topic, key in store.asked_keys():
        having = [m for m in store.written if m.topic == topic and key in (m.keys or ())]
        found = [answer["msg_id"] for answer in asked[topic, key]["found"]]
        assert len(found) == len(set(found)) == min(len(having), 64)
        assert set(found) <= {m.unique_key for m in having}
    answers = {event["id"]: event["found"] for event in store.served.events_of("id")}
    assert len(answers) == len(store.asked_ids())
    for message, name in store.asked_ids():
        assert answers[name]["commit_log_offset"] == message.commit_log_offset
        assert answers[name]["body_sha256"] == hashlib.sha256(message.body).hexdigest()


@pytest.mark.parametrize("name", [case.name for case in CASES if case.golden])
def test_what_the_broker_had_is_untouched(all_served, name):
    store = all_served[name]
    received = {_place(row): row for row in store.served.received if row["mode"] == "PULL"}
    seen = 0
    for row in golden(store.case.golden).dump("messages"):
        got = None if row.get("blank") else received.get(_place(row))
        if got is None or got["commit_log_offset"] != row["commit_log_offset"]:
            continue
        assert _properties(got) == row["properties"]
        assert _digest(got) == hashlib.sha256(b64decode(row["body_b64"])).hexdigest()
        seen += 1
    topics = [event["topic"] for event in store.served.events_of("topic")]
    assert seen == sum(store.before[topic] for topic in topics) > 100


def test_the_store_is_sound_after_the_broker(store):
    with store.open() as snapshot:
        assert_sound(snapshot)


def test_both_are_read(store, spark):
    pulled = [row for row in store.served.received if row["mode"] == "PULL"]
    wanted = {_place(row): (_digest(row), row["msg_id"], _properties(row)) for row in pulled}
    for row in store.served.sent:
        # The properties that the broker adds are not compared; 4.9.7 drops WAIT.
        properties = {k: v for k, v in row["properties_after_send"].items() if k != "WAIT"}
        wanted[_place(row)] = (row["body_sha256"], row["msg_id"], properties)
    assert len(store.served.sent) == SENT * len(SENT_TO)
    assert len(wanted) == len(pulled) + len(store.served.sent)
    reader = spark.read.format("rocketmq-store").option("config", str(store.config_file))
    read = reader.load(str(store.root)).selectExpr(
        "topic", "queue_id", "queue_offset", "body", "unique_key", "to_json(properties) properties"
    )
    with store.open() as snapshot:
        ours = {(m.topic, m.queue_id, m.queue_offset): m.body for m in all_messages(snapshot)}
    seen = 0
    for row in read.collect():
        place = _place(row)
        assert ours[place] == bytes(row.body)
        if place in wanted:
            digest, unique_key, properties = wanted[place]
            assert hashlib.sha256(row.body).hexdigest() == digest
            assert row.unique_key == unique_key
            assert properties.items() <= json.loads(row.properties).items()
            seen += 1
    assert seen == len(wanted)
