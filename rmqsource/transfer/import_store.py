# SPDX-License-Identifier: Apache-2.0
"""Import of an export's files into a store, by Spark, all or none."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from rmqsource.errors import SourceError
from rmqsource.transfer.copy_store import COPIED_COLUMNS, Copied, append_messages
from rmqsource.transfer.export_store import CSV_OPTIONS, FORMATS, TIME_FORM
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

_PLACE = {"store": "string", "commit_log_offset": "bigint", "queue_offset": "bigint"}
"""Columns that order messages as in the log; messages of an inner batch share its log offset."""
_NULLABLE = frozenset({"born_timestamp"})
_NORMAL = "normal"
_WRITTEN = "_SUCCESS"
"""Spark's marker of a complete directory; the only file if a partitioned export has no message."""


class NotAnExportError(SourceError, ValueError):
    """The files to import were not written by ``export``."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(directory, reason)
        self.directory, self.reason = directory, reason

    def __str__(self) -> str:
        return f"{self.directory}: {self.reason}"


def format_of(directory: Path, file_format: str | None = None) -> str:
    """Return the format of a directory's files.

    Raises
    ------
    NotAnExportError
        The directory does not exist, none of its files is from an export, they have several
        formats, or something is neither a file nor a directory.
    """
    if not directory.is_dir():
        raise NotAnExportError(str(directory), "no such directory")
    parts = [path for path in _files(directory) if path.name.startswith("part-")]
    _check_places(directory, parts)
    found = {suffix for path in parts for suffix in path.name.split(".")[1:]}
    kinds = [kind for kind in FORMATS if kind in found]
    if _has_no_message(directory):
        return file_format or FORMATS[0]
    if file_format is not None and file_format not in kinds:
        there = f"there are {' and '.join(kinds)} files" if kinds else "nor any of another kind"
        raise NotAnExportError(str(directory), f"there is no part-*.{file_format} file; {there}")
    if not kinds:
        raise NotAnExportError(
            str(directory), f"there is no file part-*.({'|'.join(FORMATS)}): not made by export"
        )
    if file_format is None and len(kinds) > 1:
        raise NotAnExportError(
            str(directory), f"there are {' and '.join(kinds)} files; choose one kind with --format"
        )
    return file_format or kinds[0]


def read_export(spark: SparkSession, directory: Path, file_format: str) -> DataFrame:
    """Return the messages of an export in the columns of a copy, in log order.

    A row that no export writes fails the job.

    Raises
    ------
    NotAnExportError
        The files lack a column.
    """
    wanted = {**COPIED_COLUMNS, **_PLACE}
    names = _names(spark, directory, file_format)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise NotAnExportError(
            str(directory),
            f"the {file_format} files have no column {', '.join(missing)}: not made by export",
        )
    kinds, options = wanted, {"mode": "FAILFAST", "timestampFormat": TIME_FORM}
    if file_format == "csv":  # goes by position, and knows no bytes
        texts = {name: "string" if kind == "binary" else kind for name, kind in wanted.items()}
        kinds = {name: texts.get(name, "string") for name in names}
        options.update(CSV_OPTIONS, multiLine="true", enforceSchema="false")
    reader = spark.read.format(file_format).options(**options).schema(_ddl(kinds))
    frame = reader.load(str(directory), pathGlobFilter=f"part-*.{file_format}*")
    rows = frame.select(*(_given(frame, name, kind, directory) for name, kind in wanted.items()))
    # Spark reads files by size and in pieces; messages of a queue must keep their order.
    parallelism = spark.sparkContext.defaultParallelism
    ordered = rows.repartitionByRange(parallelism, *_PLACE).sortWithinPartitions(*_PLACE)
    return ordered.select(*COPIED_COLUMNS)


def import_messages(
    spark: SparkSession,
    directory: Path,
    file_format: str,
    target: str,
    sink_options: Mapping[str, str],
) -> Copied:
    """Append the messages of an export to a store.

    Topics, queues, properties, bodies, flags, born times and hosts are restored unchanged, in
    order within each queue. As in `copy_store`, messages of a broker's own topics are left out
    unless ``systemTopics`` is true.

    Raises
    ------
    NotAnExportError
        The files lack a column.
    """
    if _has_no_message(directory):
        return Copied(None, 0)
    messages = read_export(spark, directory, file_format)
    return append_messages(messages, lambda: _system_topics(messages), target, sink_options)


def _check_places(directory: Path, parts: Sequence[Path]) -> None:
    """Raise if Spark would silently skip files: those outside the directories of one export."""
    places: dict[tuple[str, ...], Path] = {}
    for path in parts:
        names = path.relative_to(directory).parts[:-1]
        if not all("=" in name for name in names):
            raise NotAnExportError(
                str(directory),
                f"{path.relative_to(directory)} is not in a directory such as topic=orders, "
                "although export creates only such directories. Move it",
            )
        places[tuple(name.partition("=")[0] for name in names)] = path
    if len(places) > 1:
        one, other, *_ = (path.relative_to(directory) for path in places.values())
        raise NotAnExportError(
            str(directory),
            f"{one} and {other} belong to different exports; import one after the other",
        )


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, skipping hidden directories as Spark does.

    Raises
    ------
    NotAnExportError
        There is something on which Spark would wait or loop forever: a pipe, a device, a link to a
        directory.
    """

    def stop(err: OSError) -> None:
        raise NotAnExportError(str(directory), f"cannot be read: {err}") from err

    for base, names, files in os.walk(directory, onerror=stop):
        names[:] = [name for name in names if name[0] not in "._" or "=" in name]
        for name in (*names, *files):
            path = Path(base, name)
            try:
                is_usual = not path.is_symlink() if name in names else path.is_file()
            except OSError as err:
                raise NotAnExportError(str(directory), f"cannot be read: {err}") from err
            if not is_usual:
                raise NotAnExportError(
                    str(directory),
                    f"{path.relative_to(directory)} is a link, a pipe or a device; export "
                    "creates directories and files only. Remove it, or replace it by a copy "
                    "of what it points to",
                )
        yield from (Path(base, name) for name in files)


def _has_no_message(directory: Path) -> bool:
    """Return whether Spark completed the directory without writing even an empty file."""
    return {path.name for path in directory.iterdir() if path.name[0] != "."} == {_WRITTEN}


def _system_topics(messages: DataFrame) -> list[str]:
    topics = (row.topic for row in messages.select("topic").distinct().collect())
    return sorted(topic for topic in topics if topic_kind(topic) != _NORMAL)


def _names(spark: SparkSession, directory: Path, file_format: str) -> Sequence[str]:
    """Return the columns of the files, in order, then those of the directories."""
    if file_format == "parquet":
        return list(spark.read.parquet(str(directory)).columns)
    frame = spark.read.text(str(directory), pathGlobFilter=f"part-*.{file_format}*")
    first, *by_directory = frame.columns
    row = frame.first()
    if row is None:  # an export of no message
        return [*COPIED_COLUMNS, *_PLACE]
    try:
        parsed = json.loads(row[first]) if file_format == "json" else next(csv.reader([row[first]]))
    except (ValueError, csv.Error, StopIteration):
        parsed = ()
    names = list(parsed) if isinstance(parsed, (dict, list)) else []
    return [*names, *by_directory]


def _ddl(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in kinds.items())


def _given(frame: DataFrame, name: str, kind: str, directory: Path) -> Column:
    """Return a column with its type; null fails the job unless the column allows it."""
    column = frame[name]
    if frame.schema[name].dataType.simpleString() != kind:
        # CSV reads empty values as null.
        column = sf.to_binary(sf.coalesce(column, sf.lit("")), sf.lit("base64"))
    if name not in _NULLABLE:
        column = sf.coalesce(column, sf.raise_error(sf.lit(f"{directory}: a row has no {name}")))
    return column.alias(name)
