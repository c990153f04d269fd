# SPDX-License-Identifier: Apache-2.0
"""The limits of a batch: how much it has, and when it runs."""

from __future__ import annotations

import json

import pytest

from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from rmqsource.stream.batch_cut import shares
from rmqsource.stream.stream_follower import StreamFollower
from tests.rmqsource.reading import parsed
from tests.rmqsource.stream.growing_store import GrowingStore, bodies
from tests.rmqsource.stream.simulated_query import Checkpoint, SimulatedQuery, where

pytestmark = pytest.mark.skipif(
    not STREAM_READER_GETS_LIMITS,
    reason="before Spark 4.2 a source is not told where a batch starts",
)
BODY = ("body",)
PLACE = ("topic", "store_size")


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store") as store:
        yield store


def query_of(checkpoint, root, columns=BODY, **options):
    return SimulatedQuery(checkpoint, {**where(root), **options}, columns)


def sizes(checkpoint):
    return [len(rows) for _, rows in sorted(checkpoint.sink.items())]


def test_a_share_for_each_store():
    assert shares(10, [600, 300, 0]) == [6, 3, 1]
    assert shares(None, [1, 2]) == [None, None]
    assert shares(1, [5, 5]) == [1, 1]


@pytest.mark.parametrize("most", [1, 7, 64, 1000])
def test_no_batch_has_more_messages_than_it_may(growing, most):
    growing.put(100)
    checkpoint = Checkpoint()
    query_of(checkpoint, growing.root, maxOffsetsPerTrigger=most).all_available()
    assert sizes(checkpoint)[: 100 // most] == [most] * (100 // most)
    assert bodies(checkpoint.rows) == growing.put_bodies


def test_messages_of_other_topics_do_not_count(growing):
    growing.put(100)
    checkpoint = Checkpoint()
    query_of(checkpoint, growing.root, topic="Topic1", maxOffsetsPerTrigger=20).all_available()
    assert sizes(checkpoint)[:3] == [20, 20, 10]
    assert bodies(checkpoint.rows) == growing.put_bodies[1::2]


def test_no_batch_has_more_bytes_than_it_may(growing):
    growing.put(100)
    checkpoint = Checkpoint()
    query_of(checkpoint, growing.root, PLACE, maxBytesPerTrigger="2k").all_available()
    totals = [sum(row["store_size"] for row in rows) for rows in checkpoint.sink.values()]
    assert max(totals) <= 2048
    assert sum(sizes(checkpoint)) == 100
    checkpoint = Checkpoint()
    query_of(checkpoint, growing.root, maxBytesPerTrigger=1).all_available()
    assert sizes(checkpoint)[:100] == [1] * 100  # one record is always allowed


def test_the_budget_is_shared_by_what_waits(tmp_path):
    with GrowingStore(tmp_path / "a") as one, GrowingStore(tmp_path / "b") as other:
        one.put(90)
        other.put(10)
        checkpoint = Checkpoint()
        query = query_of(checkpoint, [one.root, other.root], ("store",), maxOffsetsPerTrigger=20)
        query.run_once()
        stores = [row["store"] for row in checkpoint.sink[0]]
        assert 16 <= stores.count(str(one.root)) <= 19
        assert 1 <= stores.count(str(other.root)) <= 3
        assert len(stores) <= 20
        query.all_available()
        assert len(checkpoint.rows) == 100


def test_a_batch_waits_until_enough_is_there_or_time_is_up(growing):
    now = [0.0]
    options = parsed(growing.root)
    from rmqsource.options.source_options import parse_options

    options = parse_options(
        {"path": str(growing.root), "minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"},
        streaming=True,
    )
    follower = StreamFollower(options, clock=lambda: now[0])
    growing.put(3)
    first = follower.next_offset(follower.initial, limited=True)  # the first one waits for nothing
    assert first is not follower.initial
    growing.put(9)
    assert follower.next_offset(first, limited=True) is first
    now[0] = 29.9
    assert follower.next_offset(first, limited=True) is first
    growing.put(1)
    second = follower.next_offset(first, limited=True)
    assert second is not first
    growing.put(1)
    assert follower.next_offset(second, limited=True) is second
    now[0] += 30
    assert follower.next_offset(second, limited=True) is not second


def test_available_now_ends_with_what_was_there(growing):
    growing.put(50)
    checkpoint = Checkpoint()
    query = query_of(checkpoint, growing.root, maxOffsetsPerTrigger=20, minOffsetsPerTrigger=19)
    query.reader.prepareForTriggerAvailableNow()
    growing.put(50)
    query.all_available()
    assert sizes(checkpoint) == [20, 20, 10]
    query_of(checkpoint, growing.root).available_now()
    assert bodies(checkpoint.rows) == growing.put_bodies
    count = len(checkpoint.offsets)
    query_of(checkpoint, growing.root).available_now()
    assert len(checkpoint.offsets) == count


def test_progress_tells_what_waits(growing):
    growing.put(100)
    query = query_of(Checkpoint(), growing.root, topic="Topic1", maxOffsetsPerTrigger=20)
    query.all_available()
    waiting = [
        json.loads(progress["latestOffset"])["stores"][str(growing.root)]["waiting"]
        for progress in query.progress
    ]
    assert waiting[:3] == [30, 10, 0]
    ends = {
        json.loads(p["latestOffset"])["stores"][str(growing.root)]["offset"] for p in query.progress
    }
    assert ends == {growing.store.max_phy_offset}
