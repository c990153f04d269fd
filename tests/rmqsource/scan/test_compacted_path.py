# SPDX-License-Identifier: Apache-2.0
"""Access path ``compaction``: rows as a real client received them, and other paths' errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rmqsource.errors import DamagedStoreError, DataLossError, SourceOptionError
from rmqsource.options.source_options import parse_options
from rmqsource.scan.store_versions import make_token
from tests.golden_compacted import (
    LOST_IN_LOG,
    TOPIC,
    as_received,
    by_queue,
    received,
    unpack_compacted,
)
from tests.golden_kinds import OPTIONS, unpack_kind
from tests.golden_store import golden, tree_state
from tests.rmqsource.reading import parsed, plan, read_batches, read_rows

# Takes the lock of a broker and keeps it until its standard input ends.
_BROKER = """
import fcntl, sys
lock = open(sys.argv[1], "r+b")
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def live_root(root: Path) -> Iterator[Path]:
    """Return the store, which another process has open."""
    (root / "abort").write_bytes(b"123")
    command = [sys.executable, "-c", _BROKER, str(root / "lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "locked\n"
        yield root
        broker.communicate()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack_compacted(tmp_path)


def compacted(root: Path, **options):
    return read_rows(root, access="compaction", **options)


def test_rows_are_what_a_client_received(root):
    before = tree_state(root)
    rows = compacted(root, topic=TOPIC)
    assert as_received(rows) == by_queue(received())
    assert len(rows) == 50
    assert {row["store"] for row in rows} == {str(root)}
    assert as_received(compacted(root)) == by_queue(received())
    assert tree_state(root) == before


def test_a_log_that_was_never_compacted_has_every_message(tmp_path):
    root = unpack_kind("compaction-5x", tmp_path)
    same = ("queue_id", "queue_offset", "keys", "body", "properties", "store_timestamp")
    order = lambda row: (row["queue_id"], row["queue_offset"])  # noqa: E731
    rows = sorted(read_rows(root, same, topic="orders", **OPTIONS), key=order)
    assert compacted(root, columns=same, topic="orders", **OPTIONS) == rows
    assert len(rows) == 60


@pytest.mark.parametrize("most", ["1", "700", "5k"])
def test_splits_of_any_size_hold_each_row_once(root, most):
    (found,) = plan(root, access="compaction", maxPartitionBytes=most)
    assert as_received(compacted(root, maxPartitionBytes=most)) == by_queue(received())
    assert len(found.splits) == {"1": 50, "700": 20, "5k": 4}[most]
    assert found.bytes_to_read == sum(row["store_size"] for row in received())


def test_filters_and_offsets(root):
    every = by_queue(received())
    assert as_received(compacted(root, queueId=1)) == [r for r in every if r["queue_id"] == 1]
    assert as_received(compacted(root, keys="item-3")) == [
        r for r in every if r["keys"] == "item-3"
    ]
    assert as_received(compacted(root, tags="Tag2")) == [r for r in every if r["tags"] == "Tag2"]
    bounds = {
        "startingOffsets": json.dumps({TOPIC: {"0": 3, "1": 80}}),
        "endingOffsets": json.dumps({TOPIC: {"0": 66}}),
    }
    found = compacted(root, topic=TOPIC, **bounds)
    assert [(r["queue_id"], r["queue_offset"]) for r in found] == [
        *((0, 3), (0, 4), (0, 64), (0, 65)),
        *((1, 80), (1, 81), (1, 82), (1, 83)),
    ]
    where = compacted(root, where="queue_offset >= 82 AND queue_id = 0")
    assert [r["queue_offset"] for r in where] == [82, 83]
    ids = ",".join({row["offset_msg_id"] for row in every if row["queue_offset"] == 1})
    assert [row["queue_offset"] for row in compacted(root, messageIds=ids)] == [1, 1]
    found = compacted(root, table="keys", where="key = 'once-4'")
    assert [(row["key"], row["queue_offset"]) for row in found] == [("once-4", 4)] * 2
    assert compacted(root, columns=["queue_id"], topicPattern="pri.*", queueId=7) == []


def test_a_start_behind_the_end_is_data_loss(root):
    starting = json.dumps({TOPIC: {"0": 85}})
    with pytest.raises(DataLossError, match="queue 0 ends before 85: 84"):
        compacted(root, topic=TOPIC, startingOffsets=starting)
    (found,) = plan(
        root, access="compaction", topic=TOPIC, startingOffsets=starting, failOnDataLoss=False
    )
    assert found.missing_offsets == ((TOPIC, 0, 84, 85),)


def test_what_cannot_be_read_from_compacted_logs(root):
    with pytest.raises(SourceOptionError, match="'stock' has no compacted log, only prices"):
        compacted(root, topic="prices,stock")
    with pytest.raises(SourceOptionError, match=r"no topic of store .* has a compacted log"):
        compacted(golden("classic-5x").root)
    token = make_token(parsed(root))
    with pytest.raises(SourceOptionError, match="end of the commit log is pinned"):
        compacted(root, snapshot=token)
    with pytest.raises(SourceOptionError, match="a stream reads ranges of the log"):
        parse_options({"path": str(root), "access": "compaction"}, streaming=True)


def test_plans_of_the_commit_log_tell_what_is_only_in_compacted_logs(root):
    told = f"access=compaction reads those, which alone still have {LOST_IN_LOG} messages"
    for options in ({}, {"topic": TOPIC}, {"topicPattern": "p.*"}, {"access": "commitlog"}):
        (found,) = plan(root, **options)
        assert told in found.reason
    (found,) = plan(root, topic="stock")
    assert "compact" not in found.reason
    for access in ("auto", "commitlog", "consumequeue"):
        rows = read_rows(root, topic=TOPIC, access=access)
        offsets = {(row["queue_id"], row["queue_offset"]) for row in rows}
        gone = {(r["queue_id"], r["queue_offset"]) for r in received()} - offsets
        assert len(gone) == LOST_IN_LOG


def test_a_topic_that_is_no_longer_compacted_is_told_of(root):
    path = root / "config" / "topics.json"
    path.write_text(path.read_text().replace("COMPACTION", "DELETE"))
    (found,) = plan(root, access="compaction")
    assert "consumers now get the commit log" in found.reason


def test_a_compacted_topic_without_a_message_is_empty(root):
    shutil.rmtree(root / "compaction" / "compactionLog" / TOPIC / "1")
    shutil.rmtree(root / "compaction" / "compactionCq" / TOPIC / "1")
    assert len(compacted(root, topic=TOPIC)) == 25
    path = root / "config" / "topics.json"
    path.write_text(path.read_text().replace('"stock"', '"other"').replace("prices", "stock"))
    assert compacted(root, topic="stock") == []


@pytest.mark.parametrize("most", ["1", "128m"])
def test_damage_is_an_error_a_row_or_left_out(root, most):
    folder = root / "compaction" / "compactionLog" / TOPIC / "0"
    with sorted(folder.iterdir())[0].open("r+b") as file:
        file.write(bytes(8))
    with pytest.raises(DamagedStoreError, match=r"queue offset 0, .* has no matching record"):
        compacted(root, maxPartitionBytes=most)
    rows = compacted(root, mode="PERMISSIVE", maxPartitionBytes=most)
    (gap,) = [json.loads(row["_corrupt_record"]) for row in rows if row["_corrupt_record"]]
    assert gap["file"].endswith("compactionCq/prices/0/00000000000000000000")
    assert len(rows) == 50
    assert len(compacted(root, mode="DROPMALFORMED", maxPartitionBytes=most)) == 49


def test_a_log_that_is_deleted_between_planning_and_reading_is_data_loss(root):
    plans = plan(root, access="compaction")
    shutil.rmtree(root / "compaction")
    with pytest.raises(DataLossError, match="compacted log prices/0 was deleted between"):
        list(read_batches(root, plans=plans, access="compaction"))
    lenient = {"access": "compaction", "failOnDataLoss": False}
    assert list(read_batches(root, plans=plans, **lenient)) == []


def compact_again(root: Path) -> list[int]:
    """Let a broker drop messages of queue 0; return the remaining queue offsets."""
    path = root / "compaction" / "compactionCq" / TOPIC / "0" / "0".zfill(20)
    units = path.read_bytes()
    kept = b"".join(units[at : at + 46] for at in (0, 2 * 46, 5 * 46))
    path.write_bytes(kept.ljust(len(units), b"\0"))
    return [0, 2, 64, *range(76, 84)]


@pytest.mark.parametrize("most", ["1", "128m"])
def test_a_log_that_is_compacted_between_planning_and_reading_is_not_read_in_part(root, most):
    plans = plan(root, access="compaction", maxPartitionBytes=most)
    compact_again(root)
    with pytest.raises(DataLossError, match="a broker has compacted it; load again"):
        list(read_batches(root, plans=plans, access="compaction"))


def test_a_queue_that_a_broker_has_open_is_read_as_it_is_when_its_task_begins(live_root):
    plans = plan(live_root, access="compaction", maxPartitionBytes="1")
    assert [len(found.splits) for found in plans] == [2]
    left = compact_again(live_root)
    names = ("queue_id", "queue_offset")
    found = list(read_batches(live_root, names, plans=plans, access="compaction"))
    rows = [row for batch in found for row in pa.table(batch).to_pylist()]
    assert [row["queue_offset"] for row in rows if row["queue_id"] == 0] == left


def test_a_lost_directory_is_an_error_and_not_an_empty_queue(root):
    shutil.rmtree(root / "compaction" / "compactionCq" / TOPIC / "1")
    with pytest.raises(DamagedStoreError, match="the sparse queue has no file of this name"):
        compacted(root)
    rows = compacted(root, mode="PERMISSIVE")
    assert sum(row["_corrupt_record"] is not None for row in rows) == 2
    assert len(rows) == 27
