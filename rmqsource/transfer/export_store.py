# SPDX-License-Identifier: Apache-2.0
"""Export of a store's messages to Parquet, JSON or CSV files, written by Spark, all or none."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType

from rmqsource.damage import log_damage
from rmqsource.options.source_options import parse_options
from rmqsource.scan.message_batches import ReadRequest
from rmqsource.scan.message_reader import read_split
from rmqsource.scan.predicate import from_options
from rmqsource.scan.read_columns import plan_read
from rmqsource.schema import table_schema
from rmqsource.spark_compat import to_arrow_schema
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa, pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rmqsource.damage import OnDamage
    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.splits import Split
    from store_core.arrow_types import Columns, RecordBatch, Schema, Table

FORMATS = ("parquet", "json", "csv")
PARTITIONS = ("topic", "day")
TIME_FORM = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
CSV_OPTIONS = {
    "header": "true",
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
_BINARY = ("body", "properties_raw")
_NESTED = ("keys", "properties")
_FAILFAST = "FAILFAST"
_MOST_BYTES = 255 - len("topic=") - 3
"""Bytes that file systems allow in a name, less those that renaming may add."""
_KEPT_IN_PATHS = "[^\\x00-\\x1f\\x7f\"#%'*/:=?\\\\{\\[\\]^]"
_ESCAPED = re.compile("%01([01])")
_NULL, _COPYING = "__HIVE_DEFAULT_PARTITION__", "._COPYING_"
_CODEC = "snappy"
_UNFINISHED = "_unfinished-"  # readers skip names with this prefix
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
"""A row group ends at the first of these limits; a task keeps one group in memory."""


def read_for_export(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the messages that the options select, without damaged rows.

    Besides the columns of table ``messages``, the frame has the exact bytes of the properties,
    which a map does not preserve.
    """
    reader = spark.read.format("rocketmq-store").options(**options)
    return reader.schema(_export_schema()).load()


def _read_with_damage(
    spark: SparkSession, options: Mapping[str, str], counts: Observation
) -> DataFrame:
    """Return the frame of `read_for_export`; ``counts`` observes all rows and the damaged ones."""
    chosen = {name: value for name, value in options.items() if name.lower() != "mode"}
    mode = _FAILFAST if parse_options(dict(options)).mode == _FAILFAST else "PERMISSIVE"
    chosen["mode"] = mode
    schema = _export_schema(mode)
    frame = spark.read.format("rocketmq-store").options(**chosen).schema(schema).load()
    damage = sf.lit(None) if CORRUPT_RECORD.name not in schema.names else frame[CORRUPT_RECORD.name]
    counted = frame.observe(
        counts, sf.count(sf.lit(1)).alias("rows"), sf.count(damage).alias("gaps")
    )
    if CORRUPT_RECORD.name not in schema.names:
        return counted
    name = CORRUPT_RECORD.name
    return counted.where(sf.col(name).isNull()).drop(name)


def write_export(
    spark: SparkSession,
    options: Mapping[str, str],
    target: Path,
    file_format: str,
    partition_by: Sequence[str] = (),
    on_damage: OnDamage = log_damage,
) -> Exported:
    """Write the messages of `read_for_export` like `export`; a failure may leave partial files."""
    if file_format == "parquet" and not partition_by:
        parsed = parse_options(dict(options))
        return write_parquet(spark, parsed, _export_schema(), target, on_damage)
    counts = Observation()
    _write(_read_with_damage(spark, options, counts), target, file_format, partition_by)
    rows, gaps = (int(counts.get[name] or 0) for name in ("rows", "gaps"))
    return Exported(rows - gaps, gaps)


def _export_schema(mode: str = _FAILFAST) -> StructType:
    is_nullable = mode != _FAILFAST  # damaged rows have no other value
    return table_schema("messages", mode).add("properties_raw", BinaryType(), is_nullable)


def export(
    frame: DataFrame, target: Path, file_format: str, partition_by: Sequence[str] = ()
) -> None:
    """Write messages into a new directory.

    Parameters
    ----------
    target
        A directory that does not exist or is empty.
    file_format
        ``parquet``, ``json`` (bytes in Base64) or ``csv`` (with a header; bytes in Base64, keys
        and properties as JSON).
    partition_by
        ``topic``, ``day`` (of the store time, in UTC): directories ``topic=…/day=…``.

    Raises
    ------
    FileExistsError
        ``target`` exists and is not an empty directory.
    """
    with new_directory(target) as unfinished:
        _write(frame, unfinished, file_format, partition_by)


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield a path for a new directory, which is renamed to ``target`` when the block ends.

    If the block ends with an error or an interrupt, nothing is left. Callers that can should first
    stop everything that may still write: Spark's tasks outlive a failed job.

    Raises
    ------
    FileExistsError
        ``target`` exists and is not an empty directory.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} already exists; give a new directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield unfinished / "data"
        if target.exists():
            target.rmdir()
        os.replace(unfinished / "data", target)  # noqa: PTH105 (of a directory)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write(frame: DataFrame, target: Path, file_format: str, partition_by: Sequence[str]) -> None:
    if "day" in partition_by:
        day = sf.date_format(sf.to_utc_timestamp("store_timestamp", _zone(frame)), "yyyy-MM-dd")
        frame = frame.withColumn("day", day)
    options: dict[str, str] = {}
    if file_format == "csv":
        frame = _flat(frame)
        options = {"timestampFormat": TIME_FORM, **CSV_OPTIONS}
    elif file_format == "json":
        options = {"timestampFormat": TIME_FORM, "ignoreNullFields": "false"}
    if "topic" in partition_by:
        frame = frame.withColumn("topic", _directory_text(frame["topic"]))
    writer = frame.write.format(file_format).options(**options)
    writer.partitionBy(*partition_by).save(str(target))
    if "topic" in partition_by:
        _name_directories(target)


def _directory_text(topic: Column) -> Column:
    """Return a topic as text of which Spark can make a directory; see `_name_directories`.

    Spark escapes all characters that a path cannot contain as %XX, except NUL.
    """
    escaped = sf.replace(topic, sf.lit("\1"), sf.lit("\0010"))
    escaped = sf.replace(escaped, sf.lit("\0"), sf.lit("\0011"))
    special = sf.length(sf.regexp_replace(topic, _KEPT_IN_PATHS, ""))
    too_long = sf.octet_length(topic) + special * 2 > _MOST_BYTES
    reason = sf.concat(
        sf.lit("--partition-by topic: no directory can be named after topic '"),
        sf.substring(topic, 1, 80),
        sf.lit(
            "' (empty or too long); leave the topic out, or export without --partition-by topic"
        ),
    )
    return sf.when(too_long | (topic == ""), sf.raise_error(reason)).otherwise(escaped)


def _name_directories(target: Path) -> None:
    """Rename directories so that Spark reads the original topics from their names."""
    for path in sorted(target.rglob("topic=*")):
        name = _ESCAPED.sub(lambda found: "%00" if found[1] == "1" else "%01", path.name)
        if name == f"topic={_NULL}":  # which Spark would read as null
            name = name.replace("=_", "=%5F")
        if name.endswith(_COPYING):  # which Spark skips
            name = f"{name[: -len(_COPYING)]}%2E{_COPYING[1:]}"
        if name != path.name:
            path.rename(path.with_name(name))


def _zone(frame: DataFrame) -> str:
    return str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))


def _flat(frame: DataFrame) -> DataFrame:
    """Return the frame with columns that CSV can hold."""
    # Spark may break Base64 into lines, as in MIME.
    texts = {name: sf.replace(sf.base64(name), sf.lit("\r\n"), sf.lit("")) for name in _BINARY}
    return frame.withColumns({**texts, **{name: sf.to_json(name) for name in _NESTED}})


# Rows stay Arrow batches from the log to the file: passing them through Java and Spark's own writer
# takes about four times as much processor time as decoding and writing them here.
class Exported(NamedTuple):
    """Numbers of messages that an export wrote, and of damaged places that it skipped."""

    messages: int
    gaps: int


def write_parquet(
    spark: SparkSession,
    options: SourceOptions,
    schema: StructType,
    target: Path,
    on_damage: OnDamage = log_damage,
) -> Exported:
    """Write the messages that the options select, one file for each split."""
    predicate = from_options(options)
    damage: tuple[str, ...] = ()
    if options.mode != "FAILFAST":
        options, damage = replace(options, mode="PERMISSIVE"), (CORRUPT_RECORD.name,)
    request = ReadRequest.from_options(options, predicate, (*schema.names, *damage))
    plans = plan_read(replace(options, on_damage=on_damage), predicate)  # tasks log theirs
    splits = [split for plan in plans for split in plan.splits]
    fields = to_arrow_schema(schema)
    target.mkdir(parents=True)
    if not splits:
        return _write_part(iter(()), fields, target, 0)
    write = partial(_write_splits, splits, request, fields, str(target))
    # Not mapInArrow: Spark requires pandas for it, though none of it is used.
    numbers = spark.sparkContext.parallelize(range(len(splits)), len(splits))
    written = numbers.mapPartitions(write).collect()
    for unfinished in target.glob(f"{_UNFINISHED}*"):  # of attempts that failed
        unfinished.unlink()
    return Exported(*(sum(counts) for counts in zip(*written)))


def _write_splits(
    splits: Sequence[Split],
    request: ReadRequest,
    fields: Schema,
    target: str,
    numbers: Iterator[int],
) -> Iterator[tuple[int, int]]:
    """Write the splits of a task; yield the numbers of messages and gaps in each."""
    for number in numbers:
        done = _write_part(read_split(splits[number], request), fields, Path(target), number)
        yield done.messages, done.gaps  # not the tuple: Spark pickles named ones its own way


def _write_part(batches: Iterator[Columns], fields: Schema, target: Path, number: int) -> Exported:
    """Write a file and name it once it is complete: a task may be retried."""
    unfinished = target / f"{_UNFINISHED}{uuid.uuid4().hex}"
    rows = 0
    gaps: list[int] = []
    with pq.ParquetWriter(str(unfinished), fields, compression=_CODEC) as writer:
        for group in _groups(_readable(batches, gaps), fields):
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
    os.replace(unfinished, target / f"part-{number:05d}.{_CODEC}.parquet")  # noqa: PTH105
    return Exported(rows, sum(gaps))


def _readable(batches: Iterator[Columns], gaps: list[int]) -> Iterator[Columns]:
    """Yield batches without damaged rows; append the number of those to ``gaps``."""
    for columns in batches:
        damage = columns.pop(CORRUPT_RECORD.name, None)
        if damage is None or damage.null_count == len(damage):
            yield columns
            continue
        gaps.append(len(damage) - damage.null_count)
        keep = pc.is_null(damage)
        yield {name: column.filter(keep) for name, column in columns.items()}


def _groups(batches: Iterator[Columns], fields: Schema) -> Iterator[Table]:
    """Yield tables of the size of a row group."""
    held: list[RecordBatch] = []
    rows = size = 0
    for columns in batches:
        arrays = [
            columns[field.name]
            if columns[field.name].type == field.type
            else columns[field.name].cast(field.type)
            for field in fields
        ]
        held.append(pa.RecordBatch.from_arrays(arrays, schema=fields))
        rows, size = rows + held[-1].num_rows, size + held[-1].nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)
