"""What was exported and imported again is what it was, and in its order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from rmqsource.diff_stores import diff
from rmqsource.options import parse_options
from tests.golden_store import golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Import = Callable[..., Any]

SINK = {"systemTopics": "true", "compatibility": "5", "mappedFileSizeCommitLog": "1m"}
KEPT = (
    *("topic", "queue_id", "queue_offset", "tags", "keys", "unique_key", "properties_raw"),
    *("properties", "body", "flag", "born_timestamp", "born_host", "reconsume_times"),
)


@pytest.fixture
def messages_of(spark: SparkSession) -> Callable[..., DataFrame]:
    from rmqsource import register
    from rmqsource.export_store import read_for_export

    register(spark)

    def read(root: object, **options: str) -> DataFrame:
        return read_for_export(spark, {"path": str(root), **options})

    return read


@pytest.fixture
def imported(spark: SparkSession, tmp_path: Path) -> Import:
    from rmqsource.import_store import format_of, import_messages

    def call(directory: Path, **options: str) -> Any:
        kind, root = format_of(directory), str(tmp_path / "store")
        return import_messages(spark, directory, kind, root, {**SINK, **options})

    return call


@pytest.mark.parametrize(
    ("name", "file_format", "partitions"),
    [
        ("classic-5x", "parquet", ["topic", "day"]),
        ("cluster-5x", "json", []),
        ("classic-5x", "csv", ["topic"]),
    ],
)
def test_round_trip(
    messages_of: Callable[..., DataFrame],
    imported: Import,
    tmp_path: Path,
    name: str,
    file_format: str,
    partitions: list[str],
) -> None:
    from rmqsource.export_store import export

    store = golden(name)
    # Several files, which Spark does not take in the order of their names.
    before = messages_of(store.root, **store.options, minPartitions="5")
    export(before, tmp_path / "files", file_format, partitions)
    done = imported(tmp_path / "files")
    sides = [{"path": str(store.root), **store.options}, {"path": str(tmp_path / "store")}]
    found = diff(*map(parse_options, sides), "position")
    assert (found.rows, found.messages_a, done.skipped) == ([], done.commit.messages, 0)
    after = messages_of(tmp_path / "store").select(*KEPT)
    order = ["topic", "queue_id", "queue_offset"]
    before = before.select(*KEPT)
    assert_df_equality(before.orderBy(*order), after.orderBy(*order), ignore_nullable=True)


def test_system_topics_are_left_out(
    messages_of: Callable[..., DataFrame], imported: Import, tmp_path: Path
) -> None:
    from rmqsource.export_store import export

    store = golden("cluster-5x")
    before = messages_of(store.root, **store.options)
    export(before.where("topic IN ('jobs', '%DLQ%cg_orders_retry')"), tmp_path / "files", "csv")
    done = imported(tmp_path / "files", systemTopics="false")
    assert (done.commit.messages, done.skipped) == (16, 4)


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
@pytest.mark.parametrize("partitions", [[], ["topic", "day"]])
def test_an_export_of_no_message(
    messages_of: Callable[..., DataFrame],
    imported: Import,
    tmp_path: Path,
    file_format: str,
    partitions: list[str],
) -> None:
    from rmqsource.export_store import export
    from rmqsource.import_store import format_of

    store = golden("classic-5x")
    none = messages_of(store.root, **store.options, topic="NoSuchTopic")
    export(none, tmp_path / "files", file_format, partitions)
    assert format_of(tmp_path / "files", file_format) == file_format
    done = imported(tmp_path / "files")
    assert (done.commit, done.skipped) == (None, 0)
    assert not (tmp_path / "store" / "commitlog").exists()


ODD_ROWS = [
    ("T", 1, b"", b"", 0, -62135596799999, "1.2.3.4:5"),
    ("U", 0, bytes(range(256)) * 9, b'KEYS\x01"a\\,b"\r\n\x02', -1, 253402300800001, "[::1]:9"),
    ("V", 2, b"  \n ", " é\x01\\N\x02".encode(), 2**31 - 1, 0, "1.2.3.4:5"),
    ("W", 2, b"null", b"x\x01\x02", 7, None, "1.2.3.4:5"),
]


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
def test_odd_values_come_back(spark: SparkSession, tmp_path: Path, file_format: str) -> None:
    from rmqsource.export_store import export
    from rmqsource.import_store import read_export

    rows = [(*row, number, "s", 10 - number, 0) for number, row in enumerate(ODD_ROWS)]
    schema = (
        "topic string, queue_id int, body binary, properties_raw binary, flag int, born bigint, "
        "born_host string, reconsume_times int, store string, commit_log_offset bigint, "
        "queue_offset bigint"
    )
    frame = spark.createDataFrame(rows, schema).selectExpr(
        "* EXCEPT (born)",
        "timestamp_millis(born) AS born_timestamp",
        "array(topic) AS keys",
        "map(topic, ' ') AS properties",
    )
    export(frame, tmp_path / "files", file_format)
    back = read_export(spark, tmp_path / "files", file_format)
    order = frame.orderBy("commit_log_offset").select(*back.columns)
    # Python's own times end with the year 9999.
    exact = [f.withColumn("born_timestamp", f.born_timestamp.cast("double")) for f in (back, order)]
    assert exact[0].collect() == exact[1].collect()


GOOD = (
    '{"topic":"T","queue_id":0,"body":"eA==","properties_raw":"","flag":0,"born_timestamp":null,'
    '"born_host":"1.2.3.4:5","reconsume_times":0,"store":"s","commit_log_offset":0,'
    '"queue_offset":0}'
)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (GOOD.replace('"body":"eA==",', ""), "files: a row has no body"),
        (GOOD.replace('"eA=="', '"no Base64"'), "files/part-0.json"),
        (GOOD[:-30], "files/part-0.json"),
    ],
)
def test_a_row_of_something_else_fails_the_job(
    spark: SparkSession, imported: Import, tmp_path: Path, row: str, reason: str
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "part-0.json").write_text(f"{GOOD}\n{row}\n")
    with pytest.raises((PySparkException, Py4JError), match=reason):
        imported(tmp_path / "files")
    assert not (tmp_path / "store" / "commitlog").exists()


@pytest.mark.parametrize(
    ("names", "wanted", "reason"),
    [
        ([], None, "there is no file part-"),
        (["_SUCCESS", "more"], None, "there is no file part-"),
        (["commitlog/00000000000000000000", "part-0.txt"], None, "not made by export"),
        (["part-0.csv"], "json", "no part-\\*.json file; there are csv files"),
        (["a=1/part-0.csv", "part-1.snappy.parquet"], None, "parquet and csv files; say which"),
    ],
)
def test_what_is_no_export(
    tmp_path: Path, names: list[str], wanted: str | None, reason: str
) -> None:
    from rmqsource.import_store import NotAnExportError, format_of

    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(NotAnExportError, match=reason) as found:
        format_of(tmp_path, wanted)
    assert str(found.value).startswith(f"{tmp_path}: ")


def test_other_files_are_told_by_their_columns(
    spark: SparkSession, imported: Import, tmp_path: Path
) -> None:
    from rmqsource.import_store import NotAnExportError

    lacking = "no column queue_id, properties_raw, "
    for kind in ("parquet", "json", "csv"):
        frame = spark.createDataFrame([("T", "x")], "topic string, body string")
        frame.write.format(kind).option("header", True).save(str(tmp_path / kind))
        with pytest.raises(NotAnExportError, match=lacking):
            imported(tmp_path / kind)
    assert not (tmp_path / "store").exists()
