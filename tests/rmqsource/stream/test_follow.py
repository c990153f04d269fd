# SPDX-License-Identifier: Apache-2.0
"""A stream gives every message once, in order, whatever happens between its batches."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from rmqsource.spark import stream_reader
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from tests.rmqsource.reading import read_rows
from tests.rmqsource.stream.growing_store import GrowingStore, bodies
from tests.rmqsource.stream.simulated_query import (
    STEPS,
    Checkpoint,
    KilledError,
    SimulatedQuery,
    follow,
    where,
)

BODY = ("body",)
PLACE = ("topic", "queue_id", "queue_offset", "body")


@pytest.fixture(params=[True, False], ids=["limits", "none"], autouse=True)
def gets_limits(request, monkeypatch):
    """Test as on Spark 4.2 and later, and as on earlier releases, which have no limits."""
    if request.param and not STREAM_READER_GETS_LIMITS:
        pytest.skip("this Spark knows no limits")
    if not request.param:
        reader = stream_reader.UnlimitedStreamReader
        monkeypatch.setattr(stream_reader, "STREAM_READER", reader)
    return request.param


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store") as store:
        yield store


def in_the_log(row):
    return row["commit_log_offset"], row.get("key", "")


def test_every_message_once_while_segments_roll(growing):
    checkpoint = Checkpoint()
    query = SimulatedQuery(checkpoint, where(growing.root), BODY)
    for count in (0, 1, 0, 7, 90, 3, 1, 60, 0):
        growing.put(count)
        query.all_available()
        assert bodies(checkpoint.rows) == growing.put_bodies
    assert len(growing.segments()) > 3
    assert len(checkpoint.offsets) == 7  # the first batch pins the start, empty ones do not count


def test_a_query_that_starts_again_goes_on_where_it_was(growing):
    checkpoint = Checkpoint()
    for count in (20, 0, 1, 40):
        growing.put(count)
        assert bodies(follow(checkpoint, growing.root, BODY)) == growing.put_bodies


def test_a_broker_that_stops_and_starts_loses_nothing(growing):
    checkpoint = Checkpoint()
    for _ in range(4):
        growing.put(13)
        follow(checkpoint, growing.root, BODY)
        growing.put(5)
        growing.reopen()
        follow(checkpoint, growing.root, BODY)
    growing.close()
    assert bodies(follow(checkpoint, growing.root, BODY)) == growing.put_bodies
    growing.open()


def test_rows_of_a_queue_come_in_its_order_and_equal_a_batch_read(growing):
    checkpoint = Checkpoint()
    for count in (30, 1, 50):
        growing.put(count)
        follow(checkpoint, growing.root)
    assert checkpoint.rows == read_rows(growing.root)
    queues = defaultdict(list)
    for row in checkpoint.rows:
        queues[row["topic"], row["queue_id"]].append(row["queue_offset"])
    assert len(queues) == 4
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "Topic1"},
        {"topicPattern": "Topic[1-9]", "queueId": "1"},
        {"tags": "tag1 || tag2"},
        {"keys": "key3,key4,key57"},
        {"where": "topic = 'Topic0' AND queue_offset >= 3"},
        {"table": "keys", "keys": "key5"},
        {"access": "commitlog", "checkCRC": "true"},
    ],
    ids=",".join,
)
def test_options_of_the_batch_source_select_the_same_rows(growing, options):
    checkpoint = Checkpoint()
    for count in (30, 1, 50):
        growing.put(count)
        follow(checkpoint, growing.root, **options)
    expected = sorted(read_rows(growing.root, **options), key=in_the_log)  # queues may be read
    assert sorted(checkpoint.rows, key=in_the_log) == expected
    assert expected


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_of_any_batch_repeats_and_loses_nothing(growing, step):
    checkpoint = Checkpoint()
    for number in range(8):
        growing.put(number * 3)

        def kill(batch: int, at: str) -> bool:
            return at == step and batch == len(checkpoint.offsets) - 1

        query = SimulatedQuery(checkpoint, where(growing.root), BODY, kill)
        try:
            query.all_available()
        except KilledError:
            growing.put(2)
            if number % 2:
                growing.reopen()
        follow(checkpoint, growing.root, BODY)
        assert bodies(checkpoint.rows) == growing.put_bodies


@pytest.mark.parametrize("start", ["latest", "earliest", "time", "queues"])
def test_the_first_batch_is_the_same_after_a_kill(growing, start):
    """Spark stores no start of the first batch: its end says where it began."""
    growing.put(40)
    middle = read_rows(growing.root, ["store_timestamp"])[-1]["store_timestamp"]
    options = {
        "latest": {"startingOffsets": "latest"},
        "earliest": {},
        "time": {"startingTimestamp": middle.isoformat()},
        "queues": {"startingOffsets": '{"Topic0":{"0":-1,"1":3}}'},
    }[start]
    checkpoint = Checkpoint()
    query = SimulatedQuery(checkpoint, {**where(growing.root), **options}, PLACE, lambda *_: True)
    with pytest.raises(KilledError):
        query.run_once()
    undisturbed = Checkpoint(list(checkpoint.offsets))
    SimulatedQuery(undisturbed, {**where(growing.root), **options}, PLACE)._repeat()
    growing.put(30)
    follow(checkpoint, growing.root, PLACE, **options)
    assert checkpoint.sink[0] == undisturbed.sink[0]
    delivered = {row["body"] for row in checkpoint.rows}
    assert delivered >= set(growing.put_bodies[40:])
    assert len(delivered) == len(checkpoint.rows)
    if start == "latest":
        assert delivered == set(growing.put_bodies[40:])


@pytest.fixture
def ticking(tmp_path):
    """A store in which each message is stored 10 ms after the one before."""
    clock = [1_700_000_000_000]

    def tick() -> int:
        return clock[0]

    with GrowingStore(tmp_path / "store", clock=tick) as store:

        def put(count: int) -> None:
            for _ in range(count):
                store.put(1)
                clock[0] += 10

        store.put_apart = put
        yield store


def test_a_start_in_time_is_the_first_message_stored_then(ticking):
    ticking.put_apart(50)
    rows = follow(Checkpoint(), ticking.root, BODY, startingTimestamp="1700000000195")
    assert bodies(rows) == ticking.put_bodies[20:]
    assert follow(Checkpoint(), ticking.root, BODY, startingTimestamp="1800000000000") == []


def test_offsets_of_queues_hold_until_they_are_passed(growing, gets_limits):
    checkpoint = Checkpoint()
    options = {"startingOffsets": '{"Topic0":{"0":4,"1":1},"Topic1":{"0":-2}}'}
    growing.put(16)  # four messages in each of the four queues
    limits = {"maxOffsetsPerTrigger": 3} if gets_limits else {}
    for count in (0, 4, 4, 4, 4, 4):
        growing.put(count)
        follow(checkpoint, growing.root, PLACE, **options, **limits)
    ends = [json.loads(text)["stores"][str(growing.root)] for text in checkpoint.offsets]
    assert ends[0]["begin"]["from"] == {"Topic0": {"0": 4, "1": 1}}
    assert not gets_limits or ends[0]["from"] == {"Topic0": {"0": 4}}
    assert "from" not in ends[-1]
    found = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in checkpoint.rows]
    expected = read_rows(growing.root, ["topic", "queue_id", "queue_offset"], **options)
    assert found == [tuple(row.values()) for row in expected]
    assert min(offset for topic, queue, offset in found if (topic, queue) == ("Topic0", 0)) == 4


def test_undispatched_messages_wait(growing):
    checkpoint = Checkpoint()
    growing.put(10)
    growing.put(5, dispatch=False)
    query = SimulatedQuery(checkpoint, where(growing.root), BODY).all_available()
    assert bodies(checkpoint.rows) == growing.put_bodies[:10]
    written = follow(Checkpoint(), growing.root, BODY, readUpTo="written")
    assert bodies(written) == growing.put_bodies
    growing.dispatch()
    query.all_available()
    assert bodies(checkpoint.rows) == growing.put_bodies


def test_flushed_messages_only(ticking):
    checkpoint = Checkpoint()
    ticking.put_apart(10)
    options = {**where(ticking.root), "readUpTo": "flushed"}
    query = SimulatedQuery(checkpoint, options, BODY).all_available()
    assert checkpoint.rows == []
    ticking.flush()
    ticking.put_apart(4)
    query.all_available()
    # Other records with the time of the last flushed record might not be flushed.
    assert bodies(checkpoint.rows) == ticking.put_bodies[:9]
    ticking.close()  # a clean stop flushes all
    query.all_available()
    assert bodies(checkpoint.rows) == ticking.put_bodies
    ticking.open()


def test_several_stores_and_one_that_comes_later(tmp_path):
    checkpoint = Checkpoint()
    pattern = str(tmp_path / "broker-*")
    with GrowingStore(tmp_path / "broker-a") as one:
        one.put(5)
        assert len(follow(checkpoint, pattern, BODY, startingOffsets="latest")) == 0
        with GrowingStore(tmp_path / "broker-b") as other:
            other.put(7)
            one.put(1)
            rows = follow(checkpoint, pattern, BODY, startingOffsets="latest")
            assert (
                bodies(rows) == one.put_bodies[5:] + other.put_bodies
            )  # the new one from its start
            other.put(2)
            rows = follow(checkpoint, pattern, BODY, startingOffsets="latest")
            assert bodies(rows)[-2:] == other.put_bodies[7:]


def test_reading_touches_nothing(growing):
    growing.put(30)

    def state(root: Path) -> list[tuple[str, int, int]]:
        return sorted(
            (str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*") if p.is_file()
        )

    before = state(growing.root)
    follow(Checkpoint(), growing.root, BODY)
    assert state(growing.root) == before
