# SPDX-License-Identifier: Apache-2.0
"""Reads of stores that keep queues and settings in databases: no wrong row, no empty table."""

from __future__ import annotations

from collections import Counter

import pytest

from rmqsource.metadata import METADATA_TABLES, read_metadata
from rmqsource.scan.store_versions import open_snapshots
from store_core.errors import StoreKindError
from tests.golden_kinds import IN_DATABASE, KINDS, MESSAGES, OPTIONS, unpack_kind
from tests.rmqsource.reading import parsed, plan, read_rows

pytestmark = pytest.mark.usefixtures("without_rocksdict")


@pytest.mark.parametrize("name", KINDS)
def test_every_message_is_read(tmp_path, name):
    root = unpack_kind(name, tmp_path)
    rows = read_rows(root, **OPTIONS)
    assert Counter(row["topic"] for row in rows) == MESSAGES
    assert {row["keys"][0] for row in rows} == {f"sent-{n}" for n in range(60)}
    for topic, count in MESSAGES.items():
        assert len(read_rows(root, topic=topic, **OPTIONS)) == count
        found = read_rows(root, topic=topic, keys='["sent-7"]', table="keys", **OPTIONS)
        assert [row["topic"] for row in found] == [topic] * 3  # two words and UNIQ_KEY


@pytest.mark.parametrize("name", IN_DATABASE)
def test_the_plan_says_why_the_queues_do_not_help(tmp_path, name):
    root = unpack_kind(name, tmp_path)
    (found,) = plan(root, topic="orders", **OPTIONS)
    assert found.access_path == "commitlog"
    assert "they are in a RocksDB database" in found.reason


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
@pytest.mark.parametrize("name", IN_DATABASE)
def test_tables_of_queues_are_errors_and_not_empty(tmp_path, name, mode):
    root = unpack_kind(name, tmp_path)
    lenient = mode == "PERMISSIVE"
    refused = {"consume_queue", "queues", "topics", "segments"}
    for table in METADATA_TABLES:
        options = parsed(root, table=table, mode=mode, **OPTIONS)
        (snapshot,) = open_snapshots(options)
        with snapshot:
            if table in refused:
                with pytest.raises(StoreKindError, match="the queues of this store are in a"):
                    list(read_metadata(table, snapshot, options))
            elif table == "consumer_offsets" and snapshot.kind.config_databases and not lenient:
                with pytest.raises(StoreKindError, match="RocksDB"):
                    list(read_metadata(table, snapshot, options))
            elif table != "transactions" or lenient:
                list(read_metadata(table, snapshot, options))
