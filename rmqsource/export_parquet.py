"""Messages as Parquet files, written by the Spark tasks that read them.

Rows stay Arrow batches from the log to the file: on their way through Java and Spark's own writer
they cost about four times as much processor time as decoding and writing them here.
"""

from __future__ import annotations

import os
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqsource.message_reader import read_split
from rmqsource.planning import plan_read
from rmqsource.predicate import from_options
from rmqsource.read_request import ReadRequest
from rmqsource.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rmqsource.options import SourceOptions
    from rmqsource.plan import Split

    Columns = dict[str, Any]

_CODEC = "snappy"
_UNFINISHED = "_unfinished-"  # readers pass over names that begin so
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
"""A row group ends at whichever comes first; a task holds one in memory."""


def write_parquet(
    spark: SparkSession, options: SourceOptions, schema: StructType, target: Path
) -> None:
    """Write the messages that the options select, a file for each split.

    Parameters
    ----------
    spark
        Any session whose Python has this package.
    options
        Of table ``messages``.
    schema
        Columns of it.
    target
        A new directory, which every node must see.
    """
    predicate = from_options(options)
    request = ReadRequest.of(options, predicate, tuple(schema.names))
    splits = [split for plan in plan_read(options, predicate) for split in plan.splits]
    fields = arrow_schema(schema)
    target.mkdir(parents=True)
    if not splits:
        _write(iter(()), fields, target, 0)
        return
    write = partial(_write_splits, splits, request, fields, str(target))
    numbers = spark.range(0, len(splits), 1, len(splits))
    numbers.mapInArrow(write, "rows bigint").agg({"rows": "sum"}).collect()
    for unfinished in target.glob(f"{_UNFINISHED}*"):  # of attempts that failed
        unfinished.unlink()


def _write_splits(
    splits: Sequence[Split], request: ReadRequest, fields: Any, target: str, numbers: Iterator[Any]
) -> Iterator[Any]:
    """Write the splits of a task; yield how many rows each has."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            rows = _write(read_split(splits[number], request), fields, Path(target), number)
            yield pa.record_batch({"rows": pa.array([rows], pa.int64())})


def _write(batches: Iterator[Columns], fields: Any, target: Path, number: int) -> int:
    """Write a file, which has its name when it is whole: a task may be tried again."""
    unfinished = target / f"{_UNFINISHED}{uuid.uuid4().hex}"
    rows = 0
    with pq.ParquetWriter(str(unfinished), fields, compression=_CODEC) as writer:
        for group in _groups(batches, fields):
            writer.write_table(group, row_group_size=group.num_rows)
            rows += group.num_rows
    os.replace(unfinished, target / f"part-{number:05d}.{_CODEC}.parquet")  # noqa: PTH105
    return rows


def _groups(batches: Iterator[Columns], fields: Any) -> Iterator[Any]:
    """Yield tables of the size of a row group."""
    held: list[Any] = []
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
