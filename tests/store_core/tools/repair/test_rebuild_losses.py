# SPDX-License-Identifier: Apache-2.0
"""Rebuilt queues ignore header fields that neighbours contradict, and report each loss."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreFormatError
from store_core.layout import HEADER_IPV4
from store_core.tools.repair.rebuild_in_place import plan_queues, rebuild_queues_in_place
from store_core.tools.repair.rebuild_losses import QueueLoss
from tests.golden_store import tree_state
from tests.store_factory import StoreFactory

COUNT = 8
BELIED = [
    *((0, 99_999_999), (0, 1000), (0, 3), (0, -5)),
    *((3, 99_999_999), (3, 1), (3, 0), (3, -5), (3, 4)),
    *((7, 99_999_999), (7, 8), (7, 2), (7, 0), (7, -1)),
]


@pytest.fixture(autouse=True)
def _no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None, raising=False)


def store_of(root: Path, *, first_offset: int = 0, first: int = 0) -> StoreFactory:
    """Return a store with eight messages of queue A/0, which begins at ``first``."""
    store = StoreFactory(root, first_offset=first_offset)
    for number in range(COUNT):
        store.add("A", queue_offset=first + number)
        store.add("B")
    blank = [(0, 0x7FFFFFFF, 0)] * first
    store.queues["A", 0] = [*blank, *store.queues["A", 0]]
    store.write()
    return store


def put_field(store: StoreFactory, number: int, name: str, value: int) -> None:
    """Write a header field of a message of A/0."""
    record = store.records[2 * number]
    width = HEADER_IPV4.dtype[name].itemsize
    with store.segment_path(record.commit_log_offset).open("r+b") as file:
        file.seek(record.commit_log_offset % store.segment_bytes + HEADER_IPV4.at(name))
        file.write(value.to_bytes(width, "big", signed=True))


def config_of(store: StoreFactory) -> MessageStoreConfig:
    return MessageStoreConfig(mapped_file_size_consume_queue=store.units_per_file * 20)


def rebuild(store: StoreFactory, **accepted: bool):
    return rebuild_queues_in_place(str(store.root), config_of(store), **accepted)


def queue_files(store: StoreFactory) -> dict[str, bytes]:
    root = store.root / "consumequeue"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(("number", "said"), BELIED)
def test_a_queue_offset_that_cannot_be_right_moves_nothing(tmp_path, number, said, is_lost):
    store = store_of(tmp_path / "store")
    before = queue_files(store)
    put_field(store, number, "queue_offset", said)
    if is_lost:
        shutil.rmtree(store.root / "consumequeue")
    # A last one of 0 may be the first of a topic that was recreated.
    done = rebuild(store, accept_moved=is_lost and (number, said) == (COUNT - 1, 0))
    assert queue_files(store) == before
    assert done.result.contradicted + done.result.moved == 1


@pytest.mark.parametrize(("number", "said"), [(0, 99_999_999), (0, 1003), (0, 17), (5, 3)])
def test_nor_does_one_in_a_log_whose_begin_expired(tmp_path, number, said):
    store = store_of(tmp_path / "store", first_offset=1 << 20, first=9)
    before = queue_files(store)
    put_field(store, number, "queue_offset", said)
    shutil.rmtree(store.root / "consumequeue")
    assert rebuild(store).result.contradicted == 1
    assert queue_files(store) == before


def test_a_message_that_says_to_be_prepared_is_not_taken_out_unsaid(tmp_path):
    store = store_of(tmp_path / "store")
    before = queue_files(store)
    put_field(store, COUNT - 1, "sys_flag", 4)
    with pytest.raises(StoreFormatError, match="1 messages that are in the log would be in no"):
        rebuild(store, accept_moved=True)
    assert plan_queues(str(store.root), config_of(store)).losses == {("A", 0): QueueLoss(lost=1)}
    assert queue_files(store) == before
    put_field(store, COUNT - 1, "sys_flag", 0)
    put_field(store, 2, "sys_flag", 4)
    for accepted in ({}, {"accept_moved": True}, {"accept_lost": True}):
        with pytest.raises(StoreFormatError, match="By queue: A/0: 1 lost, 5 moved"):
            rebuild(store, **accepted)
    done = rebuild(store, accept_moved=True, accept_lost=True)
    assert (done.result.units, done.losses) == (15, {("A", 0): QueueLoss(1, 0, 5)})


def test_a_message_that_says_to_be_of_another_queue_is_not_taken_out_unsaid(tmp_path):
    store = store_of(tmp_path / "store")
    put_field(store, COUNT - 1, "queue_id", 3)
    with pytest.raises(StoreFormatError, match="By queue: A/0: 1 lost"):
        rebuild(store, accept_moved=True)


def test_units_that_are_garbage_are_mended_without_a_flag(tmp_path):
    store = store_of(tmp_path / "store")
    before = queue_files(store)
    for key in (("A", 0), ("B", 0)):  # each points at the records of the other
        path = store.root / "consumequeue" / key[0] / "0" / f"{0:020d}"
        other = next(name for name in before if name.split("/")[0] != key[0])
        path.write_bytes(before[other])
    assert rebuild(store).losses == {}
    assert queue_files(store) == before


def two_lives(root: Path, second: int) -> StoreFactory:
    store = store_of(root)
    shutil.rmtree(store.root)
    store.queues["A", 0] = []
    for _ in range(second):
        store.add("A")
    store.write()
    return store


def test_a_topic_that_was_made_once_more_keeps_its_last_queue_only(tmp_path):
    store = two_lives(tmp_path / "store", 3)
    before = queue_files(store)
    with pytest.raises(StoreFormatError, match="A/0: 8 of an earlier topic"):
        rebuild(store)
    assert queue_files(store) == before
    done = rebuild(store, accept_lost=True)
    assert queue_files(store) == before
    assert done.losses == {("A", 0): QueueLoss(earlier=8)}


def test_queues_moved_once_are_made_again_as_they_are(tmp_path):
    store = store_of(tmp_path / "store")
    store.erase(store.records[2 * 3])
    assert rebuild(store, accept_moved=True).losses == {("A", 0): QueueLoss(moved=4)}
    before = queue_files(store)
    assert rebuild(store).losses == {}
    assert queue_files(store) == before


def test_a_plan_changes_nothing(tmp_path):
    store = store_of(tmp_path / "store")
    put_field(store, 2, "queue_offset", 77)
    before = tree_state(store.root)
    plan = plan_queues(str(store.root), config_of(store))
    assert (plan.result.units, plan.result.contradicted, plan.losses) == (16, 1, {})
    assert tree_state(store.root) == before


@pytest.mark.parametrize("said", [1, 0, -5, 4_102_444_800_000])
def test_one_wrong_time_makes_no_queue_file_older_than_its_messages(tmp_path, said):
    store = store_of(tmp_path / "store")
    put_field(store, COUNT - 1, "store_timestamp", said)
    rebuild(store)
    (path,) = (store.root / "consumequeue/A/0").iterdir()
    assert path.stat().st_mtime * 1000 >= store.records[2 * (COUNT - 2)].store_timestamp
