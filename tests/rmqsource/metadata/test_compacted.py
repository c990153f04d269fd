# SPDX-License-Identifier: Apache-2.0
"""Topic and queue tables with a compacted topic."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from store_core.errors import CorruptRecordError, StoreFormatError
from tests.golden_compacted import TOPIC, received, topic_stats, unpack_compacted
from tests.golden_kinds import OPTIONS
from tests.rmqsource.metadata.support import open_snapshot, rows_of


def table(root: Path, name: str, **options):
    with open_snapshot(root, OPTIONS) as snapshot:
        return rows_of(snapshot, name, **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack_compacted(tmp_path)


def test_queues_have_the_offsets_of_the_brokers_admin_and_those_of_the_compacted_log(root):
    rows = table(root, "queues")
    told = [(row["queue_id"], row["min_offset"], row["max_offset"]) for row in topic_stats()]
    of_topic = [row for row in rows if row["topic"] == TOPIC]
    assert [(r["queue_id"], r["min_offset"], r["max_offset"]) for r in of_topic] == told
    for row in of_topic:
        offsets = [r["queue_offset"] for r in received() if r["queue_id"] == row["queue_id"]]
        assert row["compacted_messages"] == len(offsets)
        assert row["compacted_min_offset"] == min(offsets)
        assert row["compacted_max_offset"] == max(offsets) + 1
    others = [row for row in rows if row["topic"] != TOPIC]
    assert {row["topic"] for row in others} >= {"stock"}
    assert {row["compacted_messages"] for row in others} == {None}


def test_topics_add_up_compacted_logs_apart(root):
    rows = {row["topic"]: row for row in table(root, "topics")}
    held = sum(row["max_offset"] - row["min_offset"] for row in topic_stats())
    assert (rows[TOPIC]["messages"], rows[TOPIC]["compacted_messages"]) == (held, len(received()))
    assert rows["stock"]["compacted_messages"] is None


def test_only_what_is_selected(root):
    assert [
        r["compacted_messages"] for r in table(root, "queues", queue_ids=(1,), topics=(TOPIC,))
    ] == [25]
    (row,) = table(root, "topics", queue_ids=(1,), topics=(TOPIC,))
    assert row["compacted_messages"] == 25
    assert TOPIC not in {row["topic"] for row in table(root, "topics", topics=("stock",))}


def test_a_topic_of_which_only_the_compacted_log_is_left(root):
    shutil.rmtree(root / "consumequeue" / TOPIC)
    (root / "config" / "topics.json").unlink()
    (root / "config" / "topics.json.bak").unlink()
    (row,) = table(root, "topics", topics=(TOPIC,))
    assert (row["queues"], row["messages"], row["compacted_messages"]) == (0, 0, 50)


def test_a_lost_file_is_no_smaller_number(root):
    folder = root / "compaction" / "compactionCq" / TOPIC / "1"
    sorted(folder.iterdir())[0].unlink()
    with pytest.raises(CorruptRecordError, match="has no file of this name"):
        table(root, "queues")
    rows = [r for r in table(root, "queues", mode="PERMISSIVE") if r["topic"] == TOPIC]
    assert [row["compacted_messages"] for row in rows] == [25, None]


def test_damage_is_an_error_or_unknown(root):
    path = root / "compaction" / "compactionCq" / TOPIC / "0" / ("9" * 20)
    path.mkdir()
    with pytest.raises(StoreFormatError, match="a directory, where a regular file"):
        table(root, "queues")
    rows = [r for r in table(root, "queues", mode="PERMISSIVE") if r["topic"] == TOPIC]
    assert [row["compacted_messages"] for row in rows] == [None, 25]
