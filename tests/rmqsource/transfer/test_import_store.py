# SPDX-License-Identifier: Apache-2.0
"""Messages that are exported and imported again are unchanged, in their order."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from rmqsource.explore.diff_stores import compare_stores
from rmqsource.options.source_options import parse_options
from tests.golden_store import golden

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    from rmqsource.transfer.export_store import read_for_export

    register(spark)

    def read(root: object, **options: str) -> DataFrame:
        return read_for_export(spark, {"path": str(root), **options})

    return read


@pytest.fixture
def imported(spark: SparkSession, tmp_path: Path) -> Import:
    from rmqsource.transfer.import_store import format_of, import_messages

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
    from rmqsource.transfer.export_store import export

    store = golden(name)
    # Several files, which Spark does not read in the order of their names.
    before = messages_of(store.root, **store.options, minPartitions="5")
    export(before, tmp_path / "files", file_format, partitions)
    done = imported(tmp_path / "files")
    sides = [{"path": str(store.root), **store.options}, {"path": str(tmp_path / "store")}]
    found = compare_stores(*map(parse_options, sides), "position")
    assert (found.rows, found.messages_a, done.skipped) == ([], done.commit.messages, 0)
    after = messages_of(tmp_path / "store").select(*KEPT)
    order = ["topic", "queue_id", "queue_offset"]
    before = before.select(*KEPT)
    assert_df_equality(before.orderBy(*order), after.orderBy(*order), ignore_nullable=True)


def test_system_topics_are_left_out(
    messages_of: Callable[..., DataFrame], imported: Import, tmp_path: Path
) -> None:
    from rmqsource.transfer.export_store import export

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
    from rmqsource.transfer.export_store import export
    from rmqsource.transfer.import_store import format_of

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
    from rmqsource.transfer.export_store import export
    from rmqsource.transfer.import_store import read_export

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
        (["part-0.csv", "part-1.snappy.parquet"], None, "parquet and csv files; choose one kind"),
        (["a=1/part-0.csv", "part-1.snappy.parquet"], None, "belong to different exports"),
    ],
)
def test_what_is_no_export(
    tmp_path: Path, names: list[str], wanted: str | None, reason: str
) -> None:
    from rmqsource.transfer.import_store import NotAnExportError, format_of

    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(NotAnExportError, match=reason) as found:
        format_of(tmp_path, wanted)
    assert str(found.value).startswith(f"{tmp_path}: ")


def test_other_files_are_told_by_their_columns(
    spark: SparkSession, imported: Import, tmp_path: Path
) -> None:
    from rmqsource.transfer.import_store import NotAnExportError

    lacking = "no column queue_id, properties_raw, "
    for kind in ("parquet", "json", "csv"):
        frame = spark.createDataFrame([("T", "x")], "topic string, body string")
        frame.write.format(kind).option("header", True).save(str(tmp_path / kind))
        with pytest.raises(NotAnExportError, match=lacking):
            imported(tmp_path / kind)
    assert not (tmp_path / "store").exists()


def json_lines(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


def changed(name: str, value: str) -> str:
    """Return a good row with the JSON of another value."""
    row = {**json.loads(GOOD), name: "\0"}
    return json.dumps(row).replace('"\\u0000"', value)


HOSTILE_ROWS = {
    "a queue beyond 32 bits": changed("queue_id", "4294967297"),
    "half a queue": changed("queue_id", "1.5"),
    "a queue below 0": changed("queue_id", "-1"),
    "a topic that leaves the store": changed("topic", '"../../x"'),
    "a topic of 300 letters": changed("topic", f'"{"x" * 300}"'),
    "an object for a topic": changed("topic", "null"),
    "a body that is none": changed("body", "null"),
    "a host that is none": changed("born_host", '"::::"'),
    "a time that is none": changed("born_timestamp", '"yesterday"'),
    "a number of a broker's own": changed("properties_raw", '"SU5ORVJfTlVNAWFiYwI="'),
    "an offset beyond 64 bits": changed("commit_log_offset", "9" * 30),
    "nested a thousand times": "[" * 1000,
}


def test_hostile_rows_are_an_error_and_nothing_is_written(
    spark: SparkSession, imported: Import, tmp_path: Path
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from rmqsource.transfer.import_store import NotAnExportError

    (tmp_path / "files").mkdir()
    for name, row in HOSTILE_ROWS.items():
        (tmp_path / "files" / "part-0.json").write_text(json_lines(GOOD, row))
        with pytest.raises((PySparkException, Py4JError, NotAnExportError)):
            imported(tmp_path / "files")
        assert not (tmp_path / "store" / "commitlog").exists(), name
        assert not list((tmp_path / "store").glob("_staging/[0-9a-f]*")), name


def test_directories_that_no_export_makes(
    spark: SparkSession, imported: Import, tmp_path: Path
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from rmqsource.transfer.import_store import NotAnExportError, format_of

    def make(name: str, **files: str) -> Path:
        for path, text in files.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return tmp_path / name

    part, good = {"part-0.json": json_lines(GOOD)}, json_lines(GOOD)
    round_trip = make("loop", **part)
    (round_trip / "topic=A").symlink_to(round_trip)
    pipe = make("pipe", **part)
    os.mkfifo(pipe / "part-1.json")
    for directory in (round_trip, pipe):
        with pytest.raises(NotAnExportError, match="is a link, a pipe or a device"):
            imported(directory)
    for name, places in (("depths", "topic=A"), ("other", "other"), ("days", "topic=A/day=1")):
        odd = make(name, **part, **{f"{places}/part-1.json": good})
        with pytest.raises(NotAnExportError, match=r"different exports|not in a directory"):
            imported(odd)
    assert format_of(make("left", **part, **{"_temporary/0/part-1.csv": "x"})) == "json"
    wrong = [
        make("climbs", **{"topic=..%2F..%2Fx/part-0.json": good}),
        make("no-topic", **{"topic=__HIVE_DEFAULT_PARTITION__/part-0.json": good}),
        make("no-parquet", **{"part-0.parquet": good}),
        make("no-gzip", **{"part-0.json.gz": good}),
    ]
    for directory in wrong:
        with pytest.raises((PySparkException, Py4JError, NotAnExportError)):
            imported(directory)
        assert not (tmp_path / "store" / "commitlog").exists(), directory.name


ODD_TOPICS = (
    *("a\0b", "\1\0\1", "%00", "%01", "..", "a/b", "x.", " y ", "007", "T=U", "%DLQ%g", "größe"),
    *("__HIVE_DEFAULT_PARTITION__", "a._COPYING_", "2026-01-31", "null", "\n", "\\", "_z", ".z"),
    *("t" * 127, "%" * 80, "[{^]}"),
)


def frame_of(spark: SparkSession, topics: Sequence[str]) -> DataFrame:
    """Return a message of each topic, as for an export."""
    rows = [(topic, topic.encode(), number) for number, topic in enumerate(topics)]
    return spark.createDataFrame(rows, "topic string, body binary, number bigint").selectExpr(
        "topic",
        "0 AS queue_id",
        "body",
        "cast('' AS binary) AS properties_raw",
        "1 AS flag",
        "timestamp_millis(0) AS born_timestamp",
        "timestamp_millis(0) AS store_timestamp",
        "'1.2.3.4:5' AS born_host",
        "0 AS reconsume_times",
        "'s' AS store",
        "number AS commit_log_offset",
        "number AS queue_offset",
        "array(topic) AS keys",
        "map(topic, topic) AS properties",
    )


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
def test_topics_that_are_no_names_of_directories(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    from rmqsource.transfer.export_store import export
    from rmqsource.transfer.import_store import read_export

    target = tmp_path / "files"
    export(frame_of(spark, ODD_TOPICS), target, file_format, ["topic", "day"])
    assert len([path for path in target.iterdir() if path.is_dir()]) == len(ODD_TOPICS)
    back = read_export(spark, target, file_format).select("topic", "body").collect()
    assert sorted(row["topic"] for row in back) == sorted(ODD_TOPICS)
    assert all(row["topic"].encode() == row["body"] for row in back)


@pytest.mark.parametrize("topic", ["", "t" * 247, "é" * 124, "%" * 83])
def test_topics_that_no_directory_can_have_are_told(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    from rmqsource.cli.job import reason_of
    from rmqsource.transfer.export_store import export

    with pytest.raises(Exception, match="no directory can be named after") as caught:
        export(frame_of(spark, ["good", topic]), tmp_path / "files", "json", ["topic"])
    assert reason_of(caught.value).startswith("--partition-by topic: no directory can be named")
    assert list(tmp_path.iterdir()) == []
