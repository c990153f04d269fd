# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from store_core.errors import CorruptRecordError
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, GoldenStore, golden
from tests.rmqsource.metadata.support import open_snapshot, rows_of, rows_of_store

STORES = [(name, name in RECOVERED_NAMES) for name in STORE_NAMES]


def expected_units(store: GoldenStore) -> list[tuple[Any, ...]]:
    units = []
    for queue in store.dump("consume_queue"):
        name = (queue["topic"], queue["queue_id"])
        for row, (start, size, code) in enumerate(queue.get("units", [])):
            units.append((*name, queue["min_offset"] + row, start, size, code))
        for start, size, code, _, base, _, _ in queue.get("batch_units", []):
            units.append((*name, base, start, size, code))
    return sorted(units)


@pytest.mark.parametrize(("name", "recovered"), STORES)
def test_units_are_those_that_rocketmq_has(name: str, recovered: bool) -> None:
    store = golden(name, recovered)
    rows = rows_of_store(store, "consume_queue")
    assert [tuple(row.values())[:-1] for row in rows] == expected_units(store)
    assert {row["store"] for row in rows} <= {str(store.root)}


def test_only_selected_queues_are_read() -> None:
    store = golden("classic-5x")
    one = rows_of_store(store, "consume_queue", topics=("TopicTest",), queue_ids=(1, 3))
    assert {(row["topic"], row["queue_id"]) for row in one} == {("TopicTest", 1), ("TopicTest", 3)}
    many = rows_of_store(store, "consume_queue", topic_pattern="%RETRY%.*")
    assert many
    assert all(row["topic"].startswith("%RETRY%") for row in many)


def test_a_lost_file_ends_its_queue_as_the_mode_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = golden("batch-5x")
    root = store.copy_to(tmp_path)
    (root / "consumequeue" / "BatchSource" / "0" / f"{2000:020}").unlink()
    with open_snapshot(root, store.options) as snapshot:
        with pytest.raises(CorruptRecordError, match="missing"):
            rows_of(snapshot, "consume_queue")
        with caplog.at_level(logging.WARNING):
            rows = rows_of(snapshot, "consume_queue", mode="PERMISSIVE")
    assert "consume queue BatchSource/0 is skipped" in caplog.text
    whole = [row for row in expected_units(store) if row[:2] != ("BatchSource", 0)]
    assert [
        tuple(row.values())[:-1]
        for row in rows
        if (row["topic"], row["queue_id"]) != ("BatchSource", 0)
    ] == whole
