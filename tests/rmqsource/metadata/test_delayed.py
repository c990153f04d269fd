# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from tests.golden_store import GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store


def levels_of(store: GoldenStore) -> dict[str, str]:
    return {**store.options, "messageDelayLevel": store.config_properties["messageDelayLevel"]}


def test_delayed_messages_of_a_broker(cluster_golden_store: GoldenStore) -> None:
    with open_snapshot(cluster_golden_store.root, levels_of(cluster_golden_store)) as snapshot:
        rows = {row["commit_log_offset"]: row for row in rows_of(snapshot, "delayed")}
    expected = list(cluster_golden_store.dump("delayed"))
    assert len(rows) == len(expected) > 20
    for line in expected:
        row = rows[line["commit_log_offset"]]
        assert row["level"] == line["level"]
        assert row["queue_offset"] == line["queue_offset"]
        assert row["unique_key"] == line["uniq_key"]
        assert row["real_topic"] == line["real_topic"]
        assert row["real_queue_id"] == int(line["real_queue_id"])
        assert row["reconsume_times"] == line["reconsume_times"]
        assert row["store_timestamp"] == line["store_timestamp"]
        assert row["deliver_timestamp"] == line["deliver_timestamp"]
        assert row["state"] == ("pending" if line["pending"] else "delivered")
    assert {row["state"] for row in rows.values()} == {"pending", "delivered"}


def test_due_times_come_from_the_units_where_levels_are_not_given() -> None:
    store = golden("cluster-5x")
    rows = {row["commit_log_offset"]: row for row in rows_of_store(store, "delayed")}
    for line in store.dump("delayed"):
        assert rows[line["commit_log_offset"]]["deliver_timestamp"] == line["deliver_timestamp"]


def test_all_is_pending_without_offsets(tmp_path: Path) -> None:
    store = golden("cluster-4x")
    root = store.copy_to(tmp_path)
    for path in (root / "config").glob("delayOffset.json*"):
        path.unlink()
    with open_snapshot(root, store.options) as snapshot:
        assert {row["state"] for row in rows_of(snapshot, "delayed")} == {"pending"}


def test_a_store_without_delayed_messages() -> None:
    assert rows_of_store(golden("onefile-5x"), "delayed") == []
