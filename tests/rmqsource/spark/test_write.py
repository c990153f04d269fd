# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import rmqsource
from store_core import StoreSnapshot
from store_core.tools.check.store_check import check_store

SIZES = {
    "mappedFileSizeCommitLog": "64k",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


@pytest.fixture
def save(spark):
    rmqsource.register(spark)

    def write(frame, root, **options):
        writer = frame.write.format("rocketmq-store").mode("append")
        writer.options(**SIZES, **options).save(str(root))

    return write


def problems(root):
    with StoreSnapshot(root) as snapshot:
        return [str(finding) for finding in check_store(snapshot).findings]


def test_what_is_written_is_read_and_can_be_written_again(spark, save, read, tmp_path):
    spark.range(900, numPartitions=2).createOrReplaceTempView("numbers")
    messages = spark.sql(
        "select concat('T', id % 3) topic, encode(concat('b', id), 'utf-8') BODY, "
        "array(concat('k', id), 'all') keys, if(id % 2 = 0, 'even', null) tags, "
        "map('n', string(id)) properties, int(id) flag from numbers"
    )
    save(messages, tmp_path / "a")
    columns = "topic, body, keys, tags, properties['n'] n, flag"
    found = read(tmp_path / "a").selectExpr(*columns.split(", ")).collect()
    wanted = messages.selectExpr(*columns.split(", ")).collect()
    assert sorted(map(str, found)) == sorted(map(str, wanted))
    assert problems(tmp_path / "a") == []

    save(read(tmp_path / "a"), tmp_path / "b")
    kept = ["topic", "keys", "tags", "properties", "body", "flag", "born_timestamp", "born_host"]
    rows = [sorted(map(str, read(tmp_path / name).select(*kept).collect())) for name in ("a", "b")]
    assert rows[0] == rows[1]
    assert rmqsource.last_commit(str(tmp_path / "b")).messages == 900


def test_a_bad_row_fails_the_job_before_anything_is_appended(spark, save, tmp_path):
    frame = spark.sql("select 'A' topic, 'b' body, int(-1) queue_id")
    with pytest.raises(Exception, match="column 'queue_id': is -1"):
        save(frame, tmp_path)
    assert not (tmp_path / "commitlog").exists()
    save(frame, tmp_path, badRows="drop", createStore="true")
    assert rmqsource.last_commit(str(tmp_path)) is None


def test_a_version_is_written_once(spark, save, read, tmp_path):
    frame = spark.sql("select 'A' topic, 'b' body")
    for version in (1, 1, 2):
        save(frame, tmp_path, txnAppId="a", txnVersion=version)
    assert read(tmp_path).count() == 2


def test_a_streaming_batch_is_written_once(spark, read, tmp_path):
    rmqsource.register(spark)
    source, store, checkpoint = (tmp_path / name for name in ("source", "store", "checkpoint"))

    def run():
        rows = spark.readStream.schema("topic string, body string").json(str(source))
        query = (
            rows.writeStream.queryName("orders")
            .format("rocketmq-store")
            .options(**SIZES)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(store))
        )
        query.awaitTermination()

    source.mkdir()
    lines = [json.dumps({"topic": "A", "body": str(i)}) for i in range(5)]
    (source / "1.json").write_text("\n".join(lines))
    run()
    for path in (checkpoint / "commits").iterdir():  # killed before Spark recorded its success
        path.unlink()
    run()
    assert [bytes(r.body) for r in read(store).collect()] == [b"%d" % i for i in range(5)]
    (source / "2.json").write_text(json.dumps({"topic": "A", "body": "5"}))
    run()
    assert read(store).count() == 6
    assert rmqsource.last_commit(str(store)).version == 1
    assert problems(store) == []


def test_a_thread_that_registers_can_write(spark, save, tmp_path):
    frame = spark.range(3).selectExpr("'A' topic", "string(id) body")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(rmqsource.register, spark).result()
        for _ in range(2):
            pool.submit(save, frame, tmp_path / "a").result()
    assert rmqsource.last_commit(str(tmp_path / "a")).messages == 3
