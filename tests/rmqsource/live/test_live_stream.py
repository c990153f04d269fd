# SPDX-License-Identifier: Apache-2.0
"""A stream of a cluster gives every message once, whatever happens to it or to the brokers."""

from __future__ import annotations

import json
import threading
from contextlib import closing

import pytest

from rmqsource.errors import DataLossError, SourceOptionError, StreamDataLossError
from rmqsource.live.errors import ClusterError, LiveDataLossError
from rmqsource.live.live_follower import LiveFollower, Start
from rmqsource.live.live_options import parse_live_options
from rmqsource.spark.live_format import RocketMQDataSource
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from tests.golden_store import golden
from tests.rmqnet.scripted_cluster import wait_until
from tests.rmqsource.live.live_reading import read_live
from tests.rmqsource.live.recorded_broker import RecordedCluster, RecordedQueue, without_store
from tests.rmqsource.stream.simulated_query import STEPS, Checkpoint, KilledError, SimulatedQuery

knows_where_it_stands = pytest.mark.skipif(
    not STREAM_READER_GETS_LIMITS, reason="Spark before 4.2 tells neither limits nor a start"
)


class LiveQuery(SimulatedQuery):
    source_class = RocketMQDataSource


@pytest.fixture
def cluster():
    with RecordedCluster() as running:
        running.served = running.serve(golden("classic-5x"))
        running.busiest = max(
            (key for key in running.served.queues),
            key=lambda k: running.served.queues[k].max_offset,
        )
        yield running


@pytest.fixture(autouse=True)
def _no_pause_between_looks(monkeypatch):
    monkeypatch.setattr("rmqsource.live.live_follower._LOOK_SECONDS", 0.0)
    monkeypatch.setattr("rmqsource.live.live_follower._ROUTE_SECONDS", 0.0)


def options(cluster, **more):
    given = {"topicPattern": ".*", **more}
    return cluster.options(**{name: v for name, v in given.items() if v is not None})


def follow(cluster, checkpoint, **more):
    query = LiveQuery(checkpoint, options(cluster, **more))
    try:
        query.all_available()
    finally:
        query.reader.stop()
    return checkpoint.rows


def test_has_what_a_batch_has(cluster):
    rows = follow(cluster, Checkpoint())
    assert without_store(rows) == without_store(read_live(options(cluster)))


@knows_where_it_stands
def test_limited_batches_have_every_message_once(cluster):
    checkpoint = Checkpoint()
    rows = follow(cluster, checkpoint, maxOffsetsPerTrigger=100)
    assert without_store(rows) == without_store(read_live(options(cluster)))
    sizes = [len(batch) for batch in checkpoint.sink.values()]
    assert len(sizes) > 3
    assert max(sizes) <= 100 + len(cluster.served.queues)


@knows_where_it_stands
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_query_goes_on_where_it_was(cluster, step):
    checkpoint = Checkpoint()
    for number in range(3):
        query = LiveQuery(
            checkpoint,
            options(cluster, maxOffsetsPerTrigger=200),
            kill_at=lambda batch, at, number=number: (batch, at) == (number, step),
        )
        with pytest.raises(KilledError):
            query.all_available()
        query.reader.stop()
    rows = follow(cluster, checkpoint)
    assert without_store(rows) == without_store(read_live(options(cluster)))


def test_latest_has_what_comes_from_then_on(cluster):
    queue = cluster.served.queues[cluster.busiest]
    queue.hidden = 7
    checkpoint = Checkpoint()
    assert follow(cluster, checkpoint, startingOffsets="latest") == []
    queue.hidden = 0
    rows = follow(cluster, checkpoint, startingOffsets="latest")
    assert [row["queue_offset"] for row in rows] == [record.first for record in queue.records[-7:]]


@pytest.mark.parametrize("is_4x", [False, True])
def test_begins_with_the_first_message_of_a_time(cluster, is_4x):
    cluster.served.is_4x = is_4x
    every = without_store(read_live(options(cluster)))
    times = sorted({row["store_timestamp"] for row in every})
    wanted = times[len(times) // 2]
    rows = follow(cluster, Checkpoint(), startingTimestamp=int(wanted.timestamp() * 1000))
    found = {(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows}
    first = {}
    for row in every:
        if row["store_timestamp"] >= wanted:
            first.setdefault((row["topic"], row["queue_id"]), row["queue_offset"])
    assert found == {
        (row["topic"], row["queue_id"], row["queue_offset"])
        for row in every
        if row["queue_offset"] >= first.get((row["topic"], row["queue_id"]), 1 << 62)
    }


@pytest.mark.parametrize("is_4x", [False, True])
def test_begins_with_the_first_of_many_messages_of_one_time(cluster, is_4x):
    cluster.served.is_4x = is_4x
    topic, queue_id = cluster.busiest
    records = cluster.served.queues[cluster.busiest].records
    for number, record in enumerate(records):
        record.store_at(1_700_000_000_000 + (number > 60) + (number > 200))
    given = {"topic": topic, "topicPattern": None, "queueId": queue_id}
    for time, first in ((0, 0), (1, 61), (2, 201), (3, len(records))):
        given["startingTimestamp"] = 1_700_000_000_000 + time
        rows = follow(cluster, Checkpoint(), **given)
        assert [row["queue_offset"] for row in rows] == [r.first for r in records[first:]]
        exact = options(cluster, storeTimeSlackMs=0, **given)
        assert without_store(rows) == without_store(read_live(exact))


@pytest.mark.parametrize("is_late", [False, True])
def test_a_broker_that_is_away_at_the_start_begins_where_it_is_asked_for(cluster, is_late):
    second = cluster.serve(golden("classic-4x"), "broker-b")
    second.server.stop()
    checkpoint = Checkpoint()
    given = {"startingOffsets": "latest", "requestTimeout": "1s"}
    if is_late:
        coming = threading.Timer(0.2, second.server.start)
        coming.start()
        assert follow(cluster, checkpoint, **given) == []
        coming.join()
    else:
        with pytest.raises(ClusterError, match=r"broker-b does not report where queue .* begins"):
            follow(cluster, checkpoint, retryTimeout="100ms", **given)
        second.server.start()
    assert follow(cluster, checkpoint, **given) == []


@knows_where_it_stands
def test_a_new_broker_that_is_away_at_a_restart_is_read_from_its_first_message(cluster):
    checkpoint = Checkpoint()
    given = {"startingOffsets": "latest", "requestTimeout": "1s"}
    follow(cluster, checkpoint, **given)
    second = cluster.serve(golden("classic-4x"), "broker-b")
    held = sum(len(record.rows) for queue in second.queues.values() for record in queue.records)
    second.server.stop()
    query = LiveQuery(checkpoint, options(cluster, **given))
    query.all_available()
    second.server.start()
    wait_until(lambda: [query.all_available(), checkpoint.rows][1], "the new broker is read")
    query.reader.stop()
    assert len(checkpoint.rows) == held


def test_a_follower_that_waits_for_nobody_begins_as_the_others_did(cluster):
    second = cluster.serve(golden("classic-4x"), "broker-b")
    second.server.stop()
    given = parse_live_options(options(cluster, startingOffsets="latest"), streaming=True)
    with closing(LiveFollower(given, start=Start.ANY)) as follower:
        first = follower.next_offset(follower.initial, limited=False)
        assert {queue.broker_name for queue in first.queues} == {"broker-a"}
        second.server.start()
        both = first
        while {queue.broker_name for queue in both.queues} == {"broker-a"}:
            both = follower.next_offset(first, limited=False)
        assert follower.ranges(first, both) == []


def test_named_offsets(cluster):
    topic, queue_id = cluster.busiest
    start = cluster.served.queues[cluster.busiest].max_offset - 5
    starting = json.dumps({topic: {str(queue_id): start}})
    rows = follow(cluster, Checkpoint(), topic=topic, topicPattern=None, startingOffsets=starting)
    first = [r["queue_offset"] for r in rows if r["queue_id"] == queue_id]
    assert first == list(range(start, start + 5))


def test_named_offsets_that_are_gone(cluster):
    topic, queue_id = cluster.busiest
    starting = json.dumps({topic: {str(queue_id): 1 << 40}})
    with pytest.raises(LiveDataLossError, match="does not exist; the queue has"):
        follow(cluster, Checkpoint(), startingOffsets=starting)


def test_new_queues_and_brokers_are_picked_up_from_their_first_message(cluster):
    checkpoint = Checkpoint()
    before = len(follow(cluster, checkpoint))
    second = cluster.serve(golden("classic-4x"), "broker-b")
    rows = follow(cluster, checkpoint)
    new = [row for row in rows if row["store"].startswith("broker-b@")]
    assert len(new) == len(rows) - before
    assert len(new) == sum(
        len(record.rows) for queue in second.queues.values() for record in queue.records
    )


def test_expired_messages(cluster):
    queue = cluster.served.queues[cluster.busiest]
    checkpoint = Checkpoint()
    queue.hidden = len(queue.records) - 5
    read = len(follow(cluster, checkpoint))
    queue.hidden, queue.min_offset = 0, queue.records[20].first
    with pytest.raises(DataLossError, match="expired"):  # when planned, or with 4.0 when read
        follow(cluster, checkpoint)
    rows = follow(cluster, checkpoint, failOnDataLoss=False)
    assert len(rows) - read == sum(len(record.rows) for record in queue.records[20:])


def test_a_queue_that_is_shorter_than_what_was_read(cluster):
    queue = cluster.served.queues[cluster.busiest]
    checkpoint = Checkpoint()
    read = len(follow(cluster, checkpoint))
    queue.hidden = 10
    with pytest.raises(StreamDataLossError, match="lost messages"):
        follow(cluster, checkpoint)
    assert len(follow(cluster, checkpoint, failOnDataLoss=False)) == read
    queue.hidden = 4
    rows = follow(cluster, checkpoint)
    assert len(rows) - read == sum(len(record.rows) for record in queue.records[-10:-4])


@knows_where_it_stands
def test_a_broker_that_is_away_is_waited_for(cluster):
    checkpoint = Checkpoint()
    second = cluster.serve(golden("classic-4x"), "broker-b")
    query = LiveQuery(checkpoint, options(cluster, maxOffsetsPerTrigger=500, requestTimeout="2s"))
    query.run_once()
    second.server.stop()
    query.all_available()
    assert checkpoint.offsets
    second.server.start()
    rows = follow(cluster, checkpoint)
    query.reader.stop()
    assert without_store(rows) == without_store(read_live(options(cluster)))


@knows_where_it_stands
def test_available_now_ends_with_what_was_there(cluster):
    queue = cluster.served.queues[cluster.busiest]
    queue.hidden = 5
    checkpoint = Checkpoint()
    query = LiveQuery(checkpoint, options(cluster, maxOffsetsPerTrigger=100))
    query._repeat()
    query.reader.prepareForTriggerAvailableNow()
    query.run_once()
    queue.hidden = 0
    while query.run_once():
        pass
    query.reader.stop()
    everything = len(read_live(options(cluster)))
    assert len(checkpoint.rows) == everything - sum(len(r.rows) for r in queue.records[-5:])


def test_an_unknown_topic_is_an_error_at_the_first_start(cluster):
    with pytest.raises(ClusterError, match="does not know topic 'nobody'"):
        follow(cluster, Checkpoint(), topic="nobody", topicPattern=None)


@knows_where_it_stands
def test_a_topic_that_goes_away_is_waited_for(cluster):
    topic = cluster.busiest[0]
    checkpoint = Checkpoint()
    read = follow(cluster, checkpoint, topic=topic, topicPattern=None)
    route = cluster.topics.pop(topic)
    assert len(follow(cluster, checkpoint, topic=topic, topicPattern=None)) == len(read)
    cluster.topics[topic] = route
    assert len(follow(cluster, checkpoint, topic=topic, topicPattern=None)) == len(read)


def test_other_options_need_another_checkpoint(cluster):
    checkpoint = Checkpoint()
    follow(cluster, checkpoint)
    with pytest.raises(SourceOptionError, match="the checkpoint was begun with"):
        follow(cluster, checkpoint, tags="TagA")


def test_offsets_of_finished_batches_are_committed_if_asked_for(cluster):
    query = LiveQuery(Checkpoint(), options(cluster, consumerGroup="spark", commitOffsets=True))
    query.all_available()
    query.reader.commit(json.loads(query.checkpoint.offsets[-1]))
    query.reader.stop()
    held = {key: queue.max_offset for key, queue in cluster.served.queues.items()}
    found = {(topic, queue_id): o for (_, topic, queue_id), o in cluster.served.committed.items()}
    assert {key: offset for key, offset in found.items() if key in held} == held
    assert {group for group, _, _ in cluster.served.committed} == {"spark"}


def test_empty_queues_are_no_batch_of_their_own(cluster):
    checkpoint = Checkpoint()
    follow(cluster, checkpoint)
    batches = len(checkpoint.offsets)
    cluster.served.queues["fresh", 0] = RecordedQueue([])
    follow(cluster, checkpoint)
    assert len(checkpoint.offsets) == batches


def test_a_repeated_batch_has_the_same_rows(cluster):
    queue = cluster.served.queues[cluster.busiest]
    queue.hidden = 20
    checkpoint = Checkpoint()
    follow(cluster, checkpoint)
    queue.hidden = 15
    query = LiveQuery(checkpoint, options(cluster), kill_at=lambda _, at: at == STEPS[1])
    with pytest.raises(KilledError):
        query.all_available()
    query.reader.stop()
    queue.hidden = 0  # more messages are there than when the batch was planned
    rows = follow(cluster, checkpoint)
    assert len(checkpoint.sink[1]) == 5
    assert without_store(rows) == without_store(read_live(options(cluster)))


@pytest.mark.skipif(STREAM_READER_GETS_LIMITS, reason="later Spark tells where the query stands")
def test_a_broker_that_is_away_when_an_older_spark_starts_again(cluster):
    second = cluster.serve(golden("classic-4x"), "broker-b")
    checkpoint = Checkpoint()
    read = len(follow(cluster, checkpoint))
    second.server.stop()
    with pytest.raises(ClusterError, match="broker-b does not report where"):
        follow(cluster, checkpoint, requestTimeout="1s", retryTimeout="100ms")
    second.server.start()
    assert len(follow(cluster, checkpoint)) == read
