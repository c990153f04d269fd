# SPDX-License-Identifier: Apache-2.0
"""Whether anything can have changed in a store since it was last checked completely."""

from __future__ import annotations

import os
import time

import pytest

from store_core import MessageStoreConfig, StoreSnapshot
from store_core.files.store_directory import StoreDirectory
from store_core.read.log_watch import LogWatch, mark_before
from tests.rmqsource.stream.growing_store import GrowingStore
from tests.rmqsource.stream.simulated_query import Checkpoint, SimulatedQuery, where

LONG_AGO, JUST_NOW = 1_000_000_000, time.time() + 3600
AGES = pytest.mark.parametrize("changed", [LONG_AGO, JUST_NOW], ids=["at rest", "changed now"])


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store") as store:
        store.put(40)
        yield store


def age(store, seconds):
    os.utime(store.root / "commitlog", (seconds, seconds))


def watched(store):
    config = MessageStoreConfig()
    watch = LogWatch(StoreDirectory(str(store.root)), config, with_checkpoint=False)
    with StoreSnapshot(store.root, config) as snapshot:
        watch.remember(snapshot, mark_before(snapshot.log, 0, snapshot.end_offset))
    return watch


@AGES
def test_an_unchanged_store_is_unchanged(growing, changed):
    age(growing, changed)
    watch = watched(growing)
    assert watch.is_unchanged()
    assert watch.is_unchanged()


@AGES
def test_a_record_is_noticed(growing, changed):
    age(growing, changed)
    watch = watched(growing)
    growing.put(1, dispatch=False)
    age(growing, changed)
    assert not watch.is_unchanged()


def test_a_segment_that_comes_is_noticed_where_the_time_of_its_directory_stays(growing):
    age(growing, JUST_NOW)
    watch = watched(growing)
    last = growing.segments()[-1]
    (last.parent / f"{int(last.name) + last.stat().st_size:020d}").touch()
    age(growing, JUST_NOW)
    assert not watch.is_unchanged()


def test_a_segment_that_goes_is_noticed_by_the_time_of_its_directory(growing):
    age(growing, LONG_AGO)
    watch = watched(growing)
    growing.expire(1)
    assert not watch.is_unchanged()


@AGES
def test_another_record_where_the_last_one_was_is_noticed(growing, changed):
    age(growing, changed)
    watch = watched(growing)
    with StoreSnapshot(growing.root) as snapshot:
        at = mark_before(snapshot.log, 0, snapshot.end_offset).offset
        segment = snapshot.log.segments.find(at)
    with open(segment.path, "r+b") as file:  # noqa: PTH123
        file.seek(at - segment.from_offset + 8)
        file.write(b"\xff")
    assert not watch.is_unchanged()


def test_a_watch_that_did_not_settle_knows_nothing(growing):
    watch = LogWatch(StoreDirectory(str(growing.root)), MessageStoreConfig(), with_checkpoint=False)
    assert not watch.is_unchanged()


def test_an_idle_stream_does_not_open_the_store(growing, monkeypatch):
    age(growing, LONG_AGO)
    query = SimulatedQuery(Checkpoint(), where(growing.root)).all_available()
    query.all_available()

    def opened(*_):
        raise AssertionError("the store was opened")

    monkeypatch.setattr("rmqsource.stream.followed_store.open_snapshot", opened)
    assert not query.run_once()
    growing.put(1)
    with pytest.raises(AssertionError, match="was opened"):
        query.run_once()
