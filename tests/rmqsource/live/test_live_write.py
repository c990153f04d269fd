# SPDX-License-Identifier: Apache-2.0
"""Rows sent to scripted brokers come back from a live read unchanged."""

from __future__ import annotations

import datetime as dt

import pytest

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqsource.live import send_batches
from rmqsource.live.duplicates import PROPERTY_SPARK_BATCH, job_prefix
from rmqsource.live.errors import ClusterError
from rmqsource.live.live_options import parse_live_sink_options
from rmqsource.live.live_write import plan_live_write, send_part
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.errors import SinkRowError
from tests.rmqsource.live.live_reading import read_live
from tests.rmqsource.live.recorded_broker import RecordedCluster
from tests.rmqsource.live.sending_broker import SendingBroker
from tests.rmqsource.sink.support import TYPES, batch_of

COLUMNS = ("topic", "queue_id", "queue_offset", "keys", "tags", "body", "properties", "flag")


@pytest.fixture
def cluster():
    with RecordedCluster() as running:
        running.add_topic("orders", queues={"broker-a": 2, "broker-b": 2})
        running.sinks = {
            name: SendingBroker(running.broker(name)) for name in ("broker-a", "broker-b")
        }
        yield running


def plan_of(cluster, names, **options):
    parsed = parse_live_sink_options(cluster.options(**options))
    fields = [(name, TYPES[name][0]) for name in names]
    return plan_live_write(parsed, resolve_sink_columns(fields, default_topic=parsed.topic))


def send(cluster, *batches, prefix="job:0:0", partition=0, plan=None, **options):
    plan = plan or plan_of(cluster, batches[0].schema.names, **options)
    return send_part(batches, plan, partition, prefix)


def read(cluster, columns=COLUMNS, **options):
    return read_live(cluster.options(topic="orders", **options), (*columns, "store"))


def bodies(rows):
    return sorted(row["body"] for row in rows)


def test_rows_come_back_with_all_that_they_had(cluster):
    rows = batch_of(
        topic=["orders", "orders"],
        body=[b"one", b"two"],
        keys=[["a", "b"], None],
        tags=["red", None],
        properties=[[("size", "9")], [("TRAN_MSG", "true"), ("k", "v")]],
        flag=[7, 0],
    )
    assert send(cluster, rows).messages == 2
    one, two = sorted(read(cluster), key=lambda row: row["body"])
    assert (one["keys"], one["tags"], one["flag"]) == (["a", "b"], "red", 7)
    given = dict(one["properties"])
    assert given["size"] == "9"
    assert given[PROPERTY_SPARK_BATCH] == "job:0:0:0"
    assert dict(two["properties"])[PROPERTY_SPARK_BATCH] == "job:0:0:1"
    assert "TRAN_MSG" not in dict(two["properties"])  # a broker would take it for half a message


def test_rows_without_a_queue_go_round_and_each_queue_keeps_their_order(cluster):
    count = 5000
    rows = batch_of(topic=["orders"] * count, body=[b"%05d" % n for n in range(count)])
    send(cluster, rows.slice(0, 3000), rows.slice(3000), sendBatchBytes="10k")
    found = read(cluster)
    assert bodies(found) == [b"%05d" % n for n in range(count)]
    by_queue = {}
    for row in found:
        by_queue.setdefault((row["store"], row["queue_id"]), []).append(row["body"])
    assert len(by_queue) == 4
    for queue in by_queue.values():
        assert len(queue) == count // 4
        assert queue == sorted(queue)
    requests = [r for sink in cluster.sinks.values() for r in sink.requests]
    assert len(requests) > 4
    assert all(request.batch for request in requests)


def test_a_queue_id_stays_on_one_broker(cluster):
    rows = batch_of(topic=["orders"] * 40, body=[b"x"] * 40, queue_id=[0, 1] * 20)
    send(cluster, rows)
    places = {(row["queue_id"], row["store"].split("@")[0]) for row in read(cluster)}
    assert places == {(0, "broker-a"), (1, "broker-b")}


def test_a_queue_id_that_no_broker_has(cluster):
    rows = batch_of(topic=["orders"] * 2, body=[b"good", b"bad"], queue_id=[1, 9])
    with pytest.raises(SinkRowError, match="is not a writable queue of topic 'orders'"):
        send(cluster, rows)
    sent = send(cluster, rows, badRows="drop")
    assert (sent.messages, sent.dropped) == (1, (("queue_id", 1),))
    assert bodies(read(cluster)) == [b"good"]


def test_delayed_messages_go_alone(cluster):
    rows = batch_of(
        topic=["orders"] * 3,
        body=[b"now", b"later", b"timer"],
        delay_level=[0, 3, None],
        properties=[None, None, [("TIMER_DELAY_SEC", "5")]],
        queue_id=[0, 0, 0],
    )
    send(cluster, rows)
    requests = cluster.sinks["broker-a"].requests
    assert [bool(request.batch) for request in requests] == [True, False, False]
    found = {row["body"]: dict(row["properties"]) for row in read(cluster)}
    assert found[b"later"]["DELAY"] == "3"
    assert "DELAY" not in found[b"now"]


def test_large_bodies_are_compressed_as_a_producer_would(cluster):
    rows = batch_of(topic=["orders"] * 2, body=[b"a" * 10_000, b"b"], queue_id=[0, 0])
    send(cluster, rows)
    assert bodies(read(cluster)) == [b"a" * 10_000, b"b"]
    flags = {row["sys_flag"] & 1 for row in read(cluster, ("sys_flag",))}
    assert flags == {0, 1}


def test_each_born_time_is_kept(cluster):
    times = [dt.datetime(2026, 1, 1, minute=n, tzinfo=dt.timezone.utc) for n in range(3)]
    rows = batch_of(topic=["orders"] * 3, body=[b"0", b"1", b"2"], born_timestamp=times)
    send(cluster, rows)
    read_back = read(cluster, ("body", "born_timestamp"))
    found = {row["body"]: row["born_timestamp"] for row in read_back}
    assert found == {b"%d" % n: time for n, time in enumerate(times)}


def test_exact_properties_stay_what_they_are(cluster):
    rows = batch_of(
        topic=["orders"] * 2,
        body=[b"open", b"closed"],
        properties_raw=[b"a\x01b\x02a\x01c", b"x\x01y\x02"],
    )
    send(cluster, rows)
    raw = {row["body"]: row["properties_raw"] for row in read(cluster, ("body", "properties_raw"))}
    assert raw[b"open"].startswith(b"a\x01b\x02a\x01c\x02__SPARK_BATCH__\x01job:0:0:")
    assert raw[b"closed"].startswith(b"x\x01y\x02__SPARK_BATCH__\x01job:0:0:")


def test_a_broker_that_is_busy_is_asked_again(cluster):
    for sink in cluster.sinks.values():
        sink.refusals = [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE]
    rows = batch_of(topic=["orders"] * 10, body=[b"%d" % n for n in range(10)])
    send(cluster, rows)
    assert bodies(read(cluster)) == sorted(b"%d" % n for n in range(10))


def test_a_refusal_that_will_not_pass_is_an_error(cluster):
    for sink in cluster.sinks.values():
        sink.refusals = [ResponseCode.MESSAGE_ILLEGAL] * 4
    rows = batch_of(topic=["orders"], body=[b"x"])
    with pytest.raises(ClusterError, match="were refused with code 13: told to refuse"):
        send(cluster, rows)


def test_repeats_are_dropped_by_a_reader_that_is_asked_to(cluster):
    for sink in cluster.sinks.values():
        sink.losses = 1
    rows = batch_of(topic=["orders"] * 100, body=[b"%03d" % n for n in range(100)])
    send(cluster, rows)
    assert len(read(cluster)) > 100
    found = read(cluster, dedupe=True)
    assert bodies(found) == [b"%03d" % n for n in range(100)]


def test_a_task_that_runs_again_sends_repeats_to_the_same_queues(cluster):
    rows = batch_of(topic=["orders"] * 100, body=[b"%03d" % n for n in range(100)])
    plan = plan_of(cluster, rows.schema.names)
    for partition in (0, 1):
        for _ in range(2):
            prefix = job_prefix(plan.job, 0, partition)
            send(cluster, rows, plan=plan, prefix=prefix, partition=partition)
    assert len(read(cluster)) == 400
    assert len(read(cluster, dedupe=True)) == 200


def test_an_unknown_topic_is_an_error(cluster):
    rows = batch_of(topic=["nobody"], body=[b"x"])
    with pytest.raises(ClusterError, match="does not know topic 'nobody'"):
        send(cluster, rows)


def test_a_topic_whose_only_broker_is_away_is_waited_for(cluster):
    """A name server forgets both when a broker dies."""
    topics, registered = dict(cluster.topics), set(cluster.registered)
    cluster.topics.clear()
    cluster.registered.clear()
    routes = cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    asked = []

    def later(request):
        asked.append(request)
        if len(asked) == 5:
            cluster.topics.update(topics)
            cluster.registered |= registered
        return routes(request)

    cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = later
    send(cluster, batch_of(topic=["orders"] * 3, body=[b"1", b"2", b"3"]))
    assert len(read(cluster)) == 3


def test_a_topic_that_brokers_make_gets_their_default_queues(cluster):
    cluster.add_topic("TBW102", queues={"broker-a": 8})
    rows = batch_of(topic=["fresh"] * 8, body=[b"%d" % n for n in range(8)])
    send(cluster, rows)
    requests = cluster.sinks["broker-a"].requests
    assert {request.queue_id for request in requests} == {0, 1, 2, 3}
    assert {request.default_topic for request in requests} == {"TBW102"}


def test_a_topic_that_may_not_be_written(cluster):
    cluster.add_topic("read-only", queues={"broker-a": 1}, perm=4)
    with pytest.raises(ClusterError, match="no writable queue"):
        send(cluster, batch_of(topic=["read-only"], body=[b"x"]))


def test_no_message_overtakes_another_of_its_queue(cluster):
    large = b"x" * 10_000
    bodies_sent = [b"%02d" % n + (large if n % 3 == 1 else b"") for n in range(20)]
    times = [dt.datetime(2026, 1, 1, minute=59 - n, tzinfo=dt.timezone.utc) for n in range(20)]
    rows = batch_of(
        topic=["orders"] * 20, body=bodies_sent, queue_id=[1] * 20, born_timestamp=times
    )
    for names in (rows.schema.names[:3], rows.schema.names):
        for sink in cluster.sinks.values():
            sink.queues.clear()
        send(cluster, rows.select(names))
        assert [row["body"] for row in read(cluster)] == bodies_sent


def test_a_batch_has_no_more_messages_than_a_broker_can_count(cluster, monkeypatch):
    assert send_batches.MAX_BATCH_MESSAGES < 1 << 15
    monkeypatch.setattr(send_batches, "MAX_BATCH_MESSAGES", 40)
    rows = batch_of(topic=["orders"] * 100, body=[b"x"] * 100, queue_id=[0] * 100)
    send(cluster, rows, sendBatchBytes="4m")
    assert cluster.sinks["broker-a"].batch_sizes == [40, 40, 20]


def test_a_message_that_is_longer_than_a_batch_goes_alone(cluster):
    rows = batch_of(topic=["orders"] * 3, body=[b"a", b"b" * 3000, b"c"], queue_id=[0] * 3)
    send(cluster, rows, sendBatchBytes="1k")
    requests = cluster.sinks["broker-a"].requests
    assert [bool(request.batch) for request in requests] == [True, False, True]
    assert [row["body"] for row in read(cluster)] == [b"a", b"b" * 3000, b"c"]


def test_messages_of_retry_topics_go_alone(cluster):
    cluster.add_topic("%RETRY%group", queues={"broker-a": 1})
    rows = batch_of(topic=["%RETRY%group", "orders"], body=[b"x", b"y"])
    send(cluster, rows, systemTopics=True)
    requests = [r for sink in cluster.sinks.values() for r in sink.requests]
    assert {r.topic: bool(r.batch) for r in requests} == {"%RETRY%group": False, "orders": True}


def twice(cluster, **columns):
    """Send the rows of a task that fails at its end, and runs again."""
    rows = batch_of(topic=["orders"] * 3, body=[b"0", b"1", b"2"], **columns)
    for _ in range(2):
        send(cluster, rows)
    assert len(read(cluster)) == 6


def test_repeats_of_a_key_are_dropped_too(cluster):
    twice(cluster, keys=[["mine"], ["mine"], ["other"]])
    assert bodies(read(cluster, keys="mine")) == [b"0", b"0", b"1", b"1"]
    assert bodies(read(cluster, keys="mine", dedupe=True)) == [b"0", b"1"]


def test_a_repeat_counts_where_the_first_one_does_not_match(cluster):
    twice(cluster)
    repeats = {row["body"]: row["unique_key"] for row in read(cluster, ("body", "unique_key"))}
    for body, key in repeats.items():  # a repeat has an id of its own
        options = {"uniqueKeys": key, "access": "consumequeue", "dedupe": True}
        assert bodies(read(cluster, **options)) == [body]
