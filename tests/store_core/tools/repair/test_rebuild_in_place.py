# SPDX-License-Identifier: Apache-2.0
"""Index and queues rebuilt in the store itself; a kill leaves the old or the new ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import (
    StoreConfigError,
    StoreFormatError,
    StoreLockedError,
    StoreWriteError,
)
from store_core.files import file_writing
from store_core.files.store_directory import StoreDirectory
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.checkpoint import load_checkpoint
from store_core.state.store_lock import StoreLock
from store_core.tools.check import Severity
from store_core.tools.repair import rebuild_in_place
from store_core.tools.repair.rebuild_in_place import (
    WORK_DIRECTORY,
    rebuild_index_in_place,
    rebuild_queues_in_place,
)
from tests.golden_store import STORE_NAMES, golden, tree_state
from tests.store_core.tools.check.support import all_kinds, checked, kinds
from tests.store_factory import small_store

NOW_MS = 1_800_000_000_000
SIZES = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)
QUEUE_SIZES = MessageStoreConfig(mapped_file_size_consume_queue=320)
KEYS = {"maxHashSlotNum": "8", "maxIndexNum": "64"}


class KilledError(BaseException):
    """Simulates SIGKILL: no handler of the program runs."""


@pytest.fixture(autouse=True)
def _no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: thousands of small files, and no power is lost here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None, raising=False)


def index(root: Path, config: MessageStoreConfig = SIZES) -> Any:
    return rebuild_index_in_place(str(root), config, clock=lambda: NOW_MS)


def queues(root: Path, config: MessageStoreConfig = QUEUE_SIZES, **more: Any) -> Any:
    return rebuild_queues_in_place(str(root), config, **more)


def content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", [name for name in STORE_NAMES if name != "torn-5x"])
def test_rebuilt_golden_stores_are_good(tmp_path: Path, name: str) -> None:
    source = golden(name)
    root = source.copy_to(tmp_path)
    config = MessageStoreConfig.from_properties(source.config_properties)
    rebuilt_index = index(root, config)
    rebuilt = queues(root, config)
    assert not (root / WORK_DIRECTORY).exists()
    report = checked(root, source.config_properties)
    assert report.is_good, report.findings
    assert report.counts.index_entries == rebuilt_index.entries
    assert report.counts.expired_index_entries == 0
    with StoreSnapshot(root, config) as snapshot:
        for row in source.dump("consume_queue"):
            key = (row["topic"], row["queue_id"])
            # -1: RocketMQ's answer for a batch queue that is empty
            assert snapshot.get_min_offset_in_queue(*key) == max(row["min_offset"], 0), key
            assert snapshot.get_max_offset_in_queue(*key) == row["max_offset"], key
    assert rebuilt.kept == (1 if name == "expired-5x" else 0)


def test_old_units_behind_a_cut_are_gone_afterwards(tmp_path: Path) -> None:
    source = golden("torn-5x", recovered=True)
    root = source.copy_to(tmp_path)
    config = MessageStoreConfig.from_properties(source.config_properties)
    assert "UNIT_BEHIND_END" in all_kinds(checked(root, source.config_properties))
    index(root, config)
    queues(root, config)
    assert all_kinds(checked(root, source.config_properties)) == {"STALE_BYTES"}


def test_lost_index_and_queues_come_back(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    before = content(store.root / "consumequeue")
    shutil.rmtree(store.root / "index")
    shutil.rmtree(store.root / "consumequeue")
    index(store.root)
    queues(store.root)
    assert content(store.root / "consumequeue") == before
    assert checked(store.root, KEYS).findings == ()


def test_queue_files_have_the_times_that_4x_brokers_search_by(tmp_path: Path) -> None:
    source = golden("classic-4x")
    root = source.copy_to(tmp_path)
    queues(root, MessageStoreConfig.from_properties(source.config_properties))
    found = 0
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            before = (source.root / path.relative_to(root)).stat().st_mtime
            assert path.stat().st_mtime == before, path
            found += 1
    assert found > 35


def test_checkpoint_gets_the_end_of_the_last_full_file(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    before = load_checkpoint(StoreDirectory(str(store.root)))
    rebuilt = index(store.root)
    after = load_checkpoint(StoreDirectory(str(store.root)))
    assert before is not None
    assert after is not None
    assert after.index_msg_timestamp == rebuilt.flushed_end_timestamp > 0
    assert after.physic_msg_timestamp == before.physic_msg_timestamp


def test_a_store_in_use_is_refused_and_not_changed(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    with StoreLock(str(store.root)):
        before = tree_state(store.root)
        for rebuild in (index, queues):
            with pytest.raises(StoreLockedError):
                rebuild(store.root)
        assert tree_state(store.root) == before


def test_remote_stores_are_refused() -> None:
    with pytest.raises(StoreConfigError, match="on this machine"):
        rebuild_index_in_place("mock:///store", SIZES, clock=lambda: NOW_MS)


def test_unknown_index_sizes_are_asked_for(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    for path in (store.root / "index").iterdir():
        data = path.read_bytes()
        path.write_bytes(
            data[:92] + bytes(20) + data[112:]
        )  # entry 1: nothing proves the sizes now
    before = content(store.root)
    with pytest.raises(StoreConfigError, match="maxHashSlotNum"):
        index(store.root, MessageStoreConfig())
    assert content(store.root) == before


def test_gaps_that_would_move_messages_need_consent(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    offset = store.records[20].commit_log_offset
    path = store.segment_path(offset)
    data = bytearray(path.read_bytes())
    data[offset % store.segment_bytes] ^= 0x40
    path.write_bytes(data)
    before = content(store.root)
    with pytest.raises(StoreFormatError, match="queue offsets other than"):
        queues(store.root)
    assert content(store.root) == before
    assert queues(store.root, accept_moved=True).result.moved > 0
    report = checked(store.root, KEYS)
    assert "UNIT_SHIFTED" in all_kinds(report)
    assert kinds(report) == {"LOG_GAP": 1}


def test_what_an_earlier_rebuild_left_and_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_store(tmp_path / "store", 12).write()
    true = Path.stat

    def stat(path: Path, **how: Any) -> os.stat_result:
        if path.name == "consumequeue_ext":
            raise OSError(5, "Input/output error", str(path))
        return true(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(StoreWriteError, match="consumequeue_ext: Input/output error"):
        queues(tmp_path / "store")


def test_a_failing_write_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    before = content(store.root)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(rebuild_in_place, "put_in_place", fail)
    for rebuild in (index, queues):
        with pytest.raises(StoreWriteError, match="No space left"):
            rebuild(store.root)
        assert content(store.root) == before


@pytest.mark.parametrize("way", ["exchange", "renames"])
@pytest.mark.parametrize("part", ["index", "consumequeue"])
def test_killed_at_any_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, way: str
) -> None:
    rebuild: Callable[[Path], Any] = index if part == "index" else queues
    make = small_store(tmp_path / "first")
    if part == "index":
        make._indexed[3:] = []  # so that old and new differ
    else:
        make.queues["TopicA", 0][3:] = []
    make.write()
    old = content(make.root / part)
    finished = tmp_path / "finished"
    shutil.copytree(make.root, finished)
    rebuild(finished)
    new = content(finished / part)
    assert old != new
    killed = 0
    for step in range(20):
        root = tmp_path / f"{step}"
        shutil.copytree(make.root, root)
        if not _killed(rebuild, root, monkeypatch, step, way):
            break
        killed += 1
        if way == "exchange" or (root / part).is_dir():
            assert content(root / part) in (old, new)
        else:  # for a moment there is neither; the old files are set aside
            assert content(root / WORK_DIRECTORY / "old" / part) == old
        rebuild(root)
        assert content(root / part) == new
        assert not (root / WORK_DIRECTORY).exists()
    assert killed >= 3


def _killed(
    rebuild: Callable[[Path], Any],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    way: str,
) -> bool:
    """Run a rebuild that dies before its n-th rename (``step``); False if it has fewer."""
    left = [step]
    real_rename, real_exchange, real_rmtree = os.rename, file_writing.exchange, shutil.rmtree

    def count() -> None:
        if not left[0]:
            raise KilledError
        left[0] -= 1

    def rename(a: str, b: str) -> None:
        count()
        real_rename(a, b)

    def exchange(a: str, b: str) -> bool:
        if way == "renames":
            return False
        count()
        return real_exchange(a, b)

    def rmtree(path: str) -> None:
        count()
        real_rmtree(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        patch.setattr(file_writing, "exchange", exchange)
        patch.setattr(shutil, "rmtree", rmtree)
        try:
            rebuild(root)
        except KilledError:
            return True
    return False


def test_killed_with_extension_units_never_mixes_old_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = golden("ext-5x")
    config = MessageStoreConfig.from_properties(source.config_properties)
    for step in range(20):
        (tmp_path / f"{step}").mkdir()
        root = source.copy_to(tmp_path / f"{step}")
        if not _killed(lambda r: queues(r, config), root, monkeypatch, step, "exchange"):
            break
        report = checked(root, source.config_properties)
        assert report.with_severity(Severity.DAMAGE) == ()
        # Without extension units every filter lets all pass; wrong ones would hide messages.
        assert all_kinds(report) <= {"EXT_MISSING"}
        queues(root, config)
        done = checked(root, source.config_properties)
        assert done.is_good
        assert done.counts.ext_units == 500
    assert step > 4
