# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from rmqsource.metadata.queue_units import read_batch_queue
from rmqsource.metadata.selection import SelectedQueue
from store_core.config.message_store_config import MessageStoreConfig
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import golden
from tests.rmqsource.metadata.support import snapshot_of

KEY = SelectedQueue("BatchTopic", 0, is_batch=True)


def test_units_behind_the_end_of_the_log_do_not_count() -> None:
    store = golden("batch-5x")
    with snapshot_of(store) as snapshot:
        units, max_offset, _ = read_batch_queue(snapshot, KEY)
    assert max_offset == units["base_queue_offset"][-1] + units["batch_size"][-1]
    for row in (1, len(units) // 2, len(units) - 1):
        end = int(units["commit_log_offset"][row])
        config = MessageStoreConfig.from_properties(store.options)
        with StoreSnapshot(store.root, config, end) as snapshot:
            cut = read_batch_queue(snapshot, KEY)
        assert len(cut.units) == row
        assert cut.max_offset == units["base_queue_offset"][row]


def test_units_of_expired_records_are_counted_only() -> None:
    with snapshot_of(golden("batch-5x")) as snapshot:
        everything = read_batch_queue(snapshot, KEY).units
        second = snapshot.log.segments.segments[1].from_offset
        segments = snapshot.log.segments
        snapshot.log.segments = type(segments)(segments.segments[1:], segments.file_size)
        units, max_offset, expired = read_batch_queue(snapshot, KEY)
    assert expired == (everything["commit_log_offset"] < second).sum() > 0
    assert len(units) == len(everything) - expired
    assert max_offset == everything["base_queue_offset"][-1] + everything["batch_size"][-1]


def test_a_queue_without_directory_is_empty() -> None:
    with snapshot_of(golden("batch-5x")) as snapshot:
        units, max_offset, expired = read_batch_queue(snapshot, KEY._replace(queue_id=99))
    assert (len(units), max_offset, expired) == (0, 0, 0)
