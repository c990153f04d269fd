# SPDX-License-Identifier: Apache-2.0
"""Golden stores through every access path, damage by mode, and the bounds of batches."""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from socket import gethostname

import pyarrow as pa
import pytest

from rmqsource.errors import DamagedStoreError, DataLossError, SourceOptionError
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreNotFoundError
from store_core.tools.repair.rebuild_in_place import rebuild_queues_in_place
from tests.golden_store import (
    CLUSTER_NAMES,
    GOLDEN_NAMES,
    RECOVERED_NAMES,
    STORE_NAMES,
    golden,
    tree_state,
)
from tests.rmqsource.reading import (
    comparable,
    default_columns,
    expected_rows,
    key_rows,
    name_queues,
    places,
    plan,
    read_batches,
    read_places,
    read_rows,
)
from tests.store_factory import StoreFactory, small_store

STORES = [
    *((name, False) for name in GOLDEN_NAMES if name != "torn-5x"),
    *((name, True) for name in RECOVERED_NAMES),
]
PATHS = ("auto", "commitlog", "consumequeue")
ZLIB_FLAG = 1


@pytest.mark.parametrize(("name", "recovered"), STORES)
def test_every_column_of_every_golden_message(name, recovered):
    store = golden(name, recovered)
    rows = comparable(read_rows(store.root, **store.options))
    assert rows == expected_rows(store)


# The queue path refuses batch queues (the next test), which batch-5x and batch-551 have.
FORCED = [
    (name, recovered, access)
    for name, recovered in STORES
    for access in PATHS[1:]
    if not (name.startswith("batch") and access == "consumequeue")
]


@pytest.mark.parametrize(("name", "recovered", "access"), FORCED)
def test_forced_paths_find_the_same_messages(name, recovered, access):
    store = golden(name, recovered)
    wanted = places(expected_rows(store, undispatched=access == "commitlog"))
    assert read_places(store.root, access=access, **store.options) == sorted(wanted)


def test_the_queue_path_refuses_batch_queues_rather_than_be_short():
    store = golden("batch-5x")
    with pytest.raises(SourceOptionError, match="BatchTopic has batch consume queues"):
        plan(store.root, access="consumequeue", **store.options)
    topics = "BatchSource,FanOut"
    wanted = [row for row in expected_rows(store) if row["topic"] in topics]
    found = read_places(store.root, access="consumequeue", topic=topics, **store.options)
    assert found == sorted(places(wanted))


@pytest.mark.parametrize("name", STORE_NAMES)
def test_topic_by_topic_with_named_queues(name, tmp_path):
    store = golden(name)
    root = name_queues(store.copy_to(tmp_path))
    options = {**store.options, "mode": "DROPMALFORMED"}
    rows = read_rows(root, ("topic", "commit_log_offset", "queue_offset"), **options)
    for topic, count in Counter(row["topic"] for row in rows).items():
        wanted = sorted(places(row for row in rows if row["topic"] == topic))
        read = {**options, "topic": json.dumps([topic])}
        assert read_places(root, **read) == wanted, (topic, count)
        pieces = {**read, "maxPartitionBytes": "2k", "batchRows": 3}
        assert read_places(root, **pieces) == wanted, (topic, count)


@pytest.mark.parametrize("access", ["auto", "consumequeue", "commitlog"])
@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_cluster_topics_through_every_path(name, access):
    store = golden(name)
    wanted = Counter(row["topic"] for row in expected_rows(store))
    taken = set()
    for topic, count in wanted.items():
        read = {**store.options, "topic": json.dumps([topic]), "access": access}
        assert len(read_rows(store.root, ("body",), **read)) == count, topic
        taken.add(plan(store.root, **read)[0].access_path)
    assert access == "auto" or taken == {access}
    assert access != "auto" or "consumequeue" in taken


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_message_ids(name):
    store = golden(name)
    rows = read_rows(store.root, mode="DROPMALFORMED", **store.options)
    ids = sorted({row["message_id"] for row in rows})[::3]
    if not ids:
        return
    wanted = sorted(places(row for row in rows if row["message_id"] in ids))
    options = {**store.options, "mode": "DROPMALFORMED", "messageIds": json.dumps(ids)}
    assert plan(store.root, **options)[0].access_path == "message_id"
    assert read_places(store.root, **options) == wanted
    other_host = [text[:1] + ("1" if text[1] != "1" else "2") + text[2:] for text in ids]
    assert read_places(store.root, **{**options, "messageIds": json.dumps(other_host)}) == []


@pytest.mark.parametrize(("name", "recovered"), STORES)
def test_table_keys(name, recovered):
    store = golden(name, recovered)
    columns = ("key", "key_kind", "commit_log_offset", "queue_offset")
    rows = read_rows(store.root, columns, table="keys", **store.options)
    assert [tuple(row.values()) for row in rows] == key_rows(expected_rows(store))


def test_keys_come_with_the_columns_of_their_message():
    store = golden("classic-5x")
    by_place = {p: row for p, row in zip(places(expected_rows(store)), expected_rows(store))}
    rows = comparable(read_rows(store.root, table="keys", **store.options))
    for row in rows:
        message = by_place[row["commit_log_offset"], row["queue_offset"]]
        assert {k: v for k, v in row.items() if k not in {"key", "key_kind"}} == message


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
@pytest.mark.parametrize("split_bytes", ["128m", "700"])
def test_modes_on_a_torn_store(mode, split_bytes):
    torn, whole = golden("torn-5x"), golden("crashed-5x")
    options = {**torn.options, "mode": mode, "maxPartitionBytes": split_bytes}
    if mode == "FAILFAST":
        with pytest.raises(DamagedStoreError, match="to PERMISSIVE") as failure:
            read_rows(torn.root, **options)
        assert failure.value.position == torn.config["torn"]["torn_record_offset"] % 32768
        return
    rows = read_rows(torn.root, **options)
    bad = [row["_corrupt_record"] for row in rows if row.get("_corrupt_record")]
    good = [row for row in rows if not row.get("_corrupt_record")]
    for row in good:
        row.pop("_corrupt_record", None)
    lost = torn.config["torn"]["torn_record_offset"]
    wanted = [row for row in expected_rows(whole) if row["commit_log_offset"] != lost]
    for row in wanted:
        row["store"] = str(torn.root)
    assert comparable(good) == wanted
    assert len(good) == len(expected_rows(torn)) + 99
    if mode == "DROPMALFORMED":
        assert not bad
        return
    gaps = [json.loads(text) for text in bad]
    assert gaps[0]["commit_log_offset"] == lost
    assert [set(gap) for gap in gaps] == 2 * [
        {"reason", "file", "position", "commit_log_offset", "bytes_lost"}
    ]
    assert all(gap["file"].startswith(str(torn.root)) and gap["reason"] for gap in gaps)
    assert gaps[1]["bytes_lost"] == 300


def test_permissive_without_the_column_drops(tmp_path):
    torn = golden("torn-5x")
    rows = read_rows(torn.root, ("topic",), mode="PERMISSIVE", **torn.options)
    assert len(rows) == 899


def test_a_gap_row_has_nulls_everywhere_else():
    torn = golden("torn-5x")
    rows = read_rows(torn.root, mode="PERMISSIVE", table="keys", **torn.options)
    (first, _) = [row for row in rows if row["_corrupt_record"]]
    assert {name for name, value in first.items() if value is not None} == {"_corrupt_record"}


def damaged_body_store(tmp_path, **added):
    """Return a store whose record 3 has a flipped byte in its body."""
    factory = small_store(tmp_path / "store", 40)
    record = factory.add("TopicC", b"flip this body", properties={"KEYS": "c"}, **added)
    small = [factory.add("TopicC", b"after") for _ in range(3)]
    at = factory.data.index(b"flip this body" if not added else record.body)
    factory.data[at + 4] ^= 0x40
    assert small
    return factory.write(), record


def test_a_log_does_not_end_where_queues_were_made_anew_over_damage(tmp_path):
    """Their units have other queue offsets than the following records say."""
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 14)
    for number in range(30):
        factory.add("TopicA", queue_id=number % 3, queue_offset=number // 3)
    bad = factory.records[9].commit_log_offset
    factory.data[bad + 4] ^= 0x40
    root = factory.write()
    rebuild_queues_in_place(str(root), MessageStoreConfig(), accept_moved=True)
    with pytest.raises(DamagedStoreError, match="to PERMISSIVE") as failure:
        read_rows(root, ("queue_id",), access="commitlog")
    assert failure.value.position == bad
    found = read_places(root, access="commitlog", mode="DROPMALFORMED")
    kept = [record for record in factory.records if record.commit_log_offset != bad]
    assert found == [(record.commit_log_offset, record.queue_offset) for record in kept]


def test_check_crc(tmp_path):
    root, record = damaged_body_store(tmp_path)
    assert len(read_rows(root, ("body",))) == 44
    with pytest.raises(DamagedStoreError, match="CRC"):
        read_rows(root, ("queue_id",), checkCRC=True)
    assert len(read_rows(root, ("topic",), checkCRC=True, mode="DROPMALFORMED")) == 43
    rows = read_rows(root, checkCRC=True, mode="PERMISSIVE")
    (gap,) = [json.loads(row["_corrupt_record"]) for row in rows if row["_corrupt_record"]]
    assert gap["commit_log_offset"] == record.commit_log_offset
    assert gap["bytes_lost"] == record.total_size
    assert len(rows) == 44


def test_a_body_that_cannot_be_inflated(tmp_path):
    root, record = damaged_body_store(tmp_path, sys_flag=ZLIB_FLAG)
    assert len(read_rows(root, ("topic",))) == 44, "the body is not asked for"
    assert len(read_rows(root, ("body",), body="raw")) == 44
    with pytest.raises(DamagedStoreError) as failure:
        read_rows(root, ("body",))
    assert failure.value.position == record.commit_log_offset % 4096
    assert len(read_rows(root, ("body",), mode="DROPMALFORMED")) == 43


def test_raw_bodies():
    store = golden("classic-5x")
    wanted = [line for line in store.dump("messages") if line["sys_flag"] & 12 in {0, 8}]
    rows = read_rows(store.root, ("body", "sys_flag"), body="raw", **store.options)
    import base64

    assert [row["body"] for row in rows] == [base64.b64decode(w["body_raw_b64"]) for w in wanted]


@pytest.mark.parametrize("access", ["commitlog", "consumequeue"])
def test_batches_keep_their_bounds(access):
    store = golden("classic-5x")
    options = {**store.options, "access": access, "batchRows": 100, "batchBytes": "64k"}
    batches = list(read_batches(store.root, ("body", "properties_raw"), **options))
    tables = [pa.table(batch) for batch in batches]
    assert max(table.num_rows for table in tables) == 100
    # One record can be larger than the rest of the limit, and inflates beyond its stored size.
    assert max(pa.compute.sum(pa.compute.binary_length(t["body"])).as_py() for t in tables) < 72_000
    assert tables[0].num_rows <= 256, "the first batch answers a limit alone"


@pytest.mark.parametrize("access", ["commitlog", "consumequeue"])
def test_bodies_that_inflate_a_thousandfold_come_in_small_batches(access, tmp_path):
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 16)
    body = bytes(300_000)
    for _ in range(40):
        factory.add(body=zlib.compress(body), sys_flag=ZLIB_FLAG)
    options = {"access": access, "batchBytes": "1m"}
    sizes = [len(batch["body"]) for batch in read_batches(factory.write(), ("body",), **options)]
    assert sum(sizes) == 40
    assert max(sizes) * len(body) <= 1 << 20


def test_batch_rows_bound_what_one_record_becomes(tmp_path):
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 16)
    factory.add(properties={"KEYS": " ".join(f"k{i}" for i in range(1000))})
    batches = read_batches(factory.write(), ("key",), table="keys", batchRows=64)
    sizes = [len(batch["key"]) for batch in batches]
    assert (sum(sizes), max(sizes)) == (1000, 64)
    store = golden("batch-5x")
    sizes = [
        len(batch["topic"])
        for batch in read_batches(store.root, ("topic",), batchRows=2, **store.options)
    ]
    assert (sum(sizes), max(sizes)) == (len(expected_rows(store)), 2)


def test_a_limit_opens_only_what_it_needs(tmp_path):
    factory = small_store(tmp_path / "store", 2000, segment_bytes=1 << 20)
    first = next(read_batches(factory.write(), ("body",)))
    assert len(first["body"]) <= 256


@pytest.mark.parametrize("access", ["commitlog", "consumequeue"])
def test_a_segment_deleted_after_planning(access, tmp_path):
    factory = small_store(tmp_path / "store", 100)
    root = factory.write()
    plans = plan(root, access=access)
    gone = sorted((root / "commitlog").iterdir())[0]
    kept = [r for r in factory.records if r.commit_log_offset >= 4096]
    gone.unlink()
    with pytest.raises(DataLossError, match="deleted between planning and reading"):
        list(read_batches(root, plans=plans, access=access))
    rest = read_batches(root, ("topic",), plans=plans, access=access, failOnDataLoss=False)
    assert sum(len(batch["topic"]) for batch in rest) == len(kept)


def test_a_lost_middle_segment_is_damage(tmp_path):
    factory = small_store(tmp_path / "store", 100)
    root = factory.write()
    gone = sorted((root / "commitlog").iterdir())[1]
    gone.unlink()
    kept = [r for r in factory.records if r.commit_log_offset // 4096 != 1]
    with pytest.raises(DamagedStoreError, match="segments are missing"):
        read_rows(root)
    for size in ("128m", "1k"):
        rows = read_rows(root, mode="PERMISSIVE", maxPartitionBytes=size)
        (gap,) = [json.loads(row["_corrupt_record"]) for row in rows if row["_corrupt_record"]]
        assert (gap["commit_log_offset"], gap["bytes_lost"]) == (4096, 4096)
        assert len(rows) == len(kept) + 1


@pytest.mark.parametrize("name", ["classic-5x", "batch-5x", "crashed-5x", "cluster-5x", "ext-5x"])
def test_reading_changes_nothing(name, tmp_path):
    store = golden(name)
    root = name_queues(store.copy_to(tmp_path)) if not store.is_cluster else store.root
    before = tree_state(root)
    keys = {"topic": "TopicTest", "keys": "hot", "table": "keys"}
    for more in ({}, {"access": "commitlog"}, {"topic": "TopicTest"}, keys):
        read_rows(root, **store.options, **more)
    assert tree_state(root) == before


def test_all_columns_can_be_asked_for_alone():
    store = golden("batch-5x")
    whole = read_rows(store.root, **store.options)
    for name in default_columns("messages", "FAILFAST"):
        one = read_rows(store.root, (name,), **store.options)
        assert one == [{name: row[name]} for row in whole]


@pytest.mark.skipif(os.name != "posix", reason="permissions of files")
def test_denied_files_are_named(tmp_path, monkeypatch):
    root = small_store(tmp_path / "store").write()
    segment = sorted((root / "commitlog").iterdir())[0]
    plans = plan(root)
    real = os.open

    def denied(path, *args, **kwargs):
        if str(path) == str(segment):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(Exception, match="Permission denied") as failure:
        list(read_batches(root, plans=plans))
    assert str(segment) in str(failure.value)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_machine_that_does_not_see_the_store_loses_no_rows_in_silence(
    tmp_path, fail_on_data_loss
):
    root = golden("classic-5x").copy_to(tmp_path)
    options = {**golden("classic-5x").options, "failOnDataLoss": fail_on_data_loss}
    plans = plan(root, **options)
    root.rename(tmp_path / "unmounted")
    with pytest.raises(StoreNotFoundError, match=f"{gethostname()} does not see it"):
        list(read_batches(root, plans=plans, **options))
