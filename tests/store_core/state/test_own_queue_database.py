# SPDX-License-Identifier: Apache-2.0
"""Queues in ``consumequeue_rocksdb`` (``useSeparateStorePathForRocksdbCQ`` of 5.5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from store_core import MessageStore, MessageStoreConfig
from store_core.errors import StoreKindError
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import GoldenStore, golden, tree_state

BESIDE = "consumequeue_rocksdb"


@pytest.fixture
def store(tmp_path: Path) -> GoldenStore:
    """A store whose queues are in a database, which is beside ``consumequeue``."""
    made = golden("databases/cluster-5x")
    copy = replace(made, root=made.copy_to(tmp_path))
    (copy.root / "consumequeue").rename(copy.root / BESIDE)
    return copy


def config_of(store: GoldenStore) -> MessageStoreConfig:
    properties = {**store.config_properties, "storePathRootDir": str(store.root)}
    return MessageStoreConfig.from_properties(properties)


def queues_of(store: GoldenStore) -> dict[tuple[str, int], tuple[int, int]]:
    with StoreSnapshot(store.root, config_of(store)) as snapshot:
        ranges = {key: snapshot.queue_range(*key) for key in snapshot.queue_paths}
    return {key: (r.min_offset, r.max_offset) for key, r in ranges.items()}


def test_the_queues_are_read(store: GoldenStore) -> None:
    before = tree_state(store.root)
    expected = queues_of(golden("databases/cluster-5x"))
    assert len(expected) > 20
    assert queues_of(store) == expected
    assert tree_state(store.root) == before


def test_nothing_is_written(store: GoldenStore) -> None:
    before = tree_state(store.root)
    with pytest.raises(StoreKindError, match=rf"{BESIDE}.*nothing can be written"):
        MessageStore(config_of(store)).load()
    assert tree_state(store.root) == before
