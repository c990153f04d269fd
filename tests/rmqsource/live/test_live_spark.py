# SPDX-License-Identifier: Apache-2.0
"""Spark reads, follows and writes a cluster of scripted brokers."""

from __future__ import annotations

import json

import pytest

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqsource.live.duplicates import PROPERTY_SPARK_BATCH
from tests.golden_store import golden
from tests.rmqsource.live.recorded_broker import RecordedCluster
from tests.rmqsource.live.sending_broker import SendingBroker


@pytest.fixture
def cluster():
    with RecordedCluster() as running:
        running.served = running.serve(golden("classic-5x"))
        yield running


def test_batch_equals_the_files(cluster, live_read, spark):
    rows = live_read(cluster.options(topicPattern=".*")).drop("store")
    files = (
        spark.read.format("rocketmq-store")
        .options(access="consumequeue", **golden("classic-5x").options)
        .load(str(golden("classic-5x").root))
        .drop("store")
    )
    assert rows.schema == files.schema
    place = ["topic", "queue_id", "queue_offset"]
    assert rows.orderBy(place).collect() == files.orderBy(place).collect()


SECRETS = {"accessKey": "hidden-access", "secretKey": "hidden-secret", "securityToken": "hidden-t"}


def test_no_secret_shows_anywhere(cluster, live_read, capfd):
    topic = min(topic for topic, _ in cluster.served.queues)
    given = cluster.options(topic=topic, retryTimeout="100ms", **SECRETS)
    frame = live_read(given)
    frame.explain(extended=True)
    texts = [str(frame._jdf.queryExecution()), "".join(capfd.readouterr())]
    assert frame.count() > 0
    signed = cluster.served.server.asked(RequestCode.PULL_MESSAGE)
    assert {pull.ext_fields["AccessKey"] for pull in signed} == {"hidden-access"}
    cluster.served.failures = [ResponseCode.NO_PERMISSION] * 100
    with pytest.raises(Exception, match="told to fail") as refused:
        live_read(given).count()
    texts += [str(refused.value), "".join(capfd.readouterr())]
    with pytest.raises(Exception, match="requires 'accessKey'") as refused:
        live_read({**cluster.options(topic=topic), "secretKey": "hidden-secret"}).count()
    texts += [str(refused.value), "".join(capfd.readouterr())]
    assert [text for text in texts if "hidden" in text] == []


def test_a_stream_from_topic_to_topic(cluster, live_read, spark, tmp_path):
    cluster.add_topic("target", queues={"broker-a": 2})
    sink = SendingBroker(cluster.broker("broker-a"), cluster.served.queues)
    source = max(cluster.served.queues, key=lambda key: cluster.served.queues[key].max_offset)[0]
    sent = 0
    for _ in range(2):  # the second run finds nothing new
        query = (
            spark.readStream.format("rocketmq")
            .options(**cluster.options(topic=source))
            .load()
            .selectExpr("body", "properties")
            .writeStream.queryName("copy")
            .format("rocketmq")
            .options(**cluster.options(topic="target", compatibility=5))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        assert query.exception() is None
        sent = sent or len(sink.requests)
    assert len(sink.requests) == sent > 0
    read = live_read(cluster.options(topic=source)).count()
    rows = live_read(cluster.options(topic="target")).collect()
    names = {row.properties[PROPERTY_SPARK_BATCH] for row in rows}
    assert len(rows) == len(names) == read
    assert {name.split(":")[:2] == [query.id, "0"] for name in names} == {True}


def test_one_query_shows_its_lag_and_offsets(cluster, live_read, spark, tmp_path):
    topic, queue_id = max(cluster.served.queues)
    query = (
        spark.readStream.format("rocketmq")
        .options(**cluster.options(topic=topic), **SECRETS)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        progress = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]
        offset = json.loads(progress) if isinstance(progress, str) else progress
    finally:
        query.stop()
    ends = offset["queues"][topic]["broker-a"]
    assert ends[str(queue_id)] == cluster.served.queues[topic, queue_id].max_offset
    kept = "".join(path.read_text() for path in tmp_path.rglob("[0-9]") if path.is_file())
    assert "hidden" not in kept


def test_tables_and_a_schema_of_ones_own(cluster, live_read):
    queues = live_read(cluster.options(table="queues"))
    assert (
        queues.groupBy().sum("messages").collect()[0][0]
        == live_read(cluster.options(topicPattern=".*"), "body binary, TOPIC string")
        .select("Topic")
        .count()
    )
    with pytest.raises(Exception, match="there is no column 'nope'"):
        live_read(cluster.options(topicPattern=".*"), "nope int").count()
