# SPDX-License-Identifier: Apache-2.0
"""A log is cut where a record ends; queues and index with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from store_core.errors import OffsetOutOfRangeError, StoreClosedError, StoreLockedError
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.store_directory import StoreDirectory
from store_core.message_store import MessageStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.checkpoint import load_checkpoint
from store_core.tools.repair.cut_log import cut_log
from tests.store_core.ha.stores import SEGMENT, assert_clean, log_bytes, put, queues, store_config

COUNT = 200


@pytest.fixture
def config(tmp_path):
    return store_config(tmp_path / "store")


@pytest.fixture
def ends(config):
    """The end of the log after each message."""
    with MessageStore(config) as store:
        found = []
        for number in range(COUNT):
            put(store, 1, number)
            found.append(store.max_phy_offset)
    return found


def count(store):
    return sum(map(len, queues(store).values()))


@pytest.mark.parametrize("kept", [1, 20, 90, COUNT - 1, COUNT])
def test_what_is_left_is_whole(config, ends, kept):
    root = config.store_path_root_dir
    before = log_bytes(root)
    with MessageStore(config) as store:
        directory = store.cut_log(ends[kept - 1])
        assert store.max_phy_offset == ends[kept - 1]
        assert count(store) == kept
        assert store.wait_for_dispatch(10)  # the index is rebuilt
        assert store.query_message(f"T{(kept - 1) % 2}", f"k{kept - 1}", 9, 0, 2**62).messages
        for gone in range(kept, COUNT):
            assert not store.query_message(f"T{gone % 2}", f"k{gone}", 9, 0, 2**62).messages
        put(store, 30, 1000)
        assert store.wait_for_dispatch(10)
        assert count(store) == kept + 30
    assert log_bytes(root)[: ends[kept - 1]] == before[: ends[kept - 1]]
    assert f"{ends[kept - 1]:020d}-" in directory
    assert_clean(root, config)


def test_the_end_of_a_segment(config, ends):
    with MessageStore(config) as store:
        store.cut_log(SEGMENT)
        assert store.max_phy_offset == SEGMENT
        assert count(store) == sum(end < SEGMENT for end in ends)
    assert_clean(config.store_path_root_dir, config)


@pytest.mark.parametrize("offset", [-1, 0, 1 << 40])
def test_what_cannot_be_cut(config, ends, offset):
    with MessageStore(config) as store:
        with pytest.raises(OffsetOutOfRangeError, match="something must remain"):
            store.cut_log(offset)
        assert store.max_phy_offset == ends[-1]
        assert count(store) == COUNT
    assert_clean(config.store_path_root_dir, config)


def test_a_store_that_is_open_is_refused(config, ends):
    root = config.store_path_root_dir
    with MessageStore(config), pytest.raises(StoreLockedError):
        cut_log(root, config, ends[3], clock=lambda: 0)


def test_a_store_that_is_not_open_stays_so(config, ends):
    store = MessageStore(config)
    store.cut_log(ends[3])
    with pytest.raises(StoreClosedError):
        assert store.max_phy_offset
    with MessageStore(config) as opened:
        assert opened.max_phy_offset == ends[3]
        assert count(opened) == 4


@pytest.mark.parametrize("files", [0, 1, 2])
def test_a_crash_in_between_is_recovered(config, ends, monkeypatch, files):
    """Some segments are deleted, the others are not cut yet."""
    root = config.store_path_root_dir
    before = log_bytes(root)

    class Killed(BaseException):
        pass

    def partly(queue, offset):
        for file in queue.mapped_files[len(queue.mapped_files) - files :]:
            queue._destroy(file)
        raise Killed

    monkeypatch.setattr(MappedFileQueue, "truncate_dirty_files", partly)
    with pytest.raises(Killed):
        cut_log(root, config, ends[10], clock=lambda: 0)
    monkeypatch.undo()
    with MessageStore(config) as store:
        end = store.max_phy_offset
        assert end >= ends[10]
        assert count(store) == sum(found <= end for found in ends)
    assert log_bytes(root)[:end] == before[:end]
    assert_clean(root, config)


def test_the_checkpoint_knows_nothing_of_what_was_cut(config):
    """Another master's records may be older: after a crash they are not known to be flushed."""
    now = 1_700_000_000_000
    with MessageStore(config, clock=lambda: now) as store:
        put(store, 50)
        end = store.max_phy_offset
        now += 3_600_000
        put(store, 50, 50)
    with MessageStore(config, clock=lambda: now) as store:
        store.cut_log(end)
    with StoreSnapshot(config.store_path_root_dir, config) as view:
        assert 0 < view.checkpoint.physic_msg_timestamp <= now - 3_600_000
        assert 0 < view.checkpoint.logics_msg_timestamp <= now - 3_600_000
    assert_clean(config.store_path_root_dir, config)


def test_a_checkpoint_for_5_5_names_no_record_that_was_cut(config, ends, monkeypatch):
    """5.5 would take the position of it for the end of the log."""
    config = replace(config, enable_accelerated_recovery=True)
    root = config.store_path_root_dir
    with MessageStore(config) as store:
        put(store, 1, COUNT)
    assert dispatched_of(config) == ends[-1]

    def killed(queue, offset):
        assert is_kept(dispatched_of(config)), "it is written before the log is cut"
        raise KeyboardInterrupt

    def is_kept(offset):
        with StoreSnapshot(root, config) as view:
            return 0 < offset < ends[99] and view.look_message_by_offset(offset) is not None

    monkeypatch.setattr(MappedFileQueue, "truncate_dirty_files", killed)
    with pytest.raises(KeyboardInterrupt):
        cut_log(root, config, ends[99], clock=lambda: 0)
    monkeypatch.undo()
    cut_log(root, config, ends[99], clock=lambda: 0)
    assert is_kept(dispatched_of(config))
    with MessageStore(config):
        pass
    assert dispatched_of(config) == ends[98]


def dispatched_of(config):
    return load_checkpoint(StoreDirectory(config.store_path_root_dir)).logics_physical_offset
