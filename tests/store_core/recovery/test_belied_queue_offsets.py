# SPDX-License-Identifier: Apache-2.0
"""Recovery of records with queue offsets or times that cannot be right."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from store_core import Message, MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.commit_job import close_committed, open_for_commit
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CHECKPOINT, HEADER_IPV4
from store_core.staged_commit.staging import CrashPoints
from store_core.state.checkpoint import load_checkpoint
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.store_check import check_store
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from tests.store_core.tools.repair.test_rebuild_losses import (
    BELIED,
    COUNT,
    put_field,
    queue_files,
    store_of,
)
from tests.store_factory import small_store


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


@pytest.mark.parametrize("number", [3, COUNT - 1])
def test_a_message_that_says_to_be_prepared_gets_no_unit_and_is_named(tmp_path, number, caplog):
    store = store_of(tmp_path / "store")
    put_field(store, number, "sys_flag", 4)
    shutil.rmtree(store.root / "consumequeue" / "A")
    (store.root / "abort").touch()
    config = config_of(store.root)
    plan = plan_recovery(str(store.root), config)
    done = recover_store(str(store.root), config, clock=lambda: 0)
    assert done.queues_not_mended == (("A", 0),)
    assert ("A", 0) in plan.log.queues_moved
    at = store.records[2 * number].commit_log_offset
    assert f"the record at offset {at}, of queue 0 of topic A, is marked as prepared" in caplog.text
    with StoreSnapshot(store.root, config) as view:
        findings = check_store(view).findings
    assert (FindingKind.NOT_QUEUED, at) in [(f.kind, f.commit_log_offset) for f in findings]


@pytest.mark.parametrize("numbers", [(0,), (3,), (COUNT - 1,), (2, 5)])
def test_a_message_that_says_to_be_prepared_keeps_its_unit(tmp_path, numbers, caplog):
    store = store_of(tmp_path / "store")
    before = queue_files(store)
    for number in numbers:
        put_field(store, number, "sys_flag", 4)
    (store.root / "abort").touch()
    done = recover_store(str(store.root), config_of(store.root), clock=lambda: 0)
    assert queue_files(store) == before
    assert (done.log.repaired_units, done.queues_not_mended) == (0, ())
    assert "marked as prepared" not in caplog.text


@pytest.mark.parametrize("said", [1, -1, -4_000_000_000_000, 4_102_444_800_000])
@pytest.mark.parametrize("segment", [4096, 8192])
def test_one_wrong_time_lets_no_walk_begin_too_late(tmp_path, segment, said):
    store = small_store(tmp_path, 60, step_ms=4000)
    root = store.write(abort=b"1")
    first = next(r for r in store.records if r.commit_log_offset == segment)
    last_flushed = first.store_timestamp - 1
    times = (last_flushed + 63_000, last_flushed + 63_000, 0, 0, 0, 0)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*times).ljust(4096, b"\0"))
    with store.segment_path(segment).open("r+b") as file:
        file.seek(HEADER_IPV4.at("store_timestamp"))
        file.write(said.to_bytes(8, "big", signed=True))
    assert plan_recovery(str(root), config_of(root)).log.start_offset == segment - 4096


@pytest.mark.parametrize("by", ["recover", "sink"])
def test_a_last_record_of_the_future_leaves_no_such_time_in_the_checkpoint(tmp_path, by):
    store = small_store(tmp_path, 30)
    root, now_ms = str(store.write(abort=b"1")), store.records[-1].store_timestamp + 5
    last = store.records[-1].commit_log_offset
    with store.segment_path(last).open("r+b") as file:
        file.seek(last % store.segment_bytes + HEADER_IPV4.at("store_timestamp"))
        file.write((4_102_444_800_000).to_bytes(8, "big"))
    if by == "recover":
        recover_store(root, config_of(tmp_path), clock=lambda: now_ms)
    else:
        opened = open_for_commit(root, config_of(tmp_path), lambda: now_ms, CrashPoints())
        close_committed(opened, clean=True)
    point = load_checkpoint(StoreDirectory(root))
    assert 0 < point.min_timestamp <= now_ms
