"""Messages as Parquet files, written by the Spark tasks that read them.

Rows stay Arrow batches from the log to the file: on their way through Java and Spark's own writer
they cost about four times as much processor time as decoding and writing them here.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq

from rmqsource.scan.message_reader import read_split
from rmqsource.scan.predicate import from_options
from rmqsource.scan.prepared_read import plan_read
from rmqsource.scan.read_request import ReadRequest
from rmqsource.schema import arrow_schema
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa, pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.splits import Split
    from store_core.arrow_types import Columns, RecordBatch, Schema, Table

_CODEC = "snappy"
_UNFINISHED = "_unfinished-"  # readers pass over names that begin so
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
"""A row group ends at whichever comes first; a task holds one in memory."""


class Exported(NamedTuple):
    """What an export wrote: messages, and the damaged places that it passed over."""

    messages: int
    gaps: int


def write_parquet(
    spark: SparkSession, options: SourceOptions, schema: StructType, target: Path
) -> Exported:
    """Write the messages that the options select, a file for each split.

    Parameters
    ----------
    spark
        A classic session whose Python has this package.
    options
        Of table ``messages``.
    schema
        Columns of it.
    target
        A new directory, which every node must see.
    """
    predicate = from_options(options)
    damage: tuple[str, ...] = ()
    if options.mode != "FAILFAST":
        options, damage = replace(options, mode="PERMISSIVE"), (CORRUPT_RECORD.name,)
    request = ReadRequest.of(options, predicate, (*schema.names, *damage))
    splits = [split for plan in plan_read(options, predicate) for split in plan.splits]
    fields = arrow_schema(schema)
    target.mkdir(parents=True)
    if not splits:
        return _write(iter(()), fields, target, 0)
    write = partial(_write_splits, splits, request, fields, str(target))
    # Not mapInArrow: Spark asks for pandas there, though nothing of it is used.
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
    """Write the splits of a task; yield what is in each."""
    for number in numbers:
        done = _write(read_split(splits[number], request), fields, Path(target), number)
        yield done.messages, done.gaps  # plain numbers: Spark makes a class of its own of others


def _write(batches: Iterator[Columns], fields: Schema, target: Path, number: int) -> Exported:
    """Write a file, which has its name when it is whole: a task may be tried again."""
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
    """Yield batches without their rows of damage; note how many those are."""
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
