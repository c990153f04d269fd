# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from store_core.transaction_forms import op_offsets
from tests.golden_store import GoldenStore, golden
from tests.rmqsource.metadata.support import rows_of_store


def test_transactions_of_a_broker(cluster_golden_store: GoldenStore) -> None:
    rows = {r["transaction_id"]: r for r in rows_of_store(cluster_golden_store, "transactions")}
    expected = list(cluster_golden_store.dump("transactions"))
    assert len(rows) == len(expected) > 15
    stored = {
        m["commit_log_offset"]: m["store_timestamp"]
        for m in cluster_golden_store.dump("messages")
        if "blank" not in m
    }
    for line in expected:
        row = rows[line["transaction_id"]]
        half = line["half_records"]
        assert row["state"] == line["final_state"]
        assert row["topic"] == line["topic"]
        assert row["half_messages"] == len(half)
        assert row["checks"] == max(int(h["check_times"] or 0) for h in half)
        assert row["half_queue_offset"] == half[0]["queue_offset"]
        assert row["half_commit_log_offset"] == half[0]["commit_log_offset"]
        assert row["store_timestamp"] == half[0]["store_timestamp"]
        assert row["commit_commit_log_offset"] == line["commit_commit_log_offset"]
        end = line["commit_commit_log_offset"] or line["check_exceeded_commit_log_offset"]
        if end is not None:
            assert row["end_timestamp"] == stored[end]
        assert (row["end_timestamp"] is None) == line["open_at_shutdown"]
        assert row["producer_group"].startswith("pg_")
    states = {row["state"] for row in rows.values()}
    assert states == {"committed", "rolled_back", "check_exceeded", "pending"}


def test_a_store_without_transactions() -> None:
    assert rows_of_store(golden("onefile-5x"), "transactions") == []


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"0,1,2,13,", [0, 1, 2, 13]),
        (b"7", [7]),
        (b"", []),
        (b"a,3,-4,5x,6", [3, 6]),
        (b"\xff,1", [1]),
        (b"9" * 40 + b",2,", [2]),
    ],
)
def test_op_bodies(body: bytes, offsets: list[int]) -> None:
    assert op_offsets(body) == offsets
