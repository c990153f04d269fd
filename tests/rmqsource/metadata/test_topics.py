# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from store_core.config.config_files import TopicConfig
from store_core.topics import topic_kind
from tests.golden_store import GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "batch-5x", "expired-5x", "empty-5x"])
def test_topics_add_up_their_queues(name: str) -> None:
    store = golden(name)
    times = {m["commit_log_offset"]: m["store_timestamp"] for m in store.dump("messages")}
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    known: dict[str, list[int]] = defaultdict(list)
    for queue in store.dump("consume_queue"):
        units = queue.get("units") or queue.get("batch_units") or []
        total = sums[queue["topic"]]
        total[0] += 1
        total[1] += queue["max_offset"] - max(queue["min_offset"], 0)
        total[2] += sum(unit[1] for unit in units)
        known[queue["topic"]] += [times[unit[0]] for unit in units[:1] + units[-1:]]
    rows = rows_of_store(store, "topics")
    assert [row["topic"] for row in rows] == sorted(sums)
    for row in rows:
        assert [row["queues"], row["messages"], row["bytes"]] == sums[row["topic"]]
        expected = known[row["topic"]]
        assert row["min_store_timestamp"] == min(expected, default=None)
        assert row["max_store_timestamp"] == max(expected, default=None)


def test_topics_without_messages_are_listed(cluster_golden_store: GoldenStore) -> None:
    rows = {row["topic"]: row for row in rows_of_store(cluster_golden_store, "topics")}
    assert set(rows) >= {s["topic"] for s in cluster_golden_store.document("topic_stats")}
    empty = rows["TBW102"]
    assert (empty["queues"], empty["messages"], empty["bytes"]) == (0, 0, 0)
    assert empty["min_store_timestamp"] is None
    assert {"DefaultCluster", "broker-a"} <= {t for t, r in rows.items() if r["kind"] == "system"}


def test_a_damaged_queue_leaves_the_bytes_unknown(tmp_path: Path) -> None:
    store = golden("batch-5x")
    root = store.copy_to(tmp_path)
    (root / "consumequeue" / "BatchSource" / "0" / f"{2000:020}").unlink()
    with open_snapshot(root, store.options) as snapshot:
        rows = rows_of(snapshot, "topics", mode="DROPMALFORMED", topics=("BatchSource", "FanOut"))
    before = {row["topic"]: row for row in rows_of_store(store, "topics")}
    assert rows[0]["bytes"] is None
    assert rows[0]["queues"] == before["BatchSource"]["queues"]
    assert 0 < rows[0]["messages"] < before["BatchSource"]["messages"]
    assert {**rows[1], "store": ""} == {**before["FanOut"], "store": ""}


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", "normal"),
        ("%RETRY%group", "retry"),
        ("%DLQ%group", "dlq"),
        ("%LMQ%light", "lmq"),
        ("SCHEDULE_TOPIC_XXXX", "delay"),
        ("rmq_sys_wheel_timer", "delay"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "transaction"),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "transaction"),
        ("TRANS_CHECK_MAX_TIME_TOPIC", "transaction"),
        ("TBW102", "system"),
        ("rmq_sys_REVIVE_LOG_c", "system"),
        ("c_REPLY_TOPIC", "system"),
        ("RMQ_SYS_orders", "normal"),
    ],
)
def test_kind_of_a_topic(topic: str, kind: str) -> None:
    assert topic_kind(topic) == kind
    assert topic_kind(topic, TopicConfig(topic)) == kind


def test_a_topic_that_others_inherit_from_is_the_brokers_own() -> None:
    assert topic_kind("broker-a", TopicConfig("broker-a", perm=7)) == "system"
