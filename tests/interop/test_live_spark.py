# SPDX-License-Identifier: Apache-2.0
"""Spark on real clusters: reads match the brokers' files, and Java sees the writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqsource
from rmqnet import Admin
from rmqsource.live.live_options import parse_live_options
from rmqsource.live.live_tables import read_live_table
from tests.interop.client_node import ClientNode, body_of, numbered_key, wait_until
from tests.interop.live_cluster import LiveCluster, unique
from tests.rmqsource.live.live_reading import MESSAGE_COLUMNS, read_live
from tests.rmqsource.reading import read_rows

pytestmark = pytest.mark.interop

PLACE = ["topic", "queue_id", "queue_offset"]
SPARK_BATCH = "__SPARK_BATCH__"
INDEX = {"maxHashSlotNum": 50_000, "maxIndexNum": 200_000}


@pytest.fixture(autouse=True)
def _registered(spark: Any) -> None:
    rmqsource.register(spark)


def _live(spark: Any, cluster: LiveCluster, topic: str, **options: Any) -> Any:
    given = {"namesrvAddr": cluster.namesrv_addr, "topic": topic, **options}
    return spark.read.format("rocketmq").options(**given).load()


def _files(spark: Any, cluster: LiveCluster, topic: str, **options: Any) -> Any:
    sizes = {**INDEX, "access": "consumequeue"}
    reader = spark.read.format("rocketmq-store").options(topic=topic, **sizes, **options)
    return reader.load(str(cluster.store()))


def _rows(frame: Any) -> list[Any]:
    rows: list[Any] = frame.drop("store").orderBy(*PLACE).collect()
    return rows


def _fill(java: ClientNode, topic: str) -> int:
    java.create_topic(topic, queues=3)
    java.start_producer("p", unique("producers"))
    java.send("p", topic, 100, seed=1, tags=["a", "b"])
    java.send("p", topic, 50, seed=2, mode="async", size=5000)
    java.send("p", topic, 210, seed=3, mode="batch", batch_size=70)
    return 360


def test_a_batch_has_what_the_files_have(
    spark: Any, live_cluster: LiveCluster, tmp_path: Path
) -> None:
    topic = unique("read")
    with ClientNode(tmp_path / "jvm", live_cluster.release, live_cluster.namesrv_addr) as java:
        sent = _fill(java, topic)
    for options in (
        {},
        {"tags": "b"},
        {"sqlFilter": "number BETWEEN 10 AND 19 AND TAGS IS NOT NULL"},
        {"where": "queue_id = 1 AND queue_offset >= 20"},
        {"body": "raw", "queueId": "0,2"},
    ):
        live = _rows(_live(spark, live_cluster, topic, **options))
        assert live == _rows(_files(spark, live_cluster, topic, **options)), options
        assert 0 < len(live) <= sent
    key = numbered_key(1, 7)
    for options in ({"keys": key}, {"keys": key, "access": "consumequeue"}):
        found = _live(spark, live_cluster, topic, **options).collect()
        assert [row.keys for row in found] == [[key]]
    _check_tables(spark, live_cluster, topic, sent)


def _check_tables(spark: Any, cluster: LiveCluster, topic: str, sent: int) -> None:
    """Tables of a cluster and tables of its files have the same rows."""
    for table in ("queues", "topics"):
        live = _live(spark, cluster, topic, table=table).drop("store", "bytes")
        reader = spark.read.format("rocketmq-store").options(topic=topic, table=table)
        files = reader.load(str(cluster.store())).drop("store", "bytes")
        assert sorted(live.collect()) == sorted(files.collect()), table
    (row,) = _live(spark, cluster, topic, table="topics").collect()
    assert (row.messages, row.queues, row.store) == (sent, 3, f"broker-a@{cluster.address()}")
    (row,) = _live(spark, cluster, topic, table="routes").collect()
    assert (row.broker_name, row.broker_id, row.perm) == ("broker-a", 0, "rw")


def test_reads_go_on_while_the_broker_is_killed_and_starts_again(
    spark: Any, tmp_path: Path
) -> None:
    topic = unique("restart")
    jobs = spark.sparkContext.statusTracker()
    with _durable_cluster(tmp_path) as (cluster, java):
        java.create_topic(topic, queues=2)
        java.start_producer("p", unique("producers"))
        java.send("p", topic, 4000, seed=1, mode="batch", batch_size=200)
        stream: list[Any] = []
        query = _follow(spark, cluster, topic, tmp_path / "checkpoint", stream)

        def read() -> list[Any]:
            spark.sparkContext.setJobGroup(topic, "a batch")
            # One message at a time, so that the read takes long.
            return _rows(_live(spark, cluster, topic, maxMessagesPerPull=1, minPartitions=2))

        batch = _InThread(read)
        assert wait_until(lambda: jobs.getJobIdsForGroup(topic) and len(stream) >= 200)
        cluster.kill_broker()
        cluster.start_broker()
        java.send("p", topic, 100, seed=2)
        assert wait_until(lambda: len(stream) >= 4100, 60)
        query.stop()
        written = _rows(_files(spark, cluster, topic))
        assert len(written) == 4100
        assert _sorted(stream) == written
        assert batch.result() == [r for r in written if not r.keys[0].startswith("K2-")]


def test_two_brokers_plain_and_batch_queues(
    spark: Any, live_pair: LiveCluster, tmp_path: Path
) -> None:
    plain, batch, count = unique("plain"), unique("batch"), 600
    rows = _to_write(spark, count).drop("delay_level")
    with (
        ClientNode(tmp_path / "jvm", "5.3.3", live_pair.namesrv_addr) as java,
        Admin(live_pair.namesrv_addr) as admin,
    ):
        admin.create_topic(plain, 2)
        admin.create_topic(batch, 2, attributes={"queue.type": "BatchCQ"})
        java.start_producer("p", unique("producers"))
        for topic in (plain, batch):
            assert wait_until(lambda topic=topic: len(admin.route(topic).brokers) == 2)
            _save(rows, live_pair, topic)
            java.send("p", topic, 210, seed=3, mode="batch", batch_size=70)
    asked = {"namesrvAddr": live_pair.namesrv_addr}
    for topic in (plain, batch):
        written = [
            row
            for name in live_pair.brokers
            for row in read_rows(
                live_pair.store(name), MESSAGE_COLUMNS, topic=topic, access="auto", **INDEX
            )
        ]
        assert len(written) == count + 210
        assert _of_all_brokers(read_live({**asked, "topic": topic})) == _of_all_brokers(written)
    once = read_live({**asked, "topic": batch, "dedupe": "true"})
    assert len(once) == count + 210
    # Each of these is a separate read; none has the filter of another.
    even, odd = (_live(spark, live_pair, plain, tags=tag) for tag in ("even", "odd"))
    found = even.union(odd).union(even).groupBy("tags").count().cache()
    for _ in range(2):
        assert {row.tags: row["count"] for row in found.collect()} == {
            "even": count,
            "odd": count // 2,
        }
    assert len(_live(spark, live_pair, plain).limit(5).collect()) == 5


def _of_all_brokers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        del row["store"]
    return sorted(rows, key=lambda row: (row["store_host"], row["commit_log_offset"], row["body"]))


@contextmanager
def _durable_cluster(directory: Path) -> Iterator[tuple[LiveCluster, ClientNode]]:
    """Run a cluster that loses nothing when its broker is killed, and Java's clients for it."""
    settings = {"flushDiskType": "SYNC_FLUSH"}
    with (
        LiveCluster(directory / "cluster", settings=settings) as cluster,
        ClientNode(directory / "jvm", "5.3.3", cluster.namesrv_addr) as java,
    ):
        yield cluster, java


def _follow(spark: Any, cluster: LiveCluster, topic: str, checkpoint: Path, rows: list[Any]) -> Any:
    def keep(batch: Any, _: int) -> None:
        rows.extend(batch.drop("store").collect())

    frame = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=cluster.namesrv_addr, topic=topic, maxOffsetsPerTrigger=500)
        .load()
    )
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    return writer.start()


def _sorted(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in PLACE))


class _InThread:
    """A result that another thread produces."""

    def __init__(self, make: Any) -> None:
        self._found: list[Any] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(make,))
        self._thread.start()

    def _run(self, make: Any) -> None:
        try:
            self._found.append(make())
        except BaseException as err:
            self._error.append(err)

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(90)
        if self._error:
            raise self._error[0]
        return self._found[0]


def _to_write(spark: Any, count: int) -> Any:
    size = "if(id % 40 = 7, 6000, cast(id % 300 AS int))"
    return spark.range(0, count, numPartitions=2).selectExpr(
        f"cast(concat('row ', id, repeat('.', {size})) AS binary) AS body",
        "array(concat('k', id), 'shared') AS keys",
        "if(id % 2 = 0, 'even', 'odd') AS tags",
        "map('number', cast(id AS string)) AS properties",
        "if(id % 100 = 99, 1, 0) AS delay_level",
    )


def _save(frame: Any, cluster: LiveCluster, topic: str, **options: Any) -> None:
    writer = frame.write.format("rocketmq").mode("append")
    writer.options(namesrvAddr=cluster.namesrv_addr, topic=topic, **options).save()


def test_java_sees_what_was_written(spark: Any, live_cluster: LiveCluster, tmp_path: Path) -> None:
    topic, count = unique("write"), 1000
    rows = _to_write(spark, count)
    expected = {row.properties["number"]: bytes(row.body) for row in rows.collect()}
    with ClientNode(tmp_path / "jvm", live_cluster.release, live_cluster.namesrv_addr) as java:
        java.create_topic(topic)
        _save(rows, live_cluster, topic)
        java.start_consumer("c", unique("consumers"), {topic: "*"})
        received = java.wait_received("c", count)
        java.ask("close_consumer", name="c")
    assert len(received) == count
    assert {row["properties"]["number"]: body_of(row) for row in received} == expected
    assert {row["tags"] for row in received} == {"even", "odd"}
    assert {row["keys"] for row in received} == {f"k{n} shared" for n in range(count)}
    names = {row["properties"][SPARK_BATCH] for row in received}
    assert len(names) == count
    assert len({name.split(":")[0] for name in names}) == 1
    by_tag = _live(spark, live_cluster, topic, tags="even").count()
    assert by_tag == count // 2


def test_a_stream_writes_what_another_reads(
    spark: Any, live_cluster: LiveCluster, tmp_path: Path
) -> None:
    source, target = unique("from"), unique("to")
    with ClientNode(tmp_path / "jvm", live_cluster.release, live_cluster.namesrv_addr) as java:
        java.create_topic(source)
        java.create_topic(target)
        java.start_producer("p", unique("producers"))
        java.send("p", source, 200, seed=1, tags=["a"])
        address = {"namesrvAddr": live_cluster.namesrv_addr}
        frame = spark.readStream.format("rocketmq").options(**address, topic=source).load()
        query = (
            frame.selectExpr("body", "keys", "tags", "properties")
            .writeStream.format("rocketmq")
            .options(**address, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        pulled = java.pull_all(target)
        assert {row["keys"] for row in pulled} == {numbered_key(1, n) for n in range(200)}
        assert len(pulled) == 200
        prefix = {row["properties"][SPARK_BATCH].rsplit(":", 2)[0] for row in pulled}
        assert prefix == {f"{query.id}:0"}


def test_a_write_goes_on_while_the_broker_is_killed_and_starts_again(
    spark: Any, tmp_path: Path
) -> None:
    topic, count = unique("killed"), 20_000
    with _durable_cluster(tmp_path) as (cluster, java):
        java.create_topic(topic)
        rows = _to_write(spark, count).drop("delay_level")

        def write() -> None:
            rmqsource.register(spark)  # as each thread that writes must
            _save(rows, cluster, topic, sendBatchBytes="8k")

        writing = _InThread(write)
        asked = {"namesrvAddr": cluster.namesrv_addr, "topic": topic, "table": "topics"}
        table = parse_live_options(asked)
        assert wait_until(
            lambda: writing.has_ended or next(read_live_table(table))["messages"][0].as_py() > 500
        )
        cluster.kill_broker()
        cluster.start_broker()
        writing.result()
        every = sorted(str(number) for number in range(count))
        found = _live(spark, cluster, topic).selectExpr("properties['number'] AS n").collect()
        assert sorted({row.n for row in found}) == every
        once = _live(spark, cluster, topic, dedupe="true").selectExpr("properties['number'] AS n")
        assert sorted(row.n for row in once.collect()) == every
