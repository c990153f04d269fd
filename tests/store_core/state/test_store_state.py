# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreKindError
from store_core.files.store_directory import StoreDirectory
from store_core.message_store import MessageStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.running_flags import RunningFlag, RunningFlags
from store_core.state.store_state import (
    StoreKind,
    StoreState,
    store_kind,
    store_state,
    written_by_5x,
)
from store_core.tools.repair.rebuild_in_place import rebuild_index_in_place, rebuild_queues_in_place
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.golden_kinds import IN_DATABASE, KINDS, MESSAGES, OPTIONS, unpack_kind, unpack_option
from tests.golden_store import golden, tree_state
from tests.store_core.log.test_log_end import lock_held
from tests.store_core.remote import RemoteDirectory
from tests.store_core.tools.check.support import all_kinds, checked
from tests.store_factory import small_store

pytestmark = pytest.mark.usefixtures("without_rocksdict")
CONFIG = MessageStoreConfig.from_properties(OPTIONS)


@pytest.fixture
def store(tmp_path):
    return small_store(tmp_path / "store", 3)


def state(root):
    return store_state(StoreDirectory(str(root)))


def test_abort_tells_a_crash_from_a_clean_stop(store):
    assert state(store.write()) is StoreState.STOPPED
    assert state(store.write(abort=b"")) is StoreState.CRASHED


@pytest.mark.skipif(sys.platform != "linux", reason="locks are asked for on Linux only")
def test_a_held_lock_tells_a_broker_at_work(store):
    root = store.write(abort=b"77")
    before = tree_state(root)
    with lock_held(root):
        assert state(root) is StoreState.LIVE
        assert store_state(RemoteDirectory(str(root))) is StoreState.CRASHED  # cannot be known
        assert tree_state(root) == before
    assert state(root) is StoreState.CRASHED


def test_a_lock_without_abort_is_not_asked(store):
    root = store.write()
    (root / "lock").unlink()
    assert state(root) is StoreState.STOPPED
    (root / "abort").write_bytes(b"")
    assert state(root) is StoreState.CRASHED


def test_5x_writes_its_process_id(store):
    directory = StoreDirectory(str(store.write()))
    assert not written_by_5x(directory)
    store.write(abort=b"")
    assert not written_by_5x(directory)
    store.write(abort=b"4711")
    assert written_by_5x(directory)
    (store.root / "abort").unlink()
    (store.root / "abort.bak").write_bytes(b"")
    assert written_by_5x(directory)


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "crashed-5x"])
def test_golden_stores(name):
    expected = StoreState.CRASHED if name.startswith("crashed") else StoreState.STOPPED
    assert state(golden(name).root) is expected


@pytest.mark.parametrize(
    ("flag", "bit", "allowed"),
    [
        (RunningFlag.NOT_READABLE, 1, (False, True, True)),
        (RunningFlag.NOT_WRITEABLE, 2, (True, False, False)),
        (RunningFlag.WRITE_LOGICS_QUEUE_ERROR, 4, (True, False, False)),
        (RunningFlag.WRITE_INDEX_FILE_ERROR, 8, (True, False, False)),
        (RunningFlag.DISK_FULL, 16, (True, False, True)),
        (RunningFlag.FENCED, 32, (True, False, True)),
        (RunningFlag.LOGIC_DISK_FULL, 64, (True, False, False)),
    ],
)
def test_what_a_flag_forbids(flag, bit, allowed):
    flags = RunningFlags()
    assert (flags.is_readable, flags.is_writeable, flags.is_cq_writeable) == (True, True, True)
    assert flags.set(flag)
    assert not flags.set(flag)
    assert flags.flags == bit
    assert (flags.is_readable, flags.is_writeable, flags.is_cq_writeable) == allowed
    assert flags.clear(flag)
    assert not flags.clear(flag)
    assert flags.is_writeable


def test_flags_do_not_clear_each_other():
    flags = RunningFlags()
    flags.set(RunningFlag.DISK_FULL)
    flags.set(RunningFlag.FENCED)
    flags.clear(RunningFlag.DISK_FULL)
    assert flags.flags == RunningFlag.FENCED
    assert not flags.is_writeable


def kind_of(root: Path) -> StoreKind:
    return store_kind(StoreDirectory(str(root)))


def test_what_each_kind_keeps_elsewhere(tmp_path):
    found = {}
    for name in KINDS:
        root = unpack_kind(name, tmp_path / name)
        kind = kind_of(root)
        paths = [kind.queue_database, *kind.config_databases, kind.dledger_log, kind.tiered]
        inside = [str(Path(path).relative_to(root)) for path in paths if path]
        found[name] = [*inside, *kind.compacted_topics]
        assert len(kind.notes()) == (0 if kind.dledger_log else max(1, len(inside[:2])))
    databases = ["config/consumerOffsets", "config/subscriptionGroups", "config/topics"]
    assert found == {
        "compaction-5x": ["orders"],
        "dledger-5x": ["dledger-n0"],
        "rocksdb-5x": ["consumequeue", *databases],
        "rocksdb-double-5x": ["consumequeue"],
        "rocksdb-v2-5x": ["consumequeue", "config/rdb"],
        "tiered-5x": ["config/tieredStoreMetadata.json"],
    }


def test_an_index_that_is_in_a_database_alone_is_named(tmp_path):
    root = unpack_option("index-in-database", tmp_path)
    kind = kind_of(root)
    assert kind == StoreKind(index_database=str(root / "rocksdbstore"))
    (note,) = kind.unread()
    assert "queries by key scan the log" in note
    report = checked(root)
    assert report.is_good
    assert all_kinds(report) == {"NOT_READ"}
    unpack_option("accelerated-recovery", tmp_path / "files")
    assert kind_of(tmp_path / "files" / "store") == StoreKind()


@pytest.mark.parametrize("name", ["classic-5x", "cluster-4x", "cluster-5x", "empty-5x"])
def test_plain_stores_are_plain(name):
    assert kind_of(golden(name).root) == StoreKind()


@pytest.mark.parametrize("lost", ["CURRENT", "IDENTITY", "LOCK"])
def test_a_database_that_lost_a_file_is_still_one(tmp_path, lost):
    root = unpack_kind("rocksdb-5x", tmp_path)
    (root / "consumequeue" / lost).unlink()
    assert kind_of(root).queue_database


def test_a_topic_named_like_a_file_of_a_database_is_a_topic(tmp_path):
    root = golden("onefile-5x").copy_to(tmp_path)
    (root / "consumequeue" / "CURRENT" / "0").mkdir(parents=True)
    assert kind_of(root) == StoreKind()


@pytest.mark.parametrize("name", KINDS)
def test_check_finds_nothing_wrong_and_says_what_it_did_not_look_at(tmp_path, name):
    root = unpack_kind(name, tmp_path)
    report = checked(root, OPTIONS)
    assert report.is_good, report.findings
    kind = kind_of(root)
    unread = not (kind.compacted_topics or kind.dledger_log)
    assert all_kinds(report) == ({"NOT_READ"} if unread else set())
    assert report.counts.records == sum(MESSAGES.values())
    assert report.counts.queues == (0 if name in IN_DATABASE else 6 if name[0] == "c" else 8)


@pytest.mark.parametrize("name", [*IN_DATABASE, "dledger-5x"])
def test_nothing_is_written_to_them(tmp_path, name):
    root = unpack_kind(name, tmp_path)
    before = tree_state(root)
    config = MessageStoreConfig.from_properties({**OPTIONS, "storePathRootDir": str(root)})
    store = MessageStore(config)
    for write in (
        lambda: recover_store(str(root), CONFIG, clock=lambda: 0),
        lambda: recover_store(str(root), CONFIG, clock=lambda: 0, cut=True),
        lambda: plan_recovery(str(root), CONFIG),
        lambda: rebuild_index_in_place(str(root), CONFIG, clock=lambda: 0),
        lambda: rebuild_queues_in_place(str(root), CONFIG),
        store.load,
        store.destroy,
    ):
        with pytest.raises(StoreKindError, match=r"RocksDB|DLedger"):
            write()
    assert tree_state(root) == before


def test_queues_in_a_database_are_not_empty_queues(tmp_path):
    root = unpack_kind("rocksdb-5x", tmp_path)
    expected = pytest.raises(StoreKindError, match="the queues of this store are in a RocksDB")
    with StoreSnapshot(root, CONFIG) as snapshot, expected:
        snapshot.get_message("group", "orders", 0, 0, 32)


def test_damage_is_no_old_cut_where_the_queues_are_not_known(tmp_path):
    root = unpack_kind("rocksdb-5x", tmp_path)
    with StoreSnapshot(root, CONFIG) as view:
        end = view.end_offset
    with (root / "commitlog" / "00000000000000000000").open("r+b") as log:
        log.seek(end // 2)
        log.write(b"\xff" * 400)
    with StoreSnapshot(root, CONFIG) as view:
        assert view.end_offset == end
    report = checked(root, OPTIONS)
    assert not report.is_good
    assert "LOG_GAP" in all_kinds(report)


def test_salvage_makes_a_store_with_queues_in_files(tmp_path):
    root = unpack_kind("rocksdb-5x", tmp_path)
    target = tmp_path / "new"
    report = salvage_store(str(root), str(target), CONFIG, SalvageOptions(lambda: 0))
    assert report.records == sum(MESSAGES.values())
    assert sum("RocksDB" in note for note in report.notes) == 5
    assert kind_of(target) == StoreKind()
    assert checked(target, OPTIONS).is_good
    assert not (target / "config" / "topics").exists()
