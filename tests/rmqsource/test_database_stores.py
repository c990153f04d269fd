# SPDX-License-Identifier: Apache-2.0
"""Stores with queues and settings in RocksDB, compared with real brokers and clients."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path

import pytest

from rmqsource.errors import SourceOptionError
from store_core.config.message_store_config import MessageStoreConfig
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.golden_kinds import IN_DATABASE, MESSAGES, OPTIONS, unpack_kind
from tests.golden_store import GoldenStore, golden, tree_state
from tests.rmqsource.metadata import test_consumer_offsets, test_queues
from tests.rmqsource.metadata.support import rows_of, rows_of_store, snapshot_of
from tests.rmqsource.reading import plan, read_rows
from tests.store_core.tools.check.support import all_kinds, checked

NAMES = ("databases/cluster-5x", "databases/cluster-v2-5x")


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest) -> GoldenStore:
    return golden(request.param)


def test_queues_are_those_of_the_broker(store: GoldenStore) -> None:
    test_queues.test_queues_of_a_broker(store)


def test_consumer_offsets_are_those_of_the_broker(store: GoldenStore) -> None:
    test_consumer_offsets.test_offsets_of_a_broker(store)
    test_consumer_offsets.test_lag_ms_is_the_age_of_the_first_message_not_consumed(store)


def test_units_name_every_record(store: GoldenStore) -> None:
    records = {
        (m["topic"], m["queue_id"], m["queue_offset"]): (m["commit_log_offset"], m["store_size"])
        for m in store.dump("messages")
        if "blank" not in m and m["sys_flag"] & 0xC not in (0x4, 0xC)
    }
    units = {
        (row["topic"], row["queue_id"], row["queue_offset"]): (
            row["commit_log_offset"],
            row["message_size"],
        )
        for row in rows_of_store(store, "consume_queue")
    }
    assert units == records


def test_what_a_client_received_comes_through_the_queues(store: GoldenStore) -> None:
    received = defaultdict(set)
    for m in store.dump("received"):
        if m["reconsume_times"]:  # it is stored in the group's retry topic
            continue
        place = m["queue_id"], m["queue_offset"], m["commit_log_offset"]
        received[m["topic"]].add((*place, m["offset_msg_id"], m["body_sha256"]))
    topics = [topic for topic in received if not topic.startswith("%")]
    assert len(topics) > 5
    before = tree_state(store.root)
    for topic in topics:
        scanned = read_rows(store.root, topic=topic, access="commitlog", **store.options)
        rows = read_rows(store.root, topic=topic, access="consumequeue", **store.options)
        assert key_rows(rows) == key_rows(scanned)
        assert key_rows(rows) == key_rows(read_rows(store.root, topic=topic, **store.options))
        held = {
            (
                *(row[name] for name in ("queue_id", "queue_offset", "commit_log_offset")),
                row["message_id"],
                hashlib.sha256(row["body"]).hexdigest(),
            )
            for row in rows
        }
        assert received[topic] <= held
    assert tree_state(store.root) == before


def key_rows(rows: list[dict[str, object]]) -> list[object]:
    return sorted((row["commit_log_offset"], row["message_id"], row["body"]) for row in rows)  # type: ignore[type-var]


def test_a_small_topic_is_planned_through_the_queues(store: GoldenStore) -> None:
    topic = store.config["topics"]["ordered"]
    (found,) = plan(store.root, topic=topic, **store.options)
    assert found.access_path == "consumequeue", found.reason
    assert "consume queues name" in found.reason
    (some,) = plan(store.root, topic=topic, queueId="1", **store.options)
    assert some.bytes_to_read < found.bytes_to_read


def test_check_proves_every_unit(store: GoldenStore) -> None:
    options = {**store.options, "messageDelayLevel": store.config_properties["messageDelayLevel"]}
    report = checked(store.root, options)
    assert report.is_good, report.findings
    assert report.counts.units == report.counts.records > 600
    # Some of the broker's own topics are in its memory only, even after a clean stop.
    assert all_kinds(report) == {"TOPIC_UNKNOWN"}
    with snapshot_of(store) as snapshot:
        assert report.counts.queues == len(snapshot.queue_paths) > 20
        assert not snapshot.kind.notes()


def test_salvage_keeps_settings(store: GoldenStore, tmp_path: Path) -> None:
    config = MessageStoreConfig.from_properties(store.options)
    target = tmp_path / "new"
    report = salvage_store(str(store.root), str(target), config, SalvageOptions(lambda: 0))
    assert not any("left out" in note for note in report.notes if "RocksDB" in note), report.notes
    with StoreSnapshot(target, config) as made, snapshot_of(store) as old:
        assert made.topic_configs == old.topic_configs
        assert not made.kind.queue_database
        columns = ("group", "topic", "queue_id", "lag")
        of_new, of_old = (
            {tuple(row[c] for c in columns) for row in rows_of(s, "consumer_offsets")}
            for s in (made, old)
        )
        assert of_new == of_old
    assert checked(target, store.options).is_good


@pytest.mark.parametrize("name", IN_DATABASE)
def test_every_access_path_gives_the_same(tmp_path: Path, name: str) -> None:
    root = unpack_kind(name, tmp_path)
    before = tree_state(root)
    for topic, count in MESSAGES.items():
        rows = read_rows(root, topic=topic, access="consumequeue", **OPTIONS)
        assert len(rows) == count
        assert key_rows(rows) == key_rows(
            read_rows(root, topic=topic, access="commitlog", **OPTIONS)
        )
    assert checked(root, OPTIONS).is_good
    assert tree_state(root) == before


def test_of_queues_kept_twice_those_count_that_reach_further(tmp_path: Path) -> None:
    root = unpack_kind("rocksdb-double-5x", tmp_path)
    config = MessageStoreConfig.from_properties(OPTIONS)
    with StoreSnapshot(root, config) as snapshot:
        assert snapshot.queue_database is None, "files have all units"
        ranges = [snapshot.queue_range("orders", n) for n in range(4)]
        assert sum(held.max_offset for held in ranges) == MESSAGES["orders"]
    for path in (root / "consumequeue").glob("*/*/*"):
        path.write_bytes(path.read_bytes()[:40] + bytes(1960))  # as if left by a process long ago
    with StoreSnapshot(root, config) as snapshot:
        assert snapshot.queue_database is not None
        assert [snapshot.queue_range("orders", n) for n in range(4)] == ranges
    assert len(read_rows(root, topic="orders", access="consumequeue", **OPTIONS)) == 60


def test_a_database_that_lost_its_tables_is_told(tmp_path: Path) -> None:
    root = unpack_kind("rocksdb-5x", tmp_path)
    for path in (root / "consumequeue").glob("*.sst"):
        path.unlink()
    assert len(read_rows(root, topic="orders", **OPTIONS)) == 60
    (found,) = plan(root, topic="orders", **OPTIONS)
    assert found.access_path == "commitlog"
    with pytest.raises(SourceOptionError, match="RocksDB database, which cannot be read"):
        plan(root, topic="orders", access="consumequeue", **OPTIONS)
    report = checked(root, OPTIONS)
    assert report.is_good
    assert all_kinds(report) == {"NOT_READ"}
