# SPDX-License-Identifier: Apache-2.0
"""Rows read from a RocketMQ store and written to a new one come back equal."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from rmqsource.options.source_options import parse_options
from rmqsource.scan.read_columns import read_columns
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from rmqsource.tables import TABLES
from store_core import StoreSnapshot
from store_core.codec.record_encoder import CRC_ENTRY
from store_core.tools.check.finding_kinds import Severity
from store_core.tools.check.store_check import check_store
from tests.golden_store import STORE_NAMES, golden

COLUMNS = (*(column.name for column in TABLES["messages"].columns), "properties_raw")
KEPT = (
    *("topic", "queue_id", "tags", "keys", "unique_key", "properties", "properties_raw", "body"),
    *("flag", "born_timestamp", "born_host", "reconsume_times"),
)
TYPES = {column.name: column.type for column in TABLES["messages"].columns}


@pytest.fixture(autouse=True)
def _without_waiting_for_disks(monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def table_of(root, **options):
    given = {"path": str(root), **options}
    batches = [pa.table(part) for part in read_columns(parse_options(given), COLUMNS)]
    return pa.concat_tables(batches) if batches else None


@pytest.mark.parametrize("name", STORE_NAMES)
def test_messages_come_back_equal(name, tmp_path):
    store = golden(name, recovered=name == "torn-5x")
    messages = table_of(store.root, **store.options)
    fields = [(n, TYPES.get(n, "binary")) for n in COLUMNS]
    options = parse_sink_options(
        {
            "path": str(tmp_path),
            "config": str(broker_config(store, tmp_path.parent / f"{name}.conf")),
            "systemTopics": "true",
            "compatibility": "5",
            "compression": "none",
            "mappedFileSizeCommitLog": "65536",
            "mappedFileSizeConsumeQueue": "2000",
            "maxHashSlotNum": "100",
            "maxIndexNum": "400",
        }
    )
    plan = plan_write(options, resolve_sink_columns(fields))
    batches = [] if messages is None else messages.to_batches(max_chunksize=700)
    done = commit_parts(plan, [stage_part(batches, plan, 0)])
    if messages is None:
        assert done is None
        return
    again = table_of(tmp_path)
    for column in KEPT:
        wanted = [without_crc(value) for value in messages.column(column).to_pylist()]
        assert again.column(column).to_pylist() == wanted, column
    with StoreSnapshot(tmp_path) as snapshot:
        found = check_store(snapshot).findings
    # The broker's own topics are not in topics.json: a broker creates them itself.
    assert [str(finding) for finding in found if finding.severity is not Severity.INFORMATION] == []


def broker_config(store, path):
    """Write what a broker must know of the store beside the sizes of its files."""
    kept = ("enableMultiDispatch", "enableLmq")
    lines = [f"{key}={value}" for key, value in store.config_properties.items() if key in kept]
    path.write_text("\n".join(lines))
    return path


def without_crc(value):
    """Return properties without the CRC of their record."""
    if isinstance(value, bytes):
        return CRC_ENTRY.sub(b"", value)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return [pair for pair in value if pair[0] != "__CRC32#"]
    return value
