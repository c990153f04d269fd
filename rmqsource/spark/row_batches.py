# SPDX-License-Identifier: Apache-2.0
"""Convert Spark's rows to record batches, for releases whose streaming sinks get rows only."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import MapType, TimestampType

from rmqsource.spark_compat import to_arrow_schema
from store_core.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import DataType, StructType

    from store_core.arrow_types import Array, RecordBatch
    from store_core.arrow_types import DataType as ArrowType

_ROWS = 10_000


def batches_of_rows(rows: Iterable[Any], schema: StructType) -> Iterator[RecordBatch]:
    """Yield the rows, which have this schema, as ``pa.RecordBatch``es of up to 10,000 rows."""
    arrow = to_arrow_schema(schema)
    source = iter(rows)
    while part := list(islice(source, _ROWS)):
        columns = [
            _column([row[at] for row in part], spark.dataType, field.type)
            for at, (spark, field) in enumerate(zip(schema.fields, arrow))
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _column(values: list[Any], spark_type: DataType, kind: ArrowType) -> Array:
    if isinstance(spark_type, TimestampType):
        ticks = [None if value is None else spark_type.toInternal(value) for value in values]
        return pa.array(ticks, pa.int64()).cast(kind)
    if isinstance(spark_type, MapType):
        values = [None if value is None else list(value.items()) for value in values]
    return pa.array(values, kind)
