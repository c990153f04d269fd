# SPDX-License-Identifier: Apache-2.0
"""Golden stores opened as snapshots, once per process, and their messages as rows."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import pyarrow as pa

from store_core import MessageStoreConfig, StoreSnapshot
from store_core.codec.inner_columns import UnwrappedColumns
from store_core.codec.message_batch_codec import MessageColumns, message_schema
from store_core.codec.message_codec import split_keys
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import BatchSizer, skip_gap
from tests.golden_store import GOLDEN_NAMES, RECOVERED_NAMES, golden

DUMPED_STORES = [(name, name in RECOVERED_NAMES) for name in GOLDEN_NAMES]
"""(name, recovered): the stores that the dumps describe."""


@functools.cache
def open_golden(name: str, recovered: bool | None = None) -> StoreSnapshot:
    """Open a golden store with its sizes; by default the one that its dumps describe."""
    store = golden(name, name in RECOVERED_NAMES if recovered is None else recovered)
    config = MessageStoreConfig.from_properties(store.config_properties)
    return StoreSnapshot(store.root, config)


def scanned_columns(snapshot: StoreSnapshot, *, unwrap: bool) -> dict[str, list[Any]]:
    """Decode the whole log in columns; inner batches as records, or as their messages."""
    batches = []
    for columns in _columns(snapshot):
        rows = UnwrappedColumns(columns) if unwrap else columns
        arrays = [rows.column(name) for name in message_schema().names]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=message_schema()))
        batches[-1].validate(full=True)
        assert not columns.bad_bodies
    table = pa.Table.from_batches(batches, message_schema())
    return {name: table.column(name).to_pylist() for name in message_schema().names}


def _columns(snapshot: StoreSnapshot):
    log, start = snapshot.log, max(snapshot.min_phy_offset, 0)
    sizer = BatchSizer(1000, 1 << 20)
    for frames in scan_frames(log, start, snapshot.end_offset, on_gap=skip_gap, sizer=sizer):
        yield MessageColumns(frames)


def keys_by_topic(name: str) -> dict[str, dict[str, list[int]]]:
    """Return {topic: {key: [commit_log_offset of each message that has it]}}, from a scan."""
    topics = defaultdict(lambda: defaultdict(list))
    for line in golden(name).dump("messages"):
        if line.get("blank") or line["sys_flag"] & 0xC in {0x4, 0xC}:
            continue
        for message in line.get("inner_messages", [line]):
            properties = message["properties"]
            keys = {*split_keys(properties.get("KEYS", "")), properties.get("UNIQ_KEY", "")}
            for key in keys - {""}:
                topics[line["topic"]][key].append(line["commit_log_offset"])
    return topics
