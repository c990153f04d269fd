# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from store_core import MessageStoreConfig, StoreConfigError
from store_core.errors import StoreWriteError
from store_core.files.byte_source import LocalByteSource
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_dispatcher import IndexDispatcher
from store_core.index.index_file import read_index_header
from store_core.index.index_file_set import RecoveredLog
from store_core.index.index_writer import index_file_names
from store_core.log.commit_log import CommitLog, scan_frames
from store_core.log.log_scan import skip_gap
from tests.golden_store import golden
from tests.store_core.closed_later import closed_later
from tests.store_core.tools.repair.test_rebuild_index import clock_of, config_of, contents, pairs
from tests.store_factory import StoreFactory

NAME = "classic-5x"


class Opened:
    """A dispatcher on a copy of a store, and the store's log."""

    def __init__(
        self, store, root, names=(), *, ok=True, end=None, proved=(), since_ms=None, **settings
    ):
        self.store, self.root = store, root
        if since_ms is None:
            since_ms = store.meta["checkpoint_file"]["index_msg_timestamp"]
        config = MessageStoreConfig.from_properties({**store.config_properties, **settings})
        self.log = closed_later(CommitLog(StoreDirectory(str(root)), config))
        self.end = store.meta["max_phy_offset"] if end is None else end
        self.index = IndexDispatcher(str(root), config, clock_of(names))
        begin = max(self.log.min_offset, 0)
        self.found = self.index.load(
            RecoveredLog(
                log=self.log,
                min_offset=begin,
                end_offset=self.end,
                last_exit_ok=ok,
                index_msg_timestamp=since_ms,
                proved=proved,
            )
        )

    def catch_up(self, limit=20_000):
        calls = 1
        while self.index.catch_up(self.log, self.end, limit):
            calls += 1
        return calls

    def close(self):
        self.index.close()
        self.log.close()


@pytest.fixture
def copy(tmp_path):
    store = golden(NAME)
    return store, store.copy_to(tmp_path)


def test_a_whole_index_is_kept(copy):
    store, root = copy
    opened = Opened(store, root)
    assert not opened.index.is_behind
    assert opened.index.from_offset == opened.end
    assert opened.index.flushed_end_timestamp == store.meta["checkpoint"]["index_msg_timestamp"]
    assert opened.catch_up() == 1
    opened.close()
    assert contents(root) == contents(store.root)


@pytest.mark.parametrize(
    ("lost", "kept"),
    [(slice(0, None), 0), (slice(-1, None), 14), (slice(0, 1), 0), (slice(4, 6), 4)],
)
def test_what_is_missing_after_a_clean_stop_is_built_again(copy, lost, kept):
    store, root = copy
    names = index_file_names(root / "index")
    for name in names[lost]:
        (root / "index" / name).unlink()
    opened = Opened(store, root, names[kept:])
    assert opened.index.is_behind
    assert (opened.catch_up() > 1) == (kept < 14)
    assert not opened.index.is_behind
    assert opened.index.from_offset == opened.end
    opened.close()
    assert contents(root) == contents(store.root)  # entries of the border once


def test_after_a_crash_the_file_that_was_not_full_is_built_again(copy):
    store, root = copy
    names = index_file_names(root / "index")
    newest = root / "index" / names[-1]
    with newest.open("rb+") as file:  # as a power failure may have left it
        file.seek(600)
        file.write(bytes(3000))
    opened = Opened(store, root, names[-1:], ok=False)
    assert opened.found.dropped == (names[-1],)
    assert "not known to have been flushed" in opened.found.reason
    opened.catch_up()
    assert opened.index.flushed_end_timestamp == store.meta["checkpoint"]["index_msg_timestamp"]
    opened.close()
    assert contents(root) == contents(store.root)


def test_after_a_crash_files_that_were_proved_are_kept(copy, monkeypatch):
    store, root = copy
    names, synced = index_file_names(root / "index"), []
    monkeypatch.setattr("store_core.index.index_dispatcher.sync_file", synced.append)
    opened = Opened(store, root, ok=False, proved=names[:13], since_ms=0)
    assert opened.found.dropped == tuple(names[13:])
    # Otherwise a crash after the next full file could leave them torn, though checkpointed.
    assert synced == [str(root / "index" / name) for name in names[:12]]
    opened.close()


def test_proved_files_behind_a_missing_one_are_built_again(copy):
    store, root = copy
    names = index_file_names(root / "index")
    (root / "index" / names[4]).unlink()
    opened = Opened(store, root, names[4:], ok=False, proved=names, since_ms=0)
    assert opened.found.dropped == tuple(names[5:])
    assert "before its first record are in no file" in opened.found.reason
    opened.catch_up()
    opened.close()
    assert contents(root) == contents(store.root)


@pytest.mark.parametrize("damage", ["short", "header", "other record"])
def test_a_damaged_file_and_those_behind_it_are_built_again(copy, damage):
    store, root = copy
    names = index_file_names(root / "index")
    path = root / "index" / names[8]
    if damage == "short":
        os.truncate(path, 500)
    else:
        with path.open("rb+") as file:
            file.seek(16 if damage == "header" else 8)
            file.write((1 << 62).to_bytes(8, "big"))
    opened = Opened(store, root, names[8:])
    assert opened.found.dropped == tuple(names[8:])
    opened.catch_up()
    opened.close()
    assert contents(root) == contents(store.root)


def test_files_behind_the_end_of_the_log_are_dropped(copy):
    store, root = copy
    index = IndexDispatcher(str(root), config_of(store), lambda: 0)
    log = CommitLog(StoreDirectory(str(root)), config_of(store))
    ends = [pair[1] for pair in pairs(store, root)]
    plan = index.plan(
        RecoveredLog(log, 0, ends[-1], last_exit_ok=True, index_msg_timestamp=1 << 60)
    )
    assert plan.dropped == tuple(index_file_names(root / "index")[-1:])
    log.close()


def test_what_is_dispatched_waits_for_what_is_missing(copy):
    store, root = copy
    names = index_file_names(root / "index")
    for name in names[3:]:
        (root / "index" / name).unlink()
    opened = Opened(store, root, names[3:], end=589824)
    parts = list(scan_frames(opened.log, opened.end, store.meta["max_phy_offset"], on_gap=skip_gap))
    opened.index.dispatch(parts[0])
    assert opened.index.from_offset < opened.end
    assert opened.index.catch_up(opened.log, opened.end, 1 << 30)  # after the dispatched records
    opened.end = int(parts[1].column("commit_log_offset")[0])
    assert not opened.index.catch_up(opened.log, opened.end, 1 << 30)
    for frames in parts:  # the first of them is there
        opened.index.dispatch(frames)
    opened.close()
    assert contents(root) == contents(store.root)


def test_dispatch_alone_builds_the_index(copy):
    store, root = copy
    names = index_file_names(root / "index")
    log = CommitLog(StoreDirectory(str(root)), config_of(store))
    for name in names:
        (root / "index" / name).unlink()
    index = IndexDispatcher(str(root), config_of(store), clock_of(names))
    index.load(RecoveredLog(log, 0, 0, last_exit_ok=True, index_msg_timestamp=0))
    for frames in scan_frames(log, 0, store.meta["max_phy_offset"], on_gap=skip_gap):
        index.dispatch(frames)
        index.flush_full()
    assert index.flushed_end_timestamp == store.meta["checkpoint"]["index_msg_timestamp"]
    assert pairs(store, root) == pairs(store, store.root)  # noticed before anything is closed
    index.close()
    log.close()
    assert contents(root) == contents(store.root)


def test_what_is_appended_is_found_once_it_is_published(copy):
    store, root = copy
    names = index_file_names(root / "index")
    log = CommitLog(StoreDirectory(str(root)), config_of(store))
    for name in names:
        (root / "index" / name).unlink()
    index = IndexDispatcher(str(root), config_of(store), clock_of(names))
    index.load(RecoveredLog(log, 0, 0, last_exit_ok=True, index_msg_timestamp=0))
    parts = list(scan_frames(log, 0, store.meta["max_phy_offset"], on_gap=skip_gap))
    for frames in parts:
        index.append(frames)
        index.append(frames)  # as after a failed dispatcher: they are known
    assert index.from_offset == 0
    index.publish()
    assert index.from_offset == store.meta["max_phy_offset"]
    assert pairs(store, root) == pairs(store, store.root)
    index.close()
    log.close()
    assert contents(root) == contents(store.root)


def test_without_an_index_nothing_is_done(copy):
    store, root = copy
    opened = Opened(store, root, messageIndexEnable="false", ok=False)
    assert opened.found is None
    assert not opened.index.is_behind
    opened.index.dispatch(next(scan_frames(opened.log, 0, opened.end, on_gap=skip_gap)))
    opened.index.flush()
    opened.close()
    assert contents(root) == contents(store.root)


def test_other_sizes_than_those_of_the_files_are_refused(copy):
    store, root = copy
    with pytest.raises(StoreConfigError, match="maxHashSlotNum=100 and maxIndexNum=400"):
        Opened(store, root, maxHashSlotNum="50", maxIndexNum="90")
    assert contents(root) == contents(store.root)


def test_a_log_without_keys_is_not_read_again_and_again(tmp_path):
    factory = StoreFactory(tmp_path)
    for _ in range(20):
        factory.add()
    root = factory.write()
    log = CommitLog(StoreDirectory(str(root)), MessageStoreConfig())
    config = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)
    for expected in (True, False):
        index = IndexDispatcher(str(root), config, lambda: 1_800_000_000_000)
        index.load(
            RecoveredLog(log, 0, factory.end_offset, last_exit_ok=True, index_msg_timestamp=0)
        )
        assert index.is_behind == expected  # no file at all; then one that has no entries
        index.catch_up(log, factory.end_offset, 1 << 30)
        index.close()
    log.close()


def test_a_new_file_that_repeats_the_end_of_the_full_one_is_kept(tmp_path):
    factory = StoreFactory(tmp_path)
    for key in ("a", "b", "c", ""):
        factory.add(properties={"KEYS": key} if key else {}, dispatched=False)
    root = factory.write()
    log = CommitLog(StoreDirectory(str(root)), MessageStoreConfig())
    config = MessageStoreConfig(max_hash_slot_num=8, max_index_num=4)
    found = []
    for _ in range(2):
        index = IndexDispatcher(str(root), config, lambda: 1_800_000_000_000)
        index.load(
            RecoveredLog(log, 0, factory.end_offset, last_exit_ok=True, index_msg_timestamp=0)
        )
        found.append(index.is_behind)
        index.catch_up(log, factory.end_offset, 1 << 30)
        index.close()
    log.close()
    names = index_file_names(root / "index")
    ends = []
    for name in names:
        with LocalByteSource(str(root / "index" / name)) as source:
            ends.append(read_index_header(source))
    assert (found, [end.entry_count for end in ends]) == ([True, False], [3, 0])
    assert ends[0].end_phy_offset == ends[1].end_phy_offset > 0


def test_expired_files_are_deleted_but_the_last(copy):
    store, root = copy
    names = index_file_names(root / "index")
    opened = Opened(store, root)
    assert opened.index.delete_expired(0) == 0
    assert opened.index.delete_expired(store.meta["max_phy_offset"] // 2) in range(5, 10)
    assert opened.index.delete_expired(1 << 60) > 0
    opened.close()
    assert index_file_names(root / "index") == names[-1:]
    opened = Opened(store, root)
    opened.index.destroy()
    assert index_file_names(root / "index") == []


def test_a_write_error_names_the_file(copy, monkeypatch):
    store, root = copy
    names = index_file_names(root / "index")
    (root / "index" / names[-1]).unlink()
    opened = Opened(store, root, names[-1:])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(StoreWriteError, match=r"index.*No space left"):
            opened.catch_up()
    opened.catch_up()
    opened.close()
    assert pairs(store, root) == pairs(store, store.root)


def test_begin_anew_makes_all_of_it_again(copy):
    store, root = copy
    names = index_file_names(root / "index")
    opened = Opened(store, root, names)
    opened.index.begin_anew(0)
    assert opened.index.flushed_end_timestamp == 0
    assert opened.index.is_behind
    opened.catch_up()
    opened.close()
    assert contents(root) == contents(store.root)


def test_what_is_made_again_does_not_count_as_flushed(copy):
    store, root = copy
    names = index_file_names(root / "index")
    for name in names[3:]:
        (root / "index" / name).unlink()
    opened = Opened(store, root, names[3:])
    with LocalByteSource(str(root / "index" / names[2])) as source:
        assert opened.index.flushed_end_timestamp == read_index_header(source).end_timestamp
    opened.catch_up()
    assert opened.index.flushed_end_timestamp == store.meta["checkpoint"]["index_msg_timestamp"]
    opened.close()
