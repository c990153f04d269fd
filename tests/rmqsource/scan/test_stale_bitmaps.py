# SPDX-License-Identifier: Apache-2.0
"""Reads with a SQL filter ignore bitmaps of extension units: they may be of another filter."""

from __future__ import annotations

import pytest

from store_core import GetMessageStatus
from tests.golden_store import golden
from tests.rmqsource.reading import name_queues, read_rows
from tests.store_core.crash.by_hand import without_threads
from tests.store_core.test_golden_filters import SQL_NAMES, sql_filter
from tests.store_core.test_message_store_filters import FilteringStore

QUEUES, LOG = "consumequeue", "commitlog"


@pytest.mark.parametrize("name", SQL_NAMES)
def test_rows_are_those_of_a_scan(name):
    store = golden("cluster-5x-ext")
    topic = store.config["topics"]["filter"]
    expression = sql_filter(store, name).expression
    options = {**store.options, "topic": topic, "sqlFilter": expression}
    expected = read_rows(store.root, access=LOG, **options)
    assert read_rows(store.root, access=QUEUES, **options) == expected
    assert read_rows(store.root, table="keys", access=QUEUES, **options) == read_rows(
        store.root, table="keys", access=LOG, **options
    )


def test_a_registered_filter_that_a_crash_lost_leaves_out_no_row(tmp_path):
    """A broker died before saving the change; the next one was stopped cleanly, which hides it."""
    saved = tmp_path / "config" / "consumerFilter.json"
    first = FilteringStore(tmp_path)
    with without_threads(), first.store:
        first.store.consumer_filters.register("T", "low", "n < 5")
        old = saved.read_bytes()
        first.store.consumer_filters.register("T", "low", "n > 5")
        first.put(range(10))
    saved.write_bytes(old)
    name_queues(tmp_path)
    options = {"topic": "T", "sqlFilter": "n < 5"}
    for access in (QUEUES, LOG):
        rows = read_rows(tmp_path, ("properties",), access=access, **options)
        assert [int(dict(row["properties"])["n"]) for row in rows] == list(range(5))
    again = FilteringStore(tmp_path)
    with without_threads(), again.store:
        assert again.pull("low", "n < 5") == (GetMessageStatus.FOUND, list(range(5)))
