# SPDX-License-Identifier: Apache-2.0
"""Plans as the columns of table plan, and bounds over several stores."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from rmqsource.scan.read_columns import plan_columns, plan_text
from rmqsource.scan.splits import StorePlan
from rmqsource.tables import TABLES
from tests.rmqsource.reading import plan, read_places
from tests.store_factory import small_store

PLAN = StorePlan(
    store="s",
    access_path="commitlog",
    reason="why",
    splits=(),
    bytes_to_read=10,
    bytes_skipped=30,
    log_bytes_scanned=0,
    missing_offsets=(("T", 0, 1, 3),),
    end_offset=40,
)


def test_columns_are_those_of_the_table():
    columns = plan_columns([PLAN, PLAN])
    assert list(columns) == [column.name for column in TABLES["plan"].columns]
    rows = pa.table(columns).to_pylist()
    assert json.loads(rows[0]["missing_offsets"]) == [
        {"topic": "T", "queue_id": 0, "start": 1, "stop": 3}
    ]
    assert rows[1]["end_offset"] == 40


def test_text():
    text = plan_text([PLAN])
    assert "bytes to read    10 (25.0 % of the log)" in text
    assert "scanned" not in text


@pytest.mark.parametrize("most", [1, 3, 4, 10])
def test_the_bound_of_splits_holds_for_all_stores_together(most, tmp_path):
    roots = [small_store(tmp_path / name, count).write() for name, count in (("a", 20), ("b", 90))]
    plans = plan(roots, maxPartitionBytes=200, maxPartitions=most)
    assert sum(len(p.splits) for p in plans) <= max(most, 2), "each store has one at least"
    assert len(read_places(roots, maxPartitionBytes=200, maxPartitions=most)) == 110
