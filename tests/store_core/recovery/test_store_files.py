# SPDX-License-Identifier: Apache-2.0
"""Opening the files of a store: the lock, the order of steps, and the clean-up after failures."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import (
    LogDamageError,
    StoreConfigError,
    StoreFormatError,
    StoreWriteError,
)
from store_core.layout import CHECKPOINT_FILE
from store_core.recovery.store_files import OpenOptions, delete_files, open_store_files
from store_core.state.checkpoint import CheckpointFile
from store_core.state.store_lock import StoreLock
from tests.golden_store import tree_state
from tests.store_core.crash.messages import config_of, make_message


def clock():
    return 1_700_000_000_000


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def digests(root):
    return {name: digest for name, (_, _, digest) in tree_state(root).items() if digest}


def fill(root, count):
    from store_core import MessageStore

    with MessageStore(config_of(root)) as store:
        for number in range(count):
            store.put_message(make_message(number))


def test_new_store_is_made_as_rocketmq_makes_it(root):
    config = MessageStoreConfig(store_path_root_dir=str(root))
    others = set(threading.enumerate())  # of a Spark session of another test
    parts = open_store_files(config, OpenOptions(clock))
    assert {path.name for path in root.iterdir()} == {"lock", "abort", "commitlog", "consumequeue"}
    assert parts.lock.is_held
    assert parts.config.mapped_file_size_commit_log == 1 << 30
    assert parts.config.mapped_file_size_consume_queue_ext == 48 << 20
    assert (parts.config.max_hash_slot_num, parts.config.max_index_num) == (5_000_000, 20_000_000)
    parts.close(clean=False)
    assert (root / "abort").exists()
    assert not parts.lock.is_held
    assert set(threading.enumerate()) <= others


def test_clean_close_takes_abort_away(root):
    open_store_files(config_of(root), OpenOptions(clock)).close(clean=True)
    assert not (root / "abort").exists()


def test_close_that_cannot_flush_keeps_abort_and_gives_the_lock_back(root, monkeypatch):
    parts = open_store_files(config_of(root), OpenOptions(clock))

    def fails():
        raise StoreWriteError("no", "queue")

    monkeypatch.setattr(parts.queues, "close", fails)
    with pytest.raises(StoreWriteError):
        parts.close(clean=True)
    assert (root / "abort").exists()
    assert not parts.lock.is_held


def test_only_a_local_store_can_be_written():
    with pytest.raises(StoreFormatError, match="local directory"):
        open_store_files(config_of(""), OpenOptions(clock))
    with pytest.raises(StoreConfigError, match="only a store on this machine can be opened"):
        open_store_files(config_of("s3://bucket/store"), OpenOptions(clock))


def test_store_that_does_not_load_is_left_as_it_was(root):
    fill(root, 20)
    (root / "commitlog" / "notes.txt").write_text("x", "utf-8")
    (root / "consumequeue" / "TopicA" / "0" / ("0" * 20)).write_bytes(b"short")
    before = digests(root)
    with pytest.raises(StoreFormatError):
        open_store_files(config_of(root), OpenOptions(clock))
    assert digests(root) == before
    with StoreLock(str(root)):
        pass  # it was given back


def test_index_of_unknown_sizes_is_refused_before_anything_is_changed(root):
    fill(root, 20)
    for file in (root / "index").iterdir():
        os.truncate(file, 1000)
    before = digests(root)
    config = replace(config_of(root), max_hash_slot_num=None, max_index_num=None)
    for _ in range(2):  # a second try must not take the refusal for a crash
        with pytest.raises(StoreConfigError, match="maxHashSlotNum and maxIndexNum"):
            open_store_files(config, OpenOptions(clock))
        assert digests(root) == before


def test_damage_before_readable_records_is_not_cut_unasked(root):
    fill(root, 200)
    with sorted((root / "commitlog").iterdir())[-2].open("r+b") as file:
        file.seek(200)
        file.write(b"\xff" * 20)
    (root / "abort").touch()  # otherwise only the last record is read
    before = digests(root / "commitlog")
    with pytest.raises(LogDamageError) as caught:
        open_store_files(config_of(root), OpenOptions(clock))
    assert caught.value.records_behind > 0
    assert digests(root / "commitlog") == before
    parts = open_store_files(config_of(root), OpenOptions(clock, cut=True))
    assert parts.recovery.records_behind > 0
    assert (root / "_cut").is_dir()
    parts.close(clean=False)


def test_delete_files_may_be_repeated(root):
    fill(root, 100)
    config = config_of(root)
    with StoreLock(str(root)) as lock:
        delete_files(lock, config)
        delete_files(lock, config)
    assert {path.name for path in root.iterdir()} == {"lock"}


def test_times_of_the_checkpoint_that_lie_ahead_are_held_back_before_anything_is_put(root):
    fill(root, 3)
    checkpoint = CheckpointFile(str(root / CHECKPOINT_FILE))
    checkpoint.load()
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = clock() + 600_000
    checkpoint.flush()
    checkpoint.close()
    open_store_files(config_of(root), OpenOptions(clock)).close(clean=False)
    found = CheckpointFile(str(root / CHECKPOINT_FILE))
    found.load()
    assert found.logics_msg_timestamp == clock()
    assert found.min_timestamp < clock()
