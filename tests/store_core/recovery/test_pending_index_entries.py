# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

import store_core.recovery.recovery_dispatch as module
from store_core.index.index_writer import index_file_names
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap
from store_core.recovery.recovery_dispatch import PendingIndexEntries
from tests.golden_store import golden
from tests.store_core.index.test_index_dispatcher import NAME, Opened
from tests.store_core.tools.repair.test_rebuild_index import contents


@pytest.fixture
def copy(tmp_path):
    store = golden(NAME)
    return store, store.copy_to(tmp_path)


def without_index(copy):
    store, root = copy
    names = index_file_names(root / "index")
    for name in names:
        (root / "index" / name).unlink()
    return Opened(store, root, names)


def held(opened, start=0, stop=None):
    keys = PendingIndexEntries(with_tags=False)
    for frames in scan_frames(
        opened.log, start, opened.end if stop is None else stop, on_gap=skip_gap
    ):
        keys.add(frames)
    return keys


def test_the_index_is_that_of_a_second_walk(copy):
    store, root = copy
    opened = without_index(copy)
    held(opened).give(opened.index)
    assert not opened.index.is_behind
    assert opened.index.from_offset == opened.end
    opened.close()
    assert contents(root) == contents(store.root)


def test_what_was_not_held_is_left_to_catch_up(copy, monkeypatch):
    monkeypatch.setattr(module, "_MAX_ENTRIES", 1)
    store, root = copy
    opened = without_index(copy)
    keys = held(opened, stop=opened.end // 2)
    for frames in scan_frames(opened.log, 0, opened.end, on_gap=skip_gap):
        keys.add(frames)
    keys.give(opened.index)
    assert opened.index.is_behind
    assert 0 < opened.index.from_offset < opened.end
    opened.catch_up()
    opened.close()
    assert contents(root) == contents(store.root)


def test_keys_from_behind_the_end_of_the_index_are_not_given(copy):
    opened = without_index(copy)
    second = next(scan_frames(opened.log, 0, opened.end, on_gap=skip_gap)).column(
        "commit_log_offset"
    )[1]
    held(opened, start=int(second)).give(opened.index)
    assert opened.index.is_behind
    assert opened.index.from_offset == 0
    opened.close()


def test_the_newest_file_after_a_crash(copy):
    store, root = copy
    opened = Opened(store, root, index_file_names(root / "index")[-1:], ok=False)
    assert opened.index.is_behind
    assert opened.index.from_offset > 0
    held(opened).give(opened.index)
    assert not opened.index.is_behind
    opened.close()
    assert contents(root) == contents(store.root)


def test_a_whole_index_gets_nothing(copy):
    store, root = copy
    opened = Opened(store, root)
    held(opened).give(opened.index)
    opened.close()
    assert contents(root) == contents(store.root)
