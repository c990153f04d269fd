# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqsource.explore.message_trace import trace_messages
from rmqsource.explore.trace_events import Life, moment
from rmqsource.options.source_options import SourceOptions, parse_options
from tests.golden_store import GoldenStore, golden


def options_of(*stores: GoldenStore, **extra: str) -> SourceOptions:
    paths = json.dumps([str(store.root) for store in stores])
    return parse_options({"paths": paths, "config": str(stores[0].config_file), **extra})


def lives_of(store: GoldenStore, ids: set[str]) -> dict[str, list[Life]]:
    lives: dict[str, list[Life]] = {}
    for life in trace_messages(options_of(store), ids=sorted(ids)):
        lives.setdefault(life.unique_key or "", []).append(life)
    return lives


def places(lives: list[Life]) -> dict[int, Any]:
    return {
        e.commit_log_offset: e
        for life in lives
        for e in life.events
        if e.commit_log_offset is not None
    }


def test_delays_are_those_of_the_broker(cluster_golden_store: GoldenStore) -> None:
    lines = list(cluster_golden_store.dump("delayed"))
    lives = lives_of(cluster_golden_store, {line["uniq_key"] for line in lines})
    for line in lines:
        events = places(lives[line["uniq_key"]])
        event = events[line["commit_log_offset"]]
        assert event.event == "delayed"
        assert f"level {line['level']}, to {line['real_topic']}/{line['real_queue_id']}" in (
            event.detail
        )
        assert event.detail.endswith(f"due {moment(line['deliver_timestamp'])} UTC")
        delivered = line["delivered_commit_log_offset"]
        if delivered is not None:
            after = events[delivered]
            assert after.event == (
                "retried" if line["real_topic"].startswith("%RETRY%") else "delivered"
            )
            assert after.wait_ms == line["delivered_store_timestamp"] - line["store_timestamp"]
        else:
            assert lives[line["uniq_key"]][-1].state == "delayed"


def test_transactions_end_as_the_producer_was_told(cluster_golden_store: GoldenStore) -> None:
    lines = list(cluster_golden_store.dump("transactions"))
    lives = lives_of(cluster_golden_store, {line["transaction_id"] for line in lines})
    states = {
        "committed": "readable",
        "rolled_back": "rolled_back",
        "check_exceeded": "given_up",
        "pending": "undecided",
    }
    for line in lines:
        (life,) = lives[line["transaction_id"]]
        assert life.state == states[line["final_state"]], line["plan"]
        assert life.topic == line["topic"]
        events = places([life])
        for half in line["half_records"]:
            expected = "half" if half["check_times"] is None else "checked"
            event = events[half["commit_log_offset"]]
            assert (event.event, event.queue_offset) == (expected, half["queue_offset"])
        if line["commit_commit_log_offset"] is not None:
            assert events[line["commit_commit_log_offset"]].event == "committed"
        if line["final_state"] == "rolled_back":
            ops = {h["op_queue_offset"] for h in line["half_records"]} - {None}
            assert life.events[-1].queue_offset in ops


def test_every_delivery_is_an_event_that_its_group_passed(
    cluster_golden_store: GoldenStore,
) -> None:
    received = list(cluster_golden_store.dump("received"))
    lives = lives_of(cluster_golden_store, {line["msg_id"] for line in received})
    compared = 0
    for line in received:
        event = places(lives[line["msg_id"]])[line["commit_log_offset"]]
        assert event.at_ms == line["store_timestamp"]
        assert event.queue_offset == line["queue_offset"]
        if line["mode"] == "CLUSTERING" and line["outcome"] == "CONSUME_SUCCESS":
            compared += 1
            assert line["group"] in event.passed_by or line["group"] not in event.ahead_of
    assert compared > 200


def test_a_dead_message_tells_its_whole_way(cluster_golden_store: GoldenStore) -> None:
    group = cluster_golden_store.config["groups"]
    retry = next(name for name in group if name.endswith("_retry"))
    dead = [
        m
        for m in cluster_golden_store.dump("messages")
        if "blank" not in m and m["topic"] == f"%DLQ%{retry}"
    ]
    assert len(dead) > 1
    lives = lives_of(cluster_golden_store, {m["uniq_key"] for m in dead})
    for message in dead:
        (life,) = lives[message["uniq_key"]]
        assert [e.event for e in life.events] == [
            *("sent", "stored", "delayed", "retried", "delayed", "retried", "dead_lettered"),
        ]
        assert life.state == "dead_lettered"
        assert life.topic == cluster_golden_store.config["topics"]["retry"]
        assert life.took_ms == message["store_timestamp"] - message["born_timestamp"]
        assert life.events[1].message_id in life.events[-1].detail
        assert f"group {retry} failed 3 times" in life.events[-1].detail


def test_by_key_with_and_without_topic() -> None:
    store = golden("cluster-5x")
    anywhere = trace_messages(options_of(store), keys=["K3"])
    narrowed = trace_messages(options_of(store, topic="orders"), keys=["K3"])
    scanned = trace_messages(options_of(store, access="commitlog"), keys=["K3"])
    assert anywhere == scanned
    assert narrowed == [life for life in anywhere if life.topic == "orders"] != []
    assert all("K3" in life.keys for life in anywhere)


def test_by_key_finds_delayed_and_dead_copies_under_their_topic() -> None:
    store = golden("cluster-5x")
    dead = next(
        m for m in store.dump("messages") if "blank" not in m and m["topic"].startswith("%DLQ%")
    )
    (life,) = trace_messages(options_of(store, topic="jobs"), keys=[dead["properties"]["KEYS"]])
    assert life.state == "dead_lettered"


def test_by_offset_message_id_finds_the_same_life() -> None:
    store = golden("cluster-5x")
    line = next(line for line in store.dump("delayed") if not line["pending"])
    (by_key,) = trace_messages(options_of(store), ids=[line["uniq_key"]])
    for event in by_key.events[1:]:
        assert trace_messages(options_of(store), ids=[event.message_id or ""]) == [by_key]


def test_two_stores_are_searched() -> None:
    one, other = golden("cluster-5x"), golden("cluster-5x-ext")
    sizes = {"maxHashSlotNum": "125", "maxIndexNum": "500"}  # those of the files differ
    paths = json.dumps([str(one.root), str(other.root)])
    both = trace_messages(parse_options({"paths": paths, **sizes}), keys=["K3"])
    alone = trace_messages(options_of(one), keys=["K3"])
    assert len(both) > len(alone)
    assert {life.events[-1].store for life in both} == {(str(one.root),), (str(other.root),)}


def test_replicas_hold_one_record(tmp_path: Path) -> None:
    store = golden("cluster-5x")
    replica = store.copy_to(tmp_path)
    paths = json.dumps([str(store.root), str(replica)])
    both = trace_messages(parse_options({"paths": paths, **store.options}), keys=["K3"])
    alone = trace_messages(options_of(store), keys=["K3"])
    assert [len(life.events) for life in both] == [len(life.events) for life in alone]
    assert both[0].events[1].store == (str(store.root), str(replica))


def test_nothing_found() -> None:
    assert (
        trace_messages(options_of(golden("cluster-5x")), keys=["no such key"], ids=["none"]) == []
    )


@pytest.mark.parametrize("name", ["onefile-5x", "batch-5x", "classic-5x"])
def test_stores_without_a_broker(name: str) -> None:
    store = golden(name)
    message = next(m for m in store.dump("messages") if m.get("keys"))
    word = message["keys"].split()[0]
    lives = trace_messages(options_of(store), keys=[word])
    assert any(word in life.keys for life in lives)


def test_unreadable_offsets_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = golden("cluster-5x")
    root = store.copy_to(tmp_path)
    offsets = root / "config" / "consumerOffset.json"
    offsets.write_text("{torn")
    offsets.with_name(offsets.name + ".bak").unlink(missing_ok=True)
    lives = trace_messages(parse_options({"path": str(root), **store.options}), keys=["K3"])
    assert not any(event.passed_by for life in lives for event in life.events)
    (told,) = caplog.records
    assert f"consumer groups of {root} are not shown: {offsets}" in told.getMessage()
