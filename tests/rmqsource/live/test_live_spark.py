"""Spark reads, follows and writes a cluster of scripted brokers."""

from __future__ import annotations

import pytest

from tests.golden_store import golden
from tests.rmqsource.live.recorded_broker import RecordedCluster


@pytest.fixture
def cluster():
    with RecordedCluster() as running:
        running.serve(golden("classic-5x"))
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
