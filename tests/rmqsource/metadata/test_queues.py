# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from store_core.errors import StoreFormatError
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store

STORES = [(name, name in RECOVERED_NAMES) for name in STORE_NAMES]


@pytest.mark.parametrize(("name", "recovered"), STORES)
def test_queues_are_those_that_rocketmq_has(name: str, recovered: bool) -> None:
    store = golden(name, recovered)
    times = {m["commit_log_offset"]: m["store_timestamp"] for m in store.dump("messages")}
    expected = []
    for queue in store.dump("consume_queue"):
        units = queue.get("units") or queue.get("batch_units") or []
        places = [unit[0] for unit in (units[:1] + units[-1:])] or [None, None]
        low, high = max(queue["min_offset"], 0), queue["max_offset"]
        expected.append(
            {
                "topic": queue["topic"],
                "queue_id": queue["queue_id"],
                "min_offset": low,
                "max_offset": high,
                "messages": high - low,
                "min_commit_log_offset": places[0],
                "max_commit_log_offset": places[-1],
                "min_store_timestamp": times.get(places[0]),
                "max_store_timestamp": times.get(places[-1]),
                "compacted_messages": None,
                "compacted_min_offset": None,
                "compacted_max_offset": None,
                "store": str(store.root),
            }
        )
    rows = rows_of_store(store, "queues")
    assert rows == sorted(expected, key=lambda row: (row["topic"], row["queue_id"]))


def test_queues_of_a_broker(cluster_golden_store: GoldenStore) -> None:
    rows = rows_of_store(cluster_golden_store, "queues")
    found = {(row["topic"], row["queue_id"]): row for row in rows}
    compared = 0
    for stats in cluster_golden_store.document("topic_stats"):
        for queue in stats.get("queues", []):
            row = found.get((stats["topic"], queue["queue_id"]))
            if row is None:
                assert queue["max_offset"] == 0
                continue
            assert row["min_offset"] == queue["min_offset"]
            assert row["max_offset"] >= queue["max_offset"]
            if row["max_offset"] == queue["max_offset"] > 0:
                assert row["max_store_timestamp"] == queue["last_update_timestamp"]
                compared += 1
    assert compared > 20


def test_a_queue_whose_messages_have_expired_is_empty() -> None:
    (row,) = rows_of_store(golden("expired-5x"), "queues", topics=("OnlyOld",))
    assert (row["min_offset"], row["max_offset"], row["messages"]) == (40, 40, 0)
    assert row["min_commit_log_offset"] is None
    assert row["max_store_timestamp"] is None


def test_a_file_with_a_strange_name_is_damage_of_its_queue(tmp_path: Path) -> None:
    store = golden("onefile-5x")
    root = store.copy_to(tmp_path)
    queue = next(path for path in (root / "consumequeue").glob("*/*") if path.name == "0")
    (queue / f"{7:020}").write_bytes(bytes(20))
    with open_snapshot(root, {**store.options, "mappedFileSizeConsumeQueue": "2000"}) as snapshot:
        with pytest.raises(StoreFormatError, match="multiple"):
            rows_of(snapshot, "queues")
        kept = rows_of(snapshot, "queues", mode="DROPMALFORMED")
    assert {row["queue_id"] for row in kept} == {
        row["queue_id"] for row in rows_of_store(store, "queues")
    } - {0}


@pytest.mark.parametrize("table", ["queues", "consumer_offsets"])
def test_offsets_of_static_topics_are_said_to_be_physical(tmp_path, caplog, table) -> None:
    made = golden("cluster-5x")
    store = replace(made, root=made.copy_to(tmp_path))
    mapping = {"topicQueueMappingInfoMap": {"orders": {"topic": "orders", "totalQueues": 8}}}
    (store.root / "config" / "topicQueueMapping.json").write_text(json.dumps(mapping))
    assert rows_of_store(store, table)
    assert [m for m in caplog.messages if m.startswith("static topics (orders)")]
