# SPDX-License-Identifier: Apache-2.0
"""Batches are planned like batch reads: by queues if topics narrow them, in splits of some size."""

from __future__ import annotations

import json

import pytest

from rmqsource.options.source_options import parse_options
from rmqsource.scan.predicate import from_options
from rmqsource.scan.splits import SegmentPositions
from rmqsource.stream.stream_follower import StreamFollower
from rmqsource.stream.stream_offset import StreamOffset
from rmqsource.stream.stream_plan import plan_batch
from store_core.log.log_scan import LogSlice
from tests.rmqsource.reading import read_rows
from tests.rmqsource.stream.growing_store import GrowingStore
from tests.rmqsource.stream.simulated_query import Checkpoint, follow

BODY = ("body",)
MIB = 1 << 20


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store", segment_bytes=MIB) as store:
        store.put(1200, size=4000, topics=40)
        yield store


def planned(root, **options):
    """Return the splits of the first batch."""
    parsed = parse_options({"path": str(root), **options}, streaming=True)
    follower = StreamFollower(parsed)
    end = StreamOffset.from_json(
        json.loads(json.dumps(follower.next_offset(follower.initial, limited=True).to_json()))
    )
    return [part.split for part in plan_batch(parsed, from_options(parsed), follower.initial, end)]


def test_a_large_batch_of_one_topic_goes_through_its_queues(growing):
    growing.close()  # of a live store up to 32 MiB at the end are scanned
    queues = {"topicName": "Topic7", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    config = growing.root / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"Topic7": queues}}))
    parts = [part for split in planned(growing.root, topic="Topic7") for part in split.parts]
    offsets = [at for p in parts if isinstance(p, SegmentPositions) for at in p.array().tolist()]
    assert len(offsets) >= 25
    scanned = sum(part.stop - part.start for part in parts if isinstance(part, LogSlice))
    assert scanned < MIB
    rows = follow(Checkpoint(), growing.root, BODY, topic="Topic7")
    assert rows == read_rows(growing.root, BODY, topic="Topic7")
    assert len(rows) == 30
    growing.open()


def test_a_small_batch_is_scanned(growing):
    (split,) = planned(growing.root, topic="Topic7", maxBytesPerTrigger=str(MIB // 2))
    assert all(isinstance(part, LogSlice) for part in split.parts)


def test_splits_are_no_larger_than_they_may_and_come_in_log_order(growing):
    splits = planned(growing.root, maxPartitionBytes=str(MIB // 2))
    assert len(splits) >= 9
    parts = [part for split in splits for part in split.parts]
    assert [part.start for part in parts] == sorted(part.start for part in parts)
    assert all(
        sum(part.stop - part.start for part in split.parts) <= MIB // 2 * 17 // 16
        for split in splits
    )
    rows = follow(Checkpoint(), growing.root, BODY, maxPartitionBytes=str(MIB // 2))
    assert [row["body"] for row in rows] == growing.put_bodies


def test_no_more_splits_than_there_may_be_over_all_stores(growing, tmp_path):
    with GrowingStore(tmp_path / "other", segment_bytes=MIB) as other:
        other.put(600, size=4000)
        options = {"maxPartitionBytes": "64k", "maxPartitions": "10"}
        splits = planned(str(tmp_path / "*"), **options)
        assert len(splits) <= 10
        assert [split.store for split in splits] == sorted(s.store for s in splits)
        assert {split.store for split in splits} == {str(growing.root), str(other.root)}
