# SPDX-License-Identifier: Apache-2.0
"""Stores of real brokers, followed in small batches, give the rows and damage of a batch read."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqsource.errors import DamagedStoreError
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from tests.examples import examples
from tests.rmqsource.reading import read_rows
from tests.rmqsource.stream.growing_store import GrowingStore
from tests.rmqsource.stream.simulated_query import Checkpoint, follow

PLACE = ("commit_log_offset", "topic", "queue_id", "queue_offset", "body")
DAMAGE = (*PLACE, "_corrupt_record")

pytestmark = pytest.mark.skipif(
    not STREAM_READER_GETS_LIMITS, reason="Spark before 4.2 knows no limits of streams"
)


@pytest.mark.parametrize(
    "limit",
    [{}, {"maxOffsetsPerTrigger": 61}, {"maxBytesPerTrigger": 20_000}],
    ids=["all at once", "61 messages", "20,000 bytes"],
)
def test_a_stream_has_the_rows_of_a_batch(golden_store, limit):
    options = {**golden_store.options, "mode": "PERMISSIVE", "readUpTo": "written"}
    expected = read_rows(golden_store.root, DAMAGE, mode="PERMISSIVE", **golden_store.options)
    if (golden_store.root / "abort").exists() and expected[-1]["_corrupt_record"] is not None:
        del expected[-1]  # half a record of a crash: a stream waits until it is resolved
    checkpoint = Checkpoint()
    found = follow(checkpoint, golden_store.root, DAMAGE, **options, **limit)
    assert found == expected
    assert not limit or len(expected) < 150 or len(checkpoint.offsets) > 1


def test_what_was_dispatched_comes_first_and_all_of_it_after_a_clean_stop(golden_store):
    options = {**golden_store.options, "mode": "DROPMALFORMED"}
    expected = read_rows(golden_store.root, PLACE, **options)
    found = follow(Checkpoint(), golden_store.root, PLACE, **options)
    assert found == expected[: len(found)]
    if not (golden_store.root / "abort").exists():
        assert found == expected


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), most=st.integers(1, 9), mode=st.sampled_from(["PERMISSIVE", "FAILFAST"]))
def test_damage_at_the_edge_of_a_batch_is_told_once(data, most, mode, tmp_path_factory):
    root = tmp_path_factory.mktemp("stores") / "store"
    with GrowingStore(root) as growing:
        growing.put(60)
    places = [row["commit_log_offset"] for row in read_rows(root, PLACE)]
    damaged = data.draw(st.sets(st.sampled_from(places), min_size=1, max_size=4))
    for place in damaged:
        path = sorted((root / "commitlog").iterdir())[place // 4096]
        with path.open("r+b") as file:
            file.seek(place % 4096 + 4)  # the magic code
            file.write(b"\1\2\3\4")
    options = {"mode": mode, "maxOffsetsPerTrigger": most}
    checkpoint = Checkpoint()
    if mode == "PERMISSIVE":
        expected = read_rows(root, DAMAGE, mode=mode)
        assert follow(checkpoint, root, DAMAGE, **options) == expected
        assert sum(row["_corrupt_record"] is not None for row in expected) >= 1
        return
    with pytest.raises(DamagedStoreError):
        follow(checkpoint, root, PLACE, **options)
    assert checkpoint.rows == read_rows(root, PLACE, mode="DROPMALFORMED")[: len(checkpoint.rows)]
    with contextlib.suppress(DamagedStoreError):  # a restarted query stays there
        follow(checkpoint, root, PLACE, **options)
        raise AssertionError("the damage was passed over")


def test_a_segment_that_is_too_long_is_told_of_once(tmp_path):
    with GrowingStore(tmp_path / "store") as growing:
        growing.put(60)
    path = growing.segments()[1]
    path.write_bytes(path.read_bytes() + b"surplus")
    options = {"mode": "PERMISSIVE", "maxOffsetsPerTrigger": 4}
    rows = follow(Checkpoint(), growing.root, DAMAGE, **options)
    told = [row["_corrupt_record"] for row in rows if row["_corrupt_record"] is not None]
    assert len(told) == 1
    assert "7 bytes more than a segment" in told[0]
    assert [row["body"] for row in rows if row["body"] is not None] == growing.put_bodies
