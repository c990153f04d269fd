"""Messages of a store as Parquet, JSON or CSV files, written by Spark: wholly or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType

from rmqsource.options.source_options import parse_options
from rmqsource.schema import table_schema
from rmqsource.tables import CORRUPT_RECORD
from rmqsource.transfer.export_parquet import Exported, write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
"""What file systems allow for a name, less what renaming may add."""
_KEPT_IN_PATHS = "[^\\x00-\\x1f\\x7f\"#%'*/:=?\\\\{\\[\\]^]"
_ESCAPED = re.compile("%01([01])")
_NULL, _COPYING = "__HIVE_DEFAULT_PARTITION__", "._COPYING_"


def read_for_export(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the messages that the options select, without rows of damage.

    Beside all columns of table ``messages`` there are the exact bytes of the properties, which a
    map does not keep.
    """
    reader = spark.read.format("rocketmq-store").options(**options)
    return reader.schema(_export_schema()).load()


def _read_with_damage(
    spark: SparkSession, options: Mapping[str, str], counts: Observation
) -> DataFrame:
    """Return what `read_for_export` does; messages and rows of damage are counted on their way."""
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
) -> Exported:
    """Write what `read_for_export` returns, as `export` does, but not wholly or not at all.

    Parameters
    ----------
    spark
        A session that knows the source.
    options
        Which messages of which store, as ``spark.read`` takes them.
    target
        A path at which there is nothing.
    file_format, partition_by
        See `export`.
    """
    if file_format == "parquet" and not partition_by:
        return write_parquet(spark, parse_options(dict(options)), _export_schema(), target)
    counts = Observation()
    _write(_read_with_damage(spark, options, counts), target, file_format, partition_by)
    rows, gaps = (int(counts.get[name] or 0) for name in ("rows", "gaps"))
    return Exported(rows - gaps, gaps)


def _export_schema(mode: str = _FAILFAST) -> StructType:
    is_nullable = mode != _FAILFAST  # rows of damage have nothing else
    return table_schema("messages", mode).add("properties_raw", BinaryType(), is_nullable)


def export(
    frame: DataFrame, target: Path, file_format: str, partition_by: Sequence[str] = ()
) -> None:
    """Write messages into a new directory.

    Parameters
    ----------
    frame
        Columns of table ``messages``; an import needs those of `read_for_export`.
    target
        The directory; must not exist, or be empty.
    file_format
        ``parquet``, ``json`` (bytes in Base64) or ``csv`` (with a header; bytes in Base64, keys
        and properties as JSON).
    partition_by
        ``topic``, ``day`` (of the store time, in UTC): directories ``topic=…/day=…``.

    Raises
    ------
    FileExistsError
        There is something at ``target``.
    """
    with new_directory(target) as unfinished:
        _write(frame, unfinished, file_format, partition_by)


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Give a path at which to make a directory, which then gets the name ``target``.

    Where the block ends by an error or an interrupt, nothing is left. Whoever can should end
    before it what may still write: Spark's tasks outlive the job that failed.

    Raises
    ------
    FileExistsError
        There is something at ``target``, and it is not an empty directory.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists already; give a new directory")
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
    """Return a topic as Spark can make a directory of it; `_name_directories` gives it its name.

    Spark escapes all that a path cannot hold as %XX but NUL.
    """
    escaped = sf.replace(topic, sf.lit("\1"), sf.lit("\0010"))
    escaped = sf.replace(escaped, sf.lit("\0"), sf.lit("\0011"))
    special = sf.length(sf.regexp_replace(topic, _KEPT_IN_PATHS, ""))
    too_long = sf.octet_length(topic) + special * 2 > _MOST_BYTES
    reason = sf.concat(
        sf.lit("--partition-by topic: no directory can have the name of topic '"),
        sf.substring(topic, 1, 80),
        sf.lit("' (it is empty or too long); export it without, or leave the topic out"),
    )
    return sf.when(too_long | (topic == ""), sf.raise_error(reason)).otherwise(escaped)


def _name_directories(target: Path) -> None:
    """Give directories the names from which Spark reads the topics as they are."""
    for path in sorted(target.rglob("topic=*")):
        name = _ESCAPED.sub(lambda found: "%00" if found[1] == "1" else "%01", path.name)
        if name == f"topic={_NULL}":  # which Spark would take for no topic at all
            name = name.replace("=_", "=%5F")
        if name.endswith(_COPYING):  # which Spark passes over
            name = f"{name[: -len(_COPYING)]}%2E{_COPYING[1:]}"
        if name != path.name:
            path.rename(path.with_name(name))


def _zone(frame: DataFrame) -> str:
    return str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))


def _flat(frame: DataFrame) -> DataFrame:
    """Return the frame with columns that CSV can hold."""
    # Spark may put line ends into Base64, as mails have them.
    texts = {name: sf.replace(sf.base64(name), sf.lit("\r\n"), sf.lit("")) for name in _BINARY}
    return frame.withColumns({**texts, **{name: sf.to_json(name) for name in _NESTED}})
