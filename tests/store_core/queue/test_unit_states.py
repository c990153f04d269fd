"""Records of stores that RocketMQ wrote are known to be dispatched, in queues of every kind."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.log.end_rules import DISPATCHED, NO_UNIT
from store_core.log.log_scan import scan_frames, skip_gap
from store_core.queue.unit_states import QueueUnitStates
from store_core.store_snapshot import StoreSnapshot
from tests.golden_dledger import DLEDGER_NAMES, unpack_dledger
from tests.golden_kinds import IN_DATABASE, unpack_kind
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden


def states_after_the_middle(view):
    """Return how many records of the second half of the log are in each state."""
    first = max(view.min_phy_offset, 0)
    middle = view.log.next_record((first + view.end_offset) // 2, view.end_offset)
    units = QueueUnitStates(
        view.log,
        lambda *key: view.consume_queue(*key) or view.batch_consume_queue(*key),
        [*view.queue_paths, *view.batch_queue_paths],
        middle - 1,
        1,
    )
    counts = Counter()
    for frames in scan_frames(view.log, middle, view.end_offset, on_gap=skip_gap):
        counts.update(units.of(frames.take(np.arange(len(frames)))).tolist())
    return counts


def all_are_dispatched(root, config=None):
    with StoreSnapshot(StoreDirectory(str(root)), config) as view:
        counts = states_after_the_middle(view)
    assert counts[DISPATCHED] > 0
    assert set(counts) <= {DISPATCHED, NO_UNIT}, counts


@pytest.mark.parametrize("name", sorted({*STORE_NAMES} - {*RECOVERED_NAMES, "empty-5x"}))
def test_all_records_of_a_store_that_was_stopped_are_in_their_queues(name):
    store = golden(name)
    all_are_dispatched(store.root, MessageStoreConfig.from_properties(store.config_properties))


@pytest.mark.parametrize("name", IN_DATABASE)
def test_all_records_are_in_queues_of_a_database(tmp_path, name):
    all_are_dispatched(unpack_kind(name, tmp_path))


@pytest.mark.parametrize("name", DLEDGER_NAMES)
def test_all_records_of_a_dledger_log_are_in_their_queues(tmp_path, name):
    all_are_dispatched(unpack_dledger(name, tmp_path))
