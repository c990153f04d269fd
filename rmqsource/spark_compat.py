# SPDX-License-Identifier: Apache-2.0
"""The differences between Spark 4.0 and 4.3; no other module checks the release."""

from __future__ import annotations

import inspect
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas import types as pandas_types

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    from store_core.arrow_types import Schema

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"

_LAST_MIXING_READS = (4, 3)
"""Last release in which other queries reuse a read with pushed filters."""

# Spark 4.0 has no filter classes; the names that exist are looked up once.
_OPERATORS: dict[type, str] = {
    getattr(datasource, name): operator
    for name, operator in (
        ("EqualTo", "="),
        ("In", "in"),
        ("LessThan", "<"),
        ("LessThanOrEqual", "<="),
        ("GreaterThan", ">"),
        ("GreaterThanOrEqual", ">="),
        ("IsNotNull", "is not null"),
    )
    if hasattr(datasource, name)
}

STREAM_WRITER_GETS_BATCHES = hasattr(datasource, "DataSourceStreamArrowWriter")
"""Streaming sinks get record batches since 4.1, rows before."""
STREAM_WRITER: Any = getattr(
    datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
)

STREAM_LIMITS_SINCE = "4.2"
try:
    from pyspark.sql.streaming import datasource as _streaming
except ImportError:  # before 4.2
    _streaming = None  # type: ignore[assignment]
STREAM_READER_GETS_LIMITS = _streaming is not None and hasattr(_streaming, "ReadAllAvailable")
"""Since 4.2 a stream gets the start of each batch and its limits."""
STREAM_READ_LIMITS: Any = _streaming


_to_arrow_schema: Any = pandas_types.to_arrow_schema
to_arrow_schema: Callable[[StructType], Schema] = (
    partial(_to_arrow_schema, timezone="UTC")
    if "timezone" in inspect.signature(_to_arrow_schema).parameters
    else _to_arrow_schema  # Spark 4.0: always UTC
)
"""Returns the ``pyarrow.Schema`` that Spark compares batches with; timestamps are in UTC."""


def may_push_filters() -> bool:
    """Return whether this process plans a read that may take pushed filters.

    This requires that pushdown is enabled and that this Spark stores a read with pushed filters
    with its scan. Spark 4.1 to 4.3 store it with the table (``PythonDataSourceV2.readInfo``), so
    every later query on the same DataFrame or view, and the other side of a join, gets the rows of
    the last query that had filters; there the source takes no filters. SPARK-58551, which is not in
    a release yet, fixes this and adds ``pushLimit``.
    """
    return _in_pushdown_worker() and _keeps_pushed_reads_apart()


def _in_pushdown_worker() -> bool:
    """Return whether this process plans a read with filter pushdown enabled.

    Only then may a reader override ``pushFilters``: with pushdown off (Spark's default), Spark
    refuses such a reader. Only that planner's process has the pushdown worker loaded.
    """
    return _PUSHDOWN_WORKER in sys.modules


def _keeps_pushed_reads_apart() -> bool:
    release = tuple(int(number) for number in re.findall(r"[0-9]+", pyspark.__version__)[:2])
    return release > _LAST_MIXING_READS and hasattr(DataSourceReader, "pushLimit")


def register_source(spark: Any, source: type[DataSource]) -> None:
    """Register a source unless Spark found it by itself, as Spark warns of duplicates or fails.

    For a write, Spark looks the source up in the active session of the calling thread. Threads that
    the program starts have none, so they get this session.
    """
    if type(spark).getActiveSession() is None:
        spark.createDataFrame([], "none int")  # the one public call that makes a session active
    if _is_known(spark, source.name()):
        return
    try:
        spark.dataSource.register(source)
    except PySparkException as err:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(err):
            raise


def _is_known(spark: Any, name: str) -> bool:
    """Return whether a session knows a source; False if it cannot be asked, as with Connect."""
    from py4j.protocol import (  # type: ignore[import-untyped]  # noqa: PLC0415 (workers need none)
        Py4JError,
    )

    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False
    try:  # no public call reports it
        return bool(session.sessionState().dataSourceManager().dataSourceExists(name))
    except Py4JError:
        return False


def filter_operator(spark_filter: object) -> str | None:
    """Return ``= in < <= > >=`` or ``is not null``; None for any other filter."""
    return _OPERATORS.get(type(spark_filter))
