"""A live read gives the rows that the broker's files give, read by the file source."""

from __future__ import annotations

import pytest

from tests.golden_store import golden
from tests.rmqsource.live.live_reading import MESSAGE_COLUMNS, read_live
from tests.rmqsource.live.recorded_broker import RecordedCluster, without_store
from tests.rmqsource.reading import read_rows

STORES = ("classic-5x", "classic-4x", "cluster-5x")


def topics_of(broker):
    return sorted({topic for topic, _ in broker.queues if not topic.startswith("%LMQ%")})


def file_rows(store, **options):
    return without_store(
        read_rows(store.root, MESSAGE_COLUMNS, access="consumequeue", **store.options, **options)
    )


@pytest.mark.parametrize("name", STORES)
def test_all_topics_equal_the_files(name):
    store = golden(name)
    with RecordedCluster() as cluster:
        broker = cluster.serve(store)
        rows = read_live(cluster.options(topicPattern=".*"))
        assert {row["store"] for row in rows} == {f"broker-a@{broker.server.address}"}
    assert without_store(rows) == file_rows(store)
    assert len(rows) > 100
