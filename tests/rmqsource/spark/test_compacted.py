# SPDX-License-Identifier: Apache-2.0
"""Compacted topics through Spark."""

from __future__ import annotations

import pytest

from tests.golden_compacted import TOPIC, received, unpack_compacted
from tests.golden_store import tree_state

pytestmark = pytest.mark.spark


def test_sql_over_a_compacted_topic(spark, read, tmp_path):
    root = unpack_compacted(tmp_path)
    before = tree_state(root)
    frame = read(root, access="compaction", topic=TOPIC, minPartitions=4)
    told = sorted((row["queue_id"], row["queue_offset"], row["keys"]) for row in received())
    for _ in range(2):  # the same DataFrame again
        rows = frame.selectExpr("queue_id", "queue_offset", "keys[0] AS key").collect()
        assert sorted(tuple(row) for row in rows) == told
    frame.createOrReplaceTempView("compacted")
    newest = spark.sql("SELECT count(DISTINCT keys[0]) FROM compacted WHERE queue_offset < 76")
    assert newest.first()[0] == len({key for _, offset, key in told if offset < 76})
    (plan,) = read(root, access="compaction", table="plan").collect()
    assert plan["access_path"] == "compaction"
    queues = read(root, table="queues").where(f"topic = '{TOPIC}'").collect()
    assert [row["compacted_messages"] for row in queues] == [25, 25]
    assert tree_state(root) == before
