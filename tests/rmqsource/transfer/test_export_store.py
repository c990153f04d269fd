# SPDX-License-Identifier: Apache-2.0
"""Exports have the rows that were read, and are complete or not there."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden_store import golden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    from rmqsource import register
    from rmqsource.transfer.export_store import read_for_export

    register(spark)
    store = golden("cluster-5x")
    return read_for_export(spark, {"path": str(store.root), **store.options})


@pytest.mark.parametrize(
    ("file_format", "partitions"), [("parquet", ["topic", "day"]), ("json", [])]
)
def test_round_trip(
    spark: SparkSession,
    frame: DataFrame,
    tmp_path: Path,
    file_format: str,
    partitions: list[str],
) -> None:
    from rmqsource.transfer.export_store import export

    target = tmp_path / "new" / "out"
    export(frame, target, file_format, partitions)
    spark.conf.set(INFERENCE, "false")
    try:
        reader = spark.read.format(file_format)
        reader = reader.schema(frame.schema) if file_format == "json" else reader
        back = reader.load(str(target)).select(*frame.columns)
    finally:
        spark.conf.unset(INFERENCE)
    key = lambda row: row["commit_log_offset"]  # noqa: E731
    assert sorted(back.collect(), key=key) == sorted(frame.collect(), key=key)
    assert sorted(p.name for p in target.parent.iterdir()) == ["out"]
    if partitions:
        assert (target / "topic=orders" / "day=2026-11-21").is_dir()


@pytest.mark.parametrize("name", ["cluster-5x", "empty-5x"])
def test_files_that_tasks_write_are_like_those_of_spark(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    from rmqsource import register
    from rmqsource.transfer.export_store import export, read_for_export, write_export

    register(spark)
    store = golden(name)
    options = {"path": str(store.root), **store.options, "minPartitions": "3"}
    write_export(spark, options, tmp_path / "ours", "parquet")
    export(read_for_export(spark, options), tmp_path / "sparks", "parquet")
    ours, sparks = (spark.read.parquet(str(tmp_path / side)) for side in ("ours", "sparks"))
    assert ours.schema == sparks.schema
    order = ["commit_log_offset", "queue_offset"]
    assert ours.orderBy(*order).collect() == sparks.orderBy(*order).collect()
    files = sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert (len(files) >= 3) is (name == "cluster-5x")
    assert files == [f"part-{number:05d}.snappy.parquet" for number in range(len(files))]


def test_row_groups_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rmqsource.transfer import export_store

    monkeypatch.setattr(export_store, "_GROUP_ROWS", 100)
    batches = iter([{"topic": pa.array(["T"] * 30)} for _ in range(9)])
    written = export_store._write_part(batches, pa.schema([("topic", pa.string())]), tmp_path, 7)
    assert written.messages == 270
    (path,) = tmp_path.iterdir()
    found = pq.ParquetFile(path)
    assert [found.metadata.row_group(n).num_rows for n in range(3)] == [120, 120, 30]


def test_csv_can_be_read_by_others(frame: DataFrame, tmp_path: Path) -> None:
    import csv

    from rmqsource.transfer.export_store import export

    target = tmp_path / "out"
    export(frame.where("topic = 'jobs'").coalesce(1), target, "csv")
    (path,) = target.glob("part-*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [m for m in golden("cluster-5x").dump("messages") if m.get("topic") == "jobs"]
    assert len(rows) == len(expected) == 16
    for row, message in zip(rows, expected):
        assert base64.b64decode(row["body"]).startswith(b'{"kind":"retry"')
        assert json.loads(row["properties"]) == message["properties"]
        assert json.loads(row["keys"]) == message["keys"].split()
        assert row["message_id"] == message["msg_id"]
        assert row["store_timestamp"].endswith("Z")


def test_a_failed_export_leaves_nothing(frame: DataFrame, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    from rmqsource.transfer.export_store import export

    target = tmp_path / "out"
    with pytest.raises(PySparkException):
        export(frame.selectExpr("raise_error('no') AS x"), target, "parquet")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(frame: DataFrame, tmp_path: Path) -> None:
    from rmqsource.transfer.export_store import export

    (tmp_path / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match="give a new directory"):
        export(frame, tmp_path, "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
