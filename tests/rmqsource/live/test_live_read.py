# SPDX-License-Identifier: Apache-2.0
"""A live read gives the same rows as the file source on the broker's files."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest

from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqsource.errors import DamagedStoreError, SourceOptionError
from rmqsource.live.cluster import Cluster
from rmqsource.live.errors import ClusterError, KeyLookupError, LiveDataLossError
from rmqsource.live.live_options import parse_live_options
from rmqsource.live.live_read import (
    KeyPlace,
    KeyQuestion,
    frames_of_keys,
    plan_live_read,
    read_live_split,
)
from rmqsource.live.queue_pulls import QueuePulls
from store_core.layout import SYS_FLAG_AT
from tests.golden_store import golden
from tests.rmqsource.live.live_reading import MESSAGE_COLUMNS, read_live
from tests.rmqsource.live.recorded_broker import (
    BATCH_ATTRIBUTES,
    RecordedCluster,
    without_store,
)
from tests.rmqsource.reading import read_rows

STORES = ("classic-5x", "classic-4x", "cluster-5x")


def file_rows(store, **options):
    given = {"access": "consumequeue", **store.options, **options}
    return without_store(read_rows(store.root, MESSAGE_COLUMNS, **given))


@pytest.mark.parametrize("name", STORES)
def test_all_topics_equal_the_files(name):
    store = golden(name)
    with RecordedCluster() as cluster:
        broker = cluster.serve(store)
        rows = read_live(cluster.options(topicPattern=".*"))
        assert {row["store"] for row in rows} == {f"broker-a@{broker.server.address}"}
    assert without_store(rows) == file_rows(store)
    assert len(rows) > 100


@pytest.fixture
def store():
    return golden("classic-5x")


@pytest.fixture
def cluster(store):
    with RecordedCluster() as running:
        running.served = running.serve(store)
        running.busiest = max(
            running.served.queues, key=lambda key: running.served.queues[key].max_offset
        )
        yield running


def live_rows(cluster, **options):
    given = {"topicPattern": ".*", **options}
    if "topic" in options:
        del given["topicPattern"]
    return without_store(read_live(cluster.options(**given)))


def some_row(store, **wanted):
    rows = file_rows(store)
    return next(row for row in rows if all(row[name] == value for name, value in wanted.items()))


@pytest.mark.parametrize(
    "options",
    [
        {"tags": "TagA || TagC"},
        {"where": "tags IN ('TagA', 'TagB') AND queue_offset BETWEEN 1 AND 9"},
        {"where": "queue_offset >= 5 AND queue_offset < 20"},
        {"where": "queue_id = 0"},
        {"queueId": "1,2"},
        {"sqlFilter": "region = 'eu' OR TAGS = 'TagB'"},
        {"sqlFilter": "region STARTSWITH 'e'"},
        {"body": "raw"},
        {"tags": "none-such"},
        {"checkCRC": True, "batchRows": 50},
    ],
    ids=str,
)
def test_filters_mean_what_they_mean_for_files(cluster, store, options):
    if "BETWEEN" in options.get("where", ""):
        options = {"where": options["where"].replace("BETWEEN 1 AND 9", ">= 1")}
    assert live_rows(cluster, **options) == file_rows(store, **options)


def test_brokers_leave_out_what_they_can(cluster):
    live_rows(cluster, tags="TagA || TagC")
    pulls = cluster.served.server.asked(RequestCode.PULL_MESSAGE)
    pulls = [pull for pull in pulls if pull.ext_fields["topic"] != "SCHEDULE_TOPIC_XXXX"]
    assert {pull.ext_fields["subscription"] for pull in pulls} == {"TagA || TagC"}
    assert {pull.ext_fields["sysFlag"] for pull in pulls} == {"4"}


def test_a_broker_that_has_no_sql_is_pulled_from_all_the_same(cluster, store):
    cluster.served.has_sql = False
    text = "region = 'eu'"
    assert live_rows(cluster, sqlFilter=text) == file_rows(store, sqlFilter=text)


def test_words_that_not_every_broker_knows_are_not_sent(cluster):
    live_rows(cluster, sqlFilter="region STARTSWITH 'e'")
    pulls = cluster.served.server.asked(RequestCode.PULL_MESSAGE)
    assert {pull.ext_fields["subscription"] for pull in pulls} == {"*"}


def test_a_filter_that_does_not_parse_is_an_error_before_any_pull(cluster):
    with pytest.raises(SourceOptionError, match="sqlFilter"):
        live_rows(cluster, sqlFilter="region = ")
    assert cluster.served.server.requests == []


@pytest.mark.parametrize("is_4x", [False, True])
@pytest.mark.parametrize("slack", ["0", "600000"])
def test_times(cluster, store, is_4x, slack):
    cluster.served.is_4x = is_4x
    times = sorted({row["store_timestamp"] for row in file_rows(store)})
    for first, stop in ((0.3, 0.6), (0.0, 0.5), (0.5, 1.0)):
        start = int(times[int(len(times) * first)].timestamp() * 1000)
        end = int(times[min(int(len(times) * stop), len(times) - 1)].timestamp() * 1000) + 1
        options = {"startingTimestamp": start, "endingTimestamp": end}
        expected = file_rows(store, **options)
        assert live_rows(cluster, storeTimeSlackMs=slack, **options) == expected
        assert expected


def test_named_offsets(cluster, store):
    topic, queue_id = cluster.busiest
    options = {
        "topic": topic,
        "startingOffsets": json.dumps({topic: {str(queue_id): 3}}),
        "endingOffsets": json.dumps({topic: {str(queue_id): 9}}),
    }
    assert live_rows(cluster, **options) == file_rows(store, **options)


def test_offsets_that_are_gone(cluster):
    topic, queue_id = cluster.busiest
    cluster.served.queues[cluster.busiest].min_offset = 10
    starting = json.dumps({topic: {str(queue_id): 3}})
    with pytest.raises(LiveDataLossError, match="offsets 3 to 9 of queue"):
        live_rows(cluster, topic=topic, startingOffsets=starting)
    rows = live_rows(cluster, topic=topic, startingOffsets=starting, failOnDataLoss=False)
    assert min(r["queue_offset"] for r in rows if r["queue_id"] == queue_id) == 10


def test_small_pulls_and_many_splits_give_the_same(cluster, store):
    cluster.served.pull_limit = 3
    rows = live_rows(cluster, maxMessagesPerPull=7, minPartitions=13)
    assert rows == file_rows(store)
    assert len(plan_live_read(parsed(cluster, minPartitions=13))) >= 13


def test_large_messages_are_pulled_in_parts(cluster, store, monkeypatch):
    sizes = []
    pull_chunk = QueuePulls.pull_chunk

    async def pull(self, chunk):
        found = await pull_chunk(self, chunk)
        sizes.append(sum(len(pulled.body) for pulled in found))
        return found

    monkeypatch.setattr(QueuePulls, "pull_chunk", pull)
    monkeypatch.setattr("rmqsource.live.queue_pulls._CHUNK_BYTES", 3000)
    cluster.served.pull_limit = 1
    queues = [q for (name, _), q in cluster.served.queues.items() if name == "OrderEvents"]
    largest = max(len(record.data) for queue in queues for record in queue.records)
    assert live_rows(cluster, topic="OrderEvents") == file_rows(store, topic="OrderEvents")
    assert max(sizes) < 3000 + largest


def parsed(cluster, **options):
    return parse_live_options(cluster.options(topicPattern=".*", **options))


def test_a_broker_that_is_busy_is_asked_again(cluster, store):
    cluster.served.failures = [
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
    ] * 3
    assert live_rows(cluster) == file_rows(store)


def test_a_broker_that_forbids_reading_is_an_error_at_once(cluster):
    cluster.served.failures = [ResponseCode.NO_PERMISSION] * 20
    with pytest.raises(ClusterError, match="told to fail"):
        live_rows(cluster, retryTimeout="1h")


def test_a_signature_that_is_refused_is_an_error_at_once(cluster):
    cluster.served.failures = [ResponseCode.SYSTEM_ERROR] * 20
    cluster.served.remark = "org.apache.rocketmq.acl.common.AclException: Check signature failed"
    with pytest.raises(ClusterError, match="Check signature failed"):
        live_rows(cluster, retryTimeout="1h")


def test_a_broker_that_restarts_while_it_is_read(cluster, store):
    options = parsed(cluster, maxMessagesPerPull=2)
    rows = []
    for number, split in enumerate(plan_live_read(options)):
        for batch in read_live_split(split, options, MESSAGE_COLUMNS):
            rows += pa.table(batch).to_pylist()
        if number == 0:
            cluster.served.server.stop()
            starting = threading.Timer(0.3, cluster.served.server.start)
            starting.start()
    starting.join()
    assert without_store(rows) == file_rows(store)


def test_messages_that_expire_while_they_are_read(cluster):
    options = parsed(cluster)
    splits = plan_live_read(options)
    queue = cluster.served.queues[cluster.busiest]
    queue.min_offset = 5
    with pytest.raises(LiveDataLossError, match=r"offsets 0 to 4 of queue .* are gone"):
        read_all(splits, options)
    lenient = parsed(cluster, failOnDataLoss=False)
    rows = read_all(splits, lenient)
    assert len(rows) == sum(part.messages for split in splits for part in split.ranges) - 5


def test_messages_that_are_missing_in_the_middle(cluster):
    queue = cluster.served.queues[cluster.busiest]
    lost = queue.records.pop(7)
    with pytest.raises(LiveDataLossError, match=f"offsets {lost.first} to {lost.first} of queue"):
        live_rows(cluster)
    rows = live_rows(cluster, failOnDataLoss=False)
    assert rows


def test_messages_that_a_crash_took_while_they_are_read(cluster):
    options = parsed(cluster, retryTimeout="100ms")
    splits = plan_live_read(options)
    cluster.served.queues[cluster.busiest].hidden = 3
    with pytest.raises(LiveDataLossError, match=r"offsets 362 to 364 of queue .* are gone"):
        read_all(splits, options)


def read_all(splits, options):
    rows = []
    for split in splits:
        for batch in read_live_split(split, options, ("topic", "queue_id", "queue_offset")):
            rows += pa.table(batch).to_pylist()
    return rows


def test_an_answer_that_holds_no_records(cluster):
    queue = cluster.served.queues[cluster.busiest]
    queue.records[0].data = b"\0" * 100
    with pytest.raises(ClusterError, match="no record begins here"):
        live_rows(cluster)


@pytest.mark.parametrize("pieces", [1, 5])
def test_inner_batches(pieces):
    store = golden("batch-5x")
    with RecordedCluster() as cluster:
        broker = cluster.serve(store, access="auto")
        broker.attributes = {
            topic: BATCH_ATTRIBUTES
            for (topic, _), queue in broker.queues.items()
            if any(len(record.rows) > 1 for record in queue.records)
        }
        assert broker.attributes
        rows = live_rows(cluster, minPartitions=pieces)
        assert rows == file_rows(store, access="auto")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rmqsource.live.queue_pulls._CHUNK_BYTES", 500)
            assert live_rows(cluster, minPartitions=pieces) == rows
        wanted = min(row["tags"] for row in rows if row["tags"])
        assert live_rows(cluster, tags=wanted) == file_rows(store, access="auto", tags=wanted)


def test_keys_by_the_index(cluster, store):
    row = next(row for row in file_rows(store) if row["keys"])
    options = {"topic": row["topic"], "keys": json.dumps(row["keys"][:1])}
    expected = file_rows(store, **options)
    assert live_rows(cluster, **options) == expected
    assert row in expected
    assert cluster.served.server.asked(RequestCode.PULL_MESSAGE) == []
    assert live_rows(cluster, access="consumequeue", **options) == expected
    assert cluster.served.server.asked(RequestCode.PULL_MESSAGE)


def test_unique_keys_by_the_index(cluster, store):
    row = next(row for row in file_rows(store) if row["unique_key"])
    options = {"topic": row["topic"], "uniqueKeys": row["unique_key"]}
    assert live_rows(cluster, **options) == file_rows(store, **options)


def test_more_messages_of_a_key_than_a_broker_gives(cluster, store, monkeypatch):
    topic, _ = cluster.busiest
    wanted = []
    for (name, _), queue in cluster.served.queues.items():
        for number, record in enumerate(queue.records):
            if name == topic:
                record.rows[0]["keys"] = ["everywhere"]
                record.store_ms = 1_700_000_000_000 + 1000 * (len(wanted) // 3) + number % 3
                wanted.append(record)
    assert len(wanted) > 64
    place = KeyPlace(topic, "broker-a", "broker-a@x")
    found = run_query(cluster, place, "everywhere")
    assert len(found) == len(wanted)
    for record in wanted:
        record.store_ms = 1_700_000_000_000
    with pytest.raises(KeyLookupError, match="within a second"):
        run_query(cluster, place, "everywhere")


def test_large_messages_of_a_key_come_in_answers_that_fit_a_frame(cluster, monkeypatch):
    monkeypatch.setattr("rmqsource.live.live_read._ANSWER_BYTES", 3000)
    wanted = [
        r
        for (name, _), q in cluster.served.queues.items()
        if name == "OrderEvents"
        for r in q.records
    ]
    wanted = [record for record in wanted if len(record.data) < 1000]
    for number, record in enumerate(wanted):
        record.rows[0]["keys"] = ["everywhere"]
        record.store_ms = 1_700_000_000_000 + 1000 * number
    place = KeyPlace("OrderEvents", "broker-a", "broker-a@x")
    assert len(run_query(cluster, place, "everywhere")) == len(wanted) > 100
    assert max(cluster.served.index_answers) < 16_000 / 12_000 * 3000
    for record in wanted:
        record.store_ms = 1_700_000_000_000
    with pytest.raises(KeyLookupError, match="within a second"):
        run_query(cluster, place, "everywhere")
    assert max(cluster.served.index_answers) < 16_000 / 12_000 * 3000


def run_query(cluster, place, key):
    connection = parsed(cluster).connection
    with Cluster(connection) as opened:
        question = KeyQuestion((key,), 0, (1 << 62) - 1)
        return opened.call(frames_of_keys(opened, place, question))


def test_an_unknown_topic_is_an_error(cluster):
    with pytest.raises(ClusterError, match="does not know topic 'nobody'"):
        live_rows(cluster, topic="nobody")


def test_no_name_server(store):
    with pytest.raises(ClusterError, match="no name server answers"):
        read_live({"namesrvAddr": "127.0.0.1:1", "topic": "t", "retryTimeout": "10ms"})


def test_two_brokers(cluster, store):
    cluster.serve(golden("classic-4x"), "broker-b")
    rows = read_live(cluster.options(topicPattern=".*"))
    by_broker = {}
    for row in rows:
        by_broker.setdefault(row["store"].split("@")[0], []).append(row)
    assert without_store(by_broker["broker-a"]) == file_rows(store)
    assert without_store(by_broker["broker-b"]) == file_rows(golden("classic-4x"))


def test_a_body_that_does_not_inflate(cluster):
    topic, queue_id = cluster.busiest
    record = cluster.served.queues[cluster.busiest].records[3]
    data = bytearray(record.data)
    data[SYS_FLAG_AT + 3] |= 1  # its flag says it is compressed
    record.data = bytes(data)
    with pytest.raises(DamagedStoreError, match=r"broker-a@.*its log at byte"):
        live_rows(cluster, topic=topic)
    everything = len(cluster.served.queues[cluster.busiest].records)
    options = {"topic": topic, "queueId": queue_id}
    assert len(live_rows(cluster, mode="DROPMALFORMED", **options)) == everything - 1
    rows = read_live(
        cluster.options(mode="PERMISSIVE", **options), (*MESSAGE_COLUMNS, "_corrupt_record")
    )
    (damage,) = [json.loads(r["_corrupt_record"]) for r in rows if r["_corrupt_record"]]
    assert damage["commit_log_offset"] == record.rows[0]["commit_log_offset"]
