# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from store_core import Message, MessageStore, MessageStoreConfig
from tests.golden_store import GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store


def write_offsets(store: GoldenStore, to: Path, table: dict[str, dict[int, int]]) -> Path:
    root = store.copy_to(to)
    (root / "config").mkdir(exist_ok=True)
    text = json.dumps({"offsetTable": table})
    (root / "config" / "consumerOffset.json").write_text(text, encoding="utf-8")
    return root


def test_offsets_of_a_broker(cluster_golden_store: GoldenStore) -> None:
    rows = rows_of_store(cluster_golden_store, "consumer_offsets")
    found = {(row["group"], row["topic"], row["queue_id"]): row for row in rows}
    assert len(found) == len(rows) > 50
    compared = 0
    for group in cluster_golden_store.document("lag"):
        for queue in group.get("queues", []):
            row = found.get((group["group"], queue["topic"], queue["queue_id"]))
            if row is None:
                assert queue["consumer_offset"] <= 0
                continue
            compared += 1
            assert row["consumer_offset"] == queue["consumer_offset"]
            assert row["broker_offset"] >= queue["broker_offset"]
            if row["broker_offset"] == queue["broker_offset"]:
                assert row["lag"] == queue["lag"]
    assert compared > 50


def test_lag_ms_is_the_age_of_the_first_message_not_consumed(
    cluster_golden_store: GoldenStore,
) -> None:
    times: dict[tuple[str, int], dict[int, int]] = {}
    for m in cluster_golden_store.dump("messages"):
        if "blank" not in m and m["topic"]:
            queue = times.setdefault((m["topic"], m["queue_id"]), {})
            queue[m["queue_offset"]] = m["store_timestamp"]
    rows = rows_of_store(cluster_golden_store, "consumer_offsets")
    behind = [row for row in rows if row["lag"]]
    assert len(behind) > 3
    for row in behind:
        queue = times[row["topic"], row["queue_id"]]
        newest = queue[row["broker_offset"] - 1]
        assert row["lag_ms"] == newest - queue[row["consumer_offset"]]
    assert all(row["lag_ms"] == 0 for row in rows if not row["lag"])


def test_offsets_outside_of_the_queue(tmp_path: Path) -> None:
    store = golden("expired-5x")
    queues = rows_of_store(store, "queues")
    queue = next(q for q in queues if q["min_offset"] > 0 and q["messages"])
    topic, queue_id = queue["topic"], queue["queue_id"]
    groups = {"ahead": queue["max_offset"] + 5, "expired": 0, "negative": -1}
    table = {f"{topic}@{group}": {queue_id: offset} for group, offset in groups.items()}
    table["NoSuchTopic@g"] = {3: 7}
    with open_snapshot(write_offsets(store, tmp_path, table), store.options) as snapshot:
        rows = {row["group"]: row for row in rows_of(snapshot, "consumer_offsets")}
    age = queue["max_store_timestamp"] - queue["min_store_timestamp"]
    assert age > 0
    assert (rows["ahead"]["lag"], rows["ahead"]["lag_ms"]) == (-5, 0)  # as mqadmin shows it
    assert rows["ahead"]["consumer_offset"] == queue["max_offset"] + 5
    expired = {group: row["expired"] for group, row in rows.items()}
    gone = queue["min_offset"]
    assert expired == {"ahead": 0, "expired": gone, "negative": gone, "g": 0}
    assert (rows["expired"]["lag"], rows["expired"]["lag_ms"]) == (queue["max_offset"], age)
    assert (rows["negative"]["lag"], rows["negative"]["lag_ms"]) == (queue["max_offset"], age)
    assert (rows["g"]["broker_offset"], rows["g"]["lag"], rows["g"]["lag_ms"]) == (0, 0, 0)


def test_a_queue_that_is_lost_is_told_from_one_of_a_deleted_topic(tmp_path: Path) -> None:
    store = golden("classic-5x")
    root = write_offsets(store, tmp_path, {"Lost@g": {0: 7}, "Deleted@g": {0: 7}})
    table = {"topicConfigTable": {"Lost": {"topicName": "Lost"}}}
    (root / "config" / "topics.json").write_text(json.dumps(table), "utf-8")
    with open_snapshot(root, store.options) as snapshot:
        rows = rows_of(snapshot, "consumer_offsets")
    assert {row["topic"]: row["lag"] for row in rows} == {"Lost": -7, "Deleted": 0}


def test_offsets_that_are_newer_than_the_end_of_a_running_store_are_not_beyond_it(
    tmp_path: Path,
) -> None:
    """The broker wrote the file after the end of the log had been determined."""
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=4096,
        max_hash_slot_num=10,
        max_index_num=40,
    )
    with MessageStore(config) as store:
        store.put_message(Message("T", b"1"))
        assert store.wait_for_dispatch(10)
        with open_snapshot(tmp_path, {}) as snapshot:
            store.put_message(Message("T", b"2"))
            assert store.wait_for_dispatch(10)
            (tmp_path / "config").mkdir(exist_ok=True)
            text = json.dumps({"offsetTable": {"T@g": {0: 2}, "T@far": {0: 9}}})
            (tmp_path / "config" / "consumerOffset.json").write_text(text, "utf-8")
            rows = {row["group"]: row["lag"] for row in rows_of(snapshot, "consumer_offsets")}
    assert rows == {"g": 0, "far": -7}


def test_batch_queues_and_light_queues_have_lags(tmp_path: Path) -> None:
    store = golden("batch-5x")
    table = {"BatchTopic@g": {0: 5}, "%LMQ%alpha@g": {0: 1}, "FanOut@g": {0: 0}}
    with open_snapshot(write_offsets(store, tmp_path, table), store.options) as snapshot:
        rows = rows_of(snapshot, "consumer_offsets", topic_pattern=".*(Topic|alpha)")
        queues = {(q["topic"], q["queue_id"]): q for q in rows_of(snapshot, "queues")}
    assert [row["topic"] for row in rows] == ["%LMQ%alpha", "BatchTopic"]
    for row in rows:
        queue = queues[row["topic"], 0]
        assert row["broker_offset"] == queue["max_offset"]
        assert row["lag"] == queue["max_offset"] - row["consumer_offset"]
        age = queue["max_store_timestamp"] - queue["min_store_timestamp"]
        assert 0 < row["lag_ms"] <= age


@pytest.mark.parametrize("table", [{"a@g": {0: 2**63}}, {"a@g": {2**31: 1}}])
def test_a_file_with_numbers_that_java_does_not_read_counts_as_missing(
    tmp_path: Path, table: dict[str, dict[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    store = golden("onefile-5x")
    with open_snapshot(write_offsets(store, tmp_path, table), store.options) as snapshot:
        assert rows_of(snapshot, "consumer_offsets") == []
    assert "does not fit" in caplog.text
