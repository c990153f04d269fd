# SPDX-License-Identifier: Apache-2.0
"""Logs of DLedger: every way to read messages, compared with what real clients got."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from rmqsource.metadata import METADATA_TABLES, read_metadata
from rmqsource.scan.store_versions import open_snapshots
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreKindError
from store_core.layout import COMPRESSED_FLAG
from store_core.message_store import MessageStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.repair.rebuild_in_place import rebuild_index_in_place, rebuild_queues_in_place
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.golden_dledger import DLEDGER_NAMES, OPTIONS, answers, received, unpack_dledger
from tests.golden_store import tree_state
from tests.rmqsource.reading import parsed, plan, read_rows
from tests.store_core.tools.check.support import all_kinds, checked

CONFIG = MessageStoreConfig.from_properties(OPTIONS)
PLACE = ("topic", "queue_id", "queue_offset")
CUT_BY_BROKER = ("killed-5x",)
SENT_ONCE = {"later": 9, "orders": 260, "stock": 90}
USER_TOPICS = ("later", "orders", "stock")
names = pytest.mark.parametrize("name", DLEDGER_NAMES)


@pytest.fixture(params=DLEDGER_NAMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    return request.param, unpack_dledger(request.param, tmp_path)


def as_received(row):
    """Return a row in the columns of the client's records."""
    properties = dict(row["properties"])
    return {
        **{name: row[name] for name in (*PLACE, "commit_log_offset", "flag")},
        "sys_flag": row["sys_flag"] & ~COMPRESSED_FLAG,
        "offset_msg_id": row["message_id"],
        "msg_id": row["unique_key"],
        "reconsume_times": row["reconsume_times"],
        "born_timestamp": _ms(row["born_timestamp"]),
        "store_timestamp": _ms(row["store_timestamp"]),
        "tags": row["tags"],
        "keys": properties.get("KEYS"),
        "body_sha256": hashlib.sha256(row["body"]).hexdigest(),
        "properties": properties,
    }


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def of_clients(name, topics=USER_TOPICS):
    rows = [dict(row) for row in received(name) if row["topic"] in topics]
    for row in rows:
        row["sys_flag"] &= ~COMPRESSED_FLAG  # the client of 5.3.3 removes it
        # Added to each pulled message on the way to the client.
        for added in ("MIN_OFFSET", "MAX_OFFSET"):
            row["properties"] = {k: v for k, v in row["properties"].items() if k != added}
    wanted = as_received_columns()
    return [{column: row.get(column) for column in wanted} for row in rows]


def as_received_columns():
    return (
        *PLACE,
        "commit_log_offset",
        "sys_flag",
        "flag",
        "offset_msg_id",
        "msg_id",
        "reconsume_times",
        "born_timestamp",
        "store_timestamp",
        "tags",
        "keys",
        "body_sha256",
        "properties",
    )


def check_rows(name, found, topics=USER_TOPICS):
    """Compare rows with the messages that the client got.

    The broker that was started on the store of a killed one cut units of good records off the
    queues (``DLedgerCommitLog.dledgerRecoverAbnormally`` counts records without their headers), so
    its client got fewer. There, rows must include the client's, and be as many as were sent.
    """
    wanted = of_clients(name, topics)
    if name in CUT_BY_BROKER:
        assert Counter(row["topic"] for row in found) == {t: SENT_ONCE[t] for t in topics}
        got = {tuple(row[n] for n in PLACE) for row in wanted}
        found = [row for row in found if tuple(row[n] for n in PLACE) in got]
    assert len(wanted) > 0 or name in CUT_BY_BROKER
    assert found == wanted


def rows_of(root, **options):
    rows = [as_received(row) for row in read_rows(root, **OPTIONS, **options)]
    return sorted(rows, key=lambda row: tuple(row[name] for name in PLACE))


def test_rows_are_what_the_client_got(store):
    name, root = store
    before = tree_state(root)
    found = [row for row in rows_of(root) if row["topic"] in USER_TOPICS]
    check_rows(name, found)
    assert tree_state(root) == before


@pytest.mark.parametrize("access", ["commitlog", "consumequeue"])
def test_both_ways_give_the_rows_of_a_topic(store, access):
    name, root = store
    for topic in USER_TOPICS:
        check_rows(name, rows_of(root, topic=topic, access=access), [topic])


def test_splits_that_begin_anywhere_give_each_row_once(store):
    name, root = store
    for size in (997, 4096, 70_000):
        options = {"maxPartitionBytes": size, "maxPartitions": 1000}
        assert len(plan(root, **OPTIONS, **options)[0].splits) > 1
        found = [row for row in rows_of(root, **options) if row["topic"] in USER_TOPICS]
        check_rows(name, found)


def test_keys_are_found_through_the_index(store):
    name, root = store
    for answer in answers(name, "key"):
        options = {"topic": answer["topic"], "keys": json.dumps([answer["key"]])}
        for access in ("auto", "index"):
            found = {row["commit_log_offset"] for row in rows_of(root, access=access, **options)}
            assert found == {one["commit_log_offset"] for one in answer["found"]}
        with StoreSnapshot(root, CONFIG) as snapshot:
            result = snapshot.query_message(answer["topic"], answer["key"], 64, 0, 2**62)
            places = {m.commit_log_offset for m in result.messages}
            assert places == {one["commit_log_offset"] for one in answer["found"]}


def test_message_ids_are_found(store):
    name, root = store
    asked = [answer for answer in answers(name, "id") if answer["ok"]]
    assert len(asked) >= (0 if "killed" in name else 6)
    for answer in asked:
        (row,) = read_rows(root, messageIds=json.dumps([answer["id"]]), **OPTIONS)
        assert row["commit_log_offset"] == answer["found"]["commit_log_offset"]
        assert row["unique_key"] == answer["found"]["msg_id"]
        with StoreSnapshot(root, CONFIG) as snapshot:
            message = snapshot.look_message_by_id(answer["id"])
            assert message is not None
            assert message.queue_offset == answer["found"]["queue_offset"]


def test_end_and_queues_are_those_that_the_broker_tells(store):
    name, root = store
    (ready,) = answers(name, "ready")
    with StoreSnapshot(root, CONFIG) as snapshot:
        assert max(snapshot.min_phy_offset, 0) == ready["min_phy_offset"]
        assert snapshot.end_offset == ready["max_phy_offset"]
        assert snapshot.oldest_store_timestamp() is not None
        for answer in answers(name, "topic"):
            for queue_id, told in answer["queues"].items():
                place = answer["topic"], int(queue_id)
                assert snapshot.get_min_offset_in_queue(*place) == told["min"]
                if name not in CUT_BY_BROKER:
                    assert snapshot.get_max_offset_in_queue(*place) == told["max"]
                got = snapshot.get_message("group", *place, 0, 32)
                wanted = of_clients(name, [answer["topic"]])
                of_queue = [row for row in wanted if row["queue_id"] == place[1]]
                ours = [m.commit_log_offset for m in got.messages][: len(of_queue)]
                assert ours == [row["commit_log_offset"] for row in of_queue[: len(ours)]]
                assert ours or not of_queue


def test_every_table_can_be_read(store):
    _, root = store
    for table in METADATA_TABLES:
        options = parsed(root, table=table, **OPTIONS)
        (snapshot,) = open_snapshots(options)
        with snapshot:
            rows = list(read_metadata(table, snapshot, options))
        assert rows or table in {"transactions", "consumer_offsets", "delayed", "timers"}, table


def test_check_finds_nothing(store):
    name, root = store
    before = tree_state(root)
    report = checked(root, OPTIONS)
    assert report.is_good, report.findings
    kinds = all_kinds(report)
    assert kinds <= ({"NOT_STOPPED", "CHECKPOINT", "NO_CHECKPOINT"} if "killed" in name else set())
    assert report.counts.records >= len(received(name))
    assert tree_state(root) == before


def test_salvage_makes_an_ordinary_store(store, tmp_path):
    _, root = store
    target = tmp_path / "new"
    report = salvage_store(str(root), str(target), CONFIG, SalvageOptions(lambda: 0))
    assert report.lost_bytes == 0
    kept = ("topic", "queue_id", "queue_offset", "msg_id", "body_sha256", "tags", "keys")
    old, new = (
        [[row[k] for k in kept] for row in rows_of(place) if row["topic"] in USER_TOPICS]
        for place in (root, target)
    )
    assert new == old
    assert not list(target.glob("dledger-*"))
    assert checked(target, OPTIONS).is_good


def test_nothing_is_written_to_them(store):
    _, root = store
    before = tree_state(root)
    config = MessageStoreConfig.from_properties({**OPTIONS, "storePathRootDir": str(root)})
    message_store = MessageStore(config)
    for write in (
        lambda: recover_store(str(root), CONFIG, clock=lambda: 0),
        lambda: recover_store(str(root), CONFIG, clock=lambda: 0, cut=True),
        lambda: plan_recovery(str(root), CONFIG),
        lambda: rebuild_index_in_place(str(root), CONFIG, clock=lambda: 0),
        lambda: rebuild_queues_in_place(str(root), CONFIG),
        message_store.load,
        message_store.destroy,
    ):
        with pytest.raises(StoreKindError, match="nothing can be written to it here"):
            write()
    assert tree_state(root) == before


def test_logs_of_two_nodes_need_a_name(tmp_path):
    root = unpack_dledger("rolled-5x", tmp_path)
    (root / "dledger-n1").mkdir()
    with pytest.raises(StoreKindError, match=r"dledger-n0, dledger-n1.*dLegerSelfId=n0"):
        StoreSnapshot(root, CONFIG)
    assert len(read_rows(root, dLegerSelfId="n0", **OPTIONS)) > 300
    assert read_rows(root, dLegerSelfId="n1", **OPTIONS) == []
