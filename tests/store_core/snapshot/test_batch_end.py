# SPDX-License-Identifier: Apache-2.0
"""The end up to which a follower may read: only dispatched, or only flushed records."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import StoreSnapshot
from store_core.layout import CHECKPOINT, HEADER_IPV4
from store_core.snapshot.batch_end import dispatched_end, flushed_end
from store_core.state.store_state import StoreState
from tests.examples import examples
from tests.rmqsource.stream.growing_store import GrowingStore
from tests.store_factory import small_store


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store") as store:
        yield store


def ends(growing, floor=0):
    with StoreSnapshot(growing.root) as snapshot:
        assert snapshot.state is StoreState.LIVE
        return dispatched_end(snapshot, floor)


def test_a_run_ends_before_the_first_record_without_a_unit(growing):
    growing.put(30)
    at = growing.store.max_phy_offset
    assert ends(growing) == ends(growing, at) == at
    growing.put(30, dispatch=False)
    assert ends(growing) == ends(growing, at) == at
    growing.dispatch()
    assert ends(growing) == growing.store.max_phy_offset > at


def test_a_queue_that_lags_holds_the_others_up(growing):
    growing.put(8)
    at = growing.store.max_phy_offset
    queue = growing.root / "consumequeue" / "Topic0" / "0"
    before = {path: path.read_bytes() for path in queue.iterdir()}
    growing.put(8)
    for path, data in before.items():
        path.write_bytes(data)
    assert ends(growing, at) == at  # its first message is the next one


def test_a_topic_whose_queues_were_deleted_is_passed_when_others_follow(growing):
    growing.put(4)
    queues = growing.root / "consumequeue" / "Topic0"
    away = growing.root.with_name("away")
    at = growing.store.max_phy_offset
    growing.put(2)  # Topic0, then Topic1
    queues.rename(away)
    assert ends(growing, at) == growing.store.max_phy_offset
    away.rename(queues)
    at = growing.store.max_phy_offset
    growing.put(1)
    queues.rename(away)
    assert ends(growing, at) == at
    away.rename(queues)


def test_after_a_clean_stop_everything_counts(growing):
    growing.put(5)
    end = growing.store.max_phy_offset
    growing.close()
    with StoreSnapshot(growing.root) as snapshot:
        assert dispatched_end(snapshot, 0) == flushed_end(snapshot, 0) == end
    growing.open()


@pytest.mark.parametrize("said", [1, -1])
def test_one_wrong_time_calls_nothing_flushed(tmp_path, said):
    store = small_store(tmp_path, 60)
    root = store.write(abort=f"{os.getpid()}\n".encode())
    last = next(r for r in store.records if r.commit_log_offset == 4096)
    times = (last.store_timestamp, last.store_timestamp, 0, 0, 0, 0)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*times).ljust(4096, b"\0"))
    with store.segment_path(8192).open("r+b") as file:
        file.seek(HEADER_IPV4.at("store_timestamp"))
        file.write(said.to_bytes(8, "big", signed=True))
    with StoreSnapshot(root) as snapshot:
        assert flushed_end(snapshot, 0) == 4096


@settings(max_examples=examples(25), deadline=None)
@given(
    steps=st.lists(st.sampled_from(["put", "dispatch", "look"]), min_size=1, max_size=30),
    segment_bytes=st.sampled_from([1024, 4096, 1 << 20]),
)
def test_any_order_of_puts_and_dispatches(steps, segment_bytes, tmp_path_factory):
    root = tmp_path_factory.mktemp("stores") / "store"
    with GrowingStore(root, segment_bytes) as growing:
        floor = dispatched = 0
        for step in steps:
            if step == "put":
                growing.put(3, dispatch=False)
            elif step == "dispatch":
                growing.dispatch()
                dispatched = growing.store.max_phy_offset
            else:
                found = ends(growing, floor)
                with StoreSnapshot(root) as snapshot:
                    at_record = found == snapshot.end_offset or snapshot.log.is_record(
                        found, snapshot.end_offset
                    )
                    # Or at the end of a segment whose rest is blank.
                    assert at_record or snapshot.log.next_record(found, snapshot.end_offset) < 0
                assert floor <= found <= max(dispatched, floor)
                assert growing.store.max_phy_offset > dispatched or found == dispatched
                floor = found
    shutil.rmtree(root)
