# SPDX-License-Identifier: Apache-2.0
"""Rows of metadata tables of golden stores, as the tests compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqsource.metadata import read_metadata
from rmqsource.options.source_options import SourceOptions
from store_core.config.message_store_config import MessageStoreConfig
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import GoldenStore


def open_snapshot(root: Path, sizes: dict[str, str]) -> StoreSnapshot:
    return StoreSnapshot(root, MessageStoreConfig.from_properties(sizes))


def snapshot_of(store: GoldenStore) -> StoreSnapshot:
    return open_snapshot(store.root, store.options)


def rows_of(snapshot: StoreSnapshot, table: str, **options: Any) -> list[dict[str, Any]]:
    """Return the rows; times as ms since the epoch."""
    given = SourceOptions(paths=(snapshot.directory.uri,), **options)
    rows: list[dict[str, Any]] = []
    for batch in read_metadata(table, snapshot, given):
        columns = {name: _plain(array) for name, array in batch.items()}
        rows += [dict(zip(columns, values)) for values in zip(*columns.values())]
    return rows


def rows_of_store(store: GoldenStore, table: str, **options: Any) -> list[dict[str, Any]]:
    with snapshot_of(store) as snapshot:
        return rows_of(snapshot, table, **options)


def _plain(array: Any) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        return [None if us is None else us // 1000 for us in array.cast(pa.int64()).to_pylist()]
    values: list[Any] = array.to_pylist()
    return values
