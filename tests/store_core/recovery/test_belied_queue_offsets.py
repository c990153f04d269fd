"""What recovery does whose records say a queue offset or a time that cannot be right."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from tests.store_core.tools.repair.test_rebuild_losses import (
    BELIED,
    COUNT,
    put_field,
    queue_files,
    store_of,
)


@pytest.fixture(autouse=True)
def _no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None, raising=False)


def config_of(root: Path) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=320,
        message_index_enable=False,
    )


@pytest.mark.parametrize(("number", "said"), BELIED)
def test_after_a_crash_all_are_delivered_from_their_places(tmp_path, number, said):
    store = store_of(tmp_path / "store")
    before = queue_files(store)
    put_field(store, number, "queue_offset", said)
    shutil.rmtree(store.root / "consumequeue" / "A")
    (store.root / "abort").touch()
    config = config_of(store.root)
    plan = plan_recovery(str(store.root), config)
    done = recover_store(str(store.root), config, clock=lambda: 0)
    assert queue_files(store) == before
    assert plan.log.dispatched_units == done.log.dispatched_units == COUNT
    assert done.queues_not_mended == ()
    with MessageStore(config) as opened:
        assert opened.put_message(Message("A", b"next")).append_result.queue_offset == COUNT


@pytest.mark.parametrize(("number", "said"), BELIED)
def test_queues_that_are_whole_are_left_alone(tmp_path, number, said):
    store = store_of(tmp_path / "store")
    before = queue_files(store)
    put_field(store, number, "queue_offset", said)
    (store.root / "abort").touch()
    done = recover_store(str(store.root), config_of(store.root), clock=lambda: 0)
    assert queue_files(store) == before
    assert (done.log.repaired_units, done.queues_not_mended) == (0, ())
