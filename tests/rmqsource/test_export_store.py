"""Exports hold what was read, and are whole or not there."""

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
    from rmqsource.export_store import read_for_export

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
    from rmqsource.export_store import export

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


def test_csv_can_be_read_by_others(frame: DataFrame, tmp_path: Path) -> None:
    import csv

    from rmqsource.export_store import export

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

    from rmqsource.export_store import export

    target = tmp_path / "out"
    with pytest.raises(PySparkException):
        export(frame.selectExpr("raise_error('no') AS x"), target, "parquet")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(frame: DataFrame, tmp_path: Path) -> None:
    from rmqsource.export_store import export

    (tmp_path / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match="give a new directory"):
        export(frame, tmp_path, "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
