# SPDX-License-Identifier: Apache-2.0
"""Tables of a cluster have the same content as the tables of its brokers' files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqsource.live.errors import ClusterError
from rmqsource.live.live_options import parse_live_options
from rmqsource.live.live_tables import read_live_table
from rmqsource.metadata import read_metadata
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.tables import LIVE_TABLES
from tests.golden_store import golden
from tests.rmqnet.scripted_cluster import answer
from tests.rmqsource.live.recorded_broker import RecordedCluster
from tests.rmqsource.reading import parsed


@pytest.fixture
def store():
    return golden("cluster-5x")


@pytest.fixture
def cluster(store):
    with RecordedCluster() as running:
        running.served = running.serve(store)
        yield running


def live_rows(cluster, table, **options):
    given = parse_live_options(cluster.options(table=table, **options))
    rows = [row for batch in read_live_table(given) for row in pa.table(batch).to_pylist()]
    assert all(list(row) == [column.name for column in LIVE_TABLES[table].columns] for row in rows)
    return rows


def file_rows(store, table, **options):
    given = parsed(store.root, table=table, **store.options, **options)
    rows = []
    for snapshot in open_snapshots(given):
        with snapshot:
            for batch in read_metadata(table, snapshot, given):
                rows += pa.table(batch).to_pylist()
    return rows


def without(rows, *names):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def of_queues(rows):
    return {(row["topic"], row["queue_id"]): row for row in rows}


def test_queues(cluster, store):
    live = of_queues(without(live_rows(cluster, "queues"), "store"))
    files = of_queues(without(file_rows(store, "queues"), "store"))
    held = {key: row for key, row in files.items() if row["messages"]}
    assert held
    assert {key: live[key] for key in held} == held
    assert all(live[key]["messages"] == 0 for key in live.keys() - held.keys())


def test_topics(cluster, store):
    names = ("store", "bytes", "queues", "kind")
    live = {row["topic"]: row for row in without(live_rows(cluster, "topics"), *names)}
    files = {row["topic"]: row for row in without(file_rows(store, "topics"), *names)}
    held = {topic: row for topic, row in files.items() if row["messages"]}
    assert held
    assert {topic: live[topic] for topic in held} == held


def test_selected(cluster):
    (topic, queue_id) = max(cluster.served.queues)
    rows = live_rows(cluster, "queues", topic=topic, queueId=queue_id)
    assert [(row["topic"], row["queue_id"]) for row in rows] == [(topic, queue_id)]
    assert {row["topic"] for row in live_rows(cluster, "topics", topic=topic)} == {topic}


def test_routes(cluster):
    cluster.add_topic("two", queues={"broker-a": 3, "broker-b": 1}, perm=4)
    rows = live_rows(cluster, "routes", topic="two")
    assert [(r["broker_name"], r["read_queues"], r["perm"]) for r in rows] == [
        ("broker-a", 3, "r"),
        ("broker-b", 1, "r"),
    ]
    assert {row["store"] for row in rows} == {
        f"{row['broker_name']}@{row['address']}" for row in rows
    }


def test_consumer_offsets(cluster, store):
    files = file_rows(store, "consumer_offsets")
    assert files
    for row in files:
        key = (row["group"], row["topic"], row["queue_id"])
        cluster.served.committed[key] = row["consumer_offset"]
    known = {topic for topic, _ in cluster.served.queues}
    live = live_rows(cluster, "consumer_offsets")
    place = ("group", "topic", "queue_id")

    def shown(rows):
        return {
            tuple(row[name] for name in place): row
            for row in without(rows, "store")
            if row["topic"] in known
        }

    assert shown(live) == shown(files)
    assert len(live) == len(files)


def test_consumer_offsets_outside_of_their_queues(cluster):
    (topic, queue_id), queue = next(
        (key, queue) for key, queue in cluster.served.queues.items() if len(queue.records) > 3
    )
    queue.min_offset += 3
    cluster.served.committed.update(
        {
            ("ahead", topic, queue_id): queue.max_offset + 5,
            ("late", topic, queue_id): queue.min_offset - 2,
            ("g", "NoSuchTopic", 0): 7,
        }
    )
    rows = {row["group"]: row for row in live_rows(cluster, "consumer_offsets")}
    assert (rows["ahead"]["lag"], rows["ahead"]["expired"]) == (-5, 0)
    held = queue.max_offset - queue.min_offset
    assert (rows["late"]["lag"], rows["late"]["expired"]) == (held + 2, 2)
    assert (rows["g"]["lag"], rows["g"]["broker_offset"]) == (0, 0)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST])
def test_a_topic_is_left_out_only_if_it_is_gone(cluster, code):
    """Other failures do not count as a missing topic."""
    routes = cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    whole = {row["topic"] for row in live_rows(cluster, "topics")}
    hidden = min(whole)

    def route(request):
        if request.ext_fields["topic"] == hidden:
            return answer(request, code, "told to fail")
        return routes(request)

    cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
    if code == ResponseCode.TOPIC_NOT_EXIST:
        assert {row["topic"] for row in live_rows(cluster, "topics")} == whole - {hidden}
    else:
        with pytest.raises(ClusterError, match="told to fail"):
            live_rows(cluster, "topics", retryTimeout="100ms")
