"""RocketMQ 5.5.1 with accelerated recovery opens, after a crash, what was written here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.state.checkpoint import StoreCheckpoint
from tests.golden_kinds import unpack_option
from tests.interop import java_oracle

pytestmark = pytest.mark.interop
SETTINGS = {"enableAcceleratedRecovery": "true"}
CONFIG = MessageStoreConfig(
    max_hash_slot_num=20,
    max_index_num=50,
    mapped_file_size_commit_log=16384,
    mapped_file_size_consume_queue=2000,
)


def put(store: MessageStore, count: int) -> None:
    for number in range(count):
        body = b"%d" % number * 40
        store.put_message(Message("TopicTest", body, queue_id=number % 2, tags="t", keys=["k"]))
    assert store.wait_for_dispatch(60)


def write_and_crash(config: MessageStoreConfig) -> None:
    """Put 300 messages, flush the queues, put 20 more, and end without a stop."""
    child = os.fork()
    if child == 0:
        store = MessageStore(config)
        store.load()
        store.start()
        put(store, 300)
        store.services.flush_queues.finish()
        put(store, 20)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("is_new", [False, True])
def test_a_store_of_a_crash_loads_whole(tmp_path: Path, is_new: bool) -> None:
    root, before = tmp_path / "store", 0
    config = replace(CONFIG, store_path_root_dir=str(root), enable_accelerated_recovery=is_new)
    if is_new:
        (tmp_path / "config.json").write_text(_SIZES)
    else:
        before = 5
        unpack_option("accelerated-recovery", tmp_path)
    write_and_crash(config)
    checkpoint = StoreCheckpoint.from_bytes((root / "checkpoint").read_bytes())
    assert (root / "abort").exists()
    assert (checkpoint.logics_physical_offset or 0) > 0
    found: dict[str, Any] = java_oracle.check(root, api=java_oracle.NEWEST, settings=SETTINGS)
    assert found["ok"], found
    assert found["messages"] == before + 320


def test_without_that_number_it_does_not_load(tmp_path: Path) -> None:
    root = unpack_option("accelerated-recovery", tmp_path)
    path = root / "checkpoint"
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(8) + data[48:])
    (root / "abort").write_text("1")
    assert not java_oracle.check(root, api=java_oracle.NEWEST, settings=SETTINGS)["loaded"]


_SIZES = """{"store": {"mappedFileSizeCommitLog": 16384, "mappedFileSizeConsumeQueue": 2000,
"maxHashSlotNum": 20, "maxIndexNum": 50, "flushDiskType": "ASYNC_FLUSH"},
"commitlog_dirs": ["commitlog"], "topic_queue_types": {}}
"""
