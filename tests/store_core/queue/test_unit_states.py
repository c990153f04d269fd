# SPDX-License-Identifier: Apache-2.0
"""Records of stores that RocketMQ wrote count as dispatched, in queues of every kind."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_UNIT
from store_core.log.commit_log import scan_frames
from store_core.log.end_rules import DISPATCHED, NO_UNIT
from store_core.log.log_scan import skip_gap
from store_core.queue import unit_states
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.unit_states import QueueUnitStates, UnitsBehind, unit_blocks
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_dledger import DLEDGER_NAMES, unpack_dledger
from tests.golden_kinds import IN_DATABASE, unpack_kind
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden

PER_FILE = 10
SIZE = 7
LOG_BYTES = 1 << 20


def states_after_the_middle(view):
    """Return how many records of the second half of the log are in each state."""
    first = max(view.min_phy_offset, 0)
    middle = view.log.next_record((first + view.end_offset) // 2, view.end_offset)
    units = QueueUnitStates(
        view.log,
        lambda *key: view.consume_queue(*key) or view.batch_units(*key),
        [*view.queue_paths, *view.batch_queue_paths],
        middle - 1,
        1,
    )
    counts = Counter()
    for frames in scan_frames(view.log, middle, view.end_offset, on_gap=skip_gap):
        counts.update(units.states_of(frames.take(np.arange(len(frames)))).tolist())
    return counts


def all_are_dispatched(root, config=None):
    with StoreSnapshot(root, config) as view:
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


def queue_of(root, starts, first=0):
    """Return a queue with units that point to these offsets; a None makes a hole."""
    path = root / "consumequeue/T/0"
    path.mkdir(parents=True)
    for begin in range(0, len(starts), PER_FILE):
        some = starts[begin : begin + PER_FILE]
        units = [(0, 0, 0) if start is None else (start, SIZE, 1) for start in some]
        data = b"".join(CQ_UNIT.struct.pack(*unit) for unit in units)
        name = f"{(first + begin) * CQ_UNIT.size:020d}"
        (path / name).write_bytes(data.ljust(PER_FILE * CQ_UNIT.size, b"\0"))
    return ConsumeQueue.open(StoreDirectory(str(root)), "T", 0, str(path), None)


def found(behind, *starts, size=SIZE):
    rows = behind.placed.rows_of(np.array(starts), np.full(len(starts), size, np.int32))
    return [int(behind.placed.number[row]) if row >= 0 else None for row in rows]


@pytest.mark.parametrize("first", [0, 3 * PER_FILE])
def test_units_at_the_end_are_found_without_a_search(tmp_path, first):
    behind = UnitsBehind(queue_of(tmp_path, range(0, 2500, 100), first), 1000, LOG_BYTES)
    assert (behind.first, behind.stop) == (first, first + 10)
    assert found(behind, 1000, 1050, 1700, 2400) == [first + 10, None, first + 17, first + 24]
    assert found(behind, 1000, size=SIZE + 1) == [None]
    assert behind.search_all()


def test_units_out_of_order_are_found_by_a_search(tmp_path):
    starts = [*range(0, 800, 100), 1500, 1600, *range(800, 1300, 100)]
    behind = UnitsBehind(queue_of(tmp_path, starts), 1000, LOG_BYTES)
    assert found(behind, 1200, 1500) == [14, 8]
    behind = UnitsBehind(
        queue_of(tmp_path / "other", [1500, *range(0, 1100, 100)]), 1000, LOG_BYTES
    )
    assert found(behind, 1000, 1500) in ([11, None], [11, 0])
    assert behind.search_all()
    assert found(behind, 1000, 1500) == [11, 0]


def test_units_after_a_hole_are_found_by_a_search(tmp_path):
    starts = [*range(0, 1200, 100), None, None, 1400, 1500]
    behind = UnitsBehind(queue_of(tmp_path, starts), 1000, LOG_BYTES)
    assert found(behind, 1100, 1500) == [11, None]
    assert behind.search_all()
    assert found(behind, 1100, 1200, 1500) == [11, None, 15]


def test_files_in_each_others_place_leave_it_open_whether_there_are_more(tmp_path, monkeypatch):
    monkeypatch.setattr(unit_states, "_BLOCK_UNITS", 4)
    starts = [*range(0, 1000, 100), *range(2000, 3000, 100), *range(1000, 2000, 100)]
    behind = UnitsBehind(queue_of(tmp_path, starts), 2000, LOG_BYTES)
    assert behind.search_all() == (found(behind, 2000, 2900) == [10, 19])
    ordered = UnitsBehind(queue_of(tmp_path / "ordered", range(0, 3000, 100)), 2000, LOG_BYTES)
    assert ordered.search_all()


def test_two_units_of_one_place_are_told_by_their_size(tmp_path):
    queue = queue_of(tmp_path, [0, 100, 200, 300])
    path = tmp_path / "consumequeue/T/0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[60:80] = CQ_UNIT.struct.pack(200, SIZE + 5, 1)
    path.write_bytes(data)
    behind = UnitsBehind(queue, 100, LOG_BYTES)
    assert (found(behind, 200), found(behind, 200, size=SIZE + 5)) == ([2], [3])


def test_a_file_of_any_length_is_searched_as_far_as_the_log_may_have_records(tmp_path):
    queue_of(tmp_path, range(0, 1000, 100))  # one file
    path = tmp_path / "consumequeue/T/0" / f"{0:020d}"
    os.truncate(path, 200 << 30)  # sparse
    queue = ConsumeQueue.open(StoreDirectory(tmp_path), "T", 0, str(path.parent), 200 << 30)
    read, wanted = queue.read_units, []
    queue.read_units = lambda begin, stop: wanted.append(stop - begin) or read(begin, stop)
    assert UnitsBehind(queue, 1000, LOG_BYTES).search_all()
    assert sum(wanted) < 2 << 20
    assert sum(len(part.start) for part in unit_blocks(queue, LOG_BYTES)) == PER_FILE
    assert sum(wanted) < 4 << 20


def test_blocks_of_units_come_from_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(unit_states, "_BLOCK_UNITS", 4)
    starts = [*range(0, 800, 100), None, 900]
    blocks = [part.number.tolist() for part in unit_blocks(queue_of(tmp_path, starts), LOG_BYTES)]
    assert blocks == [[6, 7, 9], [2, 3, 4, 5], [0, 1]]
